//! What of following calls differs from machine to machine. It is a type and not what this program was built for, so that each is tested
//! wherever tests run.

use std::sync::Arc;

use gimli::Register;

use super::{CALL_BYTES, Registers};

/// What the library that unwinds by tables has registers in.
pub type Unwound<C> = <<C as Convention>::ByTables as framehop::Unwinder>::UnwindRegs;

/// What that library remembers of the tables.
pub type Cache<C> = <<C as Convention>::ByTables as framehop::Unwinder>::Cache;

/// How calls and returns are made on a machine.
pub trait Convention {
    /// What unwinds by tables.
    type ByTables: framehop::Unwinder<Module = framehop::Module<Arc<[u8]>>, Cache: Default>
        + Default;

    /// The number that tables have for the stack pointer.
    const STACK_POINTER: Register;
    /// The same of the frame pointer.
    const FRAME_POINTER: Register;
    /// The same of the return address.
    const RETURN_ADDRESS: Register;
    /// What ckb-vm's interpreter in assembly pushes as it begins, in words; 0 where that is not known, and its caller is looked for.
    const PUSHED_BY_CKB_VM: u64;

    /// A thread's registers, as that which unwinds has them.
    fn begin(at: Registers) -> Unwound<Self>;

    /// What it has found, where the caller goes on here.
    fn end(ip: u64, registers: &Unwound<Self>) -> Registers;

    /// A word as an address of code: without its signature, where there are any.
    fn address(word: u64) -> u64;

    /// What a register of an innermost function says of its caller, where the function has not called another; None where none does.
    fn linked(at: Registers) -> Option<Registers>;

    /// What the kernel's trampoline has pushed before its instruction at an offset, in bytes.
    fn pushed_by_trampoline(offset: u64) -> u64;

    /// Whether code ends in a call.
    fn ends_in_call(bytes: &[u8; CALL_BYTES]) -> bool;
}
