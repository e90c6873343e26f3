//! What the tests of the books have in common: probes, and what is counted for them.

use std::{sync::Arc, time::Duration};

use ckb_probe_crds::{
    Distribution, Figures, Name, Question,
    histogram::bucket,
    kinds::rocksdb::{Operation, RocksDbProbe},
};

use k8s_openapi::jiff::Timestamp;

use super::{Entry, Fact};
use crate::{
    kernel::SlotReading,
    kinds::{Ask, Instrument, Instrumented},
    mechanism::{
        Detail, Event, LoadId, Loads, Lost, Opened, Parts, Raw, Reading, RowReading, Strand,
        calls::{self, Counted, Sought},
        stacks::{Call, Callers, Place},
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

/// A probe whose one load has rows as they come by, with parts.
pub fn peers(name: &str) -> Instrumented {
    Instrumented {
        name: name.to_string(),
        question: Question::from(RocksDbProbe::default()),
        instrument: Arc::new(Peers),
    }
}

#[derive(Debug)]
struct Peers;

impl Instrument for Peers {
    fn ask(&self) -> Ask {
        unreachable!("the books ask nothing")
    }
}

fn asked(probe: &Instrumented) -> (calls::Measures, Vec<Counted>) {
    let Ask::Calls(calls::Ask { measures, sought }) = probe.instrument.ask() else {
        unreachable!("it is a probe of calls");
    };
    let Sought::Listed(counted) = sought else {
        unreachable!("its functions have names");
    };
    (measures, counted)
}

/// All that it asks is there, in loads from the given one on.
pub fn opened(probe: &Instrumented, first: u16) -> Opened {
    let (measures, counted) = asked(probe);
    let strands = (first..).zip(counted).map(|(load, counted)| Strand {
        load: LoadId(load),
        row: Some(counted.row.clone()),
        parts: if counted.by_family {
            Parts::All
        } else {
            Parts::None
        },
        blank: measures.figures(SlotReading::default(), counted.has_bytes()),
        ..Strand::default()
    });
    Opened {
        strands: strands.collect(),
        ..Opened::default()
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
    let (measures, _) = asked(&calls("", &[]));
    measures.figures(seen, true)
}

/// That much in the only row of its load.
pub fn whole(seen: SlotReading) -> RowReading {
    RowReading {
        figures: figures(seen),
        ..RowReading::default()
    }
}

/// What was counted in these loads.
pub fn reading(loads: impl IntoIterator<Item = (u16, RowReading)>) -> Reading {
    let loads = loads.into_iter();
    Reading {
        loads: loads.map(|(load, row)| (LoadId(load), vec![row])).collect(),
        ..Reading::default()
    }
}

/// What was lost of these loads.
pub fn lost(loads: impl IntoIterator<Item = u16>, calls: u64, events: u64) -> Lost {
    let counts = [("calls", calls), ("events", events)];
    Lost {
        loads: loads.into_iter().map(LoadId).collect(),
        counts: counts
            .map(|(what, count)| (Name::Borrowed(what), count))
            .into(),
    }
}

/// This was read then.
pub fn read(reading: Reading, at: Duration) -> Entry {
    let fact = Fact::Read(reading);
    Entry { at, fact }
}

/// These loads were not recorded from then on.
pub fn paused(loads: impl IntoIterator<Item = u16>, at: Duration) -> Entry {
    let loads: Loads = loads.into_iter().map(LoadId).collect();
    let fact = Fact::Paused { loads, part: 1.0 };
    Entry { at, fact }
}

/// These loads were recorded from then on.
pub fn resumed(loads: impl IntoIterator<Item = u16>, at: Duration) -> Entry {
    let fact = Fact::Resumed(loads.into_iter().map(LoadId).collect());
    Entry { at, fact }
}

/// What stands for a row or a part.
pub fn raw(place: u64, text: &str) -> Raw {
    Raw {
        place,
        number: place,
        text: text.to_string(),
    }
}

/// So many bytes sent, and so many sockets open, in a row and a part of it.
pub fn peer(row: Raw, part: Option<Raw>, bytes: u64, open: u64) -> RowReading {
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
        place: Place::User,
    });
    let callers = Callers {
        calls: calls.collect(),
        complete: true,
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
        load: LoadId(0),
        row: None,
        part: None,
        thread: 7,
        thread_name: "ChainService".to_string(),
        weight,
        details: Vec::new(),
    }
}
