//! What `scripts/release.sh` makes of programs: of stand-ins, as real ones take ten minutes to build.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use ckb_probe_tests::fixture::{repository, run};
use serde_json::{Value, json};
use tempfile::TempDir;

const PROGRAMS: [&str; 3] = ["ckb-probe", "ckb-probe-operator", "node-agent"];
/// What stand-ins are compiled for: what is made of those of another architecture takes another compiler.
const HERE: &str = "amd64";
const DOES_NOTHING: &str = "int main(void) { return 0; }";

/// What cargo-auditable writes into a program.
fn crates(program: &str) -> Value {
    let mut packages = vec![
        json!({"name": program, "version": "0.1.0", "source": "local", "root": true, "dependencies": [1, 2]}),
        json!({"name": "serde", "version": "1.0.228", "source": "crates.io", "dependencies": [2]}),
        json!({"name": "serde_derive", "version": "1.0.228", "source": "crates.io", "kind": "build"}),
    ];
    if program == "node-agent" {
        packages.push(json!({"name": "ckb-probe-bpf", "version": "0.1.0", "source": "local"}));
    }
    json!({ "packages": packages })
}

/// A program like those of a release, as far as a release looks at it.
fn build(folder: &Path, program: &str, source: &str) {
    let code = folder.join("program.c");
    fs::write(&code, source).unwrap();
    let path = folder.join(program);
    run(Command::new("cc").arg("-o").arg(&path).arg(&code));
    fs::remove_file(code).unwrap();
    let list = folder.join("crates");
    fs::write(&list, crates(program).to_string()).unwrap();
    let compress = "import sys, zlib; data = open(sys.argv[1], 'rb').read(); open(sys.argv[1], 'wb').write(zlib.compress(data))";
    run(Command::new("python3").args(["-c", compress]).arg(&list));
    let section = format!(".dep-v0={}", list.display());
    run(Command::new("objcopy")
        .args(["--add-section", &section])
        .arg(&path));
    fs::remove_file(list).unwrap();
}

fn programs() -> TempDir {
    programs_of(HERE)
}

/// The same, said to be for an architecture.
fn programs_of(architecture: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let own = folder.path().join(architecture);
    fs::create_dir(&own).unwrap();
    for program in PROGRAMS {
        build(&own, program, DOES_NOTHING);
    }
    folder
}

/// Makes a release in `out`, with these variables set.
fn release(programs: &Path, out: &Path, variables: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(repository().join("scripts/release.sh"));
    command
        .arg(out)
        .env("PROGRAMS", programs)
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .env_remove("RELEASE_KEY")
        .envs(variables.iter().copied());
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    format!("{}{stderr}", String::from_utf8_lossy(&output.stdout))
}

fn made(programs: &Path, out: &Path, variables: &[(&str, &Path)]) {
    let output = release(programs, out, variables);
    assert!(output.status.success(), "{}", said(&output));
}

/// The files of a folder, and what they hold.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read(entry.path()).unwrap())
    });
    entries.collect()
}

/// An SSH key made for this test, and the file that says it may sign releases.
fn key(folder: &Path) -> (PathBuf, PathBuf) {
    let key = folder.join("key");
    run(Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"])
        .arg(&key));
    let public = fs::read_to_string(key.with_extension("pub")).unwrap();
    let signers = folder.join("allowed_signers");
    let line = format!("ckb-probe namespaces=\"ckb-probe-release\" {public}");
    fs::write(&signers, line).unwrap();
    (key, signers)
}

/// The commands that docs/releases.md has for whoever verifies a release.
fn commands() -> String {
    let page = fs::read_to_string(repository().join("docs/releases.md")).unwrap();
    let (_, block) = page.split_once("```sh\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    assert_eq!(block.lines().count(), 2, "{block}");
    block.trim_end().replace('\n', " &&\n")
}

/// Runs them in a folder.
fn verified(folder: &Path) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", &commands()]).current_dir(folder);
    shell.output().unwrap()
}

#[test]
fn the_same_programs_make_the_same_bytes_at_any_time() {
    let programs = programs();
    let folder = TempDir::new().unwrap();
    let (one, another) = (folder.path().join("one"), folder.path().join("another"));
    made(programs.path(), &one, &[]);
    // Another time, other times of files, another folder.
    for program in PROGRAMS {
        run(Command::new("touch").arg(programs.path().join(HERE).join(program)));
    }
    let stays = TempDir::new().unwrap();
    made(programs.path(), &another, &[("TMPDIR", stays.path())]);
    let (first, second) = (files(&one), files(&another));
    let differ = first
        .iter()
        .filter(|(name, content)| second.get(*name) != Some(*content));
    let differ: Vec<&String> = differ.map(|(name, _)| name).collect();
    assert_eq!(differ, Vec::<&String>::new());
    assert_eq!(first.len(), second.len());
    let version = env!("CARGO_PKG_VERSION");
    let expected = [
        "SHA256SUMS".to_string(),
        format!("ckb-probe-{version}-crds.yaml"),
        format!("ckb-probe-{version}-krew.yaml"),
        format!("ckb-probe-{version}-x86_64-linux-gnu.cdx.json"),
        format!("ckb-probe-{version}-x86_64-linux-gnu.tar.gz"),
        format!("ckb-probe-{version}.tgz"),
    ];
    let names: Vec<String> = files(&one).into_keys().collect();
    assert_eq!(names, expected);
    // The programs are in the archive as they are.
    let archive = one.join(&expected[4]);
    run(Command::new("tar")
        .arg("-xzf")
        .arg(archive)
        .current_dir(&folder));
    for program in PROGRAMS {
        let packed = folder
            .path()
            .join(format!("ckb-probe-{version}/bin/{program}"));
        let packed = fs::read(packed).unwrap();
        let own = programs.path().join(HERE).join(program);
        assert_eq!(packed, fs::read(own).unwrap());
    }
}

#[test]
fn the_commands_of_the_page_take_what_was_signed_and_refuse_a_changed_byte_of_any_file() {
    let programs = programs();
    let folder = TempDir::new().unwrap();
    let (key, signers) = key(folder.path());
    let out = folder.path().join("out");
    let signed = [
        ("RELEASE_KEY", key.as_path()),
        ("ALLOWED_SIGNERS", signers.as_path()),
    ];
    made(programs.path(), &out, &signed);
    let released = files(&out);
    assert_eq!(released.len(), 7);
    fs::copy(&signers, out.join("allowed_signers")).unwrap();
    let output = verified(&out);
    assert!(output.status.success(), "{}", said(&output));
    let good = "Good \"ckb-probe-release\" signature for ckb-probe";
    assert!(said(&output).contains(good), "{}", said(&output));
    for (name, content) in &released {
        let mut changed = content.clone();
        let middle = changed.len() / 2;
        changed[middle] ^= 1;
        fs::write(out.join(name), changed).unwrap();
        let output = verified(&out);
        assert!(!output.status.success(), "{name}: {}", said(&output));
        fs::write(out.join(name), content).unwrap();
    }
    // Digests that fit, by whoever: not signed for a release.
    let sums = out.join("SHA256SUMS");
    fs::remove_file(out.join("SHA256SUMS.sig")).unwrap();
    run(Command::new("ssh-keygen")
        .args(["-q", "-Y", "sign", "-n", "git", "-f"])
        .arg(&key)
        .arg(sums));
    assert!(!verified(&out).status.success());
}

/// Has a program of this machine be said to be for arm64 by its own head, as far as a release reads it.
fn pass_for_arm64(program: &Path) {
    let mut bytes = fs::read(program).unwrap();
    bytes[0x12..0x14].copy_from_slice(&183_u16.to_le_bytes());
    fs::write(program, bytes).unwrap();
}

#[test]
fn the_manifest_for_krew_has_each_archive_by_its_digest_and_the_plugin_in_it() {
    let programs = programs();
    let arm64 = programs.path().join("arm64");
    fs::create_dir(&arm64).unwrap();
    for program in PROGRAMS {
        build(&arm64, program, DOES_NOTHING);
        pass_for_arm64(&arm64.join(program));
    }
    let out = TempDir::new().unwrap();
    made(programs.path(), out.path(), &[]);
    let version = env!("CARGO_PKG_VERSION");
    let manifest = format!("ckb-probe-{version}-krew.yaml");
    let manifest = fs::read_to_string(out.path().join(manifest)).unwrap();
    let manifest: Value = serde_yaml::from_str(&manifest).unwrap();
    assert_eq!(manifest["metadata"]["name"], "ckbprobe");
    let spec = &manifest["spec"];
    assert_eq!(spec["version"], format!("v{version}"));
    let sums = fs::read_to_string(out.path().join("SHA256SUMS")).unwrap();
    let platforms = spec["platforms"].as_array().unwrap();
    let expected = [("amd64", "x86_64"), ("arm64", "aarch64")];
    assert_eq!(platforms.len(), expected.len());
    for (platform, (architecture, machine)) in platforms.iter().zip(expected) {
        let selected = json!({"os": "linux", "arch": architecture});
        assert_eq!(platform["selector"]["matchLabels"], selected);
        let archive = format!("ckb-probe-{version}-{machine}-linux-gnu.tar.gz");
        let uri = platform["uri"].as_str().unwrap();
        assert!(uri.ends_with(&format!("/v{version}/{archive}")), "{uri}");
        let digest = platform["sha256"].as_str().unwrap();
        let line = format!("{digest}  {archive}\n");
        assert!(sums.contains(&line), "{line}: {sums}");
        // Under this name it is the plugin, and what krew takes is in the archive.
        assert_eq!(platform["bin"], "kubectl-ckbprobe");
        let list = run(Command::new("tar")
            .arg("-tzf")
            .arg(out.path().join(&archive)));
        let list = String::from_utf8(list.stdout).unwrap();
        let files = platform["files"].as_array().unwrap();
        let moved = files.iter().map(|file| {
            let from = file["from"].as_str().unwrap();
            assert!(list.lines().any(|one| one == from), "{from}: {list}");
            let name = from.strip_prefix(&format!("ckb-probe-{version}/"));
            (name.unwrap(), file["to"].as_str().unwrap())
        });
        let expected = [("bin/ckb-probe", "kubectl-ckbprobe"), ("LICENSE", ".")];
        assert_eq!(moved.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_key_that_nobody_knows_signs_nothing() {
    let programs = programs();
    let folder = TempDir::new().unwrap();
    let (key, _) = key(folder.path());
    let out = folder.path().join("out");
    let output = release(programs.path(), &out, &[("RELEASE_KEY", &key)]);
    assert!(!output.status.success());
    let expected = "allowed_signers does not know this key";
    assert!(said(&output).contains(expected), "{}", said(&output));
    assert!(!files(&out).contains_key("SHA256SUMS.sig"));
}

#[test]
fn a_program_that_needs_a_newer_c_library_or_names_folders_is_refused() {
    let here = repository().canonicalize().unwrap();
    // glibc has this function since 2.36.
    let newer = "#include <stdlib.h>\nint main(void) { return arc4random() == 0; }";
    let tells = format!(
        "#include <stdio.h>\nint main(void) {{ return puts(\"{}/node-agent/src\"); }}",
        here.display()
    );
    for (source, expected) in [
        (newer, "node-agent needs glibc 2.36"),
        (
            &tells,
            "node-agent holds the names of folders of this machine",
        ),
    ] {
        let programs = programs();
        build(&programs.path().join(HERE), "node-agent", source);
        let out = TempDir::new().unwrap();
        let output = release(programs.path(), out.path(), &[]);
        assert!(!output.status.success());
        assert!(said(&output).contains(expected), "{}", said(&output));
    }
}

#[test]
fn programs_that_are_not_for_the_architecture_they_are_said_to_be_for_are_refused() {
    for (architecture, expected) in [
        (
            "arm64",
            "ckb-probe of arm64 is for Advanced Micro Devices X86-64",
        ),
        ("riscv64", "there are no programs of riscv64"),
    ] {
        let programs = programs_of(architecture);
        let out = TempDir::new().unwrap();
        let output = release(programs.path(), out.path(), &[]);
        assert!(!output.status.success());
        assert!(said(&output).contains(expected), "{}", said(&output));
    }
}

#[test]
fn the_list_of_crates_is_of_what_is_in_the_programs() {
    let programs = programs();
    let folder = TempDir::new().unwrap();
    made(programs.path(), folder.path(), &[]);
    let version = env!("CARGO_PKG_VERSION");
    let list = format!("ckb-probe-{version}-x86_64-linux-gnu.cdx.json");
    let list = folder.path().join(list);
    let list: Value = serde_json::from_slice(&fs::read(list).unwrap()).unwrap();
    assert_eq!(list["bomFormat"], "CycloneDX");
    let components = list["components"].as_array().unwrap();
    let find = |reference: &str| {
        let mut components = components.iter();
        components.find(|one| one["bom-ref"] == reference)
    };
    let serde = find("pkg:cargo/serde@1.0.228").unwrap();
    assert_eq!(
        (&serde["purl"], &serde["scope"]),
        (&json!("pkg:cargo/serde@1.0.228"), &json!("required"))
    );
    // It ran as others were compiled.
    let derive = find("pkg:cargo/serde_derive@1.0.228").unwrap();
    assert_eq!(derive["scope"], "excluded");
    // What is in no registry has no address in one.
    let own = find("local/ckb-probe-bpf@0.1.0").unwrap();
    assert_eq!(own["purl"], Value::Null);
    // What runs in the kernel is carried by whoever loads it.
    let aya = components.iter().find(|one| one["name"] == "aya-ebpf");
    let aya = aya.unwrap()["bom-ref"].as_str().unwrap();
    let dependencies = list["dependencies"].as_array().unwrap();
    let on = |program: &str| -> Vec<&str> {
        let mut dependencies = dependencies.iter();
        let of = dependencies.find(|one| one["ref"] == program).unwrap();
        let on = of["dependsOn"].as_array().unwrap();
        on.iter().map(|one| one.as_str().unwrap()).collect()
    };
    assert!(on("node-agent").contains(&aya));
    assert_eq!(on("ckb-probe-operator"), ["local/ckb-probe-operator@0.1.0"]);
    // Each that something depends on is in the list.
    for of in dependencies {
        for reference in of["dependsOn"].as_array().unwrap() {
            assert!(find(reference.as_str().unwrap()).is_some(), "{reference}");
        }
    }
    let digests = components.iter().filter(|one| one["type"] == "application");
    assert_eq!(digests.count(), PROGRAMS.len());
}
