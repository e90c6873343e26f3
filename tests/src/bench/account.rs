//! What programs in the kernel take, by the kernel's own account of each run.

use serde_json::Value;

use super::prelude::*;
use crate::{bpf::Held, cluster::run};

const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// The account, which the kernel keeps until this is dropped. To keep it makes each run some tens of nanoseconds dearer.
pub struct Account {
    before: String,
}

/// What a program has taken since it was loaded, while the account was kept.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Runs {
    /// How often it ran.
    pub count: u64,
    /// Nanoseconds, of all runs.
    pub nanoseconds: u64,
}

impl Runs {
    /// Nanoseconds of one.
    pub fn each(self) -> f64 {
        self.nanoseconds as f64 / self.count as f64
    }

    fn since(self, before: Self) -> Self {
        Self {
            count: self.count.saturating_sub(before.count),
            nanoseconds: self.nanoseconds.saturating_sub(before.nanoseconds),
        }
    }
}

impl Account {
    /// Has it kept.
    pub fn open() -> Result<Self> {
        let before = fs::read_to_string(SWITCH).map_err(Failure::system(SWITCH))?;
        fs::write(SWITCH, "1").map_err(Failure::system(SWITCH))?;
        Ok(Self { before })
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        // It costs whoever comes next a little.
        let _ = fs::write(SWITCH, self.before.trim());
    }
}

/// The programs that a process holds, by name; those of one name together.
pub async fn runs(process: Process) -> Result<BTreeMap<String, Runs>> {
    let held = Held::by(process)?.programs;
    let mut runs: BTreeMap<String, Runs> = BTreeMap::new();
    for program in listed("prog").await? {
        let number = |name: &str| program[name].as_u64().unwrap_or_default();
        if held.contains(&number("id")) {
            let name = program["name"].as_str().unwrap_or_default();
            let sum = runs.entry(name.to_string()).or_default();
            sum.count += number("run_cnt");
            sum.nanoseconds += number("run_time_ns");
        }
    }
    Ok(runs)
}

/// What all of them did between two looks.
pub fn all(before: &BTreeMap<String, Runs>, after: &BTreeMap<String, Runs>) -> Runs {
    let mut all = Runs::default();
    for (name, now) in after {
        let since = now.since(before.get(name).copied().unwrap_or_default());
        all.count += since.count;
        all.nanoseconds += since.nanoseconds;
    }
    all
}

/// What one of them did between two looks.
pub fn since(
    before: &BTreeMap<String, Runs>,
    after: &BTreeMap<String, Runs>,
    name: &str,
) -> Result<Runs> {
    let now = after.get(name).ok_or_else(|| {
        Failure::unexpected(format!("a program {name}"), format!("{:?}", after.keys()))
    })?;
    Ok(now.since(before.get(name).copied().unwrap_or_default()))
}

/// Whether a process holds a link of a program of this name.
pub async fn is_linked(process: Process, name: &str) -> Result<bool> {
    let held = Held::by(process)?;
    let programs = listed("prog").await?;
    let is_it = |id: &Value| {
        let mut of_that_id = programs.iter().filter(|program| program["id"] == *id);
        of_that_id.any(|program| program["name"] == name)
    };
    let links = listed("link").await?;
    let mut held = links.iter().filter(|link| {
        link["id"]
            .as_u64()
            .is_some_and(|id| held.links.contains(&id))
    });
    Ok(held.any(|link| is_it(&link["prog_id"])))
}

/// What bpftool lists.
async fn listed(what: &str) -> Result<Vec<Value>> {
    let text = run("bpftool", &["--json", what, "show"], None).await?;
    serde_json::from_str(&text).map_err(Failure::format(format!("bpftool {what}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_before_does_not_count() {
        let runs = |count, nanoseconds| Runs { count, nanoseconds };
        let at = |one, other| -> BTreeMap<String, Runs> {
            [("one".to_string(), one), ("other".to_string(), other)].into()
        };
        let before = at(runs(1, 100), runs(2, 50));
        let after = at(runs(11, 1100), runs(4, 60));
        assert_eq!(all(&before, &after), runs(12, 1010));
        let one = since(&before, &after, "one").unwrap();
        assert_eq!((one, one.each()), (runs(10, 1000), 100.0));
        since(&before, &after, "none").unwrap_err();
    }
}
