//! Nine targets beside one whose file system has fallen silent: what its file system keeps waiting is nobody but itself.

use ckb_probe_testkit::mount::Mount;
use tokio::time::{MissedTickBehavior, interval};

use super::{prelude::*, ticker::EXECUTABLE};

/// Calls a second of each target: so many that the budget has it measured in slices.
const RATE: u32 = 20_000;

/// Often, for a kubelet.
const HEALTH: Duration = Duration::from_millis(20);

const REPORT: Duration = Duration::from_secs(10);

/// Until the agent has attached to everything, and knows how long slices are to be.
const ATTACH: Duration = Duration::from_secs(60);
const SETTLE: Duration = Duration::from_secs(15);

const GOOD: u32 = 9;

/// Has the agent say how long each slice was.
const SLICES: &str = "info,ckb_probe_agent::driver::measurement=debug";

const ROWS: [Row; 8] = table! {
    "slices a second of nine, beside a good one" = "good.slices" in "a second";
    "slices a second of nine, beside a hostile one, against that" = "hostile.slices / good.slices" in "x";
    "slices' length, p50, beside a good one" = "good.half" in "ms";
    "slices' length, p50, beside a hostile one, against that" = "hostile.half / good.half" in "x", AtMost(1.2);
    "slices' length, p99, beside a good one" = "good.long" in "ms";
    "slices' length, p99, beside a hostile one, against that" = "hostile.long / good.long" in "x", AtMost(1.2);
    "/healthz, p99, beside a good one" = "good.health" in "ms";
    "/healthz, p99, beside a hostile one" = "hostile.health" in "ms", AtMost(10.0);
};

pub async fn run(bench: &mut Bench) -> Result<()> {
    let folder = in_folder(&bench.settings, "hostile")?;
    let mount = Mount::with(&fixtures().join(EXECUTABLE), &folder);
    let containers: Vec<Container> = (20..=20 + GOOD).map(Container::new).collect();
    let (hostile, good) = (&containers[0], &containers[1..]);
    let targets = good.iter().map(|one| Ticker::start(one, RATE));
    let targets: Vec<Ticker> = targets.collect::<Result<_>>()?;
    let own: Vec<i32> = targets.iter().map(|target| target.process.pid).collect();
    let _other = Ticker::start_at(&mount.program(), hostile, RATE)?;
    let settings = &bench.settings;
    let agent = Agent::start_logging(settings, SLICES).await?;
    let order = |one| agent::usual_order(one, EXECUTABLE, budget(), REPORT);
    agent
        .attach(containers.iter().map(order).collect(), ATTACH)
        .await?;
    sleep(SETTLE).await;
    let log = in_folder(settings, "agent.log")?;
    let window = Duration::from_secs(2 * settings.seconds);
    let (mut beside_good, mut beside_hostile) = (Seen::default(), Seen::default());
    for _ in 0..settings.rounds {
        beside_good.look(&agent, &log, &own, window).await?;
        mount.fall_silent();
        beside_hostile.look(&agent, &log, &own, window).await?;
        expect(
            mount.is_waited_for(),
            "the agent to wait for the silent file system",
            || "it has not asked it anything",
        )?;
        mount.speak();
        agent.every(InstanceState::Attached, ATTACH).await?;
        sleep(SETTLE).await;
    }
    agent.stop().await?;
    let mut series = Series::default();
    series.extend("good", beside_good.found());
    series.extend("hostile", beside_hostile.found());
    bench.tell("hostile: ", &series, &ROWS);
    Ok(())
}

/// What became of slices, and of those who ask after the agent's health, in all rounds: a slice takes a while to be paid for, and
/// there are not enough of them in one.
#[derive(Default)]
struct Seen {
    time: Duration,
    /// In milliseconds, as all that follows.
    slices: Vec<f64>,
    health: Vec<f64>,
}

impl Seen {
    /// Watches for a while.
    async fn look(&mut self, agent: &Agent, log: &Path, own: &[i32], time: Duration) -> Result<()> {
        let before = slices(log, own)?.len();
        let begun = Instant::now();
        let mut ticks = interval(HEALTH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while begun.elapsed() < time {
            ticks.tick().await;
            let asked = Instant::now();
            agent.health().await?;
            self.health.push(asked.elapsed().as_secs_f64() * 1e3);
        }
        self.time += begun.elapsed();
        self.slices.extend(slices(log, own)?.split_off(before));
        Ok(())
    }

    fn found(mut self) -> Found {
        let count = self.slices.len() as f64;
        vec![
            ("slices", count / self.time.as_secs_f64()),
            ("half", quantile(&mut self.slices, 0.5)),
            ("long", quantile(&mut self.slices, 0.99)),
            ("health", quantile(&mut self.health, 0.99)),
        ]
    }
}

/// In milliseconds, as the agent's log has them.
fn slices(log: &Path, own: &[i32]) -> Result<Vec<f64>> {
    let text = read(log)?;
    let found = text.lines().filter_map(|line| {
        let field = |name: &str| {
            let (_, value) = line.split_once(&format!(" {name}="))?;
            value.split(' ').next()
        };
        let pid = field("pid")?.parse().ok()?;
        let micros: f64 = field("slice_us")?.parse().ok()?;
        own.contains(&pid).then_some(micros / 1e3)
    });
    Ok(found.collect())
}

fn quantile(values: &mut [f64], quantile: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (values.len() as f64 * quantile) as usize;
    let last = values.len().saturating_sub(1);
    values.get(index.min(last)).copied().unwrap_or(f64::NAN)
}
