//! What no list of events has: where a row is sampled, whatever came between two of its slices.

use std::collections::BTreeSet;

use ckb_probe_crds::{InstanceReport, ProbeStatus, Share};

/// So many rows are named, and the others counted.
const NAMED: usize = 5;

/// Rows that were not watched all of the time, since events are listed of them.
#[derive(Debug, Default)]
pub struct Sampled(BTreeSet<String>);

impl Sampled {
    /// Adds those of the report interval that ended last.
    pub fn add(&mut self, report: &InstanceReport) {
        let rows = report.probes.iter().flat_map(|probe| &probe.rows);
        let sampled = rows.filter(|row| Share::of(&row.window).is_sampled());
        self.0.extend(sampled.map(|row| row.key.clone()));
    }

    /// What whoever reads the list must know of it: None where nothing was sampled.
    pub fn told(&self) -> Option<String> {
        sentence(self.0.iter().map(String::as_str).collect())
    }
}

/// The same of the last report interval of a CkbProbe, by its status.
pub fn of(probes: &[ProbeStatus]) -> Option<String> {
    let rows = probes.iter().flat_map(|probe| &probe.rows);
    let sampled = rows.filter(|row| {
        let percent = row.sampling_percent.as_deref();
        percent.is_some_and(|percent| percent != "100")
    });
    sentence(sampled.map(|row| row.key.as_str()).collect())
}

fn sentence(rows: BTreeSet<&str>) -> Option<String> {
    let others = match rows.len().saturating_sub(NAMED) {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    let named: Vec<&str> = rows.into_iter().take(NAMED).collect();
    if named.is_empty() {
        return None;
    }
    let named = named.join(", ");
    Some(format!(
        "for a part of the time these were not watched, and what came then is not listed: {named}{others}"
    ))
}

#[cfg(test)]
mod tests {
    use ckb_probe_crds::{IntervalFigures, ProbeReport, RowReport, RowStatus};

    use super::*;

    const BEGINS: &str =
        "for a part of the time these were not watched, and what came then is not listed: ";

    fn report(rows: &[(&str, u64)]) -> InstanceReport {
        let row = |(key, recorded): &(&str, u64)| RowReport {
            key: (*key).to_owned(),
            window: IntervalFigures {
                milliseconds: 1000,
                recorded_milliseconds: *recorded,
                ..IntervalFigures::default()
            },
            ..RowReport::default()
        };
        InstanceReport {
            probes: vec![ProbeReport {
                rows: rows.iter().map(row).collect(),
                ..ProbeReport::default()
            }],
            ..InstanceReport::default()
        }
    }

    #[test]
    fn rows_are_named_that_were_not_always_watched_in_any_interval() {
        let mut sampled = Sampled::default();
        assert_eq!(sampled.told(), None);
        sampled.add(&report(&[("Get", 1000), ("TxnCommit", 1000)]));
        assert_eq!(sampled.told(), None);
        sampled.add(&report(&[("Get", 1000), ("TxnGet", 0)]));
        assert_eq!(sampled.told(), Some(format!("{BEGINS}TxnGet")));
        sampled.add(&report(&[("Get", 40), ("TxnGet", 1000)]));
        assert_eq!(sampled.told(), Some(format!("{BEGINS}Get, TxnGet")));
    }

    #[test]
    fn five_are_named_and_it_is_said_how_many_more_there_are() {
        let rows = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|key| RowStatus {
            key: key.to_owned(),
            sampling_percent: (key != "h").then(|| match key {
                "a" => "100".to_owned(),
                _ => "0.04".to_owned(),
            }),
            ..RowStatus::default()
        });
        let status = |rows: &[RowStatus]| ProbeStatus {
            rows: rows.to_vec(),
            ..ProbeStatus::default()
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[status(&rows[..1]), status(&rows[7..])]), None);
        assert_eq!(
            of(&[status(&rows[..6])]),
            Some(format!("{BEGINS}b, c, d, e, f"))
        );
        // A row of two probes is one.
        assert_eq!(
            of(&[status(&rows[..4]), status(&rows)]),
            Some(format!("{BEGINS}b, c, d, e, f and 1 more"))
        );
    }
}
