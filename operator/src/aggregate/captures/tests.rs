use ckb_probe_crds::{
    CkbProbeStatus, InstanceReport, InstanceState, ProbeReport, ProfileMode, Reason, condition,
};
use kube::runtime::watcher::Event;
use serde_json::json;

use super::*;
use crate::{
    aggregate::{
        aggregate, next_change,
        tests::{Scene, WELL, answer, answers, scene},
    },
    desired::tests::orders,
    notes::{CAPTURED, notes},
    profiles::rows::{News, ProfileEntry},
    testing::{at, firing, has, measuring, node_probe, reports, row},
    world::{Change, ObjectKey},
};

fn profile(every: Option<u64>) -> CaptureSpec {
    CaptureSpec {
        every: every.map(|every| Duration::from_secs(every).into()),
        keep: 3,
        capture_on_anomaly: true,
        ..CaptureSpec::default()
    }
}

/// How it goes on from there, at each of these times: whether something is unusual, and the state.
fn course(profile: &CaptureSpec, times: &[(i64, bool)]) -> Vec<(CaptureState, Option<i64>)> {
    let mut known = None;
    let each = times.iter().map(|(time, unusual)| {
        let unusual = unusual.then_some("p99 of Get");
        let capture = next(known.as_ref(), profile, unusual, at(*time));
        let since = capture.since.as_ref();
        let since = since.map(|since| since.0.as_second() - at(0).as_second());
        let told = (capture.state, since);
        known = Some(capture);
        told
    });
    each.collect()
}

#[test]
fn one_window_is_taken_of_each_anomaly_however_short_or_long_it_is() {
    use CaptureState::{Captured, Capturing, Waiting};
    let times = [
        (0, false),
        (10, true),
        // Over again before the window is.
        (12, false),
        (59, false),
        (60, false),
        (70, true),
        (119, true),
        (120, true),
        (500, true),
        (510, false),
    ];
    let expected = [
        (Waiting, None),
        (Capturing, Some(10)),
        (Capturing, Some(10)),
        (Capturing, Some(10)),
        (Waiting, Some(10)),
        (Capturing, Some(70)),
        (Capturing, Some(70)),
        (Captured, Some(70)),
        (Captured, Some(70)),
        (Waiting, Some(70)),
    ];
    assert_eq!(course(&profile(None), &times), expected);
}

#[test]
fn with_every_there_are_as_many_windows_as_are_kept_or_as_long_as_it_lasts() {
    use CaptureState::{Captured, Capturing, Waiting};
    // 30 s of each 100 s: the first is there after 150 s at the latest, and the third after 350 s.
    let times = [(0, true), (349, true), (350, true), (360, false)];
    let expected = [Capturing, Capturing, Captured, Waiting];
    let states = |times: &[(i64, bool)]| -> Vec<CaptureState> {
        let course = course(&profile(Some(100)), times).into_iter();
        course.map(|(state, _)| state).collect()
    };
    assert_eq!(states(&times), expected);
    let brief = [(0, true), (10, false), (149, false), (150, false)];
    assert_eq!(states(&brief), [Capturing, Capturing, Capturing, Waiting]);
    let longer = [(0, true), (200, true), (201, false)];
    assert_eq!(states(&longer), [Capturing, Capturing, Waiting]);
}

/// A CkbProbe with `storage` and `flames`, of which the latter waits.
fn waiting() -> Scene {
    let probes = json!([
        { "name": "storage", "rocksdb": { "operations": ["Get"] } },
        { "name": "flames", "profile": { "modes": ["Cpu"], "captureOnAnomaly": true } },
    ]);
    scene(json!({ "probes": probes }), |_, _| vec![])
}

/// The report of a target that makes a thousand calls a second of that bucket, and of `flames` where its agent has it.
fn report(probe: &CkbProbeEntry, bucket: u32, flames: Option<ProbeReport>) -> InstanceReport {
    let pod = crate::testing::pod("a", "ckb-0", Some("n"));
    let mut calls = row("Get", 10_000, &format!("{bucket}:10000"));
    calls.window.milliseconds = 10_000;
    calls.window.figures.maxima.clear();
    InstanceReport {
        probes: [measuring("storage", vec![calls])]
            .into_iter()
            .chain(flames)
            .collect(),
        ..firing(probe, &pod)
    }
}

fn flames(state: InstanceState, reason: Reason) -> ProbeReport {
    ProbeReport {
        kind: "profile".into(),
        state,
        reason: Some(reason),
        message: "as it is".into(),
        firing: false,
        ..measuring("flames", vec![])
    }
}

/// The names of the probes that the order of the node asks for.
fn ordered(scene: &Scene) -> Vec<String> {
    let assignment = &orders(&scene.world)["n"].assignments[0];
    let probes = assignment.probes.iter();
    probes.map(|probe| probe.name.clone()).collect()
}

struct Watched {
    scene: Scene,
    past: Past,
    interval: i64,
}

impl Watched {
    /// Another report interval of 10 s; its status is read back, and the nodes whose orders that concerns are told.
    fn interval(&mut self, bucket: u32, flames: Option<ProbeReport>) -> CkbProbeStatus {
        self.interval += 1;
        let now = self.interval * 10;
        let Scene { probe, world } = &mut self.scene;
        let told = report(probe, bucket, flames);
        world.apply(reports(node_probe("n", -now, vec![told])), at(now));
        let status = aggregate(probe, world, None, &mut self.past, at(now));
        let before = probe.captures("flames");
        probe.status = Some(Box::new(status.clone()));
        let touched = world.apply(has(probe), at(now));
        let concerned = touched.nodes.contains("n");
        assert_eq!(concerned, probe.captures("flames") != before);
        status
    }
}

#[test]
fn a_profile_waits_is_taken_while_something_is_unusual_and_waits_again() {
    let mut watched = Watched {
        scene: waiting(),
        past: Past::default(),
        interval: 0,
    };
    let listed = Change::Profiles(News::Profile(Event::InitDone));
    watched.scene.world.apply(listed, at(0));
    for _ in 0..805 {
        watched.interval(200, None);
    }
    let status = watched.interval(200, None);
    // It is neither missing nor attached, and known not to be.
    assert_eq!(answers(&status), WELL);
    assert_eq!(answer(&status, condition::SUPPORTED), ("True", "Done"));
    assert_eq!(status.support.summary.as_deref(), Some("1/1"));
    assert_eq!(status.targets.firing, 1);
    assert_eq!(status.probes[1].message, WAITS);
    assert_eq!(status.probes[1].capture, Some(CaptureStatus::default()));
    assert_eq!(status.probes[0].capture, None);
    assert_eq!(ordered(&watched.scene), ["storage"]);

    let (first, second) = (watched.interval(232, None), watched.interval(232, None));
    assert_eq!(first.probes[1].message, WAITS);
    assert_eq!(second.probes[1].message, WAITS);
    // The third is unusual.
    let before = watched.scene.probe.clone();
    let status = watched.interval(232, None);
    let begun = watched.interval * 10;
    let capture = status.probes[1].capture.clone().unwrap();
    assert_eq!(capture.state, CaptureState::Capturing);
    assert_eq!(capture.since, Some(Time(at(begun))));
    let said = &capture.anomaly;
    assert!(
        said.starts_with("probe storage: p99 of Get is not as usual since "),
        "{said}"
    );
    assert_eq!(status.probes[1].message, "");
    assert!(!before.captures("flames"));
    assert_eq!(ordered(&watched.scene), ["storage", "flames"]);
    // Nobody is less ready for an order that is on its way.
    assert_eq!(answers(&status)[0], ("True", "Firing"));
    let Scene { probe, world } = &watched.scene;
    let change = next_change(probe, world, at(begun));
    assert!(
        change.is_some_and(|change| change <= at(begun + 50)),
        "{change:?}"
    );

    // The agent takes it up, and a window is published.
    let comes = flames(InstanceState::Waiting, Reason::Attaching);
    let status = watched.interval(232, Some(comes));
    assert_eq!(answers(&status)[0], ("True", "Firing"));
    let there = || flames(InstanceState::Attached, Reason::Attaching);
    let before = watched.interval(232, Some(there()));
    assert_eq!(answers(&before)[0], ("True", "Firing"));
    assert_eq!(before.support.summary.as_deref(), Some("2/2"));
    let entry = |name: &str, created: i64| ProfileEntry {
        key: ObjectKey::new("a", name),
        uid: name.into(),
        owner: Some(watched.scene.probe.reference.uid.clone()),
        probe: "flames".into(),
        mode: Some(ProfileMode::Cpu),
        window: 7,
        bytes: 1,
        created: at(created),
        deleting: false,
    };
    let (earlier, taken) = (
        entry("p.flames.cpu.3", 5),
        entry("p.flames.cpu.7", begun + 25),
    );
    for entry in [earlier, taken] {
        let news = News::Profile(Event::Apply(entry));
        watched
            .scene
            .world
            .apply(Change::Profiles(news), at(begun + 25));
    }
    let status = watched.interval(232, Some(there()));
    let capture = status.probes[1].capture.clone().unwrap();
    assert_eq!(capture.profiles, ["p.flames.cpu.7"]);
    let told = notes(Some(&before), &status);
    let [note] = &told[..] else {
        panic!("one note: {told:?}");
    };
    assert_eq!(note.reason, CAPTURED);
    let expected = format!(
        "CkbProfile p.flames.cpu.7 shows what ran then: {}",
        capture.anomaly
    );
    assert_eq!(note.text, expected);

    // The window is over, and the anomaly is not.
    let between = watched.interval(232, Some(there()));
    assert_eq!(notes(Some(&status), &between), []);
    let status = watched.interval(232, Some(there()));
    let state = |status: &CkbProbeStatus| status.probes[1].capture.clone().unwrap().state;
    assert_eq!(state(&status), CaptureState::Captured);
    assert_eq!(status.probes[1].message, TAKEN);
    assert_eq!(ordered(&watched.scene), ["storage"]);
    let mut last = status;
    for _ in 0..10 {
        last = watched.interval(200, None);
    }
    assert_eq!(state(&last), CaptureState::Waiting);
    assert_eq!(last.probes[1].message, WAITS);
    // What was taken is still named.
    assert_eq!(
        last.probes[1].capture.clone().unwrap().profiles,
        ["p.flames.cpu.7"]
    );
    assert_eq!(ordered(&watched.scene), ["storage"]);
    assert_eq!(answers(&last), WELL);
}

#[test]
fn what_is_wrong_with_one_that_is_taken_is_told() {
    let scene = waiting();
    let refused = flames(InstanceState::Failed, Reason::MemoryLimit);
    let told = report(&scene.probe, 200, Some(refused));
    let Scene { probe, mut world } = scene;
    world.apply(reports(node_probe("n", 1, vec![told])), at(0));
    let status = aggregate(&probe, &world, None, &mut Past::default(), at(0));
    assert_eq!(
        answer(&status, condition::DEGRADED),
        ("True", "MemoryLimit")
    );
    assert_eq!(answer(&status, condition::READY), ("False", "MemoryLimit"));
}

#[test]
fn a_target_whose_only_other_probe_is_ruled_out_is_not_well_for_one_that_waits() {
    let Scene { probe, mut world } = waiting();
    let mut told = report(&probe, 200, None);
    told.probes[0].state = InstanceState::Failed;
    told.probes[0].reason = Some(Reason::UnsupportedByKernel);
    told.probes[0].firing = false;
    told.state = InstanceState::Failed;
    told.firing = false;
    told.reason = Some(Reason::UnsupportedByKernel);
    world.apply(reports(node_probe("n", 1, vec![told])), at(0));
    let status = aggregate(&probe, &world, None, &mut Past::default(), at(0));
    let expected = ("False", "UnsupportedByKernel");
    assert_eq!(answer(&status, condition::READY), expected);
}
