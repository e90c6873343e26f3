//! What `ckb-probe profile` and `ckb-probe threads` find, and what that costs: each as a process of its own.

pub mod agent;
pub mod allocations;
mod answers;
pub mod bystander;
pub mod complete;
pub mod cost;
pub mod memory;
mod names;
pub mod off_cpu;
pub mod peer;
mod scripts;
pub mod threads;
pub mod vm;
mod window;

use super::prelude::*;
use crate::bpf::Held;

/// Until it samples.
const BEGIN: Duration = Duration::from_secs(20);

/// Until it has written what it found.
const END: Duration = Duration::from_secs(60);

/// How it marks a stack whose outer calls are missing.
const TRUNCATED: &str = "[truncated]";

/// A stack, and how much it stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    /// The thread's name.
    pub thread: String,
    /// Names of functions, from the outermost on.
    pub calls: Vec<String>,
    /// How much was counted of the stack.
    pub weight: f64,
}

/// All that were taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stacks(pub Vec<Stack>);

impl Stacks {
    /// Of folded text: a line for each stack.
    fn folded(text: &str) -> Result<Self> {
        let stack = |line: &str| {
            let (stack, weight) = line.rsplit_once(' ')?;
            let mut calls = stack.split(';').map(str::to_string);
            Some(Stack {
                thread: calls.next()?,
                calls: calls.collect(),
                weight: weight.parse().ok()?,
            })
        };
        let stacks = text.lines().map(|line| {
            stack(line).ok_or_else(|| Failure::format("a profile")(format!("the line {line:?}")))
        });
        stacks.collect::<Result<_>>().map(Self)
    }

    /// All of it.
    pub fn total(&self) -> f64 {
        self.0.iter().map(|stack| stack.weight).sum()
    }

    /// What share is of stacks that are so, in percent.
    pub fn share(&self, is_so: impl Fn(&Stack) -> bool) -> f64 {
        let so = self.0.iter().filter(|stack| is_so(stack));
        let sum: f64 = so.map(|stack| stack.weight).sum();
        100.0 * sum / self.total().max(f64::MIN_POSITIVE)
    }

    /// What share reaches to where its thread began, in percent.
    pub fn complete(&self) -> f64 {
        self.share(|stack| stack.calls.first().is_none_or(|call| call != TRUNCATED))
    }

    /// The share of each function, in percent: of stacks that it is the innermost of, and of those that it is in.
    fn by_function(&self) -> [BTreeMap<&str, f64>; 2] {
        let all = self.total().max(f64::MIN_POSITIVE);
        let mut own: BTreeMap<&str, f64> = BTreeMap::new();
        let mut total: BTreeMap<&str, f64> = BTreeMap::new();
        for stack in &self.0 {
            let share = 100.0 * stack.weight / all;
            if let Some(call) = stack.calls.last() {
                *own.entry(call.as_str()).or_default() += share;
            }
            let calls: BTreeSet<&str> = stack.calls.iter().map(String::as_str).collect();
            for call in calls {
                *total.entry(call).or_default() += share;
            }
        }
        [own, total]
    }
}

/// `ckb-probe profile`, at work.
pub struct Profiling {
    child: Child,
    container: Container,
    file: PathBuf,
    process: Process,
}

/// What came of it.
pub struct Profile {
    /// What it wrote.
    pub file: PathBuf,
}

impl Profile {
    /// What it wrote, where that is folded text.
    pub fn stacks(&self) -> Result<Stacks> {
        let what = self.file.display().to_string();
        Stacks::folded(&fs::read_to_string(&self.file).map_err(Failure::system(what))?)
    }
}

impl Profiling {
    /// Begins to sample a process, into a file of this name; returns when its programs are in the kernel. Containers are told
    /// apart by their numbers.
    pub async fn start(
        settings: &Settings,
        number: u32,
        target: Process,
        name: &str,
        options: &[&str],
    ) -> Result<Self> {
        let container = Container::new(number);
        let file = in_folder(settings, name)?;
        let (pid, path) = (target.pid.to_string(), file.display().to_string());
        let arguments = ["profile", "--duration", "1h", "--pid", &pid, "-o", &path];
        let program = settings.programs.join("ckb-probe");
        let child = command(&container, &program, arguments.iter().chain(options))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Failure::system("ckb-probe profile"))?;
        let process = of(&child)?;
        wait::closely("ckb-probe profile to begin", BEGIN, async || {
            let held = Held::by(process)?;
            expect(
                !held.programs.is_empty(),
                "programs in the kernel",
                || "none",
            )
        })
        .await?;
        Ok(Self {
            child,
            container,
            file,
            process,
        })
    }

    /// The process that samples.
    pub fn process(&self) -> Process {
        self.process
    }

    /// CPU time that it has taken so far.
    pub fn cpu_time(&self) -> Duration {
        self.container.cpu_time()
    }

    /// Has it end, if it has not with its target.
    pub async fn stop(mut self) -> Result<Profile> {
        if self.process.is_alive() {
            // It may end meanwhile.
            let _ = self.process.signal(Signal::INT);
        }
        let ended = timeout(END, self.child.wait()).await;
        expect(
            matches!(ended, Ok(Ok(status)) if status.success()),
            "ckb-probe profile to end well",
            || format!("{ended:?}"),
        )?;
        Ok(Profile { file: self.file })
    }
}

/// What a command prints.
async fn printed(program: &Path, arguments: &[&str]) -> Result<String> {
    crate::cluster::run(&program.display().to_string(), arguments, None).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_stacks_stand_for_and_a_recursion_counts_once() {
        let text = "t;main;f;f 30\nt;main;g 60\nt;[truncated];g 10\n";
        let stacks = Stacks::folded(text).unwrap();
        assert_eq!(stacks.total(), 100.0);
        assert_eq!(stacks.complete(), 90.0);
        let [own, total] = stacks.by_function();
        assert_eq!((own["f"], own["g"]), (30.0, 70.0));
        assert_eq!((total["f"], total["main"]), (30.0, 90.0));
        Stacks::folded("no weight\n").unwrap_err();
    }
}
