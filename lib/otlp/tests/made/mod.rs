//! Spans that are made up.

use std::time::Duration;

use ckb_probe_traces::{Group, Ids, Limits, Resource, Scope, Span, SpanKind};

/// Quick, so that tests are.
pub fn limits() -> Limits {
    Limits {
        linger: Duration::from_millis(20),
        ..Limits::default()
    }
}

pub fn scope() -> Scope {
    Scope {
        name: "test".to_string(),
        version: "1".to_string(),
    }
}

/// So many spans of one trace. No two numbers make the same.
pub fn group(number: u64, spans: usize) -> Group {
    let mut ids = Ids::from_seed(u128::from(number) << 64 | u128::from(number * 7919));
    let trace = ids.trace();
    let spans: Vec<Span> = (0..spans)
        .map(|_| Span {
            trace,
            id: ids.span(),
            parent: None,
            kind: SpanKind::default(),
            events: Vec::new(),
            name: "chain accepted".to_string(),
            start_ns: 1_700_000_000_000_000_000,
            end_ns: 1_700_000_000_001_000_000,
            attributes: vec![
                ("ckb_probe.height".into(), number.into()),
                ("thread.name".into(), "verify_blocks".into()),
            ],
        })
        .collect();
    let place = vec![("service.name".into(), "ckb".into())];
    Group::new(&Resource::new(&place), &spans)
}
