//! `report`, of a real Prometheus whose history is known.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "where it panics, a test fails"
)]

use std::{
    fmt::Write as _,
    net::TcpListener,
    process::{Command, Output},
    time::{SystemTime, UNIX_EPOCH},
};

use ckb_probe_testkit::prometheus::Prometheus;
use ckb_probe_views::document::{Document, View};

#[path = "report/tls.rs"]
mod tls;

const PLUGIN: &str = env!("CARGO_BIN_EXE_kubectl-ckbprobe");

/// Agents are scraped so often, in seconds.
const EACH: u64 = 30;

/// Four hours of it.
const SCRAPES: u64 = 480;

/// A page of what agents told at all scrapes, as they write one, each sample with its time.
struct Page(String);

impl Page {
    fn tell(&mut self, name: &str, labels: &str, value: f64, time: u64) {
        writeln!(self.0, "{name}{{{labels}}} {value} {time}").unwrap();
    }
}

/// What a pod's agent tells at a scrape, where it has counted so many calls of 512 to 1024 ns and so many of 1 to 2 ms.
fn tell(page: &mut Page, pod: &str, (quick, slow): (u64, u64), time: u64) {
    let target = format!(
        "namespace=\"ckb\",pod=\"{pod}\",container=\"ckb\",ckbprobe=\"ckb\",instance=\"10.0.0.1:9464\",job=\"agents\""
    );
    let row = format!("{target},probe=\"storage\",operation=\"Get\"");
    let all = (quick + slow) as f64;
    let name = "ckb_probe_operation_duration_seconds";
    for power in 9..=34 {
        let below = if power < 10 {
            0
        } else if power < 21 {
            quick
        } else {
            quick + slow
        };
        let bound = 2f64.powi(power) / 1e9;
        page.tell(
            &format!("{name}_bucket"),
            &format!("{row},le=\"{bound}\""),
            below as f64,
            time,
        );
    }
    page.tell(
        &format!("{name}_bucket"),
        &format!("{row},le=\"+Inf\""),
        all,
        time,
    );
    page.tell(&format!("{name}_count"), &row, all, time);
    page.tell(
        &format!("{name}_sum"),
        &row,
        quick as f64 / 1e6 + slow as f64 / 1e3,
        time,
    );
    page.tell("ckb_probe_operation_calls_total", &row, all, time);
    page.tell("ckb_probe_slow_operations_total", &row, slow as f64, time);
    page.tell("ckb_probe_samples_total", &row, all, time);
    page.tell("ckb_probe_sampling_ratio", &row, 1.0, time);
    page.tell("ckb_probe_relative_error_ratio", &row, 0.0, time);
    let probe = format!("{target},probe=\"storage\",kind=\"rocksdb\"");
    page.tell("ckb_probe_attached", &probe, 1.0, time);
    for (name, value) in [
        ("ckb_probe_target_attached", 1.0),
        ("ckb_probe_target_firing", 1.0),
        ("ckb_probe_overhead_ratio", 0.004),
        ("ckb_probe_overhead_granted_ratio", 0.01),
        ("ckb_probe_reattaches_total", 2.0),
    ] {
        page.tell(name, &target, value, time);
    }
    page.tell(
        "ckb_probe_lost_total",
        &format!("{target},what=\"calls\""),
        (quick / 1000) as f64,
        time,
    );
}

/// Some hours ago, so that it is in blocks.
fn began() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    (now - 30 * 3600) / EACH * EACH
}

/// Two pods: one whose agent restarts, and which nobody scrapes for half an hour; and one that does nothing.
fn history(began: u64) -> Prometheus {
    let mut page = Page(String::new());
    for scrape in 0..=SCRAPES {
        let time = began + scrape * EACH;
        // From the 400th on it counts anew.
        let since = if scrape < 400 {
            100 + scrape
        } else {
            scrape - 399
        };
        if !(200..260).contains(&scrape) {
            tell(&mut page, "ckb-0", (since * 300, since * 5), time);
        }
        tell(&mut page, "ckb-1", (7, 0), time);
    }
    page.0.push_str("# EOF\n");
    Prometheus::of_history(&page.0)
}

fn report(prometheus: &str, arguments: &[&str]) -> Output {
    Command::new(PLUGIN)
        .args(["report", "ckb", "-n", "ckb", "--prometheus", prometheus])
        .args(arguments)
        .env_remove("CKB_PROBE_PROMETHEUS_TOKEN")
        .output()
        .unwrap()
}

/// The cells of the first row of a table that begins with this.
fn cells<'a>(text: &'a str, first: &str) -> Vec<&'a str> {
    let row = text
        .lines()
        .find(|line| line.starts_with(&format!("| {first} |")));
    let row = row.unwrap_or_else(|| panic!("no row {first} in\n{text}"));
    row.trim_matches('|').split(" | ").map(str::trim).collect()
}

/// What is printed, as our own reader takes it.
fn documents(output: Output) -> Vec<View> {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let read = |line| Document::read(line).unwrap().view;
    text.lines().map(read).collect()
}

#[test]
fn a_report_of_prometheus_says_what_agents_counted() {
    let began = began();
    let prometheus = history(began);
    let address = format!("http://{}", prometheus.address());
    let time = |scrape: u64| {
        format!(
            "{}s",
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap()
                .as_secs()
                - (began + scrape * EACH)
        )
    };
    let whole = [("--since", time(0)), ("--until", time(SCRAPES))];
    let whole: Vec<&str> = whole
        .iter()
        .flat_map(|(name, time)| [*name, time.as_str()])
        .collect();
    let output = report(&address, &[&whole[..], &["--pod", "ckb-0"]].concat());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    // 399 steps to the restart, whatever was scraped, and what was counted since: 81.
    let get = cells(&text, "Get");
    let counted = (399 + 81) * 305;
    assert!(
        get.contains(&counted.to_string().as_str()),
        "{get:?} in {text}"
    );
    assert!(
        get.contains(&((399 + 81) * 5).to_string().as_str()),
        "{get:?}"
    );
    // A step's calls in a step's time, but for the one at whose end the agent had begun anew.
    assert!(
        get[1].starts_with("10.1") || get[1].starts_with("10.2"),
        "{get:?}"
    );
    let target = cells(&text, "ckb-0/ckb");
    assert_eq!(target[1], "421", "{target:?}");
    // 480 steps but the 61 between the 199th and the 260th.
    assert_eq!(&target[2][..4], "87.2", "{target:?}");
    assert_eq!(target[7], "1", "{target:?}");
    assert!(
        text.contains("30 min 30 s") && text.contains("did not scrape"),
        "{text}"
    );
    assert!(
        text.contains("0.4 %") && text.contains("What Prometheus does not have"),
        "{text}"
    );
    // The same numbers as a document.
    let document = report(
        &address,
        &[&whole[..], &["--pod", "ckb-0", "-o", "json"]].concat(),
    );
    let told = documents(document);
    let [View::Record(told)] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(told.record, "ckb/ckb ckb-0/ckb");
    let mut rows = told.probes.iter().flat_map(|probe| &probe.rows);
    let get = rows.find(|one| (&*one.row, &one.part) == ("Get", &None));
    let mut figures = get.unwrap().figures.iter();
    let count = figures.find(|one| one.figure == "count").unwrap();
    assert_eq!(count.value, f64::from(counted));
    assert_eq!((told.runs.len(), told.changes.is_some()), (0, false));
    let [since, until, before] = [100, 190, 99].map(time);
    let of_both = [
        "--since",
        &since,
        "--until",
        &until,
        "--baseline-until",
        &before,
        "-o",
        "json",
    ];
    let names: Vec<(String, bool)> = documents(report(&address, &of_both))
        .into_iter()
        .map(|told| match told {
            View::Record(told) => (told.record, told.changes.is_some()),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = ["ckb/ckb ckb-0/ckb", "ckb/ckb ckb-1/ckb"].map(|name| (name.to_owned(), true));
    assert_eq!(names, expected);
    // Both pods, with the hours compared.
    let output = report(
        &address,
        &[
            "--since",
            &time(100),
            "--until",
            &time(190),
            "--baseline-until",
            &time(99),
        ],
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("ckb-0/ckb: storage") && text.contains("ckb-1/ckb"),
        "{text}"
    );
    assert!(
        text.contains("figures have changed by more than noise"),
        "{text}"
    );
}

#[test]
fn what_is_not_there_and_who_does_not_answer_is_said_with_what_to_do() {
    let nowhere = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let said = |output: Output| {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let text = said(report(&format!("http://user:secret@{nowhere}"), &[]));
    assert!(
        text.contains("cannot reach Prometheus") && text.contains("kubectl port-forward"),
        "{text}"
    );
    assert!(!text.contains("secret"), "{text}");
    let text = said(report("prometheus:9090", &[]));
    assert!(text.contains("is no address of a Prometheus"), "{text}");
    let prometheus = Prometheus::of_history("# TYPE a gauge\na 1 1790000000\n# EOF\n");
    let address = format!("http://{}", prometheus.address());
    let text = said(report(&address, &["--last", "2h"]));
    let asked = r#"ckb_probe_target_attached{namespace="ckb",ckbprobe="ckb"}"#;
    assert!(
        text.contains(asked) && text.contains("honor_labels"),
        "{text}"
    );
    let text = said(report(&address, &["--since", "1h", "--until", "2h"]));
    assert!(text.contains("there is no time between"), "{text}");
    let text = said(report(&format!("{address}/nothing"), &[]));
    assert!(text.contains("answers 404"), "{text}");
}
