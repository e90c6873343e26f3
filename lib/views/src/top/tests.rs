use ckb_probe_crds::{CkbProbe, InstanceState, NodeProbe, ProbeReport, Reason, histogram::bucket};

use super::*;

fn probe() -> CkbProbe {
    serde_yaml::from_str(include_str!("../diagnosis/tests/objects/ckbprobe.yaml")).unwrap()
}

/// A second in which the row has so many calls of 2 us.
fn report(key: &str, calls: u64, recorded_milliseconds: u64) -> RowReport {
    let mut row = RowReport {
        key: key.to_owned(),
        ..RowReport::default()
    };
    let distribution = ckb_probe_crds::Distribution {
        histogram: [(bucket(2_000), calls)].into_iter().collect(),
        sum: calls * 2_000,
        unmeasured: 0,
    };
    row.window.milliseconds = 1_000;
    row.window.recorded_milliseconds = recorded_milliseconds;
    row.window.figures.distributions = [("duration".into(), distribution)].into();
    row.total = row.window.figures.clone();
    row
}

fn order(rows: Vec<RowReport>) -> NodeProbe {
    let text = include_str!("../diagnosis/tests/objects/nodeprobe.yaml");
    let mut order: NodeProbe = serde_yaml::from_str(text).unwrap();
    order.status.as_mut().unwrap().instances[0].probes[0].rows = rows;
    order
}

fn told(figure: &Option<Figure>) -> Option<&str> {
    figure.as_ref().map(|one| one.shown.as_str())
}

#[test]
fn each_target_is_told_with_its_rows_the_busiest_first() {
    let rows = vec![report("Put", 10, 1_000), report("Get", 1_000, 1_000)];
    let moment = of_cluster(&[probe()], Some(&[order(rows)]));
    assert_eq!(moment.cost.as_deref(), Some("0.4%"));
    assert_eq!(moment.targets.len(), 1);
    let target = &moment.targets[0];
    assert_eq!(
        (
            target.subject.as_str(),
            target.name.as_str(),
            target.probe.as_str()
        ),
        ("e2e-soak/steady", "steady/fixture", "storage")
    );
    let keys: Vec<&str> = target.rows.iter().map(|row| row.key.as_str()).collect();
    assert_eq!(keys, ["Get", "Put"]);
    let get = &target.rows[0];
    assert_eq!(told(&get.rate), Some("1000"));
    assert_eq!(told(&get.time), Some("0.2%"), "2 ms of a second");
    assert_eq!(told(&target.all.rate), Some("1010"));
    assert_eq!(get.error, None);
    let document = moment.document();
    assert_eq!(
        document.targets[0].rows[0].time_percent.as_deref(),
        Some("0.2")
    );
    assert_eq!(document.targets[0].interval_milliseconds, 1_000);
}

#[test]
fn what_was_not_seen_is_not_zero_and_what_is_the_least_is_told() {
    let unseen = report("Get", 0, 0);
    let sampled = report("Put", 0, 100);
    let none = report("Write", 0, 1_000);
    let mut cut = report("Delete", 5, 1_000);
    let values = cut
        .window
        .figures
        .distributions
        .get_mut("duration")
        .unwrap();
    values.unmeasured = 1;
    cut.window.figures.leave_out();
    let moment = of_cluster(&[probe()], Some(&[order(vec![unseen, sampled, none, cut])]));
    let row = |key: &str| {
        let mut rows = moment.targets[0].rows.iter();
        rows.find(|row| row.key == key).unwrap()
    };
    for key in ["Get", "Put"] {
        let Row {
            rate, p99, time, ..
        } = row(key);
        assert_eq!((rate, p99, time), (&None, &None, &None), "{key}");
    }
    assert_eq!(told(&row("Write").rate), Some("0"));
    assert_eq!(told(&row("Write").time), Some("0%"));
    assert_eq!(told(&row("Delete").rate), Some("≥6"));
    assert!(told(&row("Delete").time).unwrap().starts_with('≥'));
    assert_eq!(row("Delete").error.as_deref(), Some("at least"));
    let document = moment.document();
    let mut rows = document.targets[0].rows.iter();
    let delete = rows.find(|row| row.row == "Delete").unwrap();
    assert_eq!(
        (delete.per_second.as_deref(), delete.rate_is_at_least),
        (Some("6"), true)
    );
}

#[test]
fn all_rows_together_are_the_least_that_there_was_where_one_was_not_seen() {
    let whole = |rows| {
        of_cluster(&[probe()], Some(&[order(rows)])).targets[0]
            .all
            .clone()
    };
    for unseen in [report("Get", 0, 0), report("Get", 0, 100)] {
        let all = whole(vec![unseen, report("Put", 20, 1_000)]);
        assert_eq!(told(&all.rate), Some("≥20"));
        assert_eq!(told(&all.time), Some("≥0.004%"));
        assert_eq!(all.error.as_deref(), Some("at least"));
    }
    let all = whole(vec![report("Get", 0, 1_000), report("Put", 20, 1_000)]);
    assert_eq!((told(&all.rate), &all.error), (Some("20"), &None));
    assert_eq!(told(&all.time), Some("0.004%"));
    let all = whole(vec![report("Get", 0, 0)]);
    assert_eq!((&all.rate, &all.time), (&None, &None), "nothing at all");
}

#[test]
fn a_target_that_is_lost_has_no_figures_but_a_reason() {
    let mut lost = probe();
    let instance = &mut lost.status.as_mut().unwrap().instances[0];
    instance.state = InstanceState::Waiting;
    instance.reason = Reason::AgentStarting;
    let moment = of_cluster(&[lost], Some(&[order(vec![report("Get", 9, 1_000)])]));
    let (reason, _) = moment.targets[0].lost.clone().unwrap();
    assert_eq!(
        (reason.as_str(), moment.targets[0].rows.len()),
        ("AgentStarting", 0)
    );
    // Its status is ahead of what the node told.
    let moment = of_cluster(&[probe()], Some(&[]));
    assert_eq!(moment.targets[0].lost.as_ref().unwrap().0, "NoReport");
    let unanswered = CkbProbe {
        status: None,
        ..probe()
    };
    assert_eq!(
        of_cluster(&[unanswered], None).targets[0]
            .lost
            .as_ref()
            .unwrap()
            .0,
        "Unanswered"
    );
}

#[test]
fn whoever_may_not_list_reports_sees_all_targets_together() {
    let moment = of_cluster(&[probe()], None);
    let target = &moment.targets[0];
    assert_eq!(target.name, "e2e-soak/steady (1/1 targets)");
    let get = target.rows.iter().find(|row| row.key == "Get").unwrap();
    assert_eq!(
        (told(&get.rate), told(&get.p99)),
        (Some("733"), Some("96.3us"))
    );
    assert_eq!(get.p99.as_ref().unwrap().number, 96_300.0);
    assert_eq!(get.time, None);
}

#[test]
fn a_process_on_a_host_is_shown_by_the_same_function() {
    let told = ProbeReport {
        name: "storage".to_owned(),
        kind: "rocksdb".to_owned(),
        state: InstanceState::Attached,
        rows: vec![report("Get", 10, 1_000)],
        ..ProbeReport::default()
    };
    let moment = of_reports("process 7 (ckb)", &[told], Some(412), 3);
    assert_eq!(moment.cost.as_deref(), Some("0.4%"));
    let target = &moment.targets[0];
    assert_eq!(
        (target.name.as_str(), target.stamp, target.rows.len()),
        ("process 7 (ckb)", 3, 1)
    );
}

#[test]
fn times_are_read_as_they_are_written() {
    for written in [0, 999, 1_050, 12_300, 1_050_000, 2_500_000_000] {
        assert_eq!(
            nanos(&ckb_probe_crds::display_nanos(written)),
            Some(written)
        );
    }
    for other in ["", "5", "us", "1.2.3us", "5m"] {
        assert_eq!(nanos(other), None, "{other}");
    }
}

#[test]
fn what_a_tenant_named_cannot_control_a_terminal() {
    let rows = vec![report("\u{1b}[31mGet\u{202e}\r\n", 1, 1_000)];
    let moment = of_cluster(&[probe()], Some(&[order(rows)])).neutral();
    assert_eq!(moment.targets[0].rows[0].key, " [31mGet  ");
}

#[test]
fn a_profile_that_waits_for_an_anomaly_hides_no_report_and_is_not_lost() {
    use ckb_probe_crds::{
        CaptureStatus, KindSpec, Probe, ProbeStatus, kinds::profile::ProfileProbe,
    };
    let waits = ProfileProbe {
        capture_on_anomaly: true,
        ..ProfileProbe::default()
    };
    let mut probe = probe();
    let question: KindSpec = waits.into();
    probe.spec.probes.push(Probe::new("flames", question));
    // The order is in the name of another that asks the same.
    probe.metadata.uid = Some("younger".to_owned());
    let moment = of_cluster(
        &[probe.clone()],
        Some(&[order(vec![report("Get", 9, 1_000)])]),
    );
    assert_eq!(moment.targets.len(), 1);
    assert_eq!(moment.targets[0].lost, None);
    let status = ProbeStatus {
        name: "flames".to_owned(),
        kind: "profile".to_owned(),
        message: "waits for an anomaly".to_owned(),
        capture: Some(CaptureStatus::default()),
        ..ProbeStatus::default()
    };
    probe.status.as_mut().unwrap().probes.push(status);
    let moment = of_cluster(&[probe], None);
    let (reason, message) = moment.targets[1].lost.clone().unwrap();
    assert_eq!((&*reason, &*message), ("Waiting", "waits for an anomaly"));
}
