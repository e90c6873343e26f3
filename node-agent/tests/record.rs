//! `ckb-probe record` and `ckb-probe report`: on this machine's kernel, as root.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use ckb_probe_report::{Header, Line, Part, SCHEMA, lines};
use ckb_probe_testkit::{CpuLimit, GroundTruth, wait_until};
use serde_json::Value;

const CKB_PROBE: &str = env!("CARGO_BIN_EXE_ckb-probe");

/// An empty folder of a test's own.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("record")
        .join(name);
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn record(truth: &GroundTruth, to: &Path, more: &[&str]) -> Child {
    let mut command = Command::new(CKB_PROBE);
    let pid = truth.pid().to_string();
    command
        .args(["record", "--pid", &pid, "--interval", "200ms", "-o"])
        .arg(to)
        .args(more);
    // Each call, whatever it costs beside other tests.
    command
        .args(["--on-breach", "report"])
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

fn report(arguments: &[&Path]) -> Output {
    let mut command = Command::new(CKB_PROBE);
    command.arg("report").args(arguments).stdin(Stdio::null());
    command.output().unwrap()
}

/// The Markdown of a record.
fn markdown(of: &Path) -> String {
    let output = report(&[of]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout).unwrap()
}

/// The cell of a table's row below this head.
fn cell(text: &str, row: &str, head: &str) -> Option<String> {
    let mut heads: Vec<&str> = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        if cells.contains(&head) {
            heads = cells;
        } else if cells.first() == Some(&row) {
            let place = heads.iter().position(|one| *one == head)?;
            return cells.get(place).map(|cell| (*cell).to_owned());
        }
    }
    None
}

/// A row has so many calls.
fn assert_counted(text: &str, row: &str, calls: &str) {
    assert_eq!(cell(text, row, "COUNT").as_deref(), Some(calls), "{text}");
}

/// What is written by now to the segment that is open, or packed.
fn bytes(of: &Path) -> u64 {
    let files = fs::read_dir(of).into_iter().flatten().flatten();
    files
        .filter_map(|file| Some(file.metadata().ok()?.len()))
        .sum()
}

/// A program that does this at so many calls a second, and its recorder, once that is at work.
fn recording(to: &Path, rate: &str, plan: &[&str]) -> (GroundTruth, Child) {
    let mut truth = GroundTruth::start("ground-truth", &["--rate", rate], plan).unwrap();
    let recorder = record(&truth, to, &[]);
    wait_until("it records", || bytes(to) > 1000);
    truth.go().unwrap();
    (truth, recorder)
}

/// Records the same until the program ends, and the recorder by itself.
fn recorded(to: &Path, rate: &str, plan: &[&str]) {
    let (truth, mut recorder) = recording(to, rate, plan);
    drop(truth);
    assert_eq!(recorder.wait().unwrap().code(), Some(0));
}

#[test]
fn a_report_tells_each_call_that_a_program_made() {
    let to = folder("whole");
    let plan = [
        "rocksdb_get_pinned_cf 300 constant:1000",
        "rocksdb_transaction_commit 70 constant:1000",
    ];
    recorded(&to, "200", &plan);
    let text = markdown(&to);
    assert_counted(&text, "Get", "300");
    assert_counted(&text, "TxnCommit", "70");
    assert!(
        text.contains("recording ended, since the process ended"),
        "{text}"
    );
    assert!(
        text.contains("Nothing is missing between the first interval and the last"),
        "{text}"
    );
    // What is complete is packed, whole and by minutes.
    let mut names: Vec<String> = fs::read_dir(&to)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["00000001.jsonl.gz", "00000001.minutes.jsonl.gz"]);
}

#[test]
fn a_recorder_that_is_killed_leaves_what_it_told_and_another_goes_on() {
    let to = folder("killed");
    let plan = ["rocksdb_get_pinned_cf 2000 constant:1000"];
    let (truth, mut recorder) = recording(&to, "1000", &plan);
    // The last calls are in an interval that is over.
    thread::sleep(Duration::from_secs(1));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let text = markdown(&to);
    assert_counted(&text, "Get", "2000");
    assert!(
        text.contains("the end is missing: the recorder was killed, or goes on"),
        "{text}"
    );
    // As if it had been killed within a line.
    let open = to.join("00000001.open.jsonl");
    let mut written = fs::read(&open).unwrap();
    let whole = written.len();
    written.extend_from_slice(b"01234567 {\"line\":\"inter");
    fs::write(&open, &written).unwrap();
    let text = markdown(&to);
    assert!(
        text.contains("A last line has no end: it was discarded"),
        "{text}"
    );
    assert_counted(&text, "Get", "2000");
    written.truncate(whole);
    fs::write(&open, &written).unwrap();
    let mut recorder = record(&truth, &to, &["--for", "1s"]);
    assert_eq!(recorder.wait().unwrap().code(), Some(0));
    let text = markdown(&to);
    assert!(
        text.contains("nobody recorded: the end is missing"),
        "{text}"
    );
    assert!(
        text.contains("recording ended, since the time was up"),
        "{text}"
    );
    assert!(!open.exists());
    let page = to.join("report.html");
    let output = report(&[&to, Path::new("-o"), &page, Path::new("--baseline"), &to]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        fs::read_to_string(&page)
            .unwrap()
            .contains("Compared with another record")
    );
}

#[test]
fn what_cannot_be_measured_is_told_beside_what_is() {
    let to = folder("refused");
    let asks = to.with_file_name("refused.yaml");
    let probes = "- {name: storage, rocksdb: {}}\n- {name: none, functions: {match: 'no_such_function_*'}}\n";
    fs::write(&asks, probes).unwrap();
    let plan = ["rocksdb_get_pinned_cf 300 constant:1000"];
    let mut truth = GroundTruth::start("ground-truth", &["--rate", "200"], &plan).unwrap();
    let mut recorder = record(&truth, &to, &["--probe", asks.to_str().unwrap()]);
    wait_until("it records", || bytes(&to) > 1000);
    truth.go().unwrap();
    drop(truth);
    assert_eq!(recorder.wait().unwrap().code(), Some(0));
    let text = markdown(&to);
    assert_counted(&text, "Get", "300");
    let unmeasured = cell(&text, "none", "NOT MEASURED").unwrap();
    assert!(
        unmeasured.ends_with("SymbolNotFound"),
        "{unmeasured}: {text}"
    );
}

/// A program that wants all of a CPU, until this is dropped.
struct Spinning(Child);

impl Drop for Spinning {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_record_and_its_report_tell_what_the_container_waited_for_and_what_is_unknown() {
    let period = Duration::from_millis(100);
    // Little enough to be used up beside whatever else runs.
    let Some(limit) = CpuLimit::new(0, period / 50, period) else {
        eprintln!("nobody has the CPU controller of cgroups here: throttling cannot be made");
        return;
    };
    let spin = ["-c", "while :; do :; done"];
    let busy = Spinning(Command::new("sh").args(spin).spawn().unwrap());
    limit.adopt(busy.0.id());
    let to = folder("waits");
    let asks = to.with_file_name("waits.yaml");
    fs::write(&asks, "- {name: calls, syscalls: {}}\n").unwrap();
    let output = Command::new(CKB_PROBE)
        .args(["record", "--pid", &busy.0.id().to_string(), "--for", "4s"])
        .args(["--interval", "1s", "--probe"])
        .arg(&asks)
        .arg("-o")
        .arg(&to)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = markdown(&to);
    let told = |resource: &str, head: &str| cell(&text, resource, head).unwrap();
    let percent = |cell: &str| cell.strip_suffix('%').unwrap().parse::<f64>().unwrap();
    let mean = percent(&told("throttling by the CPU limit", "MEAN"));
    assert!((50.0..=100.0).contains(&mean), "{text}");
    // The same as a document.
    let output = report(&[&to, Path::new("-o"), Path::new("json")]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let waits = document["waits"].as_array().unwrap();
    let names: Vec<&str> = waits
        .iter()
        .filter_map(|one| one["resource"].as_str())
        .collect();
    assert_eq!(names, ["throttled", "cpuWait", "diskWait", "retransmitted"]);
    let throttled = waits[0]["meanPercent"].as_f64().unwrap();
    assert!((throttled - mean).abs() < 0.06, "{throttled} and {mean}");
    for (one, resource) in waits.iter().zip([
        "throttling by the CPU limit",
        "waiting for a CPU",
        "waiting for a disk",
        "TCP segments sent again",
    ]) {
        let is_known = one["meanPercent"].is_number();
        assert_eq!(told(resource, "MEAN") != "unknown", is_known, "{text}");
        assert_eq!(one["knownMilliseconds"] != 0, is_known, "{one}");
    }
}

#[test]
fn probes_whose_names_no_ckbprobe_could_have_are_refused_before_anything_is_attached() {
    let to = folder("names").join("record");
    let asks = to.with_file_name("names.yaml");
    let long = "a".repeat(64);
    for (name, said) in [
        ("../storage", "must be a label"),
        ("-storage", "must be a label"),
        ("''", "must be a label"),
        (&long, "must be a label"),
        ("other", "two probes named \"other\""),
    ] {
        let probes =
            format!("- {{name: other, rocksdb: {{}}}}\n- {{name: {name}, rocksdb: {{}}}}\n");
        fs::write(&asks, probes).unwrap();
        let output = Command::new(CKB_PROBE)
            .args(["record", "--pid", "1", "--probe"])
            .arg(&asks)
            .arg("-o")
            .arg(&to)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(said), "{name}: {text}");
        assert!(!to.exists(), "{name}");
    }
}

#[test]
fn a_folder_that_holds_no_record_is_refused_with_what_to_do() {
    let to = folder("none");
    let output = report(&[&to]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    let name = to.display();
    assert_eq!(
        said,
        format!(
            "ckb-probe: there is no record in {name}: `ckb-probe record -o {name}` writes one\n"
        )
    );
    let file = to.join("00000001.jsonl.gz");
    fs::write(&file, "").unwrap();
    let said = String::from_utf8(report(&[&file]).stderr).unwrap();
    let name = file.display();
    assert_eq!(
        said,
        format!(
            "ckb-probe: {name} is a file, and a record is a folder: name that which `ckb-probe record` wrote\n"
        )
    );
}

/// A record in which nothing was measured yet.
fn begun(name: &str) -> PathBuf {
    let to = folder(name);
    let header = Header {
        schema: SCHEMA.to_owned(),
        target: "process 1 (ckb)".to_owned(),
        ..Header::default()
    };
    let line = lines::encode(&Line::Header(header));
    fs::write(to.join(Part::Open.file(1)), line).unwrap();
    to
}

#[test]
fn two_records_are_compared_as_text_and_no_cluster_is_asked_for_them() {
    let (before, after) = (begun("before.record"), begun("after.record"));
    let [old, new] = [&before, &after].map(|one| one.display().to_string());
    let diff = |arguments: &[&str]| {
        let mut command = Command::new(CKB_PROBE);
        let command = command.arg("diff").args(arguments);
        let output = command.env("KUBECONFIG", "/missing").output().unwrap();
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap());
        (output.status.code(), said.concat())
    };
    let (code, said) = diff(&[&old, &new]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("## What has changed\n"), "{said}");
    assert!(said.contains(&format!(" Before is {old}. ")), "{said}");
    let nothing = folder("none.record").display().to_string();
    let file = after.join(Part::Open.file(1)).display().to_string();
    for (arguments, why) in [
        (
            &[&*old][..],
            format!("{old} is one record, and two are compared: name the other, too"),
        ),
        (
            &[&old, &new, "-o", "diff.html"],
            format!(
                "of two records a text is printed: `ckb-probe report {new} --baseline {old} -o FILE` makes a page that says the same"
            ),
        ),
        (
            &[&old, &nothing],
            format!(
                "{old} is a record, and {nothing} is none: a record is compared with another that `ckb-probe record` wrote"
            ),
        ),
        (
            &[&file, &new],
            format!(
                "{new} is a record, and {file} is none: a record is compared with another that `ckb-probe record` wrote"
            ),
        ),
    ] {
        assert_eq!(diff(arguments), (Some(1), format!("ckb-probe: {why}\n")));
    }
}

/// Chromium's own words, which tell of errors in its console.
fn chromium(page: &Path, arguments: &[String]) -> String {
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--enable-logging=stderr",
        ])
        .args([
            "--window-size=1200,6000",
            "--host-resolver-rules=MAP * ~NOTFOUND",
        ])
        .arg(format!(
            "--user-data-dir={}",
            page.with_file_name("chromium").display()
        ))
        .args(arguments)
        .arg(format!("file://{}", page.display()))
        .output();
    let output = output.unwrap();
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
#[ignore = "needs Chromium: make test-browser"]
fn a_browser_shows_a_report_without_network_and_without_an_error_and_prints_it() {
    let to = folder("browser");
    let plan = [
        "rocksdb_get_pinned_cf 3000 constant:1000",
        "rocksdb_transaction_commit 300 constant:100000",
    ];
    recorded(&to, "500", &plan);
    let page = to.join("report.html");
    assert_eq!(
        report(&[&to, Path::new("-o"), &page]).status.code(),
        Some(0)
    );
    let (picture, paper) = (to.join("report.png"), to.join("report.pdf"));
    let said = chromium(&page, &[format!("--screenshot={}", picture.display())]);
    assert!(!said.contains("CONSOLE"), "{said}");
    let said = chromium(
        &page,
        &[
            "--no-pdf-header-footer".to_owned(),
            format!("--print-to-pdf={}", paper.display()),
        ],
    );
    assert!(!said.contains("CONSOLE"), "{said}");
    assert!(fs::metadata(&picture).unwrap().len() > 20_000);
    assert!(fs::read(&paper).unwrap().starts_with(b"%PDF-"));
    // That it would be told: a script is against the policy of the page.
    let broken = to.join("broken.html");
    let text = fs::read_to_string(&page).unwrap();
    fs::write(
        &broken,
        text.replace("</body>", "<script>0</script></body>"),
    )
    .unwrap();
    let said = chromium(
        &broken,
        &[format!("--screenshot={}", to.join("broken.png").display())],
    );
    assert!(said.contains("CONSOLE"), "{said}");
}
