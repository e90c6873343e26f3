//! The machines whose programs are understood here. It is a value and not only what this program was built for, so that what differs
//! between them is tested wherever tests run.

use object::elf;

/// A machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    /// x86-64.
    X86_64,
    /// arm64, little-endian.
    Aarch64,
}

impl Machine {
    /// The one that this program was built for: whatever runs beside it runs on that.
    pub const NATIVE: Self = if cfg!(target_arch = "aarch64") {
        Self::Aarch64
    } else {
        Self::X86_64
    };

    /// As distributions call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::X86_64 => "x86-64",
            Self::Aarch64 => "arm64",
        }
    }

    /// Where the calling convention has the first arguments that are numbers or addresses, by the registers' numbers in the instruction set:
    /// rdi, rsi, rdx, rcx, r8 and r9; x0 to x5.
    pub const fn argument_registers(self) -> [u8; 6] {
        match self {
            Self::X86_64 => [7, 6, 2, 1, 8, 9],
            Self::Aarch64 => [0, 1, 2, 3, 4, 5],
        }
    }

    /// The one that a file is for.
    pub(crate) fn of_file(machine: elf::Machine) -> Option<Self> {
        match machine {
            elf::EM_X86_64 => Some(Self::X86_64),
            elf::EM_AARCH64 => Some(Self::Aarch64),
            _ => None,
        }
    }
}
