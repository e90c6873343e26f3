//! Who caused something, as a caller tells it: a `traceparent` of W3C's Trace Context.
//!
//! <https://www.w3.org/TR/trace-context/#traceparent-header>: `VERSION-TRACE-PARENT-FLAGS`, in lower-case hexadecimal.

use std::fmt;

use super::ids::{SpanId, TraceId};

/// So long is one of the version that there is, and so much of a later one is known.
const LENGTH: usize = 55;

/// No version has this number.
const NO_VERSION: u8 = 0xff;

/// What a span is a part of that another program may have begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traceparent {
    /// The trace.
    pub trace: TraceId,
    /// The span.
    pub parent: SpanId,
    /// What else its caller says of the trace: the lowest bit, that it is recorded.
    pub flags: u8,
}

impl Traceparent {
    /// Reads one; None of what is none. Of a later version it is what that has in common with the first, as the standard wants it.
    pub fn of(text: &[u8]) -> Option<Self> {
        let (known, more) = text.split_at_checked(LENGTH)?;
        let fields: [&[u8]; 4] = known
            .split(|byte| *byte == b'-')
            .collect::<Vec<_>>()
            .try_into()
            .ok()?;
        let [version, trace, parent, flags] = fields;
        let [version]: [u8; 1] = hexadecimal(version)?;
        let (trace, parent) = (hexadecimal(trace)?, hexadecimal(parent)?);
        let [flags] = hexadecimal(flags)?;
        let ends_there = match version {
            NO_VERSION => false,
            0 => more.is_empty(),
            _ => more.first().is_none_or(|byte| *byte == b'-'),
        };
        let names_something = trace != [0; 16] && parent != [0; 8];
        (ends_there && names_something).then(|| Self {
            trace: TraceId::from_bytes(trace),
            parent: SpanId::from_bytes(parent),
            flags,
        })
    }
}

/// So many bytes, each of two digits of which none is a capital.
fn hexadecimal<const BYTES: usize>(digits: &[u8]) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    if digits.len() != 2 * BYTES {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            *byte = *byte << 4 | value;
        }
    }
    Some(bytes)
}

/// As the version that there is has it.
impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            trace,
            parent,
            flags,
        } = self;
        write!(f, "00-{trace}-{parent}-{flags:02x}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// That of the standard's own examples.
    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn of(text: &str) -> Option<String> {
        Traceparent::of(text.as_bytes()).map(|known| known.to_string())
    }

    #[test]
    fn what_is_none_by_the_grammar_is_none() {
        assert_eq!(of(EXAMPLE).as_deref(), Some(EXAMPLE));
        let replaced = |from: &str, to: &str| {
            let text = EXAMPLE.replacen(from, to, 1);
            assert_ne!(text, EXAMPLE);
            text
        };
        let none = [
            String::new(),
            EXAMPLE[..54].to_string(),
            // Of this version there is no more.
            format!("{EXAMPLE}-"),
            format!("{EXAMPLE}0"),
            replaced("00-", "ff-"),
            replaced("00-", "0g-"),
            replaced("00-", "0-0"),
            replaced("4bf9", "4BF9"),
            replaced("00f0", "00F0"),
            replaced("-01", "-0A"),
            replaced("-01", " 01"),
            replaced("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            replaced("00f067aa0ba902b7", &"0".repeat(16)),
            replaced("36-00", "3-600"),
            replaced("4bf9", "4bf "),
            format!(" {EXAMPLE}"),
            replaced("4bf9", "4bé"),
        ];
        for text in none {
            assert_eq!(of(&text), None, "{text:?}");
        }
    }

    #[test]
    fn of_a_later_version_is_known_what_it_has_in_common() {
        let later = EXAMPLE.replacen("00", "cc", 1);
        for more in ["", "-", "-what-the-future-will-be-like"] {
            assert_eq!(of(&format!("{later}{more}")).as_deref(), Some(EXAMPLE));
        }
        assert_eq!(of(&format!("{later}.what")), None);
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read_as_it_was(
            trace in 1_u128.., parent in 1_u64.., flags: u8, version in 0_u8..0xff,
        ) {
            let text = format!("{version:02x}-{trace:032x}-{parent:016x}-{flags:02x}");
            let known = Traceparent::of(text.as_bytes()).unwrap();
            prop_assert_eq!(known.trace.bytes(), &trace.to_be_bytes());
            prop_assert_eq!(known.parent.bytes(), &parent.to_be_bytes());
            prop_assert_eq!(known.flags, flags);
        }

        /// Said by another way: what is read is of this form, and all of this form is read.
        #[test]
        fn what_is_read_is_of_the_form(text in "[0f]{2}-(0{32}|[0-9a-f]{32}|[0-9a-fA]{32})-(0{16}|[0-9a-f]{16})-[0-9a-g]{2}(-x|x)?") {
            let lower = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
            let (head, more) = text.split_at(55);
            let parts: Vec<&str> = head.split('-').collect();
            let expected = parts.iter().all(|part| lower(part))
                && parts[0] != "ff"
                && parts[1].bytes().any(|byte| byte != b'0')
                && parts[2].bytes().any(|byte| byte != b'0')
                && (more.is_empty() || parts[0] != "00" && more.starts_with('-'));
            prop_assert_eq!(Traceparent::of(text.as_bytes()).is_some(), expected);
        }

        #[test]
        fn no_bytes_are_too_odd(text in proptest::collection::vec(any::<u8>(), 0..70)) {
            if let Some(known) = Traceparent::of(&text) {
                let written = known.to_string();
                prop_assert_eq!(&text[2..LENGTH], &written.as_bytes()[2..]);
            }
        }

        /// One byte that is another one makes it another, or none.
        #[test]
        fn no_byte_is_without_meaning(place in 0..LENGTH, byte: u8) {
            let mut text = EXAMPLE.as_bytes().to_vec();
            prop_assume!(text[place] != byte);
            text[place] = byte;
            let known = Traceparent::of(&text);
            prop_assert!(place < 2 || known != Traceparent::of(EXAMPLE.as_bytes()));
        }
    }
}
