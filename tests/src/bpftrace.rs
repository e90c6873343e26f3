//! bpftrace as the second opinion: it counts what functions and system calls of one process return.

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

/// The number of a system call.
pub type Number = u64;

/// All that it has counted, from the beginning of what it did until one moment.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// Returns of functions, by the names that they were given.
    pub calls: Counts,
    /// System calls that have returned.
    pub system_calls: BTreeMap<Number, u64>,
    /// Those of them that failed, by the error's number.
    pub errors: BTreeMap<(Number, u64), u64>,
}

// Its maps.
const CALLS: &str = "@calls";
const SYSTEM_CALLS: &str = "@system_calls";
const ERRORS: &str = "@errors";

/// Where tracepoints are described to programs that must read about them first.
const TRACEFS: &str = "/sys/kernel/tracing";

/// A bpftrace that counts.
pub struct Bpftrace {
    child: Child,
    process: Process,
    /// How often it has printed its counts, and the last of them.
    printed: watch::Receiver<(u64, Counted)>,
}

impl Bpftrace {
    /// Starts it, and returns when it counts every function of a process that serves one of these operations.
    pub async fn count(target: Process, code: &Code, operations: &[&str]) -> Result<Self> {
        let symbols = code.symbols(operations);
        let script = of_functions(target, code, symbols.iter().copied());
        Self::start(&script, &[CALLS], symbols.len()).await
    }

    /// The same for functions by their names and symbols, and for every system call of the process.
    pub async fn count_with_system_calls(
        target: Process,
        code: &Code,
        functions: &[(&str, String)],
    ) -> Result<Self> {
        let symbols = functions.iter().map(|(name, symbol)| (*name, &**symbol));
        let script = of_functions(target, code, symbols) + &of_system_calls(target);
        let maps = [CALLS, SYSTEM_CALLS, ERRORS];
        Self::start(&script, &maps, functions.len() + 2).await
    }

    /// Starts a script that counts in these maps, and returns when so many probes are in place.
    async fn start(script: &str, maps: &[&str], probes: usize) -> Result<Self> {
        let maps: String = maps.iter().map(|map| format!("print({map}); ")).collect();
        let script = format!("{script}interval:ms:100 {{ {maps}printf(\"printed\\n\"); }}\n");
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
        let missing = || Failure::Unexpected {
            expected: "bpftrace to run".to_string(),
            got: "it has ended".to_string(),
        };
        let process = Process::of(child.id().ok_or_else(missing)? as i32)?;
        let mut lines = BufReader::new(child.stdout.take().ok_or_else(missing)?).lines();
        let (sender, printed) = watch::channel((0, Counted::default()));
        tokio::spawn(async move {
            let mut counted = Counted::default();
            // Ends with bpftrace.
            while let Ok(Some(line)) = lines.next_line().await {
                let Ok(line) = serde_json::from_str::<Value>(&line) else {
                    continue;
                };
                counted.take(&line["data"]);
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
            let counts = |event: &&Value| {
                ["uretprobe", "tracepoint"]
                    .iter()
                    .any(|kind| event["fd_type"] == **kind)
            };
            let own = all.filter(|event| event["pid"] == process.pid);
            let own = own.filter(counts).count();
            expect(
                own == probes,
                format!("{probes} probes of bpftrace"),
                || own.to_string(),
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
    pub async fn counted(&mut self) -> Result<Counted> {
        // What it prints next it may have read before; what it prints after that it has not.
        let enough = self.printed.borrow().0 + 2;
        let fresh = self.printed.wait_for(|(printed, _)| *printed >= enough);
        match tokio::time::timeout(Duration::from_secs(10), fresh).await {
            Ok(Ok(printed)) => Ok(printed.1.clone()),
            _ => Err(Failure::Unexpected {
                expected: "bpftrace to print its counts".to_string(),
                got: "nothing for 10 s".to_string(),
            }),
        }
    }

    /// The same, of functions.
    pub async fn counts(&mut self) -> Result<Counts> {
        Ok(self.counted().await?.calls)
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

impl Counted {
    /// One of its maps as it has printed it: keys of several parts have commas between them.
    fn take(&mut self, maps: &Value) {
        let numbers = |key: &str| {
            let parts = key.split(',').map(|part| part.trim().parse());
            parts.collect::<std::result::Result<Vec<u64>, _>>()
        };
        let counts = |name: &str| -> Option<Counts> {
            let counts = maps[name].as_object()?.iter();
            let counts = counts.filter_map(|(key, count)| Some((key.clone(), count.as_u64()?)));
            Some(counts.collect())
        };
        if let Some(calls) = counts(CALLS) {
            self.calls = calls;
        }
        for (key, count) in counts(SYSTEM_CALLS).into_iter().flatten() {
            if let Ok([number]) = numbers(&key).as_deref() {
                self.system_calls.insert(*number, count);
            }
        }
        for (key, count) in counts(ERRORS).into_iter().flatten() {
            if let Ok([number, error]) = numbers(&key).as_deref() {
                self.errors.insert((*number, *error), count);
            }
        }
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

/// Counts system calls that it has seen begin and end: a thread that is made returns from a call that it never made.
fn of_system_calls(target: Process) -> String {
    let pid = target.pid;
    format!(
        "tracepoint:raw_syscalls:sys_enter /pid == {pid}/ {{ @in[tid] = args->id + 1; }}\n\
         tracepoint:raw_syscalls:sys_exit /pid == {pid} && @in[tid]/ {{\n\
           $number = @in[tid] - 1;\n\
           {SYSTEM_CALLS}[$number] = count();\n\
           if (args->ret < 0 && args->ret > -4096) {{ {ERRORS}[$number, 0 - args->ret] = count(); }}\n\
           delete(@in[tid]);\n\
         }}\n"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_it_prints_last_is_what_it_has_counted() {
        let mut counted = Counted::default();
        for maps in [
            json!({ "@calls": { "rocksdb_write": 3 } }),
            json!({ "@system_calls": { "202": 7, "9": 1 } }),
            json!({ "@errors": { "202,11": 2 } }),
            json!({ "@calls": { "rocksdb_write": 4 } }),
            json!({ "@in": { "31": 8 } }),
            json!("printed\n"),
        ] {
            counted.take(&maps);
        }
        assert_eq!(counted.calls, Counts::from([("rocksdb_write".into(), 4)]));
        assert_eq!(counted.system_calls, BTreeMap::from([(9, 1), (202, 7)]));
        assert_eq!(counted.errors, BTreeMap::from([((202, 11), 2)]));
    }
}
