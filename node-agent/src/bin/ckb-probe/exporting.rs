//! Figures that are exported beside the table: by OpenTelemetry's variables, and where `--otlp` says if they do not.

use std::time::Duration;

use ckb_probe_agent::{driver::engine::Session, export::metric_sink::MetricSink, observe::Process};
use ckb_probe_traces::{Limits, Settings, Signal, metric_interval};
use tokio::time::Instant;

use crate::CliError;

/// Spans come once in an interval, and all of them together: of ten thousand a second and more.
pub const QUEUE: Limits = Limits {
    queue_bytes: 32 << 20,
    ..Limits::DEFAULT
};

/// At the end, what still waits to be exported has so long.
pub const LAST_SPANS: Duration = Duration::from_secs(3);

/// Exports what was counted, each so often.
pub struct Figures {
    sink: MetricSink,
    interval: Duration,
    next: Instant,
}

impl Figures {
    /// None where nobody asks for it. What the environment says wrong, which is perhaps meant for other programs, keeps nobody from measuring.
    pub fn start(endpoint: Option<&str>, process: &Process) -> Result<Option<Self>, CliError> {
        match Self::by_environment(endpoint, process) {
            Err(error) if endpoint.is_none() => {
                eprintln!("ckb-probe: no figures are exported: {error}");
                Ok(None)
            }
            figures => figures,
        }
    }

    fn by_environment(endpoint: Option<&str>, process: &Process) -> Result<Option<Self>, CliError> {
        let variable = |name: &str| std::env::var(name).ok();
        let Some(settings) = Settings::of(Signal::Metrics, endpoint, &variable)? else {
            return Ok(None);
        };
        let interval = metric_interval(&variable)?;
        let who = vec![
            ("service.name".into(), process.executable.as_str().into()),
            ("process.pid".into(), u64::from(process.id.pid).into()),
        ];
        Ok(Some(Self {
            sink: MetricSink::start(settings, QUEUE, who)?,
            interval,
            next: Instant::now() + interval,
        }))
    }

    /// Exports what was counted up to now, if it is time, or the last.
    pub fn export(&mut self, session: &Session, is_last: bool) {
        if is_last || Instant::now() >= self.next {
            self.next = Instant::now() + self.interval;
            session.offer_to(&mut self.sink);
        }
    }

    /// Sends what there is for a while, and says what became of all.
    pub fn end(self) -> String {
        self.sink.end(LAST_SPANS)
    }
}
