//! Headless Chromium opens what is written, searches and zooms: `make test-browser`, which installs it.

#![allow(clippy::panic, reason = "where it panics, a test fails")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use ckb_probe_testkit::words;
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
    let address = format!("file://{}", visited.display());
    let output = chromium(
        &profile_of(file),
        &address,
        &["--virtual-time-budget=10000", "--dump-dom"],
    );
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

/// Where Chromium keeps what it knows of itself.
fn profile_of(file: &Path) -> PathBuf {
    file.parent().unwrap().join("chromium")
}

fn chromium(profile: &Path, address: &str, arguments: &[&str]) -> String {
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
        .arg(address);
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
    let address = format!("file://{}", file.display());
    let screenshot = format!("--screenshot={}", picture.display());
    chromium(&profile_of(file), &address, &[&screenshot]);
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
            &format!("render before.pb.gz -o {}", file.display()),
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
            &format!("diff before.pb.gz after.pb.gz -o {}", file.display()),
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

/// speedscope's page, which `scripts/setup.sh browser` puts into the cache.
fn speedscope() -> PathBuf {
    let cache = env::var_os("CKB_PROBE_CACHE").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| env::home_dir().unwrap().join(".cache/ckb-probe"));
    let folders = fs::read_dir(&cache).unwrap().flatten();
    let folders = folders.map(|entry| entry.path());
    let is_one = |folder: &PathBuf| folder.display().to_string().contains("/speedscope-");
    folders
        .filter(is_one)
        .map(|folder| folder.join("package/dist/release/index.html"))
        .find(|page| page.exists())
        .expect("speedscope is needed: scripts/setup.sh browser")
}

#[test]
#[ignore = "needs Chromium: make test-browser"]
fn speedscope_tells_the_same_of_a_profile() {
    let folder = profiles("speedscope");
    // Where it takes a profile from that its own command line opens.
    let profile = folder.join("before.pb.gz");
    let base64 = Command::new("base64").arg("-w0").arg(&profile).output();
    let content = String::from_utf8(base64.unwrap().stdout).unwrap();
    let loads = folder.join("loads.js");
    let script = format!("speedscope.loadFileFromBase64('before.pb.gz', '{content}')");
    fs::write(&loads, script).unwrap();
    let (page, loads) = (speedscope(), loads.display().to_string());
    let address = format!(
        "file://{}#localProfilePath={loads}&view=sandwich",
        page.display()
    );
    let seen = chromium(
        &profile_of(&profile),
        &address,
        &words(
            "--enable-unsafe-swiftshader --allow-file-access-from-files --virtual-time-budget=15000 --dump-dom",
        ),
    );
    // Its table of functions: with what they call, by themselves, and what they are called.
    let words = text_of(&seen);
    for row in [
        "410.00ms (41%) 410.00ms (41%) ckb_vm_x64_execute",
        "220.00ms (22%) 0.00ns (<0.01%) rocksdb_get_pinned_cf",
        "1.00s (100%) 0.00ns (<0.01%) start_thread",
    ] {
        assert!(words.contains(row), "{row}: {words}");
    }
}

/// A page without its tags.
fn text_of(page: &str) -> String {
    let texts = page
        .split('<')
        .filter_map(|tag| Some(tag.split_once('>')?.1));
    let words: Vec<&str> = texts.flat_map(str::split_whitespace).collect();
    words.join(" ").replace("&lt;", "<").replace("&gt;", ">")
}
