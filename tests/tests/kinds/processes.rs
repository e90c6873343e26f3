//! What runs beside a process, and how it ends.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use ckb_probe_agent::host::Session;
use ckb_probe_crds::kinds::processes::ProcessesProbe;
use ckb_probe_testkit::Parent;

use crate::way::{in_every_way, lost, total};

const ROUNDS: u64 = 25;

/// What a round does to each row: execs, ends, failures and kills among the ends.
const ROUND: [(&str, [u64; 4]); 9] = [
    // A child that executes nothing, and one that cannot.
    ("fixture", [0, 2, 1, 0]),
    ("p-ok", [1, 1, 0, 0]),
    ("p-fail", [1, 1, 1, 0]),
    ("p-term", [1, 1, 0, 1]),
    ("p-segv", [1, 1, 0, 1]),
    ("p-threads", [1, 1, 0, 0]),
    ("p-group", [1, 1, 1, 0]),
    // It becomes the other one.
    ("p-exec", [1, 0, 0, 0]),
    ("p-after", [1, 1, 0, 0]),
];

fn counted(session: &Session, command: &str) -> [u64; 4] {
    let sums = &total(session, command).sums;
    ["execs", "ends", "failures", "kills"].map(|name| sums[name])
}

#[test]
fn every_exec_and_every_end_is_counted_and_told() {
    in_every_way(ProcessesProbe::default(), |way| {
        let mut fixture = Parent::start(&[]);
        let pid = fixture.pid;
        let mut session = way.attach(pid);
        let mut told: BTreeMap<String, u64> = BTreeMap::new();
        let mut tell = |session: &mut Session| {
            let events = session.events();
            for event in &events {
                let command = event["command"].as_str().unwrap();
                *told.entry(command.to_string()).or_default() += 1;
            }
            events
        };
        for _ in 0..ROUNDS {
            fixture.tell("go 1");
            tell(&mut session);
        }
        session.read().unwrap();
        for (command, round) in ROUND {
            let expected = round.map(|count| ROUNDS * count);
            assert_eq!(counted(&session, command), expected, "{command}");
            if expected[1] > 0 {
                let lifetime = &total(&session, command).distributions["lifetime"];
                let measured = (lifetime.count(), lifetime.unmeasured);
                assert_eq!(measured, (expected[1], 0), "{command}");
            }
        }
        // The end of the process itself is the last that there is to tell.
        assert_eq!(fixture.end().code(), Some(7));
        let last = tell(&mut session).pop().unwrap();
        assert_eq!((&last["pid"], &last["code"]), (&pid.into(), &7.into()));
        assert_eq!(last["notable"], true);
        let expected = ROUND.map(|(command, [execs, ends, ..])| {
            let own = u64::from(command == "fixture");
            (command.to_string(), ROUNDS * (execs + ends) + own)
        });
        assert_eq!(told, BTreeMap::from(expected));
        assert_eq!(lost(&session), 0);
    });
}

#[test]
fn an_exec_is_told_with_its_parent_and_its_arguments() {
    let with_arguments = ProcessesProbe {
        redact_arguments: false,
        ..ProcessesProbe::default()
    };
    in_every_way(with_arguments, |way| {
        let mut fixture = Parent::start(&[]);
        let mut session = way.attach(fixture.pid);
        fixture.tell("go 1");
        let events = session.events();
        let folder = fixture.folder().display();
        let mut execs = events.iter().filter(|event| event["what"] == "exec");
        let exec = execs.find(|exec| exec["command"] == "p-ok").unwrap();
        let arguments = format!("{folder}/p-ok {folder} 'an argument'");
        assert_eq!(exec["arguments"], arguments);
        assert_eq!(exec["parent"], "fixture");
        assert_eq!(exec["parentPid"], fixture.pid);
    });
}

/// A memory control group of 16 MiB: the one that `CKB_PROBE_MEMORY_GROUP` names, or one that is made, for which root needs more
/// capabilities than the agent has.
struct Group {
    folder: PathBuf,
    made: bool,
}

impl Group {
    fn get() -> Self {
        if let Some(folder) = std::env::var_os("CKB_PROBE_MEMORY_GROUP") {
            let folder = folder.into();
            return Self {
                folder,
                made: false,
            };
        }
        let first = Path::new("/sys/fs/cgroup/memory");
        let (parent, limit) = if first.exists() {
            (first, "memory.limit_in_bytes")
        } else {
            (Path::new("/sys/fs/cgroup"), "memory.max")
        };
        let folder = parent.join(format!("ckb-probe-kinds-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(limit), "16777216").unwrap();
        Self { folder, made: true }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.made {
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

#[test]
fn who_dies_for_lack_of_memory_is_told_from_who_is_killed() {
    in_every_way(ProcessesProbe::default(), |way| {
        let group = Group::get();
        let mut fixture = Parent::start(&[]);
        let mut session = way.attach(fixture.pid);
        for _ in 0..3 {
            fixture.tell(&format!("oom {}", group.folder.display()));
        }
        session.read().unwrap();
        assert_eq!(counted(&session, "fixture"), [0, 3, 0, 3]);
        assert_eq!(total(&session, "fixture").sums["oomKills"], 3);
        let events = session.events();
        assert_eq!(events.len(), 3);
        for event in &events {
            assert_eq!(
                (&event["signal"], &event["oom"]),
                (&"SIGKILL".into(), &true.into())
            );
        }
    });
}
