//! The compiled BPF programs, by the names of their folders: see the build script.

use aya::include_bytes_aligned;

use super::AttachError;

include!(concat!(env!("OUT_DIR"), "/programs.rs"));

/// The object of a program.
pub(super) fn named(name: &'static str) -> Result<&'static [u8], AttachError> {
    object(name).ok_or(AttachError::Mismatch(name))
}
