//! Where the kernel keeps how deep the probed calls of a thread are nested.

use std::sync::OnceLock;

use super::btf::{self, Types};

const FIELDS: [(&str, &str); 2] = [("task_struct", "utask"), ("uprobe_task", "depth")];

/// What the programs are told of it as they are loaded. On a kernel that does not say it, they take up what is nested too deep, and
/// never see its end.
pub(super) fn constant() -> (&'static str, Vec<u8>) {
    static KNOWN: OnceLock<Vec<u8>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| {
        let types = Types::read().ok();
        let fields = FIELDS.map(|(structure, field)| types.as_ref()?.field(structure, field));
        btf::as_bytes(&fields.map(Option::unwrap_or_default))
    });
    ("NESTING", known.clone())
}
