//! What took a time, as spans: a slow call, or a block with what is known of its time. Each is a trace of its own, but for what is told to be a
//! part of another. What a program wrote itself goes on as it is.
//!
//! What something consisted of is a span below it: its length is what was measured, all calls of an operation together. Where in the whole
//! it was is not known, but for what is known to end with it; everything else is told to begin with the whole, and says so.

use std::borrow::Cow;

use ckb_probe_traces::{Attributes, Ids, Span, SpanKind, Value};

use crate::{
    mechanism::{Detail, Event, OperationTime},
    state::probe::Placed,
};

/// What names of attributes begin with that no convention of OpenTelemetry has.
const OWN: &str = "ckb_probe";

/// Of what is below a span: how many calls it was, and what is known of where it was.
const CALLS: &str = "ckb_probe.calls";
const PLACE: &str = "ckb_probe.place";

/// A part of a span, while it is laid out.
struct Portion {
    name: String,
    nanoseconds: u64,
    calls: Option<u64>,
    is_last: bool,
}

/// An event as the spans of one trace, the root first; none where it takes no time. Those that a program wrote itself are as it wrote them, of
/// whichever traces, with what is known of who wrote them.
pub fn spans(event: &Event, placed: &Placed<'_>, ids: &mut Ids) -> Vec<Span> {
    if let Some(emitted) = event.emitted() {
        return emitted
            .iter()
            .map(|span| known(span, event, placed))
            .collect();
    }
    let Some(duration) = event.duration_ns() else {
        return Vec::new();
    };
    let end = u64::try_from(event.time.as_nanosecond()).unwrap_or_default();
    let caller = event.parent();
    let root = Span {
        trace: caller.map_or_else(|| ids.trace(), |caller| caller.trace),
        id: ids.span(),
        parent: caller.map(|caller| caller.parent),
        name: format!("{} {}", placed.kind.as_str(), placed.row),
        start_ns: end.saturating_sub(duration),
        end_ns: end,
        kind: SpanKind::Internal,
        attributes: attributes(event, placed),
        events: Vec::new(),
    };
    let below = event.details.iter().flat_map(portions);
    let below: Vec<Span> = below.map(|portion| portion.span(&root, ids)).collect();
    let mut spans = vec![root];
    spans.extend(below);
    spans
}

/// A span that a program wrote, with what is known of it beside that.
fn known(span: &Span, event: &Event, placed: &Placed<'_>) -> Span {
    let mut attributes = attributes(event, placed);
    attributes.extend(span.attributes.iter().cloned());
    Span {
        name: match span.name.is_empty() {
            true => format!("{} {}", placed.kind.as_str(), placed.row),
            false => span.name.clone(),
        },
        attributes,
        ..span.clone()
    }
}

impl Portion {
    fn span(self, root: &Span, ids: &mut Ids) -> Span {
        let lasted = self.nanoseconds.min(root.end_ns - root.start_ns);
        let (start_ns, end_ns) = match self.is_last {
            true => (root.end_ns - lasted, root.end_ns),
            false => (root.start_ns, root.start_ns + lasted),
        };
        let place = if self.is_last { "last" } else { "unknown" };
        let mut attributes: Attributes = vec![(PLACE.into(), place.into())];
        if let Some(calls) = self.calls {
            attributes.push((CALLS.into(), calls.into()));
        }
        Span {
            trace: root.trace,
            id: ids.span(),
            parent: Some(root.id),
            name: self.name,
            kind: SpanKind::Internal,
            start_ns,
            end_ns,
            attributes,
            events: Vec::new(),
        }
    }
}

/// What is a part of the whole's time.
fn portions((name, detail): &(&'static str, Detail)) -> Vec<Portion> {
    match detail {
        Detail::Portion(nanoseconds) => vec![Portion {
            name: (*name).to_string(),
            nanoseconds: *nanoseconds,
            calls: None,
            is_last: false,
        }],
        Detail::Operations(times) => times.iter().map(of_operation).collect(),
        _ => Vec::new(),
    }
}

fn of_operation(time: &OperationTime) -> Portion {
    Portion {
        name: time.name.clone(),
        nanoseconds: time.nanoseconds,
        calls: Some(time.calls),
        is_last: time.is_last,
    }
}

fn attributes(event: &Event, placed: &Placed<'_>) -> Attributes {
    let descriptor = placed.kind.descriptor();
    let mut all: Attributes = vec![
        (own("kind"), placed.kind.as_str().into()),
        (own("probe"), placed.probe.into()),
        (own(descriptor.row), placed.row.clone().into()),
    ];
    if let (Some(name), Some(part)) = (descriptor.part, &placed.part) {
        all.push((own(name), part.clone().into()));
    }
    if event.thread > 0 {
        all.push(("thread.id".into(), u64::from(event.thread).into()));
        all.push(("thread.name".into(), event.thread_name.clone().into()));
    }
    if placed.stands_for > 1.0 {
        all.push((own("stands_for"), Value::Real(placed.stands_for)));
    }
    for (name, detail) in &event.details {
        // A name stands once.
        if let Some((key, value)) = attribute(name, detail)
            && all.iter().all(|(known, _)| *known != key)
        {
            all.push((key, value));
        }
    }
    all
}

/// A detail of an event. How long it took is in the span itself, and what it consisted of below it.
fn attribute(name: &'static str, detail: &Detail) -> Option<(Cow<'static, str>, Value)> {
    let value = match detail {
        Detail::Nanoseconds(_) if name == crate::mechanism::DURATION => return None,
        // The span itself says it.
        Detail::Operations(_) | Detail::Parent(_) | Detail::Emitted(_) => return None,
        Detail::Nanoseconds(nanos) | Detail::Portion(nanos) => {
            return Some((own(&format!("{}_ns", snake_case(name))), (*nanos).into()));
        }
        Detail::Bytes(number) => (*number).into(),
        Detail::Number(number) => Value::Number(*number),
        Detail::Text(text) | Detail::Named(text) => text.clone().into(),
        Detail::Keyed(key) => key.to_string().into(),
        Detail::List(items) if items.is_empty() => return None,
        Detail::List(items) => Value::List(items.clone()),
        Detail::Callers(callers) => {
            let stack = crate::mechanism::listed(callers).join("\n");
            return Some(("code.stacktrace".into(), stack.into()));
        }
        // What may hold secrets stays where it is.
        Detail::Private(_, words) => u64::from(*words).into(),
        Detail::Yes | Detail::Mark => Value::Flag(true),
    };
    Some((own(&snake_case(name)), value))
}

fn own(name: &str) -> Cow<'static, str> {
    format!("{OWN}.{name}").into()
}

/// `offCpu` as OpenTelemetry writes names: `off_cpu`.
fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests;
