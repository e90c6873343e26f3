//! Records that are made up.

use std::collections::BTreeMap;

use ckb_probe_crds::{Distribution, Figures, Histogram, IntervalFigures, figures::Name};
use ckb_probe_figures::histogram::bucket;

use crate::record::{Asked, Header, Interval, ProbeInterval, Row, SCHEMA};

/// The time at which made-up records begin.
pub const BEGAN: u64 = 1_790_000_000_000;

/// Who is measured.
pub fn header() -> Header {
    Header {
        schema: SCHEMA.to_owned(),
        version: "0.1.0".to_owned(),
        run: BEGAN,
        target: "process 7 (ckb)".to_owned(),
        kernel: "6.18".to_owned(),
        tier: "session".to_owned(),
        cost_per_call_ns: 1030,
        interval_milliseconds: 5000,
        budget: "1 % of its CPU time".to_owned(),
        budget_millipercent: 1000,
        probes: vec![Asked {
            name: "storage".to_owned(),
            kind: "rocksdb".to_owned(),
        }],
        lacks: String::new(),
    }
}

/// So many calls that took so long, in figures.
pub fn calls(count: u64, nanos: u64) -> Figures {
    let mut histogram = Histogram::default();
    histogram.add(bucket(nanos), count);
    let name: Name = "duration".into();
    Figures {
        maxima: [(name.clone(), nanos)].into(),
        distributions: [(
            name,
            Distribution {
                histogram,
                sum: nanos * count,
                unmeasured: 0,
            },
        )]
        .into(),
        ..Figures::default()
    }
}

/// A row of so many calls in five seconds that all were watched.
pub fn row(key: &str, count: u64, nanos: u64, total: u64) -> Row {
    let mut all = calls(total, nanos);
    all.forget_distribution();
    Row {
        key: key.to_owned(),
        total: all,
        window: IntervalFigures {
            milliseconds: 5000,
            recorded_milliseconds: 5000,
            samples: count,
            figures: calls(count, nanos),
        },
        unseen: 0,
        unseen_last: 0,
        parts: Vec::new(),
    }
}

/// The interval of this number, with these rows.
pub fn interval(number: u64, rows: Vec<Row>) -> Interval {
    Interval {
        at: BEGAN + 5000 * (number + 1),
        milliseconds: 5000,
        cost: Some(400),
        floor: None,
        contention: None,
        contention_unknown: BTreeMap::new(),
        own_cpu: 10,
        renewed: 0,
        probes: vec![ProbeInterval {
            name: "storage".to_owned(),
            rows,
            ..ProbeInterval::default()
        }],
    }
}
