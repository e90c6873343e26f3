//! Questions that are asked by a name, for whoever does not want to write a CkbProbe.

use std::sync::LazyLock;

use ckb_probe_crds::{Duration, Probe};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Their names and what they ask, in the order in which they are offered.
static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    let text = include_str!("presets.yaml");
    // A test reads them.
    let all: serde_yaml::Mapping = serde_yaml::from_str(text).unwrap_or_default();
    all.into_iter()
        .filter_map(|(name, asked)| {
            let Asked {
                what,
                executable,
                probes,
            } = serde_yaml::from_value(asked).ok()?;
            Some(Preset {
                name: name.as_str()?.to_owned(),
                what,
                executable,
                probes: serde_json::from_value(probes.clone()).ok()?,
                written: probes,
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
    /// The base name of the executable that it is about.
    pub executable: String,
    /// What it asks.
    pub probes: Vec<Probe>,
    /// The same as a person writes it, without what goes without saying.
    written: Value,
}

#[derive(Deserialize)]
struct Asked {
    what: String,
    #[serde(default = "ckb")]
    executable: String,
    probes: Value,
}

fn ckb() -> String {
    "ckb".to_owned()
}

/// A preset, asked of some pods for some time.
#[derive(Clone, Debug)]
pub struct Trial<'a> {
    /// What is asked.
    pub preset: &'a Preset,
    /// What it is called; lower case letters, digits and dashes.
    pub name: &'a str,
    /// Where its pods are; None: wherever it is applied.
    pub namespace: Option<&'a str>,
    /// Which pods.
    pub selector: &'a LabelSelector,
    /// Which of their containers; None: whichever runs the executable.
    pub container: Option<&'a str>,
    /// The base name of the executable.
    pub executable: &'a str,
    /// How much CPU time it may cost, in percent of what the process itself uses.
    pub max_percent: f64,
    /// How often it is reported on.
    pub interval: Duration,
    /// After so long nothing is measured any more, should nobody come to remove it.
    pub duration: Duration,
}

/// Who made it.
pub const MANAGER: &str = "kubectl-ckbprobe";

impl Trial<'_> {
    /// The CkbProbe, as a person would write it.
    pub fn object(&self) -> Value {
        let mut metadata = Map::from_iter([
            ("name".to_owned(), json!(self.name)),
            (
                "labels".to_owned(),
                json!({ "app.kubernetes.io/managed-by": MANAGER }),
            ),
        ]);
        if let Some(namespace) = self.namespace {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
        let mut target = json!({ "selector": self.selector, "executable": self.executable });
        if let Some(container) = self.container {
            target["container"] = json!(container);
        }
        json!({
            "apiVersion": "ckbprobe.dev/v1alpha1",
            "kind": "CkbProbe",
            "metadata": metadata,
            "spec": {
                "target": target,
                "overhead": { "maxPercent": self.max_percent, "onBreach": "Sample" },
                "reportInterval": self.interval,
                "duration": self.duration,
                "probes": self.preset.written,
            },
        })
    }

    /// The same as YAML.
    pub fn yaml(&self) -> String {
        serde_yaml::to_string(&self.object()).unwrap_or_default()
    }
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
    fn they_are_the_nine_that_are_documented_and_each_asks_something() {
        let names: Vec<&str> = all().iter().map(|one| one.name.as_str()).collect();
        let documented = [
            "storage",
            "latency",
            "network",
            "disk",
            "flames",
            "blocks",
            "fiber",
            "light-client",
            "everything",
        ];
        assert_eq!(names, documented);
        let about = all().iter().filter(|one| one.executable != "ckb");
        let about: Vec<_> = about
            .map(|one| (one.name.as_str(), one.executable.as_str()))
            .collect();
        assert_eq!(
            about,
            [("fiber", "fnn"), ("light-client", "ckb-light-client")]
        );
        for preset in all() {
            let asked = preset.probes.iter().map(Probe::kind_spec);
            assert!(asked.clone().all(|one| one.is_some()), "{}", preset.name);
            assert!(asked.count() > 0);
        }
    }

    #[test]
    fn a_trial_is_a_ckbprobe_as_a_person_would_write_it() {
        let selector = crate::selector::parse("app=ckb").unwrap();
        let trial = Trial {
            preset: named("storage").unwrap(),
            name: "try-storage",
            namespace: Some("ckb"),
            selector: &selector,
            container: None,
            executable: "ckb",
            max_percent: 1.0,
            interval: "5s".parse().unwrap(),
            duration: "5m".parse().unwrap(),
        };
        assert_eq!(
            trial.yaml(),
            "apiVersion: ckbprobe.dev/v1alpha1\n\
             kind: CkbProbe\n\
             metadata:\n  \
               labels:\n    app.kubernetes.io/managed-by: kubectl-ckbprobe\n  \
               name: try-storage\n  \
               namespace: ckb\n\
             spec:\n  \
               duration: 300s\n  \
               overhead:\n    maxPercent: 1.0\n    onBreach: Sample\n  \
               probes:\n  - name: storage\n    rocksdb:\n      byColumnFamily: true\n  \
               reportInterval: 5s\n  \
               target:\n    executable: ckb\n    selector:\n      matchLabels:\n        app: ckb\n"
        );
        let read: CkbProbe = serde_json::from_value(trial.object()).unwrap();
        assert_eq!(read.spec.probes, trial.preset.probes);
    }

    #[test]
    fn everything_is_what_the_sample_asks() {
        let sample = include_str!("../../../config/samples/everything.yaml");
        let sample: CkbProbe = serde_yaml::from_str(sample).unwrap();
        assert_eq!(named("everything").unwrap().probes, sample.spec.probes);
    }
}
