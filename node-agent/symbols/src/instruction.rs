//! What a probe at a function's first instruction costs.

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
