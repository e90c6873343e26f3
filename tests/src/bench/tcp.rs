//! A process with 10,000 TCP sockets: what a pass over them takes the agent, and how much it grows.

use ckb_probe_crds::kinds::tcp::TcpProbe;
use procfs::process as proc;

use super::{caller::EXECUTABLE, prelude::*};

/// Each has two sockets, both of the process.
const CONNECTIONS: u64 = 5000;

/// For comparison, with the same peers, so with the same rows: what there is besides sockets.
const FEW: u64 = 100;

/// In a window.
const PASSES: f64 = 4.0;

/// Between two reports; there is a pass for each.
const REPORT: Duration = Duration::from_secs(2);

/// Until the agent has attached, and until a command has ended.
const ATTACH: Duration = Duration::from_secs(60);

/// The program of the iterator, which the kernel runs for each file, and once more.
const PROGRAM: &str = "list";

/// A while of the agent's.
struct Window {
    seconds: f64,
    /// CPU time of the agent, in milliseconds.
    cpu: f64,
    passes: f64,
}

const ROWS: [Row; 5] = table! {
    "CPU of the agent, a pass" = "pass" in "ms", AtMost(15.0);
    "RSS of the agent, more than with 200" = "grown" in "MB", AtMost(8.0);
    "RSS of the agent with 200, more than idle" = "with_few" in "MB";
    "CPU of ss -tin" = "ss" in "ms";
    "a pass against ss -tin" = "pass / ss" in "x";
};

pub async fn run(bench: &mut Bench) -> Result<()> {
    let (few, many) = (
        Target::start(6, FEW).await?,
        Target::start(7, CONNECTIONS).await?,
    );
    let agent = Agent::start(&bench.settings).await?;
    sleep(REPORT).await;
    let idle = agent.rss_mb()?;
    // Memory that was used once is kept for a while: only what comes first tells how much more it is than nothing.
    few.watch(&agent).await?;
    let before = agent.rss_mb()?;
    let mut series = Series::default();
    series.push("with_few", before - idle);
    for _ in 0..bench.settings.rounds {
        let besides = few.watch(&agent).await?;
        let with = many.watch(&agent).await?;
        let besides = besides.cpu / besides.seconds * with.seconds;
        // Of the sockets that it has more.
        let part = (CONNECTIONS - FEW) as f64 / CONNECTIONS as f64;
        series.push("pass", (with.cpu - besides) / with.passes / part);
        series.push("grown", agent.rss_mb()? - before);
        series.push("ss", ss().await?);
    }
    agent.stop().await?;
    bench.tell("tcp: 10,000 sockets: ", &series, &ROWS);
    Ok(())
}

/// A process with sockets.
struct Target {
    container: Container,
    caller: Caller,
    sockets: u64,
}

impl Target {
    async fn start(number: u32, connections: u64) -> Result<Self> {
        let container = Container::new(number);
        let mut caller = Caller::start_in(&container)?;
        caller.call("connect", connections)?;
        Ok(Self {
            container,
            caller,
            sockets: connections * 2,
        })
    }

    /// Has the agent watch it and nobody else.
    async fn watch(&self, agent: &Agent) -> Result<Window> {
        let question = TcpProbe::default();
        let order = agent::order(&self.container, EXECUTABLE, no_budget(), question, REPORT);
        agent.attach(vec![order], ATTACH).await?;
        // The attach, and the first report.
        sleep(REPORT * 2).await;
        let _account = Account::open()?;
        let (begun, used) = (Instant::now(), agent.cpu_time());
        let ran = account::runs(agent.process).await?;
        // A pass that takes long is followed by the next one later.
        let passes = wait::until("passes", ATTACH, async || {
            let runs = account::runs(agent.process).await?;
            let runs = account::since(&ran, &runs, PROGRAM)?.count;
            let passes = runs as f64 / (self.files()? + 1) as f64;
            expect(passes >= PASSES, format!("{PASSES} passes"), || passes)?;
            Ok(passes)
        })
        .await?;
        let used = agent.cpu_time().saturating_sub(used);
        self.expect_seen(agent)?;
        Ok(Window {
            seconds: begun.elapsed().as_secs_f64(),
            cpu: used.as_secs_f64() * 1e3,
            passes,
        })
    }

    /// All of its sockets, and no other, are in what the agent reports.
    fn expect_seen(&self, agent: &Agent) -> Result<()> {
        let instances = agent.instances();
        let rows = instances.iter().flat_map(rows::reported);
        let levels = rows.map(|row| row.total.levels.get("connections").copied());
        let seen: u64 = levels.map(Option::unwrap_or_default).sum();
        expect(
            seen == self.sockets,
            format!("{} sockets", self.sockets),
            || seen,
        )
    }

    fn files(&self) -> Result<usize> {
        let pid = self.caller.process.pid;
        let files = proc::Process::new(pid).and_then(|process| process.fd_count());
        files.map_err(Failure::format(format!("/proc/{pid}/fd")))
    }
}

/// CPU time that `ss` takes to tell the same of the same sockets, in milliseconds.
async fn ss() -> Result<f64> {
    let container = Container::new(8);
    // So that it does not matter who reads it.
    let script = ["-c", "exec ss -tinH > /dev/null"];
    let mut command = command(&container, "sh".as_ref(), script);
    let ended = timeout(ATTACH, command.status()).await;
    let succeeded = matches!(&ended, Ok(Ok(status)) if status.success());
    expect(succeeded, "ss to succeed", || format!("{ended:?}"))?;
    Ok(container.cpu_time().as_secs_f64() * 1e3)
}
