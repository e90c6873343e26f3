//! Which namespaces may have their traces exported by which exporter of the installation.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ckb_probe_crds::{CkbProbeSpec, DEFAULT_EXPORTER};

/// Stands for every namespace.
const EVERY: &str = "*";

/// More than these are no list of a chart: an agent has a queue for each.
const MOST: usize = 8;

/// The exporters besides the default, each with the namespaces that may name it. Everybody may name the default.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AdmittedExporters(Arc<BTreeMap<String, BTreeSet<String>>>);

impl AdmittedExporters {
    /// `archive=*;team-a=a,b`: an exporter, and who may name it; `*` is every namespace.
    ///
    /// # Errors
    ///
    /// When it is written otherwise, names an exporter twice, or more than an agent has room for.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut all = BTreeMap::new();
        let entries = text.split(';').map(str::trim);
        for entry in entries.filter(|entry| !entry.is_empty()) {
            let Some((name, namespaces)) = entry.split_once('=') else {
                return Err(format!(
                    "{entry} does not say who may name it: write EXPORTER=NAMESPACE,NAMESPACE, or EXPORTER=* for every namespace"
                ));
            };
            let namespaces = namespaces.split(',').map(str::trim);
            let namespaces = namespaces.filter(|one| !one.is_empty()).map(str::to_owned);
            let name = name.trim().to_owned();
            if name == DEFAULT_EXPORTER || all.contains_key(&name) {
                return Err(format!("{name} is there already: name each exporter once"));
            }
            all.insert(name, namespaces.collect());
        }
        if all.len() > MOST {
            return Err(format!(
                "these are {} exporters: an agent has room for {MOST} besides the default",
                all.len()
            ));
        }
        Ok(Self(Arc::new(all)))
    }

    /// Whether the spec names an exporter that this namespace may not name, or that there is not.
    pub fn refuse(&self, namespace: &str, spec: &CkbProbeSpec) -> bool {
        let Some(traces) = &spec.traces else {
            return false;
        };
        if traces.exporter == DEFAULT_EXPORTER {
            return false;
        }
        let admitted = self.0.get(&traces.exporter);
        !admitted.is_some_and(|all| all.contains(namespace) || all.contains(EVERY))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::probe;

    fn naming(exporter: Option<&str>) -> CkbProbeSpec {
        let traces = exporter.map(|exporter| json!({ "exporter": exporter }));
        let spec = probe("a", "p", json!({ "traces": traces })).spec;
        spec.unwrap().spec
    }

    #[test]
    fn an_exporter_is_named_by_those_namespaces_that_its_list_has() {
        let all = AdmittedExporters::parse("archive=*; team-a=a, b;nobody=").unwrap();
        for (namespace, exporter, refused) in [
            ("a", None, false),
            ("c", Some("default"), false),
            ("c", Some("archive"), false),
            ("a", Some("team-a"), false),
            ("b", Some("team-a"), false),
            ("c", Some("team-a"), true),
            ("aa", Some("team-a"), true),
            ("a", Some("nobody"), true),
            ("a", Some("team"), true),
        ] {
            let said = all.refuse(namespace, &naming(exporter));
            assert_eq!(said, refused, "{namespace} {exporter:?}");
        }
        let none = AdmittedExporters::default();
        assert!(none.refuse("a", &naming(Some("archive"))));
        assert!(!none.refuse("a", &naming(Some("default"))));
    }

    #[test]
    fn what_is_no_list_of_exporters_is_refused_with_a_sentence() {
        let error = |text: &str| AdmittedExporters::parse(text).unwrap_err();
        assert!(error("archive").starts_with("archive does not say who may name it"));
        assert!(error("a=x;a=y").starts_with("a is there already"));
        assert!(error("default=x").starts_with("default is there already"));
        let eight: Vec<_> = (0..8).map(|number| format!("e{number}=*")).collect();
        assert!(AdmittedExporters::parse(&eight.join(";")).is_ok());
        let nine = format!("{};e8=*", eight.join(";"));
        assert!(error(&nine).starts_with("these are 9 exporters"));
    }
}
