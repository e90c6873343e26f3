//! Who looks, while one agent takes another's place, at what both say.

use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use tokio::time::sleep;

use crate::{
    cluster::Component,
    failure::{Result, expect},
    metrics::Metrics,
    rows,
    soak::stage::{Round, STEADY, Stage},
    wait,
};

/// Between two looks: a page of metrics is made once a second at the most, so more would see nothing new.
const PAUSE: Duration = Duration::from_millis(100);

/// Until all calls that were made are in the metrics.
const COUNTED: Duration = Duration::from_secs(10);

/// What was seen.
pub struct Lookout {
    agent: Component,
    /// What the agent had counted when the calls began.
    before: f64,
    last: (Instant, Metrics),
    told: Option<Told>,
    backwards: u64,
}

/// What the status of the CkbProbe says.
#[derive(Clone, Copy)]
struct Told {
    count: u64,
    since: Option<Timestamp>,
}

/// One agent has taken the place of another.
pub struct HandedOver {
    /// What the agent before it counted of the calls, as far as anybody saw.
    counted: f64,
    /// The agent that took over.
    agent: Component,
    /// From the last that was seen of the first until the second was attached.
    pub without: Duration,
}

impl Lookout {
    /// Begins, with the agent that counts as the target begins its calls.
    pub async fn of(stage: &Stage, round: &Round) -> Result<Self> {
        let agent = stage.cluster.agent().await?;
        expect(agent.process == round.agent, "the agent of before", || {
            agent.pod.clone()
        })?;
        let at = Instant::now();
        let last = (at, agent.scrape().await?);
        Ok(Self {
            agent,
            before: round.counted,
            last,
            told: None,
            backwards: 0,
        })
    }

    /// Looks until another agent is attached to the target.
    pub async fn watch(&mut self, stage: &Stage, limit: Duration) -> Result<HandedOver> {
        let begin = Instant::now();
        loop {
            let at = Instant::now();
            // It goes away some time, and its successor takes its time to come.
            if let Ok(now) = self.agent.scrape().await {
                self.backwards += now.backwards(&self.last.1);
                self.last = (at, now);
            }
            self.look_at_status(stage).await;
            match successor(stage, &self.agent).await {
                Ok(agent) => {
                    let (last, metrics) = &self.last;
                    return Ok(HandedOver {
                        counted: stage.counted(metrics) - self.before,
                        without: last.elapsed(),
                        agent,
                    });
                }
                Err(error) if begin.elapsed() > limit => return Err(error),
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// A count that is less than it was is another agent's, and that is told by when it began.
    async fn look_at_status(&mut self, stage: &Stage) {
        let Ok(status) = stage.cluster.status(&stage.namespace, STEADY).await else {
            return;
        };
        let Ok(count) = rows::all_counted(&status) else {
            return;
        };
        let since = status
            .instances
            .first()
            .and_then(|one| one.counted_since.as_ref());
        let now = Told {
            count,
            since: since.map(|time| time.0),
        };
        // One that has no such time in its status says nothing of it, and begins anew all the same.
        let is_another =
            now.since.is_none() || self.told.is_none_or(|before| before.since != now.since);
        let less = self.told.is_some_and(|before| now.count < before.count) && !is_another;
        self.backwards += u64::from(less);
        self.told = Some(now);
    }

    /// How often a counter was less than before, in the metrics of one agent, or in a status that does not tell of another.
    pub fn backwards(&self) -> u64 {
        self.backwards
    }
}

async fn successor(stage: &Stage, before: &Component) -> Result<Component> {
    let agent = stage.cluster.agent().await?;
    expect(agent.process != before.process, "another agent", || {
        agent.pod.clone()
    })?;
    let attached = stage.attached_of(&agent.scrape().await?);
    expect(attached, "an attached target", || agent.pod.clone())?;
    Ok(agent)
}

impl HandedOver {
    /// How many of the calls, all of which have been made, both agents have counted together.
    pub async fn counted(&self, stage: &Stage, made: f64) -> Result<f64> {
        let without = self.without.as_secs_f64();
        let agent = stage.cluster.agent().await?;
        expect(
            agent.process == self.agent.process,
            "the same agent as before",
            || agent.pod.clone(),
        )?;
        let counted = async || -> Result<f64> {
            Ok(self.counted + stage.counted(&self.agent.scrape().await?))
        };
        // All that can be, or as many as there will be.
        let most = made - without * crate::soak::stage::RATE;
        let _ = wait::until("the calls", COUNTED, async || {
            let counted = counted().await?;
            expect(counted >= most, format!("{most} calls"), || counted)
        })
        .await;
        // What is still under way comes with the next page.
        sleep(Duration::from_secs(2)).await;
        counted().await
    }
}
