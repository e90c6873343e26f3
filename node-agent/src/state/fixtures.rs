//! What the tests of the books have in common: probes, and what is counted for them.

use std::{sync::Arc, time::Duration};

use ckb_probe_crds::{
    Distribution, Figures, KindSpec, Name,
    histogram::bucket,
    kinds::rocksdb::{Operation, RocksDbProbe},
};

use k8s_openapi::jiff::Timestamp;

use super::{Fact, TimedFact};
use crate::{
    kernel::SlotReading,
    kinds::{Instrument, Instrumented},
    mechanism::{
        Accepted, Breakdown, CollectorConfig, Detail, Event, GroupId, GroupIds, Lost, Reading,
        RowId, RowReading, Subscription,
        calls::{self, Counted, Sought},
        stacks::{Call, Callers, CodeOrigin},
    },
};

/// A probe of calls, as operators write them.
pub fn calls(name: &str, operations: &[Operation]) -> Instrumented {
    let kind = RocksDbProbe {
        operations: operations.to_vec(),
        slow_threshold: Duration::from_millis(1).into(),
        ..RocksDbProbe::default()
    };
    Instrumented::new(name, kind)
}

/// A probe whose one group has rows as they come by, with parts.
pub fn peers(name: &str) -> Instrumented {
    Instrumented {
        name: name.to_string(),
        question: KindSpec::from(RocksDbProbe::default()),
        instrument: Arc::new(Peers),
    }
}

#[derive(Debug)]
struct Peers;

impl Instrument for Peers {
    fn config(&self) -> CollectorConfig {
        unreachable!("the books ask nothing")
    }
}

fn asked(probe: &Instrumented) -> (calls::Measures, Vec<Counted>) {
    let config = probe.instrument.config().of();
    let calls::CallsConfig { measures, sought } = config.unwrap();
    let Sought::Listed(counted) = sought else {
        unreachable!("its functions have names");
    };
    (measures, counted)
}

/// All that it asks is there, in groups from the given one on.
pub fn opened(probe: &Instrumented, first: u16) -> Accepted {
    let (measures, counted) = asked(probe);
    let subscriptions = (first..).zip(counted).map(|(group, counted)| Subscription {
        group: GroupId(group),
        row: Some(counted.row.clone()),
        parts: if counted.by_family {
            Breakdown::All
        } else {
            Breakdown::None
        },
        blank: measures.figures(SlotReading::default(), counted.told()),
        ..Subscription::default()
    });
    Accepted {
        subscriptions: subscriptions.collect(),
        ..Accepted::default()
    }
}

/// So many calls of that long, each with ten bytes.
pub fn calls_of(count: u64, nanos: u64) -> SlotReading {
    let mut reading = SlotReading {
        sum_ns: count * nanos,
        bytes: count * 10,
        max_ns: nanos,
        ..SlotReading::default()
    };
    reading.histogram.add(bucket(nanos), count);
    reading
}

/// What was counted in one place, in the kind's words.
pub fn figures(seen: SlotReading) -> Figures {
    let (measures, counted) = asked(&calls("", &[Operation::Get]));
    measures.figures(seen, counted[0].told())
}

/// That much in the only row of its group.
pub fn whole(seen: SlotReading) -> RowReading {
    RowReading {
        figures: figures(seen),
        ..RowReading::default()
    }
}

/// What was counted in these groups.
pub fn reading(groups: impl IntoIterator<Item = (u16, RowReading)>) -> Reading {
    let groups = groups.into_iter();
    Reading {
        groups: groups
            .map(|(group, row)| (GroupId(group), vec![row]))
            .collect(),
        ..Reading::default()
    }
}

/// What was lost of these groups.
pub fn lost(groups: impl IntoIterator<Item = u16>, calls: u64, events: u64) -> Lost {
    let counts = [("calls", calls), ("events", events)];
    Lost {
        groups: groups.into_iter().map(GroupId).collect(),
        counts: counts
            .map(|(what, count)| (Name::Borrowed(what), count))
            .into(),
    }
}

/// This was read then.
pub fn read(reading: Reading, at: Duration) -> TimedFact {
    let fact = Fact::Read(reading);
    TimedFact { at, time: at, fact }
}

/// These groups were not recorded from then on.
pub fn paused(groups: impl IntoIterator<Item = u16>, at: Duration) -> TimedFact {
    let groups: GroupIds = groups.into_iter().map(GroupId).collect();
    let fact = Fact::Paused(groups);
    TimedFact { at, time: at, fact }
}

/// These groups were recorded from then on.
pub fn resumed(groups: impl IntoIterator<Item = u16>, at: Duration) -> TimedFact {
    let fact = Fact::Resumed(groups.into_iter().map(GroupId).collect());
    TimedFact { at, time: at, fact }
}

/// What stands for a row or a part.
pub fn raw(place: u64, text: &str) -> RowId {
    RowId {
        place,
        number: place,
        text: text.to_string(),
    }
}

/// So many bytes sent, and so many sockets open, in a row and a part of it.
pub fn peer(row: RowId, part: Option<RowId>, bytes: u64, open: u64) -> RowReading {
    RowReading {
        row: Some(row),
        part,
        figures: Figures {
            sums: [(Name::Borrowed("bytes"), bytes)].into(),
            levels: [(Name::Borrowed("open"), open)].into(),
            ..Figures::default()
        },
        folded: 0,
    }
}

/// The durations among figures.
pub fn durations(figures: &Figures) -> &Distribution {
    &figures.distributions["duration"]
}

/// How many calls there were.
pub fn count(figures: &Figures) -> u64 {
    durations(figures).count()
}

/// A slow call that returned then, after so many nanoseconds; by whom, from the innermost on.
pub fn call(millis: i64, weight: u64, callers: &[&str]) -> Event {
    let calls = callers.iter().map(|name| Call {
        name: Arc::from(*name),
        file: Arc::from("ckb"),
        place: CodeOrigin::User,
    });
    let callers = Callers {
        calls: calls.collect(),
        complete: true,
        guessed: false,
    };
    Event {
        details: vec![("stack", Detail::Callers(Arc::new(callers)))],
        ..bare(millis, weight)
    }
}

/// One of which it is not known who called.
pub fn bare(millis: i64, weight: u64) -> Event {
    Event {
        time: Timestamp::from_millisecond(millis).unwrap_or_default(),
        group: GroupId(0),
        row: None,
        part: None,
        thread: 7,
        thread_name: "ChainService".to_string(),
        weight,
        details: Vec::new(),
    }
}
