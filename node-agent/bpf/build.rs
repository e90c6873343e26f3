//! Compiles the BPF programs, one for each folder of `ebpf/programs/src/bin`, and hands the objects to the library:
//! `$OUT_DIR/programs.rs` finds each by the name of its folder.
//!
//! The target has no precompiled core in rustup, so one of two compilers serves: a nightly with `rust-src`
//! (`-Zbuild-std`), or Debian's rustc with its package libstd-rust-web-dev-bpf. `scripts/setup.sh build`
//! installs what is missing.

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const TARGET: &str = "bpfel-unknown-none";

fn main() -> Result<(), Box<dyn Error>> {
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let output = PathBuf::from(env::var("OUT_DIR")?);
    let programs = manifest.join("../../ebpf/programs");
    for input in ["src", "Cargo.toml", "Cargo.lock", ".cargo", "../common/src"] {
        println!("cargo::rerun-if-changed={}", programs.join(input).display());
    }
    println!("cargo::rerun-if-env-changed=CKB_PROBE_CACHE");

    let toolchain = Toolchain::find().ok_or(
        "no compiler for the BPF target: run scripts/setup.sh build, which installs Debian's \
         rustc-web and libstd-rust-web-dev-bpf, or add rust-src to a rustup nightly",
    )?;
    // OUT_DIR is TARGET_DIR/PROFILE/build/NAME/out. What these programs are made into is the same for all profiles: they are compiled once.
    let target_dir = output.ancestors().nth(4).unwrap_or(&output).join("ebpf");
    let status = toolchain
        .cargo()
        .current_dir(&programs)
        .args([
            "build",
            "--release",
            "--locked",
            "--target",
            TARGET,
            "--target-dir",
        ])
        .arg(&target_dir)
        .env("PATH", path_with_linker()?)
        // Cargo hands build scripts the flags and wrappers of the host's build; this one has its own.
        .env(
            "CARGO_ENCODED_RUSTFLAGS",
            flags(&env::var("CARGO_CFG_TARGET_ARCH")?),
        )
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()?;
    if !status.success() {
        return Err("the BPF programs do not compile: see above".into());
    }
    let mut names = Vec::new();
    for program in fs::read_dir(programs.join("src/bin"))? {
        let name = program?.file_name().into_string();
        let name = name.map_err(|name| format!("a program's name must be UTF-8: {name:?}"))?;
        let built = target_dir.join(TARGET).join("release").join(&name);
        fs::copy(built, output.join(&name))?;
        names.push(name);
    }
    names.sort();
    fs::write(output.join("programs.rs"), lookup(&names))?;
    Ok(())
}

/// What the programs are compiled with for a machine: where its registers are differs, and nothing else. For x86-64 it is what
/// `ebpf/programs/.cargo/config.toml` has, for those who call Cargo there.
fn flags(machine: &str) -> String {
    let machine = format!("--cfg=bpf_target_arch=\"{machine}\"");
    [&machine, "-Clink-arg=--btf", "-Ctarget-cpu=v3"].join("\x1f")
}

/// A function in Rust from a program's name to its object.
fn lookup(names: &[String]) -> String {
    let arms = names.iter().map(|name| {
        format!(
            "        {name:?} => include_bytes_aligned!(concat!(env!(\"OUT_DIR\"), \"/{name}\")),\n"
        )
    });
    format!(
        "fn object(name: &str) -> Option<&'static [u8]> {{\n    Some(match name {{\n{}        _ => return None,\n    }})\n}}\n",
        arms.collect::<String>()
    )
}

enum Toolchain {
    /// rustup's nightly, which builds core from its own source.
    Nightly,
    /// Debian's compiler, with core precompiled.
    Debian(PathBuf),
}

impl Toolchain {
    fn find() -> Option<Self> {
        let sysroot = Command::new("rustup")
            .args(["run", "nightly", "rustc", "--print", "sysroot"])
            .output()
            .ok()
            .filter(|output| output.status.success())
            .and_then(|output| String::from_utf8(output.stdout).ok());
        if sysroot.is_some_and(|sysroot| {
            Path::new(sysroot.trim())
                .join("lib/rustlib/src/rust/library/core")
                .exists()
        }) {
            return Some(Self::Nightly);
        }
        let core = Path::new("/usr/lib/rustlib").join(TARGET);
        let debian = PathBuf::from("/usr/bin/rustc");
        (core.exists() && debian.exists()).then_some(Self::Debian(debian))
    }

    fn cargo(&self) -> Command {
        match self {
            Self::Nightly => {
                let mut command = Command::new("rustup");
                command.args(["run", "nightly", "cargo", "-Zbuild-std=core"]);
                command.env_remove("RUSTC").env_remove("CARGO");
                command
            }
            Self::Debian(rustc) => {
                let mut command = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
                // Unstable intrinsics, on a stable compiler.
                command.env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "1");
                command
            }
        }
    }
}

/// The caller's PATH, after the place where `scripts/setup.sh` puts bpf-linker.
fn path_with_linker() -> Result<std::ffi::OsString, Box<dyn Error>> {
    let cache = match env::var_os("CKB_PROBE_CACHE") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cache/ckb-probe"),
    };
    let mut directories: Vec<PathBuf> = fs::read_dir(cache)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .filter(|bin| bin.join("bpf-linker").exists())
        .collect();
    directories.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    Ok(env::join_paths(directories)?)
}
