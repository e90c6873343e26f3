//! Something that happened and is worth telling by itself, and how it is told: in a report, and as a line of JSON.

use std::{fmt, sync::Arc};

use ckb_probe_crds::EventReport;
use ckb_probe_profiles::names::shorten;
use ckb_probe_traces::{Span, Traceparent};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};
use serde_json::{Value, json};

use super::{
    GroupId, RowId,
    stacks::{Callers, TRUNCATED},
};

/// How many of the functions that called are told in a line of JSON, and how much of each name.
const LISTED: usize = 64;
const NAME_CHARACTERS: usize = 160;

/// The same in a status, together.
const STATUS_CALLERS: usize = 8;
const STATUS_BYTES: usize = 512;

/// And in a sentence.
const PHRASE_CALLERS: usize = 3;
const PHRASE_BYTES: usize = 160;

/// How many of the spans that a program wrote are told in a sentence.
const EMITTED: usize = 3;

/// No weight is more: the API server takes whole numbers of 63 bits, and refuses all of a report in which one is larger.
pub const MOST_WEIGHT: u64 = i64::MAX as u64;

/// The detail that is how long it took.
pub const DURATION: &str = "duration";

/// There are more.
const MORE: &str = "…";

/// A detail of an event.
#[derive(Clone, Debug, PartialEq)]
pub enum Detail {
    /// A time.
    Nanoseconds(u64),
    /// A time that is a part of another.
    Portion(u64),
    /// An amount of memory or data.
    Bytes(u64),
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
    /// Several; for people only if there are any.
    List(Vec<String>),
    /// What it consisted of.
    Operations(Vec<OperationTime>),
    /// The callers of a call, from the innermost on.
    Callers(Arc<Callers>),
    /// A text that says little without its name.
    Named(String),
    /// What it is a part of, as whoever caused it says.
    Parent(Traceparent),
    /// What its beginning and its end have in common, where that is no thread.
    Keyed(Keyed),
    /// Spans, as a program wrote them.
    Emitted(Arc<[Span]>),
    /// A text that may hold secrets, which stands in lines of JSON only, and how many words it has, which stands in reports.
    Private(String, u32),
    /// That it is so.
    Yes,
    /// The same, for machines only.
    Mark,
}

/// What a beginning and an end have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyed {
    /// What it is the number of, where others are told to have the same.
    pub name: Option<Arc<str>>,
    /// The number.
    pub number: u64,
    /// The thread in which it began.
    pub began_on: u32,
}

/// As people read it: `request 17`. A number of more than 63 bits is taken for a negative one.
impl fmt::Display for Keyed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name} ")?;
        }
        write!(f, "{}", self.number.cast_signed())
    }
}

/// What something consisted of: an operation, all of its calls together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationTime {
    /// The name of the operation.
    pub name: String,
    /// How many calls there were.
    pub calls: u64,
    /// How long they took together.
    pub nanoseconds: u64,
    /// Whether it was the last of all, and ended with the whole. Of others it is not known when they were.
    pub is_last: bool,
}

/// Something that happened and is worth telling by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When the event happened.
    pub time: Timestamp,
    /// The group that it was counted in.
    pub group: GroupId,
    /// The row that it was counted in; None where the group has just one.
    pub row: Option<RowId>,
    /// In which part of it.
    pub part: Option<RowId>,
    /// The thread, in the host's pid namespace.
    pub thread: u32,
    /// The name of the thread.
    pub thread_name: String,
    /// By what it comes before others.
    pub weight: u64,
    /// What is said of the event, by name.
    pub details: Vec<(&'static str, Detail)>,
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nanoseconds(nanos) | Self::Portion(nanos) => {
                f.write_str(&ckb_probe_crds::display_nanos(*nanos))
            }
            Self::Bytes(number) => write!(f, "{number}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
            Self::List(items) => f.write_str(&items.join(", ")),
            Self::Operations(times) => f.write_str(&told(times).join(", ")),
            Self::Callers(callers) => f.write_str(&brief(callers, STATUS_CALLERS, STATUS_BYTES)),
            Self::Named(text) => f.write_str(text),
            Self::Parent(parent) => write!(f, "{parent}"),
            Self::Keyed(key) => write!(f, "{key}"),
            Self::Emitted(spans) => f.write_str(&names(spans)),
            Self::Private(_, words) => write!(f, "{words}"),
            Self::Yes | Self::Mark => f.write_str("true"),
        }
    }
}

/// The first spans that a program wrote, as people read them, and whether there are more.
fn names(spans: &[Span]) -> String {
    let first = spans.iter().take(EMITTED);
    let mut names: Vec<String> = first
        .map(|span| {
            let letters = span.name.chars().take(NAME_CHARACTERS);
            let name: String = letters.collect();
            let lasted = span.end_ns.saturating_sub(span.start_ns);
            format!("{name} {}", ckb_probe_crds::display_nanos(lasted))
        })
        .collect();
    if spans.len() > EMITTED {
        names.push(MORE.to_string());
    }
    names.join(", ")
}

/// Operations as people read them.
fn told(times: &[OperationTime]) -> Vec<String> {
    let times = times.iter();
    times
        .map(|one| {
            let time = ckb_probe_crds::display_nanos(one.nanoseconds);
            format!("{} {}x {time}", one.name, one.calls)
        })
        .collect()
}

/// Names from the innermost on, and what is said where they are not all.
pub(crate) fn listed(callers: &Callers) -> Vec<String> {
    let all = callers.calls.iter();
    let mut names: Vec<String> = all
        .take(LISTED)
        .map(|call| short_name(&call.name))
        .collect();
    if callers.calls.len() > LISTED {
        names.push(MORE.to_string());
    } else if !callers.complete {
        names.push(TRUNCATED.to_string());
    }
    names
}

/// What a person calls it, and no more of it than such.
pub fn short_name(name: &str) -> String {
    let short = shorten(name);
    match short.char_indices().nth(NAME_CHARACTERS) {
        Some((end, _)) => format!("{}{MORE}", &short[..end]),
        None => short,
    }
}

/// The innermost of them, in so many bytes.
fn brief(callers: &Callers, most: usize, bytes: usize) -> String {
    let all = listed(callers);
    let mut text = String::new();
    for (index, name) in all.iter().enumerate() {
        let between = if index > 0 { ", " } else { "" };
        // With room for the end, where there are more.
        let fits = text.len() + between.len() + name.len() + ", ".len() + MORE.len() <= bytes;
        if index == most || !fits {
            text.push_str(between);
            text.push_str(MORE);
            return text;
        }
        text.push_str(between);
        text.push_str(name);
    }
    text
}

impl Detail {
    /// In a sentence, after the details before it.
    fn phrase(&self, name: &str) -> Option<String> {
        match self {
            Self::Nanoseconds(_) | Self::Text(_) => Some(self.to_string()),
            Self::Bytes(bytes) => Some(format!("{bytes} bytes")),
            Self::Number(_) | Self::Portion(_) => Some(format!("{name} {self}")),
            Self::List(items) => (!items.is_empty()).then(|| format!("{name} {self}")),
            Self::Operations(times) => (!times.is_empty()).then(|| format!("{name} {self}")),
            Self::Callers(callers) => {
                let brief = brief(callers, PHRASE_CALLERS, PHRASE_BYTES);
                Some(format!("called by {brief}"))
            }
            Self::Named(_)
            | Self::Parent(_)
            | Self::Keyed(_)
            | Self::Private(..)
            | Self::Emitted(_) => Some(format!("{name} {self}")),
            Self::Yes => Some(name.to_string()),
            Self::Mark => None,
        }
    }

    /// Its name and value as JSON.
    fn json(&self, name: &str) -> (String, Value) {
        match self {
            Self::Nanoseconds(nanos) | Self::Portion(nanos) => {
                (format!("{name}Nanoseconds"), json!(nanos))
            }
            Self::Bytes(number) => (name.to_string(), json!(number)),
            Self::Number(number) => (name.to_string(), json!(number)),
            Self::Text(text) => (name.to_string(), json!(text)),
            Self::List(items) => (name.to_string(), json!(items)),
            Self::Operations(times) => (name.to_string(), json!(told(times))),
            Self::Callers(callers) => (name.to_string(), json!(listed(callers))),
            Self::Named(text) | Self::Private(text, _) => (name.to_string(), json!(text)),
            Self::Parent(_) | Self::Keyed(_) => (name.to_string(), json!(self.to_string())),
            Self::Emitted(spans) => {
                let spans = spans.iter().map(|span| {
                    json!({
                        "trace": span.trace.to_string(),
                        "id": span.id.to_string(),
                        "parent": span.parent.map(|parent| parent.to_string()),
                        "name": span.name,
                        "durationNanoseconds": span.end_ns.saturating_sub(span.start_ns),
                    })
                });
                (name.to_string(), spans.collect())
            }
            Self::Yes | Self::Mark => (name.to_string(), json!(true)),
        }
    }
}

impl Event {
    /// How long it took, if it is something that takes a time.
    pub fn duration_ns(&self) -> Option<u64> {
        let mut details = self.details.iter();
        details.find_map(|(name, detail)| match detail {
            Detail::Nanoseconds(nanos) if *name == DURATION => Some(*nanos),
            _ => None,
        })
    }

    /// What it is a part of, where whoever caused it says so.
    pub fn parent(&self) -> Option<Traceparent> {
        self.details.iter().find_map(|(_, detail)| match detail {
            Detail::Parent(parent) => Some(*parent),
            _ => None,
        })
    }

    /// What its beginning and its end have in common, where that is no thread.
    pub fn key(&self) -> Option<&Keyed> {
        self.details.iter().find_map(|(_, detail)| match detail {
            Detail::Keyed(key) => Some(key),
            _ => None,
        })
    }

    /// Spans that a program wrote, if it is about such.
    pub fn emitted(&self) -> Option<&[Span]> {
        self.details.iter().find_map(|(_, detail)| match detail {
            Detail::Emitted(spans) => Some(&**spans),
            _ => None,
        })
    }

    /// Who called, where that is known.
    pub fn callers(&self) -> Option<&Callers> {
        self.details.iter().find_map(|(_, detail)| match detail {
            Detail::Callers(callers) => Some(&**callers),
            _ => None,
        })
    }

    /// As it stands in a report, in a row and a part of these names.
    pub fn report(&self, row: &str, part: Option<&str>) -> EventReport {
        let details = self.details.iter();
        let phrases: Vec<String> = details
            .clone()
            .filter_map(|(name, detail)| detail.phrase(name))
            .collect();
        EventReport {
            time: Some(MicroTime(self.time)),
            row: row.to_string(),
            part: part.map(str::to_string),
            thread: self.thread_name.clone(),
            weight: self.weight.min(MOST_WEIGHT),
            text: phrases.join(", "),
            // What there is none of is for machines to be sure of, and for people not to read.
            details: details
                .map(|(name, detail)| (name.to_string(), detail.to_string()))
                .filter(|(_, text)| !text.is_empty())
                .collect(),
        }
    }

    /// One line of JSON, of a probe of this name. What it is of no part of is left out.
    pub fn line(&self, probe: &str, row: (&str, &str), part: Option<(&str, &str)>) -> Value {
        let mut line = json!({
            "time": format!("{:.6}", self.time),
            "probe": probe,
            row.0: row.1,
            "thread": self.thread,
            "threadName": self.thread_name,
        });
        if let Some((name, part)) = part {
            line[name] = json!(part);
        }
        for (name, detail) in &self.details {
            let (name, value) = detail.json(name);
            line[name] = value;
        }
        line
    }
}

#[cfg(test)]
mod tests;
