//! What a probe at a function's first instruction costs.

use crate::Machine;

/// How the kernel steps over the instruction that a probe's breakpoint stands in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FirstInstruction {
    /// It does what the instruction would have done, on every kernel from 5.15 on.
    Emulated,
    /// It may run a copy with the trap flag set, which costs a second trap: tens of microseconds on a virtual machine.
    SingleStepped,
}

/// No instruction is longer: what is worth reading of a function.
pub const INSTRUCTION_BYTES: usize = 16;

impl FirstInstruction {
    /// The verdict on code of a machine.
    pub fn of(machine: Machine, code: &[u8]) -> Self {
        match machine {
            Machine::X86_64 => Self::of_x86_64(code),
            Machine::Aarch64 => Self::of_aarch64(code),
        }
    }

    /// The verdict on the instruction that does nothing, at which USDT probes are.
    pub fn of_nop(machine: Machine) -> Self {
        match machine {
            Machine::X86_64 => Self::Emulated,
            // Simulated since Linux 6.13 or so.
            Machine::Aarch64 => Self::SingleStepped,
        }
    }

    /// Whether what compilers begin functions with is emulated: where it is not, there is nothing cheaper to be measured instead of what
    /// is single-stepped.
    ///
    /// On x86-64 most functions that do any work begin with `push`. On arm64 they begin with `stp`, `sub`, `paciasp` or `bti`, and no kernel
    /// simulates one of them.
    pub fn is_often_emulated(machine: Machine) -> bool {
        machine == Machine::X86_64
    }

    /// The verdict on arm64 code.
    ///
    /// The kernel's side is `arm_probe_decode_insn` in arch/arm64/kernel/probes/decode-insn.c: what reads or writes the program counter
    /// is simulated, and all else that may be probed at all has a copy of it stepped. Linux 6.13 and later simulate `nop`, too.
    pub fn of_aarch64(code: &[u8]) -> Self {
        let Some(word) = code.first_chunk() else {
            return Self::SingleStepped;
        };
        let word = u32::from_le_bytes(*word);
        let is = |mask: u32, value: u32| word & mask == value;
        // Masks and values as the instruction set has them.
        let simulated = is(0x7c00_0000, 0x1400_0000) // b, bl
            || is(0xff00_0010, 0x5400_0000) // b.cond
            || is(0x7e00_0000, 0x3400_0000) // cbz, cbnz
            || is(0x7e00_0000, 0x3600_0000) // tbz, tbnz
            || is(0x1f00_0000, 0x1000_0000) // adr, adrp
            || is(0xffff_fc1f, 0xd61f_0000) // br
            || is(0xffff_fc1f, 0xd63f_0000) // blr
            || is(0xffff_fc1f, 0xd65f_0000); // ret
        match simulated {
            true => Self::Emulated,
            false => Self::SingleStepped,
        }
    }

    /// The verdict on x86-64 code. Instructions that only newer kernels emulate count as single-stepped, and so does
    /// whatever no compiler begins a function with.
    ///
    /// The kernel's side is `arch_uprobe_analyze_insn` in arch/x86/kernel/uprobes.c: `push_setup_xol_ops` takes a push of a
    /// register, with no prefix but REX.B (0x41); `branch_setup_xol_ops` takes relative calls, jumps and conditional jumps, and
    /// the one-byte nop. All else gets `default_xol_ops`, which emulates nothing: `ret`, `endbr64`, `mov`, `lea`, `sub`. Longer
    /// nops (0f 1f) are emulated by kernels from 2025 on, and 66 90 was refused outright until 2023.
    pub fn of_x86_64(code: &[u8]) -> Self {
        match code {
            // push %rax … %rdi, push %r8 … %r15
            [0x50..=0x57, ..] | [0x41, 0x50..=0x57, ..] => Self::Emulated,
            // nop
            [0x90, ..] => Self::Emulated,
            // call and jmp with 32 bits of distance, jmp and conditional jumps with 8, conditional jumps with 32
            [0xe8 | 0xe9, _, _, _, _, ..]
            | [0xeb | 0x70..=0x7f, _, ..]
            | [0x0f, 0x80..=0x8f, _, _, _, _, ..] => Self::Emulated,
            _ => Self::SingleStepped,
        }
    }
}

#[cfg(test)]
mod tests;
