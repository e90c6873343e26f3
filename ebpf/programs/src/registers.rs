//! Where a thread's registers are in what the kernel hands to programs, by what they are for.
//!
//! Each function says a place, and whoever calls reads it: volatile wherever two reads could be made one of a choice of addresses, which the
//! verifier refuses in a program's context.

use aya_ebpf::bindings::pt_regs;

#[cfg(bpf_target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(bpf_target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(bpf_target_arch = "x86_64")]
mod x86_64 {
    use ckb_probe_common::hits::REGISTERS;

    use super::pt_regs;

    /// A return pops the return address.
    pub const POPPED_BY_RETURN: u64 = 8;

    /// The argument of a function at its entry, by its place from 0 on: one of six.
    ///
    /// # Safety
    /// The registers are those that the kernel handed out.
    #[inline(always)]
    pub const unsafe fn argument<const PLACE: usize>(registers: *const pt_regs) -> *const u64 {
        const { assert!(PLACE < 6) };
        // SAFETY: by the caller's word.
        unsafe {
            match PLACE {
                0 => &raw const (*registers).rdi,
                1 => &raw const (*registers).rsi,
                2 => &raw const (*registers).rdx,
                3 => &raw const (*registers).rcx,
                4 => &raw const (*registers).r8,
                _ => &raw const (*registers).r9,
            }
        }
    }

    /// The argument of a system call, likewise: the kernel leaves these registers alone.
    ///
    /// # Safety
    /// The registers are those of a thread, whole.
    #[inline(always)]
    pub const unsafe fn syscall_argument<const PLACE: usize>(
        registers: *const pt_regs,
    ) -> *const u64 {
        // SAFETY: by the caller's word.
        unsafe {
            match PLACE {
                3 => &raw const (*registers).r10,
                _ => argument::<PLACE>(registers),
            }
        }
    }

    /// The number of the system call that a thread is in; negative where it came into the kernel otherwise.
    ///
    /// # Safety
    /// The registers are those of a thread, whole.
    #[inline(always)]
    pub unsafe fn syscall(registers: *const pt_regs) -> i64 {
        // SAFETY: by the caller's word.
        unsafe { (&raw const (*registers).orig_rax).read_volatile() as i64 }
    }

    /// What a function returns, at its return.
    ///
    /// # Safety
    /// The registers are those that the kernel handed out.
    #[inline(always)]
    pub const unsafe fn result(registers: *const pt_regs) -> *const u64 {
        // SAFETY: by the caller's word.
        unsafe { &raw const (*registers).rax }
    }

    /// The stack pointer.
    ///
    /// # Safety
    /// The registers are those that the kernel handed out.
    #[inline(always)]
    pub const unsafe fn stack(registers: *const pt_regs) -> *const u64 {
        // SAFETY: by the caller's word.
        unsafe { &raw const (*registers).rsp }
    }

    /// The frame pointer, which holds anything else as well.
    ///
    /// # Safety
    /// The registers are those that the kernel handed out.
    #[inline(always)]
    pub const unsafe fn frame(registers: *const pt_regs) -> *const u64 {
        // SAFETY: by the caller's word.
        unsafe { &raw const (*registers).rbp }
    }

    /// The address of the instruction.
    ///
    /// # Safety
    /// The registers are those that the kernel handed out.
    #[inline(always)]
    pub const unsafe fn instruction(registers: *const pt_regs) -> *const u64 {
        // SAFETY: by the caller's word.
        unsafe { &raw const (*registers).rip }
    }

    /// By number, as an operand counts them, with what is no register and the instruction as the last two. All are read, whichever is
    /// wanted.
    ///
    /// # Safety
    /// The registers are those that the kernel handed out.
    #[inline(always)]
    pub unsafe fn all(registers: *const pt_regs) -> [u64; REGISTERS] {
        // SAFETY: by the caller's word.
        unsafe {
            [
                (&raw const (*registers).rax).read_volatile(),
                (&raw const (*registers).rcx).read_volatile(),
                (&raw const (*registers).rdx).read_volatile(),
                (&raw const (*registers).rbx).read_volatile(),
                (&raw const (*registers).rsp).read_volatile(),
                (&raw const (*registers).rbp).read_volatile(),
                (&raw const (*registers).rsi).read_volatile(),
                (&raw const (*registers).rdi).read_volatile(),
                (&raw const (*registers).r8).read_volatile(),
                (&raw const (*registers).r9).read_volatile(),
                (&raw const (*registers).r10).read_volatile(),
                (&raw const (*registers).r11).read_volatile(),
                (&raw const (*registers).r12).read_volatile(),
                (&raw const (*registers).r13).read_volatile(),
                (&raw const (*registers).r14).read_volatile(),
                (&raw const (*registers).r15).read_volatile(),
                0,
                (&raw const (*registers).rip).read_volatile(),
            ]
        }
    }
}

#[cfg(bpf_target_arch = "aarch64")]
mod aarch64 {
    use ckb_probe_common::hits::REGISTERS;

    use super::pt_regs;

    /// The return address is in a register.
    pub const POPPED_BY_RETURN: u64 = 0;

    /// What `struct pt_regs` of arch/arm64/include/asm/ptrace.h has behind the part that user space knows of.
    #[repr(C)]
    struct Whole {
        known: pt_regs,
        /// `x0` as the system call began: what it returns takes its place.
        original_x0: u64,
        /// Negative where there is none.
        syscall: i32,
    }

    /// The argument of a function at its entry, by its place from 0 on: one of eight.
    ///
    /// # Safety
    /// The registers are those that the kernel handed out.
    #[inline(always)]
    pub const unsafe fn argument<const PLACE: usize>(registers: *const pt_regs) -> *const u64 {
        const { assert!(PLACE < 8) };
        // SAFETY: by the caller's word.
        unsafe { &raw const (*registers).regs[PLACE] }
    }

    /// The argument of a system call, likewise: the kernel leaves these alone.
    ///
    /// # Safety
    /// The registers are those of a thread, whole.
    #[inline(always)]
    pub const unsafe fn syscall_argument<const PLACE: usize>(
        registers: *const pt_regs,
    ) -> *const u64 {
        // SAFETY: by the caller's word.
        unsafe {
            match PLACE {
                0 => &raw const (*registers.cast::<Whole>()).original_x0,
                _ => argument::<PLACE>(registers),
            }
        }
    }

    /// The number of the system call that a thread is in; negative where it came into the kernel otherwise.
    ///
    /// # Safety
    /// The registers are those of a thread, whole.
    #[inline(always)]
    pub unsafe fn syscall(registers: *const pt_regs) -> i64 {
        // SAFETY: by the caller's word.
        unsafe { (&raw const (*registers.cast::<Whole>()).syscall).read_volatile() as i64 }
    }

    /// What a function returns, at its return.
    ///
    /// # Safety
    /// The registers are those that the kernel handed out.
    #[inline(always)]
    pub const unsafe fn result(registers: *const pt_regs) -> *const u64 {
        // SAFETY: by the caller's word.
        unsafe { &raw const (*registers).regs[0] }
    }

    /// The stack pointer.
    ///
    /// # Safety
    /// The registers are those that the kernel handed out.
    #[inline(always)]
    pub const unsafe fn stack(registers: *const pt_regs) -> *const u64 {
        // SAFETY: by the caller's word.
        unsafe { &raw const (*registers).sp }
    }

    /// The frame pointer, which may hold anything else as well.
    ///
    /// # Safety
    /// The registers are those that the kernel handed out.
    #[inline(always)]
    pub const unsafe fn frame(registers: *const pt_regs) -> *const u64 {
        // SAFETY: by the caller's word.
        unsafe { &raw const (*registers).regs[29] }
    }

    /// The address of the instruction.
    ///
    /// # Safety
    /// The registers are those that the kernel handed out.
    #[inline(always)]
    pub const unsafe fn instruction(registers: *const pt_regs) -> *const u64 {
        // SAFETY: by the caller's word.
        unsafe { &raw const (*registers).pc }
    }

    /// By number, as an operand counts them, with the stack pointer behind the last, and what is no register and the instruction as the
    /// last two. All are read, whichever is wanted.
    ///
    /// # Safety
    /// The registers are those that the kernel handed out.
    #[inline(always)]
    pub unsafe fn all(registers: *const pt_regs) -> [u64; REGISTERS] {
        let mut all = [0; REGISTERS];
        // SAFETY: by the caller's word.
        unsafe {
            let mut number = 0;
            while number < 31 {
                all[number] = (&raw const (*registers).regs[number]).read_volatile();
                number += 1;
            }
            all[31] = (&raw const (*registers).sp).read_volatile();
            all[33] = (&raw const (*registers).pc).read_volatile();
        }
        all
    }
}
