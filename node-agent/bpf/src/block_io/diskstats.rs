//! Requests that the programs did not see, by what the kernel says of the same disks in /proc/diskstats.
//!
//! The kernel's own word on that, how often a program was not run as it was running already, is not all of it: on Linux 6.18, of
//! 100,000 requests that ended in a softirq it did not run the programs at the end of 2 to 14, without a word, while perf saw each.

use std::collections::BTreeMap;

use procfs::DiskStat;

/// Requests that have ended, by disk.
pub type Ended = BTreeMap<String, u64>;

/// Holds what was counted of each disk against what the kernel counts. What can't be known for sure it does not claim: the kernel is
/// to be asked after the programs at the beginning, and before them later on; what ends in between then looks as if it had been seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskstatsCheck {
    /// While it looks: what had been counted, and had ended, at the beginning.
    since: Option<(Ended, Ended)>,
    /// How many were missing so far in this time.
    missing: Ended,
    /// In the times before.
    unseen: Ended,
}

impl DiskstatsCheck {
    /// Looks from now on: these were counted, and then these had ended. Where that is not known, it does not look.
    pub fn begin(&mut self, counted: Ended, ended: Option<Ended>) {
        self.end();
        self.since = ended.map(|ended| (counted, ended));
    }

    /// These had ended, and then these were counted. Disks of which no request was ever seen may be made of others, and have none.
    pub fn look(&mut self, ended: &Ended, counted: &Ended) {
        let Some((counted_before, ended_before)) = &self.since else {
            return;
        };
        let of = |all: &Ended, disk| all.get(disk).copied().unwrap_or_default();
        for (disk, counted) in counted {
            let ended = of(ended, disk);
            // It may have come since then, or be a later one of the same name.
            let before = Some(of(ended_before, disk)).filter(|before| *before <= ended);
            let ended = ended - before.unwrap_or_default();
            let missing = ended.saturating_sub(counted.saturating_sub(of(counted_before, disk)));
            if missing > 0 {
                let most = self.missing.entry(disk.clone()).or_default();
                *most = missing.max(*most);
            }
        }
    }

    /// Looks no more.
    pub fn end(&mut self) {
        self.since = None;
        for (disk, missing) in std::mem::take(&mut self.missing) {
            *self.unseen.entry(disk).or_default() += missing;
        }
    }

    /// How many of these disks' were not seen while it looked: at least, and exactly once a disk is at rest.
    pub fn unseen(&self, wanted: impl Fn(&str) -> bool) -> u64 {
        let all = self.unseen.iter().chain(&self.missing);
        let wanted = all.filter(|(disk, _)| wanted(disk));
        wanted.map(|(_, unseen)| unseen).sum()
    }
}

/// What the kernel says now; None where it can't be read, such as for want of a descriptor.
pub fn ended() -> Option<Ended> {
    let disks = procfs::diskstats().ok()?.into_iter();
    let disks = disks.map(|disk| (disk.name.clone(), requests(&disk)));
    Some(disks.collect())
}

fn requests(disk: &DiskStat) -> u64 {
    let later = disk.discards.unwrap_or_default() + disk.flushes.unwrap_or_default();
    disk.reads + disk.writes + later
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn ended(disks: &[(&str, u64)]) -> Ended {
        let disks = disks.iter();
        disks
            .map(|(disk, ended)| (disk.to_string(), *ended))
            .collect()
    }

    #[test]
    fn what_could_not_be_read_at_the_beginning_is_no_beginning() {
        let mut witness = DiskstatsCheck::default();
        witness.begin(ended(&[("vda", 7)]), None);
        witness.look(&ended(&[("vda", 1_000_000)]), &ended(&[("vda", 8)]));
        assert_eq!(unseen(&witness), 0);
    }

    fn unseen(witness: &DiskstatsCheck) -> u64 {
        witness.unseen(|_| true)
    }

    #[test]
    fn what_ended_and_was_not_counted_was_not_seen() {
        let mut witness = DiskstatsCheck::default();
        let before = ended(&[("vda", 100), ("dm-0", 5)]);
        witness.begin(ended(&[("vda", 7)]), Some(before));
        let now = ended(&[("vda", 130), ("dm-0", 50), ("loop0", 3)]);
        witness.look(&now, &ended(&[("vda", 35), ("loop0", 2)]));
        assert_eq!(unseen(&witness), 3);
        assert_eq!(witness.unseen(|disk| disk == "vda"), 2);
        // What ends after the kernel was asked is counted, too.
        let now = ended(&[("vda", 140), ("dm-0", 60), ("loop0", 3)]);
        witness.look(&now, &ended(&[("vda", 49), ("loop0", 2)]));
        assert_eq!(unseen(&witness), 3);
        witness.end();
        // While it does not look, nothing is missing.
        witness.look(&ended(&[("vda", 300)]), &ended(&[("vda", 49)]));
        witness.begin(ended(&[("vda", 49)]), Some(ended(&[("vda", 300)])));
        witness.look(&ended(&[("vda", 303)]), &ended(&[("vda", 51)]));
        assert_eq!(unseen(&witness), 4);
    }

    #[test]
    fn a_later_disk_of_the_same_name_counts_from_zero() {
        let mut witness = DiskstatsCheck::default();
        witness.begin(ended(&[("loop0", 60)]), Some(ended(&[("loop0", 100)])));
        witness.look(&ended(&[("loop0", 10)]), &ended(&[("loop0", 69)]));
        assert_eq!(unseen(&witness), 1);
    }

    proptest! {
        #[test]
        fn it_claims_no_more_than_was_missed_and_all_of_it_at_rest(
            begun in 0u64..1000,
            looks in vec((0u64..50, 0u64..5, 0u64..20), 1..20),
        ) {
            let vda = |count| ended(&[("vda", count)]);
            let mut witness = DiskstatsCheck::default();
            let (mut kernel, mut counted, mut missed) = (begun, 0, 0);
            witness.begin(vda(counted), Some(vda(kernel)));
            for (more, unseen_now, between) in looks {
                kernel += more + unseen_now;
                counted += more;
                missed += unseen_now;
                // Some end between the two questions.
                witness.look(&vda(kernel), &vda(counted + between));
                kernel += between;
                counted += between;
                prop_assert!(unseen(&witness) <= missed);
            }
            witness.look(&vda(kernel), &vda(counted));
            prop_assert_eq!(unseen(&witness), missed);
        }
    }
}
