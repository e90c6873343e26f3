//! Where a moment comes from: the reports of a cluster's agents, its statuses alone, or the books of a process on a host.

use std::hash::{DefaultHasher, Hash, Hasher};

use ckb_probe_crds::{
    CkbProbe, InstanceReport, InstanceState, InstanceStatus, Kind, NodeProbe, ProbeReport,
    ProbeStatus, Reason,
};

use super::{Moment, Target, of_status, rows};

/// That of CkbProbes, by the reports of these nodes. Without reports, which not everybody may read, by what statuses say of all targets
/// together.
pub fn of_cluster(probes: &[CkbProbe], orders: Option<&[NodeProbe]>) -> Moment {
    let mut moment = Moment::default();
    for probe in probes {
        let Some(status) = &probe.status else {
            moment.targets.push(unanswered(probe));
            continue;
        };
        moment.cost = match (&moment.cost, &status.overhead.summary) {
            (None, cost) => cost.clone(),
            // Of several, what each costs is in its own status.
            (Some(_), _) if probes.len() > 1 => None,
            (known, _) => known.clone(),
        };
        match orders {
            Some(orders) => {
                let each = status.instances.iter();
                moment
                    .targets
                    .extend(each.flat_map(|instance| of_instance(probe, instance, orders)));
            }
            None => {
                let stamp = status
                    .last_report_time
                    .as_ref()
                    .map(|time| time.0.to_string());
                let each = status.probes.iter();
                moment
                    .targets
                    .extend(each.map(|one| of_all(probe, one, hash(&stamp))));
            }
        }
    }
    if probes.len() > 1 {
        moment.cost = None;
    }
    moment
}

/// That of a process on a host. `stamp` is another number after each interval.
pub fn of_reports(
    name: &str,
    reports: &[ProbeReport],
    overhead_millipercent: Option<u64>,
    stamp: u64,
) -> Moment {
    Moment {
        cost: overhead_millipercent.map(ckb_probe_crds::numbers::percent_summary),
        targets: reports
            .iter()
            .map(|report| of_report(name.to_owned(), name.to_owned(), report, stamp))
            .collect(),
    }
}

fn subject(probe: &CkbProbe) -> String {
    let meta = &probe.metadata;
    format!(
        "{}/{}",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default()
    )
}

fn unanswered(probe: &CkbProbe) -> Target {
    let said = "the operator has yet to answer";
    Target {
        subject: subject(probe),
        name: subject(probe),
        lost: Some(("Unanswered".to_owned(), said.to_owned())),
        ..Target::default()
    }
}

/// What is told of a target, by each of its probes.
fn of_instance(probe: &CkbProbe, instance: &InstanceStatus, orders: &[NodeProbe]) -> Vec<Target> {
    let name = match &instance.container {
        Some(container) => format!("{}/{container}", instance.pod),
        None => instance.pod.clone(),
    };
    let lost = |reason: String, message: &str| {
        vec![Target {
            subject: subject(probe),
            name: name.clone(),
            lost: Some((reason, message.to_owned())),
            ..Target::default()
        }]
    };
    if instance.state != InstanceState::Attached {
        return lost(word(instance.reason), &instance.message);
    }
    let Some((report, stamp)) = report_of(probe, instance, orders) else {
        return lost(
            "NoReport".to_owned(),
            "the agent's report of it is not there",
        );
    };
    let each = report.probes.iter();
    each.map(|one| of_report(subject(probe), name.clone(), one, stamp))
        .collect()
}

/// What its agent told of a target, in the name of this CkbProbe, or of another that asks the same; and a number for that report.
fn report_of<'a>(
    probe: &CkbProbe,
    instance: &InstanceStatus,
    orders: &'a [NodeProbe],
) -> Option<(&'a InstanceReport, u64)> {
    let uid = probe.metadata.uid.as_deref().unwrap_or_default();
    let namespace = probe.metadata.namespace.as_deref().unwrap_or_default();
    let statuses = orders.iter().filter_map(|order| order.status.as_ref());
    let reports = statuses.flat_map(|status| {
        let stamp = hash(&status.reported_at.as_ref().map(|time| time.0.to_string()));
        status.instances.iter().map(move |one| (one, stamp))
    });
    let of_target = reports.filter(|(one, _)| {
        let is_pod = one.pod.namespace == namespace && one.pod.name == instance.pod;
        is_pod && one.container == instance.container
    });
    let own: Vec<_> = of_target.collect();
    // What waits for an anomaly is in no report.
    let is_asked = |told: &InstanceReport| {
        let has = |name: &String| told.probes.iter().any(|one| one.name == *name);
        let probes = probe.spec.probes.iter();
        let asked = probes.filter(|one| one.capture().is_none() || has(&one.name));
        let told = told.probes.iter().map(|one| &one.name);
        told.eq(asked.map(|one| &one.name))
    };
    let mut by_name = own.iter().filter(|(one, _)| one.probe.uid == uid);
    let same = || {
        let mut each = own.iter();
        each.find(|(one, _)| is_asked(one))
    };
    by_name.next().or_else(same).copied()
}

fn of_report(subject: String, name: String, report: &ProbeReport, stamp: u64) -> Target {
    let target = Target {
        subject,
        name,
        probe: report.name.clone(),
        kind: report.kind.clone(),
        stamp,
        ..Target::default()
    };
    if report.state != InstanceState::Attached {
        let reason = report.reason.map_or_else(|| "Waiting".to_owned(), word);
        return Target {
            lost: Some((reason, report.message.clone())),
            ..target
        };
    }
    let mut kinds = Kind::ALL.iter();
    let Some(kind) = kinds.find(|known| known.as_str() == report.kind) else {
        return target;
    };
    let (all, rows, interval_ms) = rows(kind.descriptor(), &report.rows);
    Target {
        interval_ms,
        all,
        rows,
        ..target
    }
}

/// All targets of a CkbProbe together.
fn of_all(probe: &CkbProbe, status: &ProbeStatus, stamp: u64) -> Target {
    let counts = &status.targets;
    let mut kinds = Kind::ALL.iter();
    let kind = kinds.find(|known| known.as_str() == status.kind);
    let rows = kind.into_iter().flat_map(|kind| {
        let each = status.rows.iter();
        each.map(|row| of_status(kind.descriptor(), row))
    });
    let interval = probe.spec.report_interval.get().as_millis();
    Target {
        subject: subject(probe),
        name: format!("{} ({} targets)", subject(probe), counts.summary),
        probe: status.name.clone(),
        kind: status.kind.clone(),
        lost: (counts.attached == 0).then(|| {
            let why = match status.capture {
                Some(_) => "Waiting",
                None => "NotAttached",
            };
            (why.to_owned(), status.message.clone())
        }),
        stamp,
        interval_ms: u64::try_from(interval).unwrap_or_default(),
        all: super::Row::default(),
        rows: rows.collect(),
    }
}

fn word(reason: Reason) -> String {
    reason.as_str().to_owned()
}

fn hash(text: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
