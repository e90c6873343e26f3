//! docs/SPECIFICATION.md: each promise names what shows it, and that is there; or it says what is missing. Its head has the forms.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ckb_probe_tests::{bench, fixture::repository, scenarios, soak};

const PAGE: &str = "docs/SPECIFICATION.md";

/// The head of each table of promises.
const HEAD: &str = "| promise | shown by |";

/// What a row says in place of what shows it, with what is missing after it.
const PENDING: &str = "pending: ";

fn read(path: impl AsRef<Path>) -> String {
    let path = repository().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A row of a table of promises.
struct Row {
    /// Its number on the page, from one.
    line: usize,
    promise: String,
    shown_by: String,
}

fn rows(page: &str) -> Vec<Row> {
    let mut is_table = false;
    let mut rows = Vec::new();
    for (index, text) in page.lines().enumerate() {
        is_table = text == HEAD || is_table && text.starts_with('|');
        if !is_table || text == HEAD || text.starts_with("| ---") {
            continue;
        }
        let (promise, shown_by) = text.trim_matches('|').split_once(" | ").unwrap_or_default();
        rows.push(Row {
            line: index + 1,
            promise: promise.trim().to_string(),
            shown_by: shown_by.trim().to_string(),
        });
    }
    rows
}

impl Row {
    fn is_pending(&self) -> bool {
        let clause = self.shown_by.strip_prefix(PENDING);
        clause.is_some_and(|clause| !clause.is_empty())
    }

    /// What it names in backquotes: nothing else is.
    fn references(&self) -> impl Iterator<Item = &str> {
        self.shown_by.split('`').skip(1).step_by(2)
    }

    fn judge(&self) -> Result<(), String> {
        if self.promise.is_empty() {
            return Err("a row without a promise, or without what shows it".to_string());
        }
        if self.references().next().is_none() && !self.is_pending() {
            return Err(
                "it names nothing that shows it, and does not say what is missing".to_string(),
            );
        }
        self.references().try_for_each(find)
    }
}

/// Succeeds when what a reference names is there.
fn find(reference: &str) -> Result<(), String> {
    let (form, what) = reference.split_once(' ').unwrap_or((reference, ""));
    let is_there = match form {
        "unit" => find_test(what, Tests::Unit)?,
        "test" => find_test(what, Tests::Integration)?,
        "traces" | "nightly" => find_test(what, Tests::Long)?,
        "scenario" => scenarios::ALL.iter().any(|one| one.name == what),
        "fault" => soak::ALL.iter().any(|one| one.name == what),
        "soak" => has_text(&["tests/src/soak.rs", "tests/src/soak"], what),
        "upgrade" => has_text(&["tests/src/upgrade.rs"], what),
        "scale" => has_text(&["tests/src/scale.rs", "tests/src/scale"], what),
        "bench" => {
            let (family, row) = what.split_once(": ").unwrap_or((what, ""));
            let is_family = bench::ALL.iter().any(|one| one.name == family);
            is_family && (row.is_empty() || has_text(&["tests/src/bench"], row))
        }
        "kernel" => {
            let kernel = format!("  '{what} ");
            let script = read("scripts/test-kernels.sh");
            let mut kernels = script.lines().skip_while(|line| *line != "KERNELS=(");
            kernels.any(|line| line.starts_with(&kernel))
        }
        "kubernetes" => {
            let version = format!("  OLDEST_KUBERNETES={what}.");
            read("scripts/lib.sh")
                .lines()
                .any(|line| line.starts_with(&version))
        }
        "lint" => is_checked_by("scripts/lint.sh", what),
        "image" => is_checked_by("scripts/image-test.sh", what),
        _ => return Err(format!("`{reference}`: there is no such form")),
    };
    match is_there {
        true => Ok(()),
        false => Err(format!("`{reference}`: there is none")),
    }
}

/// Whether a script that goes through a list of checks has one of this name.
fn is_checked_by(script: &str, what: &str) -> bool {
    let script = read(script);
    let mut lines = script.lines();
    let checks = lines.find_map(|line| line.trim_start().strip_prefix("for check in "));
    let checks = checks.and_then(|checks| checks.strip_suffix("; do"));
    checks.is_some_and(|checks| checks.split(' ').any(|check| check == what))
}

/// Whether a text of the code begins or ends with this: some names of rows are put together.
fn has_text(paths: &[&str], what: &str) -> bool {
    let (begin, end) = (format!("\"{what}"), format!("{what}\""));
    let mut next: Vec<PathBuf> = paths.iter().map(|path| repository().join(path)).collect();
    while let Some(path) = next.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).unwrap();
            next.extend(entries.map(|entry| entry.unwrap().path()));
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        let mut lines = source
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        if lines.any(|line| line.contains(&begin) || line.contains(&end)) {
            return true;
        }
    }
    false
}

/// Where a package has its tests.
#[derive(Clone, Copy)]
enum Tests {
    /// In its library: `PACKAGE MODULE::NAME`.
    Unit,
    /// Beside it: `PACKAGE TARGET::MODULE::NAME`.
    Integration,
    /// Beside it, or in its library, and too long for a gate: those that `make test-traces` or `make nightly` runs.
    Long,
}

/// Whether there is this test, in the module that is named.
fn find_test(what: &str, tests: Tests) -> Result<bool, String> {
    let (package, path) = what.split_once(' ').unwrap_or((what, ""));
    let folder = folder_of(package).ok_or_else(|| format!("there is no package {package}"))?;
    let mut modules: Vec<&str> = path.split("::").collect();
    let name = modules.pop().unwrap_or_default();
    let is_beside = |target: &&str| {
        let target = folder.join("tests").join(target);
        target.with_extension("rs").is_file() || target.join("main.rs").is_file()
    };
    let (base, root) = match tests {
        Tests::Unit => (folder.join("src"), folder.join("src/lib.rs")),
        Tests::Long if !modules.first().is_some_and(is_beside) => {
            (folder.join("src"), folder.join("src/lib.rs"))
        }
        Tests::Integration | Tests::Long if modules.is_empty() => return Ok(false),
        Tests::Integration | Tests::Long => {
            let target = folder.join("tests").join(modules.remove(0));
            let file = target.with_extension("rs");
            let root = if file.is_file() {
                file
            } else {
                target.join("main.rs")
            };
            (target, root)
        }
    };
    // The innermost module that has a file; what is left of the path are modules in it.
    for depth in (0..=modules.len()).rev() {
        let stem = base.join(modules[..depth].join("/"));
        let files = match depth {
            0 => [root.clone(), root.clone()],
            _ => [stem.with_extension("rs"), stem.join("mod.rs")],
        };
        if let Some(source) = files.iter().find_map(|file| fs::read_to_string(file).ok()) {
            let has_module = |module: &&str| source.contains(&format!("mod {module} {{"));
            let is_long = matches!(tests, Tests::Long);
            return Ok(modules[depth..].iter().all(has_module) && is_test(&source, name, is_long));
        }
    }
    Ok(false)
}

/// The folder of a member of the workspace.
fn folder_of(package: &str) -> Option<PathBuf> {
    let manifest = read("Cargo.toml");
    let (_, members) = manifest.split_once("members = [")?;
    let (members, _) = members.split_once(']')?;
    let head = format!("[package]\nname = \"{package}\"\n");
    let mut folders = members.split('"').skip(1).step_by(2).map(Path::new);
    let found = folders.find(|folder| read(folder.join("Cargo.toml")).starts_with(&head));
    found.map(|folder| repository().join(folder))
}

/// Whether a function of this name is a test that `cargo test` runs.
fn is_test(source: &str, name: &str, is_long: bool) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
    let head = format!("fn {name}(");
    let is_head = |line: &&str| {
        line.strip_prefix("async ")
            .unwrap_or(line)
            .starts_with(&head)
    };
    let Some(place) = lines.iter().position(is_head) else {
        return false;
    };
    let above = lines[..place].iter().rev();
    let above: Vec<_> = above
        .take_while(|line| line.starts_with("#[") || line.starts_with("//"))
        .collect();
    let has = |attribute: &str| above.iter().any(|line| line.starts_with(attribute));
    (has("#[test]") || has("#[tokio::test")) && has("#[ignore") == is_long
}

#[test]
fn each_promise_is_shown_by_what_is_there_or_says_what_is_missing() {
    let rows = rows(&read(PAGE));
    assert!(
        rows.len() > 50,
        "{} rows: {HEAD} is the head of each table",
        rows.len()
    );
    let wrong = rows.iter().filter_map(|row| {
        let why = row.judge().err()?;
        Some(format!("{PAGE}:{}: {why}", row.line))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let pending = rows.iter().filter(|row| row.is_pending()).count();
    println!("{} promises, of which {pending} are pending", rows.len());
}

#[test]
fn what_is_not_there_is_told() {
    for reference in [
        "unit ckb-probe-core governor::tests::no_plan_is_above_the_budget",
        "unit ckb-probe-core governor::frequency::tests::whatever_the_budget_there_is_a_frequency",
        "test ckb-probe-tests ground_truth::counts::a_recursive_call_and_its_caller_are_both_measured",
        "test ckb-probe-agent check::the_child_ends_with_the_pipe_from_its_parent",
        "scenario sampling",
        "fault etcd-killed",
        "soak agent: RSS",
        "upgrade targets that died",
        "scale operator: RSS at its highest",
        "bench mining",
        "bench kills: targets that died",
        "kernel 6.1-rt",
        "kubernetes 1.30",
        "lint documentation",
        "image labels",
    ] {
        assert_eq!(find(reference), Ok(()));
    }
    for reference in [
        // Another module, another name, a function that is no test, a test that is not run.
        "unit ckb-probe-core governor::turns::tests::no_plan_is_above_the_budget",
        "unit ckb-probe-core governor::tests::no_plan_is_above",
        "unit ckb-probe-core governor::tests::fresh",
        "unit ckb-probe-core governor::frequency::whatever::whatever_the_budget_there_is_a_frequency",
        "test ckb-probe-tests kinds::profile::busy",
        "test ckb-probe-tests ground_truth",
        "test ckb-probe-tests grounds::counts::a_recursive_call_and_its_caller_are_both_measured",
        "scenario samples",
        "fault etcd",
        "soak agents: RSS",
        "upgrade targets that lived",
        "scale operator: RSS at its lowest",
        "bench diligence",
        "bench kills: targets that lived",
        "kernel 5.15",
        "kubernetes 1.3",
        "lint failed",
        "image passed",
    ] {
        assert_eq!(
            find(reference),
            Err(format!("`{reference}`: there is none"))
        );
    }
    let stranger = find("unit ckb-probe governor::tests::fresh");
    assert_eq!(stranger, Err("there is no package ckb-probe".to_string()));
    let formless = find("gate sampling");
    assert_eq!(
        formless,
        Err("`gate sampling`: there is no such form".to_string())
    );
}

#[test]
fn a_row_that_nothing_shows_is_told() {
    let page =
        |cells: &str| format!("text\n\n{HEAD}\n| --- | --- |\n{cells}\n\n| other | table |\n");
    let judged = |cells: &str| {
        let rows = rows(&page(cells));
        assert_eq!((rows.len(), rows[0].line), (1, 5), "{cells}");
        (rows[0].judge().is_ok(), rows[0].is_pending())
    };
    for (cells, expected) in [
        ("| it is so | `scenario sampling` |", (true, false)),
        (
            "| it is so | `scenario sampling`, `fault no-such` |",
            (false, false),
        ),
        ("| it is so | pending: nobody looks |", (true, true)),
        (
            "| it is so | pending: `scenario no-such` looks at half of it |",
            (false, true),
        ),
        ("| it is so | pending: |", (false, false)),
        ("| it is so | all of it is well tested |", (false, false)),
        ("| it is so | |", (false, false)),
        ("| it is so |", (false, false)),
    ] {
        assert_eq!(judged(cells), expected, "{cells}");
    }
}
