//! The compiled BPF programs, by the names of their folders: see the build script.

use aya::include_bytes_aligned;
use ckb_probe_symbols::Machine;

use super::AttachError;

include!(concat!(env!("OUT_DIR"), "/programs.rs"));

/// The object of a program.
pub(super) fn named(name: &'static str) -> Result<&'static [u8], AttachError> {
    tried_on(Machine::NATIVE)?;
    object(name).ok_or(AttachError::Mismatch(name))
}

/// Whether what the programs count was held against the truth on a machine: what was not is not shown to anybody.
fn tried_on(machine: Machine) -> Result<(), AttachError> {
    match machine {
        Machine::X86_64 => Ok(()),
        Machine::Aarch64 => Err(AttachError::Untried(machine.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_measured_on_arm64_and_that_is_said() {
        tried_on(Machine::X86_64).unwrap();
        let refused = tried_on(Machine::Aarch64).unwrap_err();
        assert!(refused.is_lasting());
        assert_eq!(
            refused.to_string(),
            "nothing is measured on arm64 yet, since its figures have not been held against the truth there: run the node on x86-64"
        );
    }
}
