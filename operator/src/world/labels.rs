//! A pod's labels, kept small: as a map, they are nearly half of what is kept of a pod, and they are looked at only when it or a
//! CkbProbe of its namespace changes.

use std::collections::BTreeMap;

/// Labels, in the order of their keys.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Labels {
    /// `key=value`, line by line: no label holds either sign.
    text: Box<str>,
}

impl Labels {
    /// The labels, unpacked.
    pub fn map(&self) -> BTreeMap<String, String> {
        let labels = self.text.lines().filter_map(|line| line.split_once('='));
        labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }
}

impl From<BTreeMap<String, String>> for Labels {
    fn from(map: BTreeMap<String, String>) -> Self {
        let lines: Vec<String> = map
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        Self {
            text: lines.join("\n").into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Of what the API server takes as keys and values.
        #[test]
        fn what_is_kept_is_what_there_was(
            map in prop::collection::btree_map("([a-z.]{1,9}/)?[A-Za-z0-9][-_.A-Za-z0-9]{0,9}", "[-_.A-Za-z0-9]{0,9}", 0..9),
        ) {
            prop_assert_eq!(Labels::from(map.clone()).map(), map);
        }
    }
}
