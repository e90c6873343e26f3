//! The chart, as helm makes objects of it.

use std::{fs, path::PathBuf, process::Command};

use serde::Deserialize as _;
use serde_json::Value;

use crate::fixture::repository;

/// Where it is.
pub fn root() -> PathBuf {
    repository().join("charts/ckb-probe")
}

/// The pinned helm, or whatever this machine has: scripts/setup.sh cluster installs it.
pub fn helm() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cache = home.map(|home| home.join(".cache/ckb-probe"));
    let cached = cache.and_then(|cache| fs::read_dir(cache).ok());
    let mut helms = cached.into_iter().flatten().filter_map(|entry| {
        let path = entry.ok()?.path();
        let is_one = path.file_name()?.to_str()?.starts_with("helm-");
        let helm = path.join("bin/helm");
        (is_one && helm.exists()).then_some(helm)
    });
    helms.next().unwrap_or("helm".into())
}

/// The objects that the chart makes with these values, or what helm says against them.
///
/// # Panics
/// Where there is no helm, or it makes what is no YAML.
pub fn rendered(values: &[&str]) -> Result<Vec<Value>, String> {
    let mut command = Command::new(helm());
    command
        .args(["template", "ckb-probe", "--namespace", "system"])
        .arg(root());
    for value in values {
        command.args(["--set", value]);
    }
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("helm: {error}: see scripts/setup.sh"));
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let documents = serde_yaml::Deserializer::from_slice(&output.stdout);
    let objects = documents
        .map(|document| Value::deserialize(document).unwrap_or_else(|error| panic!("{error}")));
    Ok(objects.filter(|object| !object.is_null()).collect())
}

/// One of these objects.
pub fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    let mut objects = objects.iter();
    objects.find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
}
