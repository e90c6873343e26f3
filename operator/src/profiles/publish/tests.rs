use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use ckb_probe_crds::{
    PodReference, ProbeReference, ProfileCounts, ProfileMode, ProfilePartSpec, ProfileWindow,
};
use ckb_probe_profiles::{Frame, Profile, Stack};
use hyper::{Method, http::request::Parts};
use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};
use serde_json::Value;

use super::*;
use crate::{testing, world::ObjectKey};

const PARTS: &str = "/apis/ckbprobe.dev/v1alpha1/namespaces/system/profileparts";
const PROFILE: &str = "/apis/ckbprobe.dev/v1alpha1/namespaces/a/ckbprofiles/p.flames.cpu.7";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/a/events";

/// Keeps what is applied, under its path.
#[derive(Clone, Default)]
struct FakeApi {
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
    refuse: Arc<Mutex<Option<&'static str>>>,
}

impl FakeApi {
    fn client(&self) -> Client {
        let api = self.clone();
        testing::client(move |parts, body| {
            let answer = api.answer(&parts, &body);
            async { Ok(answer) }
        })
    }

    fn answer(&self, parts: &Parts, body: &[u8]) -> (u16, Value) {
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        let path = parts.uri.path().to_owned();
        let line = format!("{} {path}", parts.method);
        let refused = self.refuse.lock().unwrap().is_some_and(|one| one == line);
        self.requests.lock().unwrap().push((line, sent.clone()));
        let mut objects = self.objects.lock().unwrap();
        let answer = match parts.method {
            _ if refused => None,
            Method::GET => objects.get(&path).cloned(),
            Method::DELETE => objects.remove(&path),
            _ => {
                objects.insert(path, sent.clone());
                Some(sent)
            }
        };
        let failure =
            json!({ "status": "Failure", "code": 404, "reason": "NotFound", "message": "no" });
        answer.map_or((404, failure), |object| (200, object))
    }

    fn has(&self, name: &str, spec: &ProfilePartSpec, labels: &PartLabels) {
        let part = json!({
            "apiVersion": "ckbprobe.dev/v1alpha1", "kind": "ProfilePart",
            "metadata": {
                "name": name, "namespace": "system", "uid": format!("uid-{name}"),
                "resourceVersion": "1", "labels": labels.to_map(),
            },
            "spec": spec,
        });
        let path = format!("{PARTS}/{name}");
        self.objects.lock().unwrap().insert(path, part);
    }

    fn profile(&self) -> Option<CkbProfile> {
        let objects = self.objects.lock().unwrap();
        Some(serde_json::from_value(objects.get(PROFILE)?.clone()).unwrap())
    }

    fn count(&self, line: &str) -> usize {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|(one, _)| one == line).count()
    }

    fn events(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let events = requests
            .iter()
            .filter(|(line, _)| line == &format!("POST {EVENTS}"));
        let notes = events.map(|(_, event)| event["note"].as_str().unwrap().to_owned());
        notes.collect()
    }
}

struct Rig {
    runtime: tokio::runtime::Runtime,
    api: FakeApi,
    metrics: Metrics,
    publisher: Publisher,
}

fn rig() -> Rig {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let inside = runtime.enter();
    let api = FakeApi::default();
    let metrics = Metrics::new().unwrap();
    let events = Events::new(api.client(), "system".into(), "me".into(), metrics.clone());
    let publisher = Publisher::new(api.client(), "system", events, metrics.clone(), None);
    drop(inside);
    Rig {
        runtime,
        api,
        metrics,
        publisher,
    }
}

fn pod(name: &str) -> PodReference {
    PodReference {
        namespace: "a".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
    }
}

fn spec(pod_name: &str, samples: u64) -> ProfilePartSpec {
    let mut profile = Profile::of(ProfileMode::Cpu);
    profile.stacks.add(&Stack {
        frames: vec![Frame::user("rocksdb_get_pinned_cf", "ckb")],
        weights: &[samples, samples * 10_000_000],
        ..Stack::default()
    });
    ProfilePartSpec {
        asks: "0123456789abcdef".into(),
        probe: "flames".into(),
        pod: pod(pod_name),
        container: "ckb".into(),
        mode: ProfileMode::Cpu,
        window: ProfileWindow {
            number: 7,
            began_at: MicroTime(Timestamp::from_second(1_000).unwrap()),
            milliseconds: 30_000,
        },
        counts: ProfileCounts {
            samples,
            complete: samples,
            ..ProfileCounts::default()
        },
        pprof: Some(ByteString(profile.to_pprof())),
        failure: None,
    }
}

fn job(parts: &[(&str, &str)]) -> Publish {
    let part = |(name, pod_name): &(&str, &str)| PartToMerge {
        id: PartId {
            name: (*name).into(),
            uid: format!("uid-{name}"),
            version: "1".into(),
        },
        node: "n".into(),
        pod: pod(pod_name),
    };
    Publish {
        probe: ProbeReference {
            namespace: "a".into(),
            name: "p".into(),
            uid: "uid-p".into(),
        },
        asks: "0123456789abcdef".into(),
        name: "flames".into(),
        mode: ProfileMode::Cpu,
        window: 7,
        parts: parts.iter().map(part).collect(),
    }
}

impl Rig {
    fn sends(&self, name: &str, spec: &ProfilePartSpec) {
        self.api.has(name, spec, &PartLabels::of(spec));
    }

    fn publish(&self, parts: &[(&str, &str)]) -> Result<(), PublishError> {
        self.run(ProfileAction::Publish(job(parts)))
    }

    fn run(&self, job: ProfileAction) -> Result<(), PublishError> {
        self.runtime.block_on(self.publisher.run(job))
    }

    fn metric(&self, line: &str) -> bool {
        self.metrics.render().unwrap().contains(line)
    }
}

#[test]
fn a_profile_is_owned_by_its_ckb_probe_and_says_what_it_is() {
    let rig = rig();
    rig.sends("n.0", &spec("ckb-0", 60));
    rig.sends("n.1", &spec("ckb-1", 40));
    rig.publish(&[("n.0", "ckb-0"), ("n.1", "ckb-1")]).unwrap();
    let profile = rig.api.profile().unwrap();
    let labels = profile.metadata.labels.unwrap();
    assert_eq!(labels[label::CKB_PROBE], "p");
    assert_eq!(labels[label::PROBE], "flames");
    assert_eq!(labels[label::MODE], "Cpu");
    assert_eq!(labels[label::WINDOW], "7");
    let stored = serde_json::to_string(&profile.spec).unwrap().len();
    let bytes: usize = labels[label::BYTES].parse().unwrap();
    assert!((stored..stored + 200).contains(&bytes), "{bytes}, {stored}");
    assert_eq!(
        owner(&profile.metadata.owner_references.unwrap()).as_deref(),
        Some("uid-p")
    );
    assert_eq!(profile.spec.counts.samples, 100);
    assert_eq!(profile.spec.targets.len(), 2);
    assert!(rig.metric("ckb_probe_profiles_published_total{mode=\"Cpu\"} 1"));
    assert!(rig.metric("ckb_probe_profile_parts_merged_total 2"));
    assert_eq!(rig.api.events(), [""; 0]);
}

#[test]
fn a_repeat_changes_nothing_and_what_comes_late_is_added() {
    let rig = rig();
    rig.sends("n.0", &spec("ckb-0", 60));
    for _ in 0..2 {
        rig.publish(&[("n.0", "ckb-0")]).unwrap();
    }
    assert_eq!(rig.api.count(&format!("PATCH {PROFILE}")), 1);
    rig.sends("n.1", &spec("ckb-1", 40));
    for _ in 0..2 {
        rig.publish(&[("n.0", "ckb-0"), ("n.1", "ckb-1")]).unwrap();
    }
    assert_eq!(rig.api.count(&format!("PATCH {PROFILE}")), 2);
    assert_eq!(rig.api.profile().unwrap().spec.counts.samples, 100);
}

#[test]
fn what_an_earlier_ckb_probe_or_another_question_left_is_written_over() {
    for (field, value) in [
        ("/metadata/ownerReferences/0/uid", "uid-earlier"),
        ("/metadata/labels/ckbprobe.dev~1asks", "something else"),
        ("/spec/pprof", "AAAA"),
    ] {
        let rig = rig();
        rig.sends("n.0", &spec("ckb-0", 60));
        rig.publish(&[("n.0", "ckb-0")]).unwrap();
        let mut objects = rig.api.objects.lock().unwrap();
        let profile = objects.get_mut(PROFILE).unwrap();
        *profile.pointer_mut(field).unwrap() = value.into();
        drop(objects);
        rig.sends("n.1", &spec("ckb-1", 40));
        rig.publish(&[("n.1", "ckb-1")]).unwrap();
        assert_eq!(
            rig.api.profile().unwrap().spec.counts.samples,
            40,
            "{field}"
        );
    }
}

#[test]
fn parts_that_contradict_themselves_or_hold_no_stacks_are_told_of_and_spoil_nothing() {
    let rig = rig();
    rig.sends("n.0", &spec("ckb-0", 60));
    let lies = PartLabels {
        window: 8,
        ..PartLabels::of(&spec("ckb-1", 40))
    };
    rig.api.has("n.1", &spec("ckb-1", 40), &lies);
    let mut broken = spec("ckb-2", 40);
    broken.pprof = Some(ByteString(vec![7; 100]));
    rig.sends("n.2", &broken);
    let mut failed = spec("ckb-3", 40);
    (failed.pprof, failed.failure) = (None, Some("this kernel lacks it".into()));
    rig.sends("n.3", &failed);
    rig.publish(&[
        ("n.0", "ckb-0"),
        ("n.1", "ckb-1"),
        ("n.2", "ckb-2"),
        ("n.3", "ckb-3"),
        ("n.4", "gone"),
    ])
    .unwrap();
    let profile = rig.api.profile().unwrap();
    assert_eq!(profile.spec.counts.samples, 60);
    let targets: Vec<_> = (profile.spec.targets.iter())
        .map(|target| (&*target.pod, target.failure.is_some()))
        .collect();
    assert_eq!(
        targets,
        [("ckb-0", false), ("ckb-2", true), ("ckb-3", true)]
    );
    let [note] = &rig.api.events()[..] else {
        panic!("{:?}", rig.api.events());
    };
    assert!(note.starts_with("Cpu of probe flames: "), "{note}");
    assert!(
        note.contains("the agent on node n sent a part that is not what its labels say"),
        "{note}"
    );
    assert!(
        note.contains("the stacks of pod ckb-2 are of no use: "),
        "{note}"
    );
    assert!(
        note.contains("there are no stacks of pod ckb-3: this kernel lacks it"),
        "{note}"
    );
    assert!(rig.metric("ckb_probe_profile_parts_dropped_total{reason=\"Contradictory\"} 1"));
    assert!(rig.metric("ckb_probe_profile_parts_dropped_total{reason=\"Malformed\"} 1"));
}

#[test]
fn where_nobody_has_stacks_there_is_no_profile_and_an_event_says_why() {
    let rig = rig();
    let mut failed = spec("ckb-0", 40);
    (failed.pprof, failed.failure) = (None, Some("this kernel lacks it".into()));
    rig.sends("n.0", &failed);
    rig.publish(&[("n.0", "ckb-0")]).unwrap();
    assert_eq!(rig.api.profile(), None);
    assert_eq!(
        rig.api.events(),
        ["Cpu of probe flames: there are no stacks of pod ckb-0: this kernel lacks it"]
    );
}

#[test]
fn where_nothing_was_seen_there_is_no_profile_and_whoever_is_seen_later_has_one() {
    let rig = rig();
    let mut idle = spec("ckb-0", 40);
    idle.pprof = Some(ByteString(Profile::of(ProfileMode::Cpu).to_pprof()));
    idle.counts = ProfileCounts::default();
    rig.sends("n.0", &idle);
    rig.publish(&[("n.0", "ckb-0")]).unwrap();
    assert_eq!(rig.api.profile(), None);
    // That is as it may be.
    assert!(rig.api.events().is_empty());
    rig.sends("n.1", &spec("ckb-1", 60));
    rig.publish(&[("n.0", "ckb-0"), ("n.1", "ckb-1")]).unwrap();
    assert!(rig.api.profile().is_some());
}

#[test]
fn what_cannot_be_written_is_an_error_and_another_version_of_a_part_is_left_for_later() {
    let rig = rig();
    rig.sends("n.0", &spec("ckb-0", 60));
    *rig.api.refuse.lock().unwrap() = Some(concat!(
        "PATCH ",
        "/apis/ckbprobe.dev/v1alpha1/namespaces/a/ckbprofiles/p.flames.cpu.7"
    ));
    let error = rig.publish(&[("n.0", "ckb-0")]).unwrap_err();
    assert_eq!(error.reason(), "WriteProfile");
    assert!(
        error
            .to_string()
            .starts_with("cannot write CkbProfile a/p.flames.cpu.7: "),
        "{error}"
    );
    *rig.api.refuse.lock().unwrap() = None;
    let mut job = job(&[("n.0", "ckb-0")]);
    job.parts[0].id.version = "0".into();
    rig.run(ProfileAction::Publish(job)).unwrap();
    assert_eq!(rig.api.profile(), None);
}

#[test]
fn what_goes_is_deleted_in_the_version_that_was_meant_and_once() {
    let rig = rig();
    rig.sends("n.0", &spec("ckb-0", 60));
    let part = job(&[("n.0", "ckb-0")]).parts.remove(0).id;
    let drop_it = || ProfileAction::Drop {
        part: part.clone(),
        why: Why::TooOld,
    };
    let remove = ProfileAction::Remove {
        key: ObjectKey::new("a", "p.flames.cpu.7"),
        uid: "uid-profile".into(),
    };
    for job in [drop_it(), drop_it(), remove] {
        rig.run(job).unwrap();
    }
    let requests = rig.api.requests.lock().unwrap();
    let wanted: Vec<&Value> = requests
        .iter()
        .map(|(_, body)| &body["preconditions"])
        .collect();
    assert_eq!(
        wanted,
        [
            &json!({ "uid": "uid-n.0", "resourceVersion": "1" }),
            &json!({ "uid": "uid-n.0", "resourceVersion": "1" }),
            &json!({ "uid": "uid-profile" }),
        ]
    );
    drop(requests);
    assert!(rig.metric("ckb_probe_profile_parts_dropped_total{reason=\"TooOld\"} 2"));
    // What is in a profile is not lost.
    let why = Why::Merged;
    rig.run(ProfileAction::Drop { part, why }).unwrap();
    assert!(!rig.metric("reason=\"Merged\""));
}
