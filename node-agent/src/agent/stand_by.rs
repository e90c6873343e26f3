//! The agent on a node where nothing can be measured: it stays, and says so. One that ended would be started again and
//! again, and all that anybody saw would be a pod that crashes.

use std::pin::Pin;

use futures::{Stream, StreamExt};
use tokio::signal::unix::Signal;

use super::*;
use crate::preflight::{Unmeasurable, unmeasurable_reports};

/// What ties the agent to the world.
pub(super) struct Connections {
    pub(super) terminate: Signal,
    pub(super) interrupt: Signal,
    pub(super) server: JoinHandle<()>,
    pub(super) writer: JoinHandle<()>,
    pub(super) asked: mpsc::Receiver<Inquiry>,
    pub(super) reports: watch::Sender<Option<NodeProbeStatus>>,
}

/// An agent that cannot measure: what it is asked for, and why it does not do it.
pub(super) struct StandBy {
    about: AgentStatus,
    failure: Unmeasurable,
    order: Option<OrderId>,
    assignments: Vec<Assignment>,
    reported: Instant,
}

/// Answers orders and questions until SIGTERM or SIGINT. Nothing is tried again: what an agent may do does not change
/// while it runs, and a node that is repaired is one that was started anew.
pub(super) async fn stand_by(
    connections: Connections,
    mut orders: Pin<&mut impl Stream<Item = Option<NodeProbe>>>,
    mut agent: StandBy,
) -> Result<(), AgentError> {
    let Connections {
        mut terminate,
        mut interrupt,
        mut server,
        mut writer,
        mut asked,
        reports,
    } = connections;
    loop {
        let changed = tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = ended(&mut server) => return Err(AgentError::TaskEnded("server")),
            _ = ended(&mut writer) => return Err(AgentError::TaskEnded("reports")),
            order = orders.next() => match order {
                Some(order) => agent.take(order),
                None => return Err(AgentError::TaskEnded("orders")),
            },
            Some(inquiry) = asked.recv() => agent.answer(inquiry),
            () = until(heartbeat(agent.reported, &agent.assignments)) => true,
        };
        if changed {
            reports.send_replace(Some(agent.report()));
        }
    }
}

impl StandBy {
    pub(super) fn new(about: AgentStatus, failure: Unmeasurable) -> Self {
        Self {
            about,
            failure,
            order: None,
            assignments: Vec::new(),
            reported: Instant::now(),
        }
    }

    fn take(&mut self, order: Option<NodeProbe>) -> bool {
        let (id, assignments) = taken_apart(order);
        let news = id != self.order;
        (self.order, self.assignments) = (id, assignments);
        news
    }

    fn answer(&self, (question, answer): Inquiry) -> bool {
        let sentence = || format!("nothing can be measured on this node: {}\n", self.failure);
        let text = match question {
            Question::Healthy => Ok("ok\n".to_string()),
            Question::Ready => Err(sentence()),
            // Metrics of nothing are no metrics; a comment is for whoever looks.
            Question::Metrics => Ok(format!("# {}", sentence())),
        };
        // Whoever asked may have gone.
        let _ = answer.send(text);
        false
    }

    fn report(&mut self) -> NodeProbeStatus {
        self.reported = Instant::now();
        let now = Timestamp::now();
        NodeProbeStatus {
            observed_generation: self.order.as_ref().map(|(_, generation)| *generation),
            reported_at: Some(MicroTime(now)),
            agent: self.about.clone(),
            instances: unmeasurable_reports(&current(&self.assignments, now), &self.failure),
        }
    }
}

#[cfg(test)]
mod tests;
