//! Questions that are asked by a name, for whoever does not want to write a CkbProbe.

use std::sync::LazyLock;

use ckb_probe_crds::Probe;
use serde::Deserialize;

/// Their names and what they ask, in the order in which they are offered.
static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    let text = include_str!("presets.yaml");
    // A test reads them.
    let all: serde_yaml::Mapping = serde_yaml::from_str(text).unwrap_or_default();
    all.into_iter()
        .filter_map(|(name, asked)| {
            let Asked { what, probes } = serde_yaml::from_value(asked).ok()?;
            Some(Preset {
                name: name.as_str()?.to_owned(),
                what,
                probes,
            })
        })
        .collect()
});

/// A question with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    /// Its name.
    pub name: String,
    /// What it answers.
    pub what: String,
    /// What it asks.
    pub probes: Vec<Probe>,
}

#[derive(Deserialize)]
struct Asked {
    what: String,
    probes: Vec<Probe>,
}

/// All that there are.
pub fn all() -> &'static [Preset] {
    &PRESETS
}

/// The one of this name.
pub fn named(name: &str) -> Option<&'static Preset> {
    all().iter().find(|one| one.name == name)
}

#[cfg(test)]
mod tests {
    use ckb_probe_crds::CkbProbe;

    use super::*;

    #[test]
    fn they_are_the_seven_that_are_documented_and_each_asks_something() {
        let names: Vec<&str> = all().iter().map(|one| one.name.as_str()).collect();
        let documented = [
            "storage",
            "latency",
            "network",
            "disk",
            "flames",
            "blocks",
            "everything",
        ];
        assert_eq!(names, documented);
        for preset in all() {
            let asked = preset.probes.iter().map(Probe::kind_spec);
            assert!(asked.clone().all(|one| one.is_some()), "{}", preset.name);
            assert!(asked.count() > 0);
        }
    }

    #[test]
    fn everything_is_what_the_sample_asks() {
        let sample = include_str!("../../../config/samples/everything.yaml");
        let sample: CkbProbe = serde_yaml::from_str(sample).unwrap();
        assert_eq!(named("everything").unwrap().probes, sample.spec.probes);
    }
}
