//! What is said of an end.

use std::mem::offset_of;

use ckb_probe_crds::{kinds::processes::ProcessEvents, report::NOTABLE};

use super::{layout::End, name, number, row};
use crate::mechanism::{
    Detail,
    counts::{RawEvent, DecodedEvent},
};

/// By what ends come before others, and before execs.
mod weight {
    /// That of the process that is asked about.
    pub(super) const OWN: u64 = 1000;
    /// For lack of memory.
    pub(super) const OUT_OF_MEMORY: u64 = 40;
    /// By a signal.
    pub(super) const KILL: u64 = 30;
    /// By a code other than 0.
    pub(super) const FAILURE: u64 = 20;
    /// All others.
    pub(super) const SUCCESS: u64 = 10;
}

/// The signals of Linux, from 1 on.
const SIGNALS: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// A status's signal, if it is one.
const SIGNAL: u32 = 0x7f;

pub(super) fn decode(seen: &RawEvent<'_>, wanted: ProcessEvents) -> Option<DecodedEvent> {
    let of = |place| number(seen.payload, place);
    let status = of(offset_of!(End, status))?;
    let out_of_memory = of(offset_of!(End, out_of_memory))? != 0;
    if wanted == ProcessEvents::Failures && status == 0 && !seen.own {
        return None;
    }
    let signal = status & SIGNAL;
    let mut details = vec![("what", Detail::Text("end".to_string()))];
    let weight = if signal != 0 {
        details.push(("signal", Detail::Named(signal_name(signal))));
        if out_of_memory {
            details.push(("oom", Detail::Yes));
            weight::OUT_OF_MEMORY
        } else {
            weight::KILL
        }
    } else {
        let code = status >> 8 & 0xff;
        details.push(("code", Detail::Number(i64::from(code))));
        if code == 0 {
            weight::SUCCESS
        } else {
            weight::FAILURE
        }
    };
    let place = offset_of!(End, lifetime_ns);
    let lifetime = seen.payload.get(place..place + 8)?;
    let lifetime = u64::from_ne_bytes(lifetime.try_into().ok()?);
    details.push(("ran", Detail::Nanoseconds(lifetime)));
    details.push(("pid", Detail::Number(i64::from(seen.process))));
    let parent = name(seen.payload, offset_of!(End, parent_name))?;
    details.push(("parent", Detail::Named(parent)));
    let parent = of(offset_of!(End, parent))?;
    details.push(("parentPid", Detail::Number(i64::from(parent))));
    if seen.own {
        details.push((NOTABLE, Detail::Mark));
    }
    Some(DecodedEvent {
        row: row(seen.name),
        weight: if seen.own { weight::OWN } else { weight },
        details,
    })
}

fn signal_name(signal: u32) -> String {
    let known = (signal as usize).checked_sub(1).and_then(|place| SIGNALS.get(place));
    known.map_or_else(|| format!("signal-{signal}"), |name| (*name).to_string())
}
