//! bpftrace as the second opinion: it counts what functions of one process return.

use std::{collections::BTreeMap, fmt::Write as _, process::Stdio, time::Duration};

use rustix::process::Signal;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    sync::watch,
};

use crate::{
    bpf::Code,
    cluster::run,
    failure::{Failure, Result, expect},
    process::Process,
    wait,
};

/// Until it has read the symbols of a large binary and attached.
const START: Duration = Duration::from_secs(90);

/// What it has counted, by function.
pub type Counts = BTreeMap<String, u64>;

/// Its map.
const CALLS: &str = "@calls";

/// Where tracepoints are described to programs that must read about them first.
const TRACEFS: &str = "/sys/kernel/tracing";

/// A bpftrace that counts.
pub struct Bpftrace {
    child: Child,
    process: Process,
    /// How often it has printed its counts, and the last of them.
    printed: watch::Receiver<(u64, Counts)>,
}

impl Bpftrace {
    /// Starts it, and returns when it counts every function of a process that serves one of these operations.
    pub async fn count(target: Process, code: &Code, operations: &[&str]) -> Result<Self> {
        let symbols = code.symbols(operations);
        let script = of_functions(target, code, symbols.iter().copied());
        Self::start(&script, symbols.len()).await
    }

    /// Starts a script that counts, and returns when so many probes are in place.
    async fn start(script: &str, probes: usize) -> Result<Self> {
        let script =
            format!("{script}interval:ms:100 {{ print({CALLS}); printf(\"printed\\n\"); }}\n");
        // In mounts of its own: not every machine has this one, and it is not ours to leave behind.
        let shell = format!(
            "mountpoint --quiet {TRACEFS} || mount -t tracefs tracefs {TRACEFS}; exec bpftrace \"$@\""
        );
        let mut child = Command::new("unshare")
            .args(["--mount", "sh", "-c", &shell, "bpftrace"])
            .args(["-B", "line", "-f", "json", "-e", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(Failure::system("bpftrace"))?;
        let missing = || Failure::unexpected("bpftrace to run", "it has ended");
        let process = Process::of(child.id().ok_or_else(missing)? as i32)?;
        let mut lines = BufReader::new(child.stdout.take().ok_or_else(missing)?).lines();
        let (sender, printed) = watch::channel((0, Counts::new()));
        tokio::spawn(async move {
            let mut counted = Counts::new();
            // Ends with bpftrace.
            while let Ok(Some(line)) = lines.next_line().await {
                let Ok(line) = serde_json::from_str::<Value>(&line) else {
                    continue;
                };
                take(&mut counted, &line["data"]);
                if line["type"] == "printf" {
                    sender.send_modify(|printed| *printed = (printed.0 + 1, counted.clone()));
                }
            }
        });
        wait::until("bpftrace to attach", START, async || {
            let text = run("bpftool", &["--json", "perf", "show"], None).await?;
            let list: Value =
                serde_json::from_str(&text).map_err(Failure::format("bpftool perf"))?;
            let all = list.as_array().into_iter().flatten();
            let counts = |event: &&Value| event["fd_type"] == "uretprobe";
            let own = all.filter(|event| event["pid"] == process.pid);
            let own = own.filter(counts).count();
            expect(
                own == probes,
                format!("{probes} probes of bpftrace"),
                || own,
            )
        })
        .await?;
        Ok(Self {
            child,
            process,
            printed,
        })
    }

    /// What it has counted up to a moment that is not before the call.
    pub async fn counts(&mut self) -> Result<Counts> {
        // What it prints next it may have read before; what it prints after that it has not.
        let enough = self.printed.borrow().0 + 2;
        let fresh = self.printed.wait_for(|(printed, _)| *printed >= enough);
        match tokio::time::timeout(Duration::from_secs(10), fresh).await {
            Ok(Ok(printed)) => Ok(printed.1.clone()),
            _ => Err(Failure::unexpected(
                "bpftrace to print its counts",
                "nothing for 10 s",
            )),
        }
    }

    /// Ends it, and waits until its probes are gone.
    pub async fn stop(mut self) -> Result<()> {
        self.process.signal(Signal::INT)?;
        self.child
            .wait()
            .await
            .map_err(Failure::system("bpftrace"))?;
        Ok(())
    }
}

/// Its map as it has printed it.
fn take(counts: &mut Counts, maps: &Value) {
    if let Some(calls) = maps[CALLS].as_object() {
        let calls = calls.iter();
        *counts = calls
            .filter_map(|(key, count)| Some((key.clone(), count.as_u64()?)))
            .collect();
    }
}

/// Counts returns of functions: by name, at the symbol.
fn of_functions<'a>(
    target: Process,
    code: &Code,
    functions: impl Iterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut script = String::new();
    for (function, symbol) in functions {
        let _ = writeln!(
            script,
            "uretprobe:{}:{symbol} /pid == {}/ {{ {CALLS}[\"{function}\"] = count(); }}",
            code.file.display(),
            target.pid
        );
    }
    script
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_it_prints_last_is_what_it_has_counted() {
        let mut counts = Counts::new();
        for maps in [
            json!({ "@calls": { "rocksdb_write": 3 } }),
            json!({ "@calls": { "rocksdb_write": 4 } }),
            json!({ "@in": { "31": 8 } }),
            json!("printed\n"),
        ] {
            take(&mut counts, &maps);
        }
        assert_eq!(counts, Counts::from([("rocksdb_write".into(), 4)]));
    }
}
