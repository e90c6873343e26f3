//! What is said of an exec.

use std::mem::offset_of;

use super::{
    layout::Exec,
    name, number, row,
};
use crate::{
    mechanism::{
        Detail,
        counts::{RawEvent, DecodedEvent},
    },
    text,
};

/// What comes after the arguments where there were more.
const CUT: &str = "… (cut)";

/// By what it comes before others: every end does.
const WEIGHT: u64 = 1;

pub(super) fn decode(seen: &RawEvent<'_>, redacted: bool) -> Option<DecodedEvent> {
    let of = |place| number(seen.payload, place);
    let count = of(offset_of!(Exec, count))?;
    let bytes = of(offset_of!(Exec, bytes))?;
    let copied = of(offset_of!(Exec, copied))? as usize;
    let held = seen.payload.get(offset_of!(Exec, arguments)..)?;
    let held = held.get(..copied).unwrap_or(held);
    // What could not be read is as many as it is.
    let arguments = if redacted || held.is_empty() {
        Detail::Number(i64::from(count))
    } else {
        Detail::Private(line(held, bytes as usize > held.len()), count)
    };
    Some(DecodedEvent {
        row: row(seen.name),
        weight: WEIGHT,
        details: vec![
            ("what", Detail::Text("exec".to_string())),
            ("arguments", arguments),
            ("pid", Detail::Number(i64::from(seen.process))),
            (
                "parent",
                Detail::Named(name(seen.payload, offset_of!(Exec, parent_name))?),
            ),
            (
                "parentPid",
                Detail::Number(i64::from(of(offset_of!(Exec, parent))?)),
            ),
        ],
    })
}

/// Arguments as a shell would take them.
fn line(arguments: &[u8], cut: bool) -> String {
    let arguments = arguments.strip_suffix(&[0]).unwrap_or(arguments);
    let words = arguments.split(|byte| *byte == 0);
    let words: Vec<String> = words.map(quoted).collect();
    let mut line = words.join(" ");
    if cut {
        line.push_str(CUT);
    }
    line
}

/// One that a shell would take apart, in quotes; what would not be seen, as a number.
fn quoted(argument: &[u8]) -> String {
    let text = text::of(argument);
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%^".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text;
    }
    let shown: String = text
        .chars()
        .map(|c| match c {
            '\'' => "'\\''".to_string(),
            c => c.to_string(),
        })
        .collect();
    format!("'{shown}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_told_as_a_shell_takes_them_and_cut_where_they_are_too_long() {
        assert_eq!(line(b"ls\0-l\0/tmp\0", false), "ls -l /tmp");
        assert_eq!(
            line(b"sh\0-c\0echo it's\nso\0\0", false),
            "sh -c 'echo it'\\''s\\u{a}so' ''"
        );
        assert_eq!(line(b"echo\0aaaa", true), "echo aaaa… (cut)");
    }
}
