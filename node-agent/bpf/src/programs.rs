//! The compiled BPF programs, by the names of their folders: see the build script.

use aya::include_bytes_aligned;
use ckb_probe_symbols::Machine;

use super::AttachError;

include!(concat!(env!("OUT_DIR"), "/programs.rs"));

/// The object of a program.
pub(super) fn named(name: &'static str) -> Result<&'static [u8], AttachError> {
    tried_on(Machine::NATIVE, name)?;
    object(name).ok_or(AttachError::Mismatch(name))
}

/// Those of which on arm64 something was not true, or not tried: what they count is not shown to anybody there. Of blocks it is that the
/// stacks of slow ones do not come.
const UNTRIED_ON_ARM64: [&str; 1] = ["spans"];

/// Whether what a program counts was held against the truth on a machine.
fn tried_on(machine: Machine, program: &str) -> Result<(), AttachError> {
    match machine {
        Machine::Aarch64 if UNTRIED_ON_ARM64.contains(&program) => {
            Err(AttachError::Untried(machine.as_str()))
        }
        Machine::X86_64 | Machine::Aarch64 => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_tried_on_arm64_is_not_measured_there_and_that_is_said() {
        for program in UNTRIED_ON_ARM64 {
            assert!(object(program).is_some(), "{program}");
            tried_on(Machine::X86_64, program).unwrap();
            let refused = tried_on(Machine::Aarch64, program).unwrap_err();
            assert!(refused.is_lasting());
            assert_eq!(
                refused.to_string(),
                "this is not measured on arm64 yet, since its figures have not been held against the truth there: run the node on x86-64"
            );
        }
        tried_on(Machine::Aarch64, "calls").unwrap();
    }
}
