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

    /// Where a function puts a structure that it returns, at its entry: it comes before all arguments.
    ///
    /// # Safety
    /// The registers are those that the kernel handed out.
    #[inline(always)]
    pub const unsafe fn structure(registers: *const pt_regs) -> *const u64 {
        // SAFETY: by the caller's word.
        unsafe { argument::<0>(registers) }
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

    /// The register that a call leaves its return address in: there is none.
    ///
    /// # Safety
    /// The registers are those that the kernel handed out.
    #[inline(always)]
    pub const unsafe fn link(_: *const pt_regs) -> u64 {
        0
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

    /// Two of them by their numbers, as an operand counts them. None where there are no such.
    ///
    /// # Safety
    /// The registers are those that the kernel handed out.
    #[inline(always)]
    pub unsafe fn numbered(registers: *const pt_regs, numbers: [u8; 2]) -> Option<[u64; 2]> {
        // SAFETY: by the caller's word.
        let all = unsafe { all(registers) };
        let [first, second] = numbers.map(|number| all.get(number as usize).copied());
        Some([first?, second?])
    }

    /// By number, with what is no register and the instruction as the last two. All are read, whichever is wanted: a choice of addresses in
    /// the context is one that the verifier refuses. Each is put in its place before the next one is read, or they would be on the stack twice.
    ///
    /// # Safety
    /// The registers are those that the kernel handed out.
    #[inline(always)]
    unsafe fn all(registers: *const pt_regs) -> [u64; REGISTERS] {
        let mut all = [0; REGISTERS];
        macro_rules! put {
            ($($number:literal $register:ident,)*) => {
                // SAFETY: by the caller's word.
                unsafe { $(all[$number] = (&raw const (*registers).$register).read_volatile();)* }
            };
        }
        put!(
            0 rax, 1 rcx, 2 rdx, 3 rbx, 4 rsp, 5 rbp, 6 rsi, 7 rdi, 8 r8, 9 r9, 10 r10, 11 r11, 12 r12, 13 r13, 14 r14, 15 r15, 17 rip,
        );
        all
    }
}

#[cfg(bpf_target_arch = "aarch64")]
mod aarch64 {
    use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
    use ckb_probe_common::hits::{SITE, ZERO};

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

    /// Where a function puts a structure that it returns, at its entry: it is no argument.
    ///
    /// # Safety
    /// The registers are those that the kernel handed out.
    #[inline(always)]
    pub const unsafe fn structure(registers: *const pt_regs) -> *const u64 {
        // SAFETY: by the caller's word.
        unsafe { &raw const (*registers).regs[8] }
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

    /// The register that a call leaves its return address in, which may hold anything else as well.
    ///
    /// # Safety
    /// The registers are those that the kernel handed out.
    #[inline(always)]
    pub unsafe fn link(registers: *const pt_regs) -> u64 {
        // SAFETY: by the caller's word.
        unsafe { (&raw const (*registers).regs[30]).read_volatile() }
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

    /// Two of them by their numbers, as an operand counts them. None where there are no such.
    ///
    /// They are so many that a program has no room for all on its stack, and the verifier refuses a choice of addresses in the context: so
    /// they are read as the kernel's memory, which they are.
    ///
    /// # Safety
    /// The registers are those that the kernel handed out.
    #[inline(always)]
    pub unsafe fn numbered(registers: *const pt_regs, numbers: [u8; 2]) -> Option<[u64; 2]> {
        let [first, second] = numbers;
        // SAFETY: by the caller's word.
        unsafe { Some([one(registers, first)?, one(registers, second)?]) }
    }

    /// One of them. The stack pointer is behind the others, and the instruction behind that.
    ///
    /// # Safety
    /// The registers are those that the kernel handed out.
    #[inline(always)]
    unsafe fn one(registers: *const pt_regs, number: u8) -> Option<u64> {
        const STACK: u8 = 31;
        let place = match number {
            ZERO => return Some(0),
            SITE => STACK + 1,
            0..=STACK => number,
            _ => return None,
        };
        let mut word = 0_u64;
        // SAFETY: a word is read into a word; the helper checks the address itself.
        let read = unsafe {
            let from = registers.cast::<u64>().wrapping_add(place as usize);
            bpf_probe_read_kernel((&raw mut word).cast(), size_of::<u64>() as u32, from.cast())
        };
        (read == 0).then_some(word)
    }
}
