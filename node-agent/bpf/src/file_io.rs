//! Where the kernel keeps what a thread has read and written.

use std::sync::OnceLock;

use super::btf::{self, Types};

const FIELDS: [(&str, &str); 3] = [
    ("task_struct", "ioac.rchar"),
    ("task_struct", "ioac.wchar"),
    ("task_struct", "ioac.syscr"),
];

/// What the programs are told of it as they are loaded, and whether this kernel has all of it: one without `CONFIG_TASK_XACCT` has not.
struct Known {
    fields: Vec<u8>,
    is_there: bool,
}

fn known() -> &'static Known {
    static KNOWN: OnceLock<Known> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let types = Types::read().ok();
        let fields = FIELDS.map(|(structure, field)| types.as_ref()?.field(structure, field));
        let is_there = fields
            .iter()
            .all(|field| field.is_some_and(|field| field.size == 8));
        Known {
            fields: btf::as_bytes(&fields.map(Option::unwrap_or_default)),
            is_there,
        }
    })
}

/// The constant of the programs.
pub(super) fn constant() -> (&'static str, Vec<u8>) {
    ("FILE_IO", known().fields.clone())
}

/// Whether this kernel tells what a thread reads from files and writes to them.
pub fn tells_file_io() -> bool {
    known().is_there
}
