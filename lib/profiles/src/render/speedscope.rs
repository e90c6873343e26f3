//! Profiles as speedscope has them: one file of JSON, by <https://www.speedscope.app/file-format-schema.json>.

use indexmap::IndexSet;
use serde_json::json;

use super::{View, lines};
use crate::Stacks;

/// What speedscope counts in; anything else is numbers without a unit.
const UNITS: [&str; 5] = [
    "nanoseconds",
    "microseconds",
    "milliseconds",
    "seconds",
    "bytes",
];

/// The stacks as a sampled profile of this name: each stack is one sample, with its weight.
pub fn speedscope(stacks: &Stacks, view: View, title: &str) -> String {
    let lines = lines(stacks, view);
    let mut names: IndexSet<&str> = IndexSet::new();
    let mut samples = Vec::with_capacity(lines.len());
    let mut total = 0_u64;
    for (stack, weight) in &lines {
        let frames = stack.split(';').map(|name| names.insert_full(name).0);
        samples.push(frames.collect::<Vec<_>>());
        total = total.saturating_add(*weight);
    }
    let unit = stacks.types().get(view.place).map(|of| of.unit.as_str());
    let unit = unit.filter(|unit| UNITS.contains(unit)).unwrap_or("none");
    let frames = names.iter().map(|name| json!({ "name": name }));
    let profile = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": concat!("ckb-probe ", env!("CARGO_PKG_VERSION")),
        "name": title,
        "shared": { "frames": frames.collect::<Vec<_>>() },
        "profiles": [{
            "type": "sampled", "name": title, "unit": unit, "startValue": 0, "endValue": total,
            "samples": samples, "weights": lines.values().collect::<Vec<_>>(),
        }],
    });
    profile.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::{ProfileMode, render::By, testing::stacks};

    #[test]
    fn each_stack_is_a_sample_with_its_weight() {
        let some = stacks(
            ProfileMode::Cpu,
            &["a;main 1 10", "a;main;read 2 20", "b;read 3 30"],
        );
        let view = View {
            place: 1,
            by: By::Thread,
        };
        let written: Value = serde_json::from_str(&speedscope(&some, view, "cpu")).unwrap();
        let names: Vec<&str> = written["shared"]["frames"]
            .as_array()
            .unwrap()
            .iter()
            .map(|frame| frame["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["a", "main", "read", "b"]);
        let profile = &written["profiles"][0];
        assert_eq!(profile["samples"], json!([[0, 1], [0, 1, 2], [3, 2]]));
        assert_eq!(profile["weights"], json!([10, 20, 30]));
        assert_eq!(profile["unit"], "nanoseconds");
        assert_eq!(profile["endValue"], 60);
        let count = View { place: 0, ..view };
        let written: Value = serde_json::from_str(&speedscope(&some, count, "")).unwrap();
        assert_eq!(written["profiles"][0]["unit"], "none");
    }
}
