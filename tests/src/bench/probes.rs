//! The ways to probe a process that are compared, each a program of its own: ckb-probe's command line, bpftrace, and a
//! program that attaches nothing but the traps.

use std::fs::File;

use ckb_probe_crds::{Figures, IntervalFigures};
use serde::Deserialize;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

use super::{account::is_linked, prelude::*, sites::offsets};
use crate::{bpf::Code, cluster::run};

/// Until probes are in place: bpftrace reads the symbols of a large binary first.
const ATTACH: Duration = Duration::from_secs(90);

/// Until they are gone: perf events are closed one after the other.
const DETACH: Duration = Duration::from_secs(180);

/// An entry's and a return's probe are put in place one after the other; the first of them shows.
const SETTLE: Duration = Duration::from_millis(200);

/// A program that keeps probes in place until it is told to end.
pub struct Probes {
    child: Child,
    output: PathBuf,
    errors: PathBuf,
}

/// What a program printed.
pub struct Printed {
    /// To its standard output.
    pub output: String,
    /// To its standard error.
    pub errors: String,
}

/// A row in one interval, as `ckb-probe --json` prints it.
#[derive(Debug, Deserialize)]
pub struct Line {
    /// The row: the operation, the function.
    pub row: String,
    /// Since it attached.
    pub total: Figures,
    /// The interval.
    pub window: IntervalFigures,
}

/// What nobody does more cheaply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// Probing: the programs are empty.
    Empty,
    /// Timing: the programs read the clock.
    Clock,
}

/// The part of a bpftrace script that makes a histogram of the time between two probes on a thread. Each of these is given
/// up to its opening brace.
pub fn histogram_pair(name: &str, begin: &str, end: &str) -> String {
    format!(
        "{begin} @s[tid] = nsecs; }} \
         {end} @d[\"{name}\"] = hist(nsecs - @s[tid]); delete(@s[tid]); }} "
    )
}

impl Probes {
    /// `ckb-probe rocksdb` or `functions` on a process; returns when its functions are probed.
    pub async fn ckb_probe(
        programs: &Path,
        kind: &str,
        target: Process,
        options: &[&str],
    ) -> Result<Self> {
        // What a budget does is another family's matter.
        let options = [&["--on-breach", "report"], options].concat();
        Self::within_budget(programs, kind, target, &options).await
    }

    /// The same within the budget that there is by default.
    pub async fn within_budget(
        programs: &Path,
        kind: &str,
        target: Process,
        options: &[&str],
    ) -> Result<Self> {
        let probes = Self::begin(programs, kind, target, options)?;
        probes.wait_for_probes(target).await?;
        Ok(probes)
    }

    /// `ckb-probe KIND` on a process, which will attach.
    pub fn begin(programs: &Path, kind: &str, target: Process, options: &[&str]) -> Result<Self> {
        let mut command = Command::new(programs.join("ckb-probe"));
        command
            .args([kind, "--pid", &target.pid.to_string()])
            .args(options);
        Self::start(kind, command)
    }

    /// The same; returns when a program of this name is attached.
    pub async fn of_kind(
        programs: &Path,
        kind: &str,
        program: &str,
        target: Process,
        options: &[&str],
    ) -> Result<Self> {
        let probes = Self::begin(programs, kind, target, options)?;
        wait::until(&format!("ckb-probe {kind}"), ATTACH, async || {
            let process = probes.process()?;
            if !process.is_alive() {
                return Ok(());
            }
            let linked = is_linked(process, program).await?;
            expect(linked, format!("a link of {program}"), || "none")
        })
        .await?;
        probes.expect_alive()?;
        sleep(SETTLE).await;
        Ok(probes)
    }

    /// bpftrace with its usual pair on functions of a file: a map keyed by thread, and a histogram.
    pub async fn bpftrace(file: &Path, functions: &[&str]) -> Result<Self> {
        let file = file.display();
        let script: String = functions
            .iter()
            .map(|function| {
                histogram_pair(
                    function,
                    &format!("uprobe:{file}:{function} {{"),
                    &format!("uretprobe:{file}:{function} /@s[tid]/ {{"),
                )
            })
            .collect();
        Self::script(&script, functions.len() * 2).await
    }

    /// bpftrace with a script that has so many places to attach to.
    pub async fn script(script: &str, places: usize) -> Result<Self> {
        // A mount namespace of its own: the machine need not have tracefs.
        let mounts = "mount -t debugfs debugfs /sys/kernel/debug; \
                      mount -t tracefs tracefs /sys/kernel/tracing; exec \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", mounts, "sh"])
            .args(["bpftrace", "-B", "full", "-f", "json", "-e", script]);
        let probes = Self::start("bpftrace", command)?;
        wait::until("bpftrace to attach", ATTACH, async || {
            let process = probes.process()?;
            if !process.is_alive() {
                return Ok(());
            }
            let text = run("bpftool", &["--json", "perf", "show"], None).await?;
            let list: Value =
                serde_json::from_str(&text).map_err(Failure::format("bpftool perf"))?;
            let all = list.as_array().into_iter().flatten();
            let own = all.filter(|event| event["pid"] == process.pid).count();
            expect(
                own >= places,
                format!("{places} probes of bpftrace"),
                || own,
            )
        })
        .await?;
        probes.expect_alive()?;
        Ok(probes)
    }

    /// Programs of the floor at entry and return of functions of a process, by uprobe_multi.
    pub async fn floor(
        floor: Floor,
        target: Process,
        file: &Path,
        functions: &[&str],
    ) -> Result<Self> {
        let offsets = offsets(file, functions)?;
        let mut command = Command::new(fixtures().join("floor"));
        command
            .args((floor == Floor::Clock).then_some("--clock"))
            .arg(target.pid.to_string())
            .arg(file)
            .args(offsets.values().map(u64::to_string))
            .stdin(Stdio::piped());
        let mut child = command
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(Failure::system("floor"))?;
        let output = child
            .stdout
            .take()
            .ok_or_else(|| Failure::missing("an output of floor"))?;
        let mut lines = BufReader::new(output).lines();
        let line = lines.next_line().await.map_err(Failure::system("floor"))?;
        expect(
            line.as_deref() == Some("attached"),
            "floor to attach",
            || format!("{line:?}"),
        )?;
        Ok(Self {
            child,
            output: PathBuf::new(),
            errors: PathBuf::new(),
        })
    }

    fn start(name: &str, mut command: Command) -> Result<Self> {
        let folder = std::env::temp_dir();
        let path = |stream: &str| {
            folder.join(format!(
                "ckb-probe-bench-{}-{name}.{stream}",
                std::process::id()
            ))
        };
        let (output, errors) = (path("out"), path("err"));
        let create = |path: &Path| File::create(path).map_err(Failure::at(path));
        let child = command
            .stdin(Stdio::null())
            // Into files: nobody has to read along.
            .stdout(create(&output)?)
            .stderr(create(&errors)?)
            .kill_on_drop(true)
            .spawn()
            .map_err(Failure::system(name))?;
        Ok(Self {
            child,
            output,
            errors,
        })
    }

    async fn wait_for_probes(&self, target: Process) -> Result<()> {
        let code = Code::of(target)?;
        let process = of(&self.child)?;
        wait::closely("the probes", ATTACH, async || {
            let probed = code.probed()?;
            // Whoever has ended attaches nothing any more, and has said why.
            if probed.is_empty() && !process.is_alive() {
                return Ok(());
            }
            expect(!probed.is_empty(), "a probe", || "none")
        })
        .await?;
        self.expect_alive()?;
        sleep(SETTLE).await;
        Ok(())
    }

    /// The process of the agent.
    pub fn process(&self) -> Result<Process> {
        of(&self.child)
    }

    /// Whoever has ended attaches nothing any more, and has said why.
    pub fn expect_alive(&self) -> Result<()> {
        expect(self.process()?.is_alive(), "probes in place", || {
            fs::read_to_string(&self.errors).unwrap_or_default()
        })
    }

    /// Has it end, and returns what it printed when its probes are gone.
    pub async fn stop(mut self) -> Result<Printed> {
        // The end of its input ends the floor; an interrupt ends the others, and has them print.
        if self.child.stdin.take().is_none() {
            of(&self.child)?.signal(Signal::INT)?;
        }
        let ended = timeout(DETACH, self.child.wait()).await;
        expect(
            ended.is_ok(),
            "the probes to be taken off",
            || "they are not",
        )?;
        self.so_far()
    }

    /// What it has printed by now.
    pub fn so_far(&self) -> Result<Printed> {
        let printed = |path: &Path| match path.as_os_str().is_empty() {
            true => Ok(String::new()),
            false => fs::read_to_string(path).map_err(Failure::at(path)),
        };
        Ok(Printed {
            output: printed(&self.output)?,
            errors: printed(&self.errors)?,
        })
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        for path in [&self.output, &self.errors] {
            // The floor has none.
            let _ = fs::remove_file(path);
        }
    }
}

impl Printed {
    /// What `ckb-probe --json` printed of each row, interval by interval.
    pub fn intervals(&self) -> Vec<Line> {
        let lines = self.output.lines();
        lines
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// What `ckb-probe --json` counted in a row, in all.
    pub fn total(&self, row: &str) -> Figures {
        let mut lines = self.intervals().into_iter().rev();
        let last = lines.find(|line| line.row == row);
        last.map(|line| line.total).unwrap_or_default()
    }

    /// How many calls of an operation, or of a function.
    pub fn counted(&self, row: &str) -> u64 {
        rows::calls(&self.total(row))
    }

    /// The texts that bpftrace printed, one after the other.
    pub fn bpftrace_texts(&self) -> impl Iterator<Item = String> {
        let documents = self.documents();
        documents
            .filter(|document| document["type"] == "printf")
            .filter_map(|document| Some(document["data"].as_str()?.to_string()))
    }

    fn documents(&self) -> impl Iterator<Item = Value> {
        let lines = self.output.lines();
        lines.filter_map(|line| serde_json::from_str(line).ok())
    }

    /// How many calls the histograms of bpftrace hold.
    pub fn bpftrace_calls(&self) -> u64 {
        self.documents()
            .filter(|document| document["type"] == "hist")
            .flat_map(|document| {
                let histograms = document["data"]["@d"].as_object().cloned();
                histograms.into_iter().flatten().map(|(_, buckets)| buckets)
            })
            .flat_map(|buckets| buckets.as_array().cloned().into_iter().flatten())
            .filter_map(|bucket| bucket["count"].as_u64())
            .sum()
    }
}
