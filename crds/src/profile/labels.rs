//! What a part says of itself in its name and labels, so that nobody has to read half a mebibyte to know what it is about.
//!
//! The contract of agents and operator: an agent writes the part `part_name(node, slot)` with the labels
//! `PartLabels::of(&spec).to_map()`, when a window of one process ended, if the slot is free. The operator
//! watches names and labels alone, reads a part once its window is to be published, refuses it where its spec says otherwise, and
//! deletes it. An agent that finds a slot free again may use it for something else.

use std::collections::BTreeMap;

use super::{ProfileMode, ProfilePartSpec};

/// The labels of parts and of profiles.
pub mod label {
    /// [`ProfilePartSpec::asks`](super::ProfilePartSpec::asks).
    pub const ASKS: &str = "ckbprobe.dev/asks";
    /// The name of the CkbProbe: of profiles only.
    pub const CKB_PROBE: &str = "ckbprobe.dev/ckbprobe";
    /// The probe's name in the CkbProbe.
    pub const PROBE: &str = "ckbprobe.dev/probe";
    /// [`ProfileMode::as_str`](super::ProfileMode::as_str).
    pub const MODE: &str = "ckbprobe.dev/mode";
    /// [`ProfileWindow::number`](crate::ProfileWindow::number).
    pub const WINDOW: &str = "ckbprobe.dev/window";
    /// How many bytes the object takes of the API server's store, give or take its metadata: of profiles only.
    pub const BYTES: &str = "ckbprobe.dev/bytes";
    /// The pod's uid: of parts only.
    pub const POD: &str = "ckbprobe.dev/pod-uid";
}

/// So many slots a node has: what stays behind while no operator takes parts away is bounded, whatever agents measure.
pub const PART_SLOTS: u8 = 16;

/// The name of the part in a slot of a node. An agent has at most as many parts on their way as there are slots.
pub fn part_name(node: &str, slot: u8) -> String {
    format!("{node}.{slot}")
}

/// The node and the slot of the part with this name; None where no agent may write one of that name.
pub fn part_place(name: &str) -> Option<(&str, u8)> {
    let (node, number) = name.rsplit_once('.')?;
    let slot = number.parse().ok()?;
    // "+7" and "007" are numbers, too.
    (!node.is_empty() && part_name(node, slot) == name).then_some((node, slot))
}

/// What a part's labels say.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct PartLabels {
    /// The word for what is asked.
    pub asks: String,
    /// The probe's name.
    pub probe: String,
    /// What stacks are weighted by.
    pub mode: ProfileMode,
    /// The window's number.
    pub window: u64,
    /// The pod's uid.
    pub pod: String,
}

impl PartLabels {
    /// Those of a part.
    pub fn of(part: &ProfilePartSpec) -> Self {
        Self {
            asks: part.asks.clone(),
            probe: part.probe.clone(),
            mode: part.mode,
            window: part.window.number,
            pod: part.pod.uid.clone(),
        }
    }

    /// As Kubernetes has them.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        let Self {
            asks,
            probe,
            mode,
            window,
            pod,
        } = self;
        let labels = [
            (label::ASKS, asks.clone()),
            (label::PROBE, probe.clone()),
            (label::MODE, mode.as_str().to_owned()),
            (label::WINDOW, window.to_string()),
            (label::POD, pod.clone()),
        ];
        labels.map(|(key, value)| (key.to_owned(), value)).into()
    }

    /// Reads what [`PartLabels::to_map`] wrote; None where one is missing, or means nothing.
    pub fn read(labels: &BTreeMap<String, String>) -> Option<Self> {
        let text = |key: &str| labels.get(key).filter(|text| !text.is_empty()).cloned();
        Some(Self {
            asks: text(label::ASKS)?,
            probe: text(label::PROBE)?,
            mode: ProfileMode::named(&text(label::MODE)?)?,
            window: text(label::WINDOW)?.parse().ok()?,
            pod: text(label::POD)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_that_of_a_node_and_a_slot_or_of_nothing() {
        assert_eq!(part_name("ip-10.internal", 7), "ip-10.internal.7");
        assert_eq!(part_place("ip-10.internal.7"), Some(("ip-10.internal", 7)));
        assert_eq!(part_place("n.255"), Some(("n", 255)));
        for name in ["n", "n.", ".7", "n.256", "n.07", "n.+7", "n.-1", "7", ""] {
            assert_eq!(part_place(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn labels_are_read_as_they_were_written(
            asks in "[0-9a-f]{16}",
            probe in "[a-z][a-z0-9-]{0,61}[a-z0-9]",
            mode in prop::sample::select(ProfileMode::ALL),
            window: u64,
            pod in "[0-9a-f-]{1,36}",
            without in 0_usize..5,
        ) {
            let labels = PartLabels { asks, probe, mode, window, pod };
            let mut map = labels.to_map();
            prop_assert_eq!(map.len(), 5);
            prop_assert_eq!(PartLabels::read(&map), Some(labels));
            let key = map.keys().nth(without).unwrap().clone();
            map.remove(&key);
            prop_assert_eq!(PartLabels::read(&map), None);
        }
    }
}
