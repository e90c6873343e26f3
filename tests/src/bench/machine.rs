//! What the figures were measured on, and of what.

use std::env;

use serde::Serialize;

use super::prelude::*;
use crate::{cluster::run, fixture::repository};

/// The machine and the versions of what ran on it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// The processor, as it calls itself.
    pub cpu: String,
    /// How many cores.
    pub cores: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The commit of ckb-probe, with `-dirty` where the working tree differs from it.
    pub ckb_probe: String,
    /// The node, where one is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ckb: Option<String>,
    /// The peer, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bpftrace: Option<String>,
    /// The compiler.
    pub rustc: String,
}

impl Machine {
    /// This one, with a CKB node and its peer.
    pub async fn with(ckb: &Path) -> Result<Self> {
        let ckb = first_line(&ckb.display().to_string(), &["--version"]).await?;
        let bpftrace = first_line("bpftrace", &["--version"]).await?;
        Ok(Self {
            ckb: Some(ckb),
            bpftrace: Some(bpftrace),
            ..Self::this().await?
        })
    }

    /// The machine that this runs on, without CKB and bpftrace.
    pub async fn this() -> Result<Self> {
        let cpu = line_of("/proc/cpuinfo", "model name")?;
        let memory = line_of("/proc/meminfo", "MemTotal")?;
        let kib: u64 = memory
            .trim_end_matches(" kB")
            .parse()
            .map_err(Failure::format(format!("MemTotal {memory}")))?;
        let repository = repository().display().to_string();
        let describe = [
            "-C",
            &repository,
            "describe",
            "--always",
            "--dirty",
            "--abbrev=12",
        ];
        let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_string());
        Ok(Self {
            cpu,
            cores: std::thread::available_parallelism()
                .map_err(Failure::system("the number of cores"))?
                .get(),
            memory_bytes: kib * 1024,
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_string(),
            ckb_probe: first_line("git", &describe).await?,
            ckb: None,
            bpftrace: None,
            rustc: first_line(&rustc, &["--version"]).await?,
        })
    }
}

async fn first_line(program: &str, arguments: &[&str]) -> Result<String> {
    let text = run(program, arguments, None).await?;
    Ok(text.lines().next().unwrap_or_default().trim().to_string())
}

/// The value of the first line `key : value` of a file.
fn line_of(path: &str, key: &str) -> Result<String> {
    let text = read(path)?;
    let value = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_string())
    });
    value.ok_or_else(|| Failure::format(path)(format!("there is no line {key}")))
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).map_err(Failure::system(path))
}
