//! What a kind can want of the calls of a process.

use std::sync::Arc;

use ckb_probe_crds::Name;

use crate::{
    kernel::{FamilyArgument, FileIo, Files, Payload, TEXT_BYTES, UNREADABLE},
    observe::{Pattern, SymbolName},
    text,
};

/// What a kind wants of the calls of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct CallsConfig {
    /// What is measured of a call, in the kind's words.
    pub measures: Measures,
    /// Of which functions.
    pub sought: Sought,
}

/// Which functions are looked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Sought {
    /// These, which have names.
    Listed(Vec<Counted>),
    /// Those whose names match: each has a row of its own.
    Matching(Matching),
    /// No functions, but USDT probes whose names match: each has a row of its own, and is counted as it is met.
    Usdt(UsdtPattern),
}

impl Sought {
    /// Those that have names, which are looked for all at once.
    pub fn listed(&self) -> &[Counted] {
        match self {
            Self::Listed(counted) => counted,
            Self::Matching(_) | Self::Usdt(_) => &[],
        }
    }
}

/// Functions by a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matching {
    /// Which, and how many at most.
    pub pattern: Pattern,
    /// Calls that take at least this long are slow.
    pub slow_threshold_ns: u64,
    /// Whether functions are attached to whose first instruction the kernel must single-step.
    pub include_single_stepped: bool,
    /// What is told of a slow call's first arguments.
    pub arguments: Vec<Kept>,
    /// Whether slow calls are told with their stacks.
    pub stacks: bool,
    /// The time from these to others is measured, and no calls are.
    pub span: Option<Span>,
}

/// USDT probes by patterns of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsdtPattern {
    /// Whose they are.
    pub provider: String,
    /// Patterns, one of which the name of a probe matches.
    pub names: Vec<String>,
    /// How many may match at most.
    pub limit: usize,
    /// The argument by whose values hits are told apart.
    pub by: Option<Numbered>,
    /// The time from one to another is measured, and no names are looked for.
    pub span: Option<Span>,
    /// The number of the argument that is a text with spans, from 1.
    pub payload: Option<u8>,
}

/// From which USDT probe, or function, to which time is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The whole name of the one that is met as something begins; of functions a pattern.
    pub from: String,
    /// Those of the ones that are met as it ends; of functions patterns.
    pub to: Vec<String>,
    /// Patterns of functions that end it as they return.
    pub to_return: Vec<String>,
    /// The number of the argument that both have in common, from 1; None: that is the thread.
    pub key: Option<u8>,
    /// What that is the number of, where others are told to have the same.
    pub key_name: Option<Arc<str>>,
    /// The number of the argument of `from` that is a `traceparent`, from 1.
    pub parent: Option<u8>,
    /// What takes at least this long is slow.
    pub slow_threshold_ns: u64,
}

#[cfg(test)]
impl Span {
    /// What begins at one and ends at any of the others.
    pub fn between(from: &str, to: &[&str], key: Option<u8>, slow_threshold_ns: u64) -> Self {
        Self {
            from: from.to_string(),
            to: to.iter().map(ToString::to_string).collect(),
            to_return: Vec::new(),
            key,
            key_name: None,
            parent: None,
            slow_threshold_ns,
        }
    }
}

/// An argument of a USDT probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// Which one, from 1.
    pub number: u8,
    /// What it is.
    pub kind: Kept,
}

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// A number.
    Integer,
    /// A pointer to a text.
    String,
}

/// The names of what is measured of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measures {
    /// Calls that have an end, or would have one if it could be seen.
    Timed {
        /// How long they took.
        duration: Name,
        /// How long the longest took.
        longest: Name,
        /// Payload bytes.
        bytes: Name,
        /// How many were slow.
        slow: Name,
    },
    /// What has no end: how many there were.
    Counted(Name),
    /// What begins at one place and ends at another.
    Spanned {
        /// How many there were, where that is told beside how long they took.
        hits: Option<Name>,
        /// How long they took.
        duration: Name,
        /// How long the longest took.
        longest: Name,
        /// How many were slow.
        slow: Name,
        /// How many began once more before they were seen to end.
        unended: Name,
        /// How many ended that were not seen to begin.
        unbegun: Name,
    },
}

/// One group: a row, and the functions whose calls count as it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The row.
    pub row: String,
    /// The functions, any of which may be missing from a binary.
    pub functions: Vec<Function>,
    /// Calls that take at least this long are slow.
    pub slow_threshold_ns: u64,
    /// What its calls are to slow calls of others, which they may hold up.
    pub cause: Option<Cause>,
    /// Whether its column families are told apart.
    pub by_family: bool,
    /// The argument by whose values it is told apart, of USDT probes.
    pub by: Option<Numbered>,
    /// From where to where it is, of what does not end where it began.
    pub span: Option<Span>,
    /// The number of the argument that is a text with spans, of USDT probes that emit one.
    pub payload: Option<u8>,
    /// Whether functions are attached to whose first instruction the kernel must single-step.
    pub include_single_stepped: bool,
    /// What is told of a slow call's first arguments.
    pub arguments: Vec<Kept>,
    /// Whether slow calls are told with their stacks.
    pub stacks: bool,
    /// What is told of what its calls read from files and write to them.
    pub files: FileNames,
    /// Which pattern found it, and in which library: functions of one name need not be the same.
    pub found_by: Option<(String, Option<String>)>,
}

/// The names of what is told of files that calls read and write; of those that are timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileNames {
    /// Of what they read.
    pub read: Option<Read>,
    /// Of the bytes that they write: they count under each of these.
    pub written: &'static [&'static str],
    /// What the calls of another row write, which theirs are compared with.
    pub beside: Option<Beside>,
}

/// The names of what one row writes beside another, whose calls are measured, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// The other row.
    pub row: &'static str,
    /// What that writes.
    pub others: &'static str,
    /// What both write.
    pub both: &'static str,
}

impl Beside {
    /// What was written, by name.
    pub fn sums(self, own: u64, others: u64) -> [(Name, u64); 2] {
        let named = [
            (self.others, others),
            (self.both, own.saturating_add(others)),
        ];
        named.map(|(name, sum)| (Name::Borrowed(name), sum))
    }
}

/// The names of what is told of what calls read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// How often they read.
    pub reads: &'static str,
    /// Bytes.
    pub bytes: &'static str,
    /// Calls that did so at all.
    pub readers: &'static str,
}

impl FileNames {
    /// What the programs are to tell.
    pub fn asked(self) -> Files {
        Files::of(self.read.is_some(), !self.written.is_empty())
    }

    /// What was read and written, by name.
    pub fn sums(self, seen: FileIo) -> impl Iterator<Item = (Name, u64)> {
        let read = self.read.into_iter().flat_map(move |names| {
            [
                (names.reads, seen.reads),
                (names.bytes, seen.read_bytes),
                (names.readers, seen.readers),
            ]
        });
        let written = self
            .written
            .iter()
            .map(move |name| (*name, seen.written_bytes));
        let all = read.chain(written);
        all.map(|(name, sum)| (Name::Borrowed(name), sum))
    }
}

/// What is told of calls beside how long they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Their payload bytes.
    pub bytes: bool,
    /// What they do with files.
    pub files: FileNames,
}

/// A function, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// The name.
    pub symbol: SymbolName,
    /// Where the size of its payload is found.
    pub payload: Payload,
    /// Where its column family is found.
    pub family: FamilyArgument,
}

/// What slow calls of others may be due to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Its number among the causes, from 1 to [`crate::kernel::MAX_CAUSE`].
    pub number: u8,
    /// The name of the background work.
    pub name: &'static str,
}

impl Function {
    /// One of which neither a payload nor a column family is known.
    pub fn plain(symbol: SymbolName) -> Self {
        Self {
            symbol,
            payload: Payload::Unknown,
            family: FamilyArgument::None,
        }
    }
}

impl Counted {
    /// Of which nothing but calls is told: none is slow, none is held against others, and nothing is told apart.
    pub fn plain(row: String, functions: Vec<Function>) -> Self {
        Self {
            row,
            functions,
            slow_threshold_ns: u64::MAX,
            cause: None,
            by_family: false,
            by: None,
            span: None,
            payload: None,
            include_single_stepped: false,
            arguments: Vec::new(),
            stacks: false,
            files: FileNames::default(),
            found_by: None,
        }
    }

    /// What is told of its calls.
    pub fn told(&self) -> Told {
        Told {
            bytes: self.has_bytes(),
            files: self.files,
        }
    }

    /// Whether the payload of every function is known, so that a byte count means something.
    pub fn has_bytes(&self) -> bool {
        !self.functions.is_empty()
            && self
                .functions
                .iter()
                .all(|function| function.payload != Payload::Unknown)
    }
}

impl Kept {
    /// The argument, for people. What was cut off, is said.
    pub(super) fn told(self, value: u64, text: &[u8]) -> String {
        let length = text.iter().position(|byte| *byte == 0);
        let text = &text[..length.unwrap_or(text.len())];
        match self {
            // An int of 32 bits has nothing above: a negative one is more likely than one beyond two thousand million.
            Self::Integer => match u32::try_from(value) {
                Ok(short) => (short as i32).to_string(),
                Err(_) => (value as i64).to_string(),
            },
            Self::String if value == 0 => "null".to_string(),
            Self::String if text.first() == Some(&UNREADABLE) => {
                format!("{value:#x} (not in memory)")
            }
            Self::String => {
                let cut = if text.len() + 1 >= TEXT_BYTES {
                    "…"
                } else {
                    ""
                };
                format!("{}{cut}", text::quoted(text))
            }
        }
    }
}
