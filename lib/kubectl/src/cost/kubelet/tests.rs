use serde_json::json;

use super::*;

fn target(pod: &str) -> Target {
    Target {
        namespace: "ckb".to_owned(),
        pod: pod.to_owned(),
        container: "node".to_owned(),
        node: "node0".to_owned(),
    }
}

/// What a kubelet says of two pods at a second: of one as it was two seconds before, and of network of the first alone.
fn said(second: u32, cpu: u64, started: u32) -> BTreeMap<String, Summary> {
    let time = |second: u32| format!("2026-11-26T14:00:{second:02}Z");
    let pod = |name: &str, second: u32, cpu: u64, network: bool| {
        json!({
            "podRef": { "name": name, "namespace": "ckb", "uid": "u" },
            "containers": [
                { "name": "side", "startTime": time(0), "cpu": { "time": time(second), "usageCoreNanoSeconds": 7 } },
                { "name": "node", "startTime": time(started), "cpu": { "time": time(second), "usageNanoCores": 1, "usageCoreNanoSeconds": cpu } },
            ],
            "network": network.then(|| json!({ "time": time(second), "name": "eth0", "rxBytes": cpu / 1000, "txBytes": 0 })),
        })
    };
    let summary = json!({
        "node": { "nodeName": "node0" },
        "pods": [pod("a", second, cpu, true), pod("b", second - 2, cpu / 2, false)],
    });
    let summary: Summary = serde_json::from_value(summary).unwrap();
    [("node0".to_owned(), summary)].into()
}

#[test]
fn a_window_is_between_the_first_look_of_the_kubelet_after_its_beginning_and_the_last() {
    let targets = [target("a"), target("b")];
    let mut watch = Watch::begin(&targets, &said(2, 1_000, 1)).unwrap();
    // The same look, told again.
    watch.see(&said(2, 1_000, 1)).unwrap();
    assert!(!watch.has_begun());
    watch.see(&said(12, 3_000_000, 1)).unwrap();
    assert!(watch.has_begun());
    assert!(!watch.lasts(Duration::from_secs(5)));
    watch.see(&said(22, 13_000_000, 1)).unwrap();
    assert!(watch.lasts(Duration::from_secs(10)));
    assert!(!watch.lasts(Duration::from_secs(11)));
    // 10 ms in ten seconds, and half of that.
    assert_eq!(watch.cpu(), Some(1_500_000.0));
    // Of one of the pods nobody knows.
    assert_eq!(watch.network(), None);
    let readings = watch.readings();
    let of_a = &readings[0];
    assert_eq!((of_a.cpu_from, of_a.cpu_to), (3_000_000, 13_000_000));
    assert_eq!(of_a.from.0.to_string(), "2026-11-26T14:00:12Z");
    // 60 % of 625 µs and 25 % of 400, which with that are 1,000 and 500.
    let estimate = watch.weighted(|target| Some(if target.pod == "a" { 60.0 } else { 25.0 }));
    assert_eq!(estimate, Some((60.0 * 625.0 + 25.0 * 400.0) / 1_025.0));
    assert_eq!(watch.weighted(|_| None), None);
}

#[test]
fn what_one_pod_sends_and_receives_is_told() {
    let targets = [target("a")];
    let mut watch = Watch::begin(&targets, &said(2, 1_000, 1)).unwrap();
    for (second, cpu) in [(12, 3_000_000), (22, 13_000_000)] {
        watch.see(&said(second, cpu, 1)).unwrap();
    }
    assert_eq!(watch.network(), Some(1_000.0));
}

#[test]
fn a_container_that_is_started_anew_or_not_told_of_ends_it() {
    let targets = [target("a")];
    let mut watch = Watch::begin(&targets, &said(2, 1_000, 1)).unwrap();
    let restarted = watch.see(&said(12, 1_000, 9)).unwrap_err();
    assert_eq!(
        restarted.to_string(),
        "container node of pod a was started anew meanwhile"
    );
    let unknown = Watch::begin(&[target("c")], &said(2, 1_000, 1)).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "the kubelet of node node0 tells nothing of the CPU time of c/node"
    );
}
