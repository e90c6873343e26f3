//! `processes`: execs and ends in the target's pod, by the names of processes.

mod arguments;
mod ends;
mod execs;
#[path = "../../../../ebpf/programs/src/bin/processes/layout.rs"]
mod layout;

use std::sync::Arc;

pub use arguments::Arguments;
use ckb_probe_common::counts::KEY_BYTES;
use ckb_probe_crds::{
    Distribution, Figures,
    kinds::processes::{
        ENDS, EXECS, FAILURES, KILLS, LIFETIME, OUT_OF_MEMORY, ProcessEvents, ProcessesProbe,
    },
};
use layout::sum;

use super::Instrument;
use crate::{
    mechanism::{
        CollectorConfig,
        RowId,
        counts::{self, Membership, CountProgram, Counted, Decode, RawEvent, DecodedEvent},
    },
    text,
};

const PROGRAM: CountProgram = CountProgram {
    name: "processes",
    tracepoints: &[
        ("end", "sched_process_exit"),
        ("exec", "sched_process_exec"),
    ],
    fields: &[
        ("task_struct", "tgid"),
        ("task_struct", "group_leader"),
        ("task_struct", "real_parent"),
        ("task_struct", "comm"),
        ("task_struct", "signal"),
        ("task_struct", "start_time"),
        ("task_struct", "exit_code"),
        ("task_struct", "mm"),
        ("signal_struct", "live"),
        ("signal_struct", "flags"),
        ("signal_struct", "group_exit_code"),
        ("signal_struct", "oom_mm"),
        ("mm_struct", "arg_start"),
        ("mm_struct", "arg_end"),
        ("linux_binprm", "argc"),
    ],
};

impl Instrument for ProcessesProbe {
    fn config(&self) -> CollectorConfig {
        counts::CountsConfig {
            program: &PROGRAM,
            belonging: Membership::Pod,
            wants: wants(self),
            // A process ends once.
            sliced: false,
            decode: Arc::new(self.clone()),
        }
        .into()
    }
}

/// What the program is to tell.
fn wants(kind: &ProcessesProbe) -> u32 {
    let told = match kind.events {
        ProcessEvents::All => layout::TELL_EXECS | layout::TELL_ENDS | layout::TELL_SUCCESSES,
        ProcessEvents::Ends => layout::TELL_ENDS | layout::TELL_SUCCESSES,
        ProcessEvents::Failures => layout::TELL_ENDS,
    };
    if kind.redact_arguments {
        told
    } else {
        told | layout::TELL_ARGUMENTS
    }
}

impl Decode for ProcessesProbe {
    fn raw(&self, key: &[u8; KEY_BYTES]) -> RowId {
        RowId {
            text: text::of_padded(key),
            ..RowId::default()
        }
    }

    fn figures(&self, counted: &Counted) -> Figures {
        let sums = [
            (EXECS, sum::EXECS),
            (ENDS, sum::ENDS),
            (FAILURES, sum::FAILURES),
            (KILLS, sum::KILLS),
            (OUT_OF_MEMORY, sum::OUT_OF_MEMORY),
        ];
        let mut figures = Figures {
            sums: sums
                .into_iter()
                .map(|(measure, place)| (measure.key(), counted.sums[place]))
                .collect(),
            ..Figures::default()
        };
        let ends = counted.sums[sum::ENDS];
        if ends > 0 {
            let histogram = counted.distributions.get(&layout::LIFETIME);
            let histogram = histogram.cloned().unwrap_or_default();
            let lifetimes = Distribution {
                unmeasured: ends.saturating_sub(histogram.count()),
                histogram,
                sum: counted.sums[sum::LIFETIME],
            };
            figures.distributions.insert(LIFETIME.key(), lifetimes);
        }
        figures
    }

    fn event(&self, seen: &RawEvent<'_>) -> Option<DecodedEvent> {
        match seen.what {
            // Somebody else may ask for more.
            layout::EXEC if self.events == ProcessEvents::All => {
                execs::decode(seen, self.redact_arguments)
            }
            layout::END => ends::decode(seen, self.events),
            _ => None,
        }
    }
}

/// A number of four bytes in what the program tells.
fn number(payload: &[u8], place: usize) -> Option<u32> {
    let bytes = payload.get(place..place + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// A name in what the program tells.
fn name(payload: &[u8], place: usize) -> Option<String> {
    payload.get(place..place + 16).map(text::of_padded)
}

/// The row of a process of this name.
fn row(name: &[u8; 16]) -> [u8; KEY_BYTES] {
    layout::key(*name)
}

#[cfg(test)]
mod tests;
