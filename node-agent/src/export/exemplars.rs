//! Which traces stand for what is in the metrics: of each row and each bucket the last one that was exported.

use std::collections::BTreeMap;

use super::exposition::Exemplar;
use crate::target::InstanceKey;

/// So many are kept, of some 150 bytes each. Of what finds no room there is none until something is forgotten.
const MOST: usize = 4096;

/// Where in the books of a target: the name of the probe, of the row, and of the part, if it is one.
pub type Place = (String, String, Option<String>);

/// Those of a row or a part of one, by how long they took: each power of two, which the buckets of metrics are too, has one.
type Links = BTreeMap<u32, Exemplar>;

/// Those of all targets.
#[derive(Clone, Debug, Default)]
pub struct Exemplars {
    targets: BTreeMap<InstanceKey, BTreeMap<Place, Links>>,
    count: usize,
}

/// The power of two that is the least above a duration.
pub fn power(nanoseconds: u64) -> u32 {
    u64::BITS - nanoseconds.leading_zeros()
}

impl Exemplars {
    /// From now on this one stands for what is like it, in the row and in the part.
    pub fn note(&mut self, key: &InstanceKey, place: &Place, exemplar: Exemplar) {
        let (probe, row, part) = place;
        let of_row = part.is_some().then(|| (probe.clone(), row.clone(), None));
        for place in of_row.into_iter().chain([place.clone()]) {
            let targets = self.targets.entry(key.clone()).or_default();
            let links = targets.entry(place).or_default();
            let power = power(exemplar.nanoseconds);
            let is_new = !links.contains_key(&power);
            if is_new && self.count >= MOST {
                continue;
            }
            links.insert(power, exemplar);
            self.count += usize::from(is_new);
        }
    }

    /// Those of a row, or of a part of one.
    pub fn of(
        &self,
        key: &InstanceKey,
        probe: &str,
        row: &str,
        part: Option<&str>,
    ) -> impl Iterator<Item = (u32, Exemplar)> {
        let links = self.targets.get(key).and_then(|places| {
            let place = (probe.to_string(), row.to_string(), part.map(str::to_string));
            places.get(&place)
        });
        let links = links.into_iter().flatten();
        links.map(|(power, exemplar)| (*power, *exemplar))
    }

    /// Whether there are none of other targets.
    pub fn are_of(&self, is_known: impl Fn(&InstanceKey) -> bool) -> bool {
        self.targets.keys().all(is_known)
    }

    /// Forgets those of all other targets.
    pub fn keep(&mut self, is_known: impl Fn(&InstanceKey) -> bool) {
        self.targets.retain(|key, _| is_known(key));
        let links = self.targets.values().flat_map(BTreeMap::values);
        self.count = links.map(BTreeMap::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use ckb_probe_traces::Ids;
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn placed(row: &str, part: Option<&str>) -> Place {
        let part = part.map(str::to_string);
        ("storage".to_string(), row.to_string(), part)
    }

    fn exemplar(ids: &mut Ids, nanoseconds: u64) -> Exemplar {
        Exemplar {
            trace: ids.trace(),
            span: ids.span(),
            nanoseconds,
            time: Timestamp::UNIX_EPOCH,
        }
    }

    fn key(pod: &str) -> InstanceKey {
        let mut key = InstanceKey::default();
        key.pod.name = pod.to_string();
        key
    }

    #[test]
    fn the_last_of_each_power_of_two_stands_for_the_row_and_for_the_part() {
        let (mut all, mut ids, key) = (Exemplars::default(), Ids::from_seed(1), key("a"));
        let (first, last, long) = (
            exemplar(&mut ids, 1024),
            exemplar(&mut ids, 2047),
            exemplar(&mut ids, 2048),
        );
        all.note(&key, &placed("Get", Some("5")), first);
        all.note(&key, &placed("Get", Some("5")), last);
        all.note(&key, &placed("Get", None), long);
        let of = |part| all.of(&key, "storage", "Get", part).collect::<Vec<_>>();
        assert_eq!(of(None), [(11, last), (12, long)]);
        assert_eq!(of(Some("5")), [(11, last)]);
        assert_eq!(of(Some("6")), []);
        assert_eq!(all.of(&key, "other", "Get", None).count(), 0);
        assert_eq!(
            all.of(&super::tests::key("b"), "storage", "Get", None)
                .count(),
            0
        );
    }

    #[test]
    fn no_more_are_kept_than_there_is_room_for_and_whoever_goes_makes_room() {
        let (mut all, mut ids) = (Exemplars::default(), Ids::from_seed(1));
        let (gone, stays) = (key("gone"), key("stays"));
        for row in 0..MOST {
            all.note(
                &gone,
                &placed(&row.to_string(), None),
                exemplar(&mut ids, 9),
            );
        }
        let late = exemplar(&mut ids, 9);
        all.note(&stays, &placed("late", None), late);
        assert_eq!(all.of(&stays, "storage", "late", None).count(), 0);
        // One that is there is renewed all the same.
        all.note(&gone, &placed("0", None), late);
        assert_eq!(all.of(&gone, "storage", "0", None).last(), Some((4, late)));
        all.keep(|key| *key == stays);
        all.note(&stays, &placed("late", None), late);
        assert_eq!(
            all.of(&stays, "storage", "late", None).last(),
            Some((4, late))
        );
    }
}
