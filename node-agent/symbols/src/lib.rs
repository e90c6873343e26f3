//! What a target's own files, stacks and names say: where its functions are ([`elf`]), what people call them ([`demangle`]), who
//! called whom ([`unwind`]), and how bytes of it become text ([`text`]).
//!
//! All of it may be made up by the target, so every reader here is bounded in time and memory, whatever the bytes are; the fuzz
//! targets hold it to that. Pure: no process is asked anything, and what is read comes through [`elf::ReadAt`].
#![forbid(unsafe_code)]

pub mod demangle;
pub mod elf;
pub mod glob;
pub mod instruction;
pub mod machine;
pub mod name;
pub mod syscalls;
pub mod text;
pub mod unwind;
pub mod usdt_argument;

pub use demangle::demangle;
pub use elf::SearchError;
pub use glob::{GLOB_LIMIT, Glob, GlobError};
pub use instruction::FirstInstruction;
pub use machine::Machine;
pub use name::SymbolName;
pub use syscalls::{syscall_name, syscall_number};
