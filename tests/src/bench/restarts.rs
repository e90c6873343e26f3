//! A target that is restarted again and again: how soon each successor is counted, and what is left of them in the agent.

use ckb_probe_crds::InstanceReport;

use super::{
    prelude::*,
    ticker::{self, EXECUTABLE},
};

/// Restarts before the first look: memory is taken at first, and kept.
const WARM_UP: usize = 50;

/// Until a target that is back is attached.
const ATTACH: Duration = Duration::from_secs(10);

/// Until the agent has noticed an end.
const NOTICED: Duration = Duration::from_secs(10);

/// Calls a second: one in half a millisecond is fine enough to tell since when they are counted.
const RATE: u32 = 2000;

/// How long a target lives on when it is attached.
const LIFE: Duration = Duration::from_millis(10);

/// The longest time between an end and the start of the successor.
const LONGEST_PAUSE_MS: u64 = 100;

/// Until everything is given back: the kernel frees links and maps a moment later.
const SETTLE: Duration = Duration::from_secs(3);

/// What RSS may differ by, in MB: a hundredth of that for each restart would be a leak that shows in a day.
const RSS_MB: f64 = 0.5;

const ROWS: [Row; 2] = table! {
    "from the target's exec to the first counted call" = "latency" in "ms", AtMost(250.0);
    "targets that ended before a call of theirs was counted" = "uncounted" in "%", AtMost(1.0);
};

const HELD: [Row; 6] = table! {
    "file descriptors" = "more" in "", Exactly(0.0);
    "BPF programs" = "more" in "", Exactly(0.0);
    "BPF links" = "more" in "", Exactly(0.0);
    "BPF maps" = "more" in "", Exactly(0.0);
    "RSS" = "more" in "MB", AtMost(RSS_MB);
    // The rest is code that something rare had run.
    "memory that it has allocated" = "more" in "MB", AtMost(RSS_MB);
};

pub async fn run(bench: &mut Bench) -> Result<()> {
    let settings = &bench.settings;
    let container = Container::new(3);
    let agent = Agent::start(settings).await?;
    let mut target = Target {
        agent: &agent,
        container: &container,
        restarts: 0,
        counted: 0,
        random: 1,
    };
    for _ in 0..WARM_UP {
        target.restart().await?;
    }
    let before = Holdings::settled(&agent).await?;
    let mut series = Series::default();
    let restarts = bench.settings.restarts;
    let mut uncounted = 0;
    for _ in 0..restarts {
        match target.restart().await? {
            Some(latency) => series.push("latency", latency.as_secs_f64() * 1000.0),
            None => uncounted += 1,
        }
    }
    let after = Holdings::settled(&agent).await?;
    agent.stop().await?;
    // A machine that is busy may keep one from running for as long as it lives.
    let percent = 100.0 * f64::from(uncounted) / restarts.max(1) as f64;
    series.push("uncounted", percent);
    bench.tell("restarts: ", &series, &ROWS);
    for ((row, after), before) in HELD.into_iter().zip(after.0).zip(before.0) {
        series = Series::default();
        series.push("more", after - before);
        let name =
            |row: &str| format!("restarts: {row} more in the agent after {restarts} of them");
        bench.tell_as(name, &series, &[row]);
    }
    Ok(())
}

/// A target that comes and goes.
struct Target<'a> {
    agent: &'a Agent,
    container: &'a Container,
    restarts: u64,
    /// Calls counted over all of its processes so far.
    counted: u64,
    random: u64,
}

impl Target<'_> {
    /// Starts it, lets it be attached, and ends it. Returns the time from its exec to the first call that was counted; None
    /// where none was.
    async fn restart(&mut self) -> Result<Option<Duration>> {
        self.order().await?;
        sleep(self.pause()).await;
        let ticker = Ticker::start(self.container, RATE)?;
        let pid = ticker.process.pid as u32;
        self.reported(ATTACH, "an attach", |instance| instance.pid == Some(pid))
            .await?;
        sleep(LIFE).await;
        let ticks = ticker.stop().await?;
        let ended = self
            .reported(NOTICED, "a look at its end", |instance| {
                instance.state == InstanceState::Waiting
            })
            .await?;
        let count = total(&ended);
        let counted = count - std::mem::replace(&mut self.counted, count);
        expect(
            counted <= ticks.made(),
            format!("no more than {} calls", ticks.made()),
            || counted,
        )?;
        Ok(ticks.first_counted(counted))
    }

    /// Orders it anew, with something changed: of a target that dies within seconds of an attach, twice in a row, the agent
    /// keeps away until then.
    async fn order(&mut self) -> Result<()> {
        self.restarts += 1;
        let interval = Duration::from_millis(1000 + self.restarts % 2);
        let kind = ticker::question();
        let order = agent::order(self.container, EXECUTABLE, budget(), kind, interval);
        self.agent.order(vec![order]).await
    }

    async fn reported(
        &self,
        limit: Duration,
        what: &str,
        check: impl Fn(&InstanceReport) -> bool,
    ) -> Result<InstanceReport> {
        wait::closely(what, limit, async || {
            let instances = self.agent.instances();
            let found = instances.iter().find(|instance| check(instance));
            expect(found.is_some(), what, || {
                let states = instances
                    .iter()
                    .map(|one| format!("{:?}: {}", one.state, one.message));
                states.collect::<Vec<_>>().join("; ")
            })?;
            Ok(found.cloned().unwrap_or_default())
        })
        .await
    }

    /// Another time for each restart, so that whoever looks at intervals is not met at the same moment of each.
    fn pause(&mut self) -> Duration {
        // Knuth's linear congruential generator; its upper bits are good enough for this.
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        Duration::from_millis((self.random >> 33) % LONGEST_PAUSE_MS)
    }
}

fn total(instance: &InstanceReport) -> u64 {
    let rows = rows::reported(instance);
    rows.map(|row| rows::calls(&row.total)).sum()
}

/// What an agent holds, in the order of [`HELD`].
struct Holdings([f64; HELD.len()]);

impl Holdings {
    async fn settled(agent: &Agent) -> Result<Self> {
        sleep(SETTLE).await;
        let folder = format!("/proc/{}/fdinfo", agent.process.pid);
        let open = fs::read_dir(&folder).map_err(Failure::system(folder))?;
        let (mut descriptors, mut programs, mut links) = (0.0, 0.0, 0.0);
        let mut maps = BTreeSet::new();
        for descriptor in open.flatten() {
            descriptors += 1.0;
            // It may have been closed meanwhile.
            let text = fs::read_to_string(descriptor.path()).unwrap_or_default();
            for line in text.lines() {
                match line.split_once(':') {
                    // A link says which program it runs.
                    Some(("link_id", _)) => links += 1.0,
                    Some(("prog_jited", _)) => programs += 1.0,
                    Some(("map_id", id)) => {
                        maps.insert(id.trim().to_string());
                    }
                    _ => {}
                }
            }
        }
        let (maps, rss, own) = (maps.len() as f64, agent.rss_mb()?, agent.own_mb()?);
        Ok(Self([descriptors, programs, links, maps, rss, own]))
    }
}
