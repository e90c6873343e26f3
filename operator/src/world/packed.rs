//! What agents report, kept small: a report that is taken apart is twenty times as large as its text, and there may be thousands,
//! each of which is looked at only when the status of its CkbProbe is made.

use ckb_probe_crds::{Distribution, Figures, ProbeReport};

/// What was reported of a target's probes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Packed(Box<[u8]>);

impl Packed {
    /// Keeps what a status is made of.
    pub fn of(mut probes: Vec<ProbeReport>) -> Self {
        for row in probes.iter_mut().flat_map(|probe| &mut probe.rows) {
            count(&mut row.total);
            for part in &mut row.parts {
                count(&mut part.total);
            }
        }
        // What was read can be written.
        Self(serde_json::to_vec(&probes).unwrap_or_default().into())
    }

    /// Takes it apart.
    pub fn open(&self) -> Vec<ProbeReport> {
        serde_json::from_slice(&self.0).unwrap_or_default()
    }
}

/// Of all that a target ever did, a status tells how often: not how it was distributed, which is told of the last interval.
fn count(total: &mut Figures) {
    for distribution in total.distributions.values_mut() {
        *distribution = Distribution {
            unmeasured: distribution.count(),
            sum: distribution.sum,
            ..Distribution::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{measuring, row};

    #[test]
    fn counts_and_the_last_interval_are_kept_and_take_little_room() {
        let mut get = row("Get", 100, "119:60,40");
        let ever: ckb_probe_crds::Histogram = (100..160).map(|bucket| (bucket, 12_345)).collect();
        let calls = ever.count();
        get.total.distributions = [(
            "duration".into(),
            Distribution {
                histogram: ever,
                sum: 7,
                unmeasured: 3,
            },
        )]
        .into();
        let reports = vec![measuring("storage", vec![get.clone()])];
        let packed = Packed::of(reports.clone());
        assert!(packed.0.len() < 600, "{} bytes", packed.0.len());

        let opened = packed.open();
        let [opened] = &opened[..] else {
            panic!("{opened:?}");
        };
        let row = &opened.rows[0];
        assert_eq!(row.window, get.window);
        assert_eq!(row.total.sums, get.total.sums);
        let total = &row.total.distributions["duration"];
        assert_eq!((total.count(), total.sum), (calls + 3, 7));
        assert_eq!(opened.firing, reports[0].firing);
    }
}
