use std::collections::BTreeMap;

use ckb_probe_crds::{Histogram, report::NOTABLE};

use super::*;
use crate::mechanism::Detail;

fn end(status: u32, out_of_memory: u32) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.extend(41u32.to_ne_bytes());
    payload.extend(status.to_ne_bytes());
    payload.extend(12_000_000u64.to_ne_bytes());
    payload.extend(out_of_memory.to_ne_bytes());
    payload.extend([0; 4]);
    payload.extend(b"bash\0\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(payload.len(), size_of::<layout::End>());
    payload
}

fn exec(arguments: &[u8], bytes: u32) -> Vec<u8> {
    let mut payload = Vec::new();
    for number in [41, 3, bytes, arguments.len() as u32] {
        payload.extend(number.to_ne_bytes());
    }
    payload.extend(b"bash\0\0\0\0\0\0\0\0\0\0\0\0");
    payload.extend(arguments);
    payload
}

fn seen(what: u32, own: bool, payload: &[u8]) -> RawEvent<'_> {
    RawEvent {
        what,
        process: 42,
        name: b"ls\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        own,
        payload,
    }
}

fn said(kind: &ProcessesProbe, seen: &RawEvent<'_>) -> Option<(u64, String)> {
    let told = kind.event(seen)?;
    assert_eq!(kind.raw(&told.row).text, "ls");
    let details = told.details.iter();
    let words = details.map(|(name, detail)| format!("{name}={detail}"));
    Some((told.weight, words.collect::<Vec<_>>().join(" ")))
}

fn listing(events: ProcessEvents) -> ProcessesProbe {
    ProcessesProbe {
        events,
        redact_arguments: false,
    }
}

#[test]
fn the_worse_an_end_the_more_it_weighs_and_the_own_one_most() {
    let all = listing(ProcessEvents::All);
    let weigh = |status, oom, own| {
        let payload = end(status, oom);
        said(&all, &seen(layout::END, own, &payload)).unwrap()
    };
    let tail = "ran=12ms pid=42 parent=bash parentPid=41";
    assert_eq!(weigh(0, 0, false), (10, format!("what=end code=0 {tail}")));
    assert_eq!(weigh(3 << 8, 0, false), (20, format!("what=end code=3 {tail}")));
    let killed = format!("what=end signal=SIGSEGV {tail}");
    assert_eq!(weigh(0x80 | 11, 0, false), (30, killed));
    let oom = format!("what=end signal=SIGKILL oom=true {tail}");
    assert_eq!(weigh(9, 1, false), (40, oom));
    let own = format!("what=end signal=SIGTERM {tail} notable=true");
    assert_eq!(weigh(15, 0, true), (1000, own));
    assert_eq!(weigh(34, 0, false).1, format!("what=end signal=signal-34 {tail}"));
}

#[test]
fn what_was_not_asked_for_is_not_listed_but_the_own_end() {
    let [good, bad] = [end(0, 0), end(1 << 8, 0)];
    let exec = exec(b"ls\0", 3);
    let listed = |events, seen: &RawEvent<'_>| said(&listing(events), seen).is_some();
    for (events, execs, ends) in [
        (ProcessEvents::All, true, true),
        (ProcessEvents::Ends, false, true),
        (ProcessEvents::Failures, false, false),
    ] {
        assert_eq!(listed(events, &seen(layout::EXEC, false, &exec)), execs);
        assert_eq!(listed(events, &seen(layout::END, false, &good)), ends);
        assert!(listed(events, &seen(layout::END, false, &bad)));
        assert!(listed(events, &seen(layout::END, true, &good)));
    }
    assert_eq!(wants(&listing(ProcessEvents::Failures)), 2 | 4);
    // Unless they are asked for, arguments do not leave the kernel.
    assert_eq!(wants(&ProcessesProbe::default()), 1 | 4 | 8);
    let asked: ProcessesProbe = serde_json::from_str("{}").unwrap();
    assert_eq!(asked, ProcessesProbe::default());
}

#[test]
fn arguments_are_told_where_they_are_asked_for_and_otherwise_how_many() {
    let arguments = |kind: &ProcessesProbe, payload: &[u8]| {
        let told = kind.event(&seen(layout::EXEC, false, payload)).unwrap();
        let mut details = told.details.into_iter();
        details.find(|(name, _)| *name == "arguments").unwrap().1
    };
    let all = listing(ProcessEvents::All);
    let payload = exec(b"ls\0-l\0a b\0", 10);
    let tail = "pid=42 parent=bash parentPid=41";
    let count = format!("what=exec arguments=3 {tail}");
    for kind in [&all, &ProcessesProbe::default()] {
        // In no report.
        let told = said(kind, &seen(layout::EXEC, false, &payload));
        assert_eq!(told, Some((1, count.clone())));
    }
    let full = Detail::Private("ls -l 'a b'".to_string(), 3);
    assert_eq!(arguments(&all, &payload), full);
    assert_eq!(arguments(&ProcessesProbe::default(), &payload), Detail::Number(3));
    assert_eq!(arguments(&all, &exec(b"", 0)), Detail::Number(3));
    let cut = Detail::Private("ls aa… (cut)".to_string(), 3);
    assert_eq!(arguments(&all, &exec(b"ls\0aa", 100)), cut);
}

#[test]
fn what_is_too_short_is_nothing() {
    let all = listing(ProcessEvents::All);
    for length in 0..size_of::<layout::End>() {
        assert_eq!(said(&all, &seen(layout::END, true, &end(0, 0)[..length])), None);
    }
    for length in 0..32 {
        assert_eq!(said(&all, &seen(layout::EXEC, false, &exec(b"ls\0", 3)[..length])), None);
    }
}

#[test]
fn a_row_has_its_sums_and_says_what_was_counted_and_not_measured() {
    let mut counted = Counted::default();
    counted.sums[..6].copy_from_slice(&[5, 4, 2, 1, 1, 900]);
    let histogram: Histogram = [(10, 2), (11, 1)].into_iter().collect();
    counted.distributions = BTreeMap::from([(layout::LIFETIME, histogram)]);
    let figures = ProcessesProbe::default().figures(&counted);
    let sums: Vec<_> = figures.sums.iter().map(|(name, sum)| (&**name, *sum)).collect();
    let expected = [("ends", 4), ("execs", 5), ("failures", 2), ("kills", 1), ("oomKills", 1)];
    assert_eq!(sums, expected);
    let lifetime = &figures.distributions["lifetime"];
    assert_eq!((lifetime.count(), lifetime.unmeasured, lifetime.sum), (4, 1, 900));
    let none = ProcessesProbe::default().figures(&Counted::default());
    assert!(none.distributions.is_empty());
}

#[test]
fn what_is_notable_is_so_for_machines_only() {
    let payload = end(9, 1);
    let told = ProcessesProbe::default().event(&seen(layout::END, true, &payload));
    let details = told.unwrap().details;
    assert!(details.contains(&(NOTABLE, Detail::Mark)));
    assert!(details.contains(&("oom", Detail::Yes)));
}
