//! Who looks after profiles, and when.

use super::*;
use crate::profiles::rows::{News as Shelved, PartEntry};

const PART: &str = "DELETE /apis/ckbprobe.dev/v1alpha1/namespaces/system/profileparts/n.0";

/// A part that says nothing of itself.
fn senseless() -> Change {
    Change::Profiles(Shelved::Part(Event::Apply(PartEntry {
        name: "n.0".into(),
        uid: "uid-n.0".into(),
        version: "1".into(),
        node: Some("n".into()),
        about: None,
        written: Timestamp::UNIX_EPOCH,
        seen: Timestamp::UNIX_EPOCH,
    })))
}

#[test]
fn parts_of_profiles_are_looked_after_by_who_leads_and_once_both_kinds_are_listed() {
    Rig::run(FakeApi::new(|_| None), async |rig| {
        rig.synced();
        rig.tell(senseless());
        rig.tell(Change::Profiles(Shelved::Part(Event::InitDone)));
        rig.tell(senseless());
        seconds(5).await;
        rig.lead();
        seconds(5).await;
        assert_eq!(rig.api.count(PART), 0, "profiles have not been listed");
        rig.tell(Change::Profiles(Shelved::Profile(Event::InitDone)));
        seconds(5).await;
        assert!(rig.api.count(PART) >= 1);
        let dropped = "ckb_probe_profile_parts_dropped_total{reason=\"Unreadable\"}";
        rig.says(dropped);
    });
}

#[test]
fn a_watch_on_profiles_that_fails_blames_no_agent() {
    Rig::run(FakeApi::new(|_| None), async |rig| {
        let (probe, pod) = (probe("p"), pod("a", "ckb-0", Some("n")));
        rig.begin();
        rig.target(&probe, &pod);
        seconds(3).await;
        let error = WatchError {
            kind: "ckbprofiles",
            source: watcher::Error::NoResourceVersion,
        };
        rig.news.unbounded_send(Err(error)).unwrap();
        seconds(3).await;
        assert_eq!(rig.api.count(ORDER), 1);
        assert!(rig.ready.load(Ordering::Relaxed), "nothing else waits");
    });
}
