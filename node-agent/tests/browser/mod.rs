//! Headless Chromium opens what is written, searches and zooms: `make test-browser`, which installs it.

#![allow(clippy::panic, reason = "where it panics, a test fails")]

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use super::{printed, profiles};

/// Goes through a page as a person does, and leaves what it saw in the page.
const VISIT: &str = include_str!("visit.js");

/// What a visit sees of a file, with how the function is called that it seeks and zooms to, and one that is elsewhere.
fn visit(file: &Path, function: &str, elsewhere: &str) -> Value {
    let page = fs::read_to_string(file).unwrap();
    let end = if page.contains("</body>") {
        "</body>"
    } else {
        "</svg>"
    };
    let (before, after) = page.rsplit_once(end).unwrap();
    let names = serde_json::json!([function, elsewhere]);
    let script = format!("const [FUNCTION, ELSEWHERE] = {names};\n{VISIT}");
    // What XML takes for its own, a page does not.
    let script = match end {
        "</svg>" => format!("<script><![CDATA[{script}]]></script>"),
        _ => format!("<script>{script}</script>"),
    };
    let visited = file.with_file_name(format!(
        "visited-{}",
        file.file_name().unwrap().to_str().unwrap()
    ));
    fs::write(&visited, format!("{before}{script}{end}{after}")).unwrap();
    let output = chromium(&visited, &["--virtual-time-budget=10000", "--dump-dom"]);
    let report = output
        .split_once("REPORT")
        .and_then(|(_, rest)| rest.split_once("END"));
    let (report, _) =
        report.unwrap_or_else(|| panic!("no report in {}: {output}", visited.display()));
    serde_json::from_str(
        &report
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&amp;", "&"),
    )
    .unwrap()
}

fn chromium(file: &Path, arguments: &[&str]) -> String {
    let profile = file.parent().unwrap().join("chromium");
    let mut command = Command::new("chromium");
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--window-size=1400,900",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .arg(format!("file://{}", file.display()));
    let output = command
        .output()
        .expect("Chromium is needed: scripts/setup.sh browser");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// For a person to look at: target/tmp/flames/…/*.png.
fn screenshot(file: &Path) {
    let picture = file.with_extension(format!(
        "{}.png",
        file.extension().unwrap().to_str().unwrap()
    ));
    chromium(file, &[&format!("--screenshot={}", picture.display())]);
    assert!(
        fs::metadata(&picture).unwrap().len() > 20_000,
        "{}",
        picture.display()
    );
}

/// What each visit must see, of a function that has so many percent.
fn assert_works(seen: &Value, percent: &str) {
    let width = |when: &str| -> f64 {
        seen[when]
            .as_str()
            .unwrap()
            .trim_end_matches('%')
            .parse()
            .unwrap()
    };
    let percent_number: f64 = percent.parse().unwrap();
    assert_eq!(seen["errors"], serde_json::json!([]), "{seen}");
    assert!((width("width") - percent_number).abs() < 0.1, "{seen}");
    assert_eq!(seen["matched"], format!("Matched: {percent}%"), "{seen}");
    assert_eq!(seen["marked"], "rgb(230,0,230)", "{seen}");
    assert_eq!(seen["unmarked"], true, "{seen}");
    assert!((width("zoomed") - 100.0).abs() < 0.1, "{seen}");
    assert_eq!(
        (&seen["hidden"], &seen["shown"]),
        (&Value::Bool(true), &Value::Bool(true)),
        "{seen}"
    );
    assert!((width("whole") - percent_number).abs() < 0.1, "{seen}");
}

#[test]
#[ignore = "needs Chromium: make test-browser"]
fn a_browser_searches_and_zooms_pictures_and_pages() {
    let folder = profiles("browser");
    for form in ["svg", "html"] {
        let file = folder.join(format!("cpu.{form}"));
        printed(
            &folder,
            &["render", "before.pb.gz", "-o", file.to_str().unwrap()],
        );
        let seen = visit(&file, "ckb_vm_x64_execute", "rocksdb_get_pinned_cf");
        assert_works(&seen, "41.0");
        if form == "html" {
            assert_eq!(seen["found"], "Matched: 41.0%", "{seen}");
            assert_eq!(seen["nothing"], "Nothing matches", "{seen}");
            assert!(
                seen["wrong"]
                    .as_str()
                    .unwrap()
                    .starts_with("No regular expression: "),
                "{seen}"
            );
            assert_eq!(seen["clicked"], "Matched: 41.0%", "{seen}");
        }
        screenshot(&file);

        let file = folder.join(format!("diff.{form}"));
        printed(
            &folder,
            &[
                "diff",
                "before.pb.gz",
                "after.pb.gz",
                "-o",
                file.to_str().unwrap(),
            ],
        );
        // 26 of 200, and of 40 that are gone.
        let seen = visit(
            &file,
            "ckb_rpc::module::chain::ChainRpcImpl::get_block [new]",
            "ckb_vm_x64_execute",
        );
        assert_works(&seen, "10.8");
        screenshot(&file);
    }
}
