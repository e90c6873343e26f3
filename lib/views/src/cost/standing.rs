//! How a CkbProbe stands that is paused and not, by turns.

use ckb_probe_crds::{CkbProbe, InstanceState, InstanceStatus, Reason, condition};

/// Whether its status says that all is attached, or else that nothing is any more: as it is asked now, and not on its way.
pub fn stands(probe: &CkbProbe, attached: bool) -> bool {
    let Some(status) = &probe.status else {
        return false;
    };
    let is = |kind: &str| status.conditions.iter().find(|one| one.type_ == kind);
    let settled = is(condition::PROGRESSING).is_some_and(|one| one.status == "False");
    let paused = is(condition::READY).is_some_and(|one| one.reason == Reason::Paused.as_str());
    let counts = &status.targets;
    let stands = match attached {
        true => !paused && counts.matched > 0 && counts.attached == counts.matched,
        false => paused,
    };
    settled && stands && status.observed_generation == probe.metadata.generation
}

/// Those of its targets that are attached, whose containers and nodes are known.
pub fn attached(probe: &CkbProbe) -> impl Iterator<Item = &InstanceStatus> {
    let instances = probe.status.iter().flat_map(|status| &status.instances);
    instances.filter(|one| {
        one.state == InstanceState::Attached && one.container.is_some() && one.node.is_some()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn probe(generation: i64, progressing: &str, reason: &str, attached: u32) -> CkbProbe {
        let condition = |kind: &str, status: &str, reason: &str| -> Value {
            json!({ "type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-11-26T10:10:36Z" })
        };
        let object = json!({
            "apiVersion": "ckbprobe.dev/v1alpha1",
            "kind": "CkbProbe",
            "metadata": { "name": "ckb", "generation": 3 },
            "spec": { "target": { "selector": {} }, "probes": [] },
            "status": {
                "observedGeneration": generation,
                "conditions": [
                    condition("Ready", "False", reason),
                    condition("Progressing", progressing, "Done"),
                ],
                "targets": { "matched": 2, "attached": attached, "firing": 0, "summary": "" },
                "instances": [
                    { "pod": "a", "container": "node", "node": "node0", "state": "Attached", "reason": "Silent", "message": "" },
                    { "pod": "b", "node": "node0", "state": "Attached", "reason": "Silent", "message": "" },
                    { "pod": "c", "container": "node", "node": "node0", "state": "Waiting", "reason": "Attaching", "message": "" },
                ],
            },
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn what_is_asked_now_counts_once_it_is_no_longer_on_its_way() {
        // Attached and silent is attached.
        let there = probe(3, "False", "Silent", 2);
        assert!(stands(&there, true) && !stands(&there, false));
        let gone = probe(3, "False", "Paused", 0);
        assert!(stands(&gone, false) && !stands(&gone, true));
        for (generation, progressing, reason, count) in [
            // An older answer; one target of two; on its way.
            (2, "False", "Silent", 2),
            (3, "False", "Silent", 1),
            (3, "True", "Silent", 2),
            (2, "False", "Paused", 0),
            (3, "True", "Paused", 1),
        ] {
            let probe = probe(generation, progressing, reason, count);
            assert!(!stands(&probe, true) && !stands(&probe, false), "{probe:?}");
        }
    }

    #[test]
    fn those_count_whose_containers_are_known() {
        let probe = probe(3, "False", "Silent", 2);
        let pods: Vec<&str> = attached(&probe).map(|one| one.pod.as_str()).collect();
        assert_eq!(pods, ["a"]);
    }
}
