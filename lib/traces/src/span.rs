//! What took a time.

use std::borrow::Cow;

use super::{
    ids::{SpanId, TraceId},
    messages::{self, AnyValue, ArrayValue, KeyValue, any_value},
};

/// Of a text no more is told than so many bytes, and of a list no more than so many of its items.
const TEXT_BYTES: usize = 4096;
const LIST_ITEMS: usize = 128;

/// What is said of a span, or of where it is from.
pub type Attributes = Vec<(Cow<'static, str>, Value)>;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// Any other number.
    Real(f64),
    /// Yes or no.
    Flag(bool),
    /// Texts.
    List(Vec<String>),
}

/// What took a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The trace that it belongs to.
    pub trace: TraceId,
    /// Its own number, unique within the trace.
    pub id: SpanId,
    /// What it is a part of; None for the root.
    pub parent: Option<SpanId>,
    /// What it is: one of few names.
    pub name: String,
    /// Its place between processes.
    pub kind: SpanKind,
    /// When it began, in nanoseconds since 1970.
    pub start_ns: u64,
    /// When it ended, the same.
    pub end_ns: u64,
    /// What is said of it.
    pub attributes: Attributes,
    /// What happened within it.
    pub events: Vec<Moment>,
}

/// On which side of a request, or of a message, a span is. By the numbers that OTLP has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpanKind {
    /// On none: what is seen of a call from outside is neither a request's nor an answer's.
    #[default]
    Internal = 1,
    /// It answers.
    Server = 2,
    /// It asks.
    Client = 3,
    /// It sends.
    Producer = 4,
    /// It receives.
    Consumer = 5,
}

/// What happened at one moment of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The name of what happened.
    pub name: String,
}

impl Span {
    /// As OTLP has it.
    pub(crate) fn message(&self) -> messages::Span {
        messages::Span {
            trace_id: self.trace.bytes().to_vec(),
            span_id: self.id.bytes().to_vec(),
            parent_span_id: self
                .parent
                .map(|parent| parent.bytes().to_vec())
                .unwrap_or_default(),
            name: cut(&self.name).to_string(),
            kind: self.kind as i32,
            start_time_unix_nano: self.start_ns,
            end_time_unix_nano: self.end_ns.max(self.start_ns),
            attributes: written(&self.attributes),
            events: self.events.iter().map(Moment::message).collect(),
        }
    }
}

impl Moment {
    fn message(&self) -> messages::Event {
        messages::Event {
            time_unix_nano: self.time_ns,
            name: cut(&self.name).to_string(),
        }
    }
}

/// Attributes, as OTLP has them.
pub(crate) fn written(attributes: &Attributes) -> Vec<KeyValue> {
    let attributes = attributes.iter();
    attributes
        .map(|(key, value)| KeyValue {
            key: key.to_string(),
            value: Some(value.message()),
        })
        .collect()
}

impl Value {
    fn message(&self) -> AnyValue {
        let text = |text: &str| any_value::Value::String(cut(text).to_string());
        let value = match self {
            Self::Text(one) => text(one),
            Self::Number(number) => any_value::Value::Int(*number),
            Self::Real(number) => any_value::Value::Double(*number),
            Self::Flag(flag) => any_value::Value::Bool(*flag),
            Self::List(items) => {
                let items = items.iter().take(LIST_ITEMS);
                let values = items.map(|item| AnyValue {
                    value: Some(text(item)),
                });
                any_value::Value::Array(ArrayValue {
                    values: values.collect(),
                })
            }
        };
        AnyValue { value: Some(value) }
    }
}

/// The beginning of a text, as far as it is told.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_string())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// More than the greatest number that OTLP has is that number.
impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_two_letters() {
        let long = "é".repeat(TEXT_BYTES);
        assert_eq!(cut(&long).len(), TEXT_BYTES);
        let odd = format!("x{long}");
        assert_eq!(cut(&odd).len(), TEXT_BYTES - 1);
        assert_eq!(cut("short"), "short");
    }

    #[test]
    fn a_span_that_ends_before_it_begins_takes_no_time() {
        let span = Span {
            trace: TraceId::from_bytes([1; 16]),
            id: SpanId::from_bytes([2; 8]),
            parent: None,
            name: "Get".to_string(),
            start_ns: 7,
            end_ns: 3,
            attributes: Vec::new(),
            kind: SpanKind::default(),
            events: Vec::new(),
        };
        assert_eq!(span.message().end_time_unix_nano, 7);
        assert!(span.message().parent_span_id.is_empty());
    }
}
