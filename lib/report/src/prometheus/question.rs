//! What is asked of Prometheus: of whom, at which times, and in which queries.

use std::fmt::Write as _;

use ckb_probe_crds::{
    Kind,
    descriptor::{Export, Metric},
    metrics::{self, label},
};

/// Prometheus answers with no more points of one series (`exceeded maximum resolution of 11,000 points per timeseries`).
pub const MOST_POINTS: u64 = 11_000;

/// So many points of all series together: what a desk has room for.
const ROOM: u64 = 6_000_000;

/// Times that are asked for at the most, and at the least where there is time for as many: those of a day by half minutes, which are report
/// intervals of agents; and as many as a chart has columns.
const TIMES: (u64, u64) = (2880, 240);

/// Nothing is finer: the chart has agents scraped so often.
const FINEST: u64 = 15;

/// So many points of a series are asked for in one request: an answer is read as a whole.
const AT_ONCE: u64 = 360;

/// Of whom it is asked.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Subject {
    /// The namespace of the CkbProbe and of its pods.
    pub namespace: String,
    /// The CkbProbe.
    pub ckbprobe: String,
    /// This pod alone.
    pub pod: Option<String>,
    /// This probe of it alone.
    pub probe: Option<String>,
}

impl Subject {
    /// Matchers for labels, with the braces: `{namespace="ckb",ckbprobe="ckb"}`.
    pub fn selector(&self, of_probe: bool) -> String {
        let probe = self.probe.as_ref().filter(|_| of_probe);
        let labels = [
            (label::NAMESPACE, Some(&self.namespace)),
            (label::CKBPROBE, Some(&self.ckbprobe)),
            (label::POD, self.pod.as_ref()),
            (label::PROBE, probe),
        ];
        let matchers = labels
            .into_iter()
            .filter_map(|(label, value)| Some(format!("{label}={}", quoted(value?))));
        format!("{{{}}}", matchers.collect::<Vec<_>>().join(","))
    }
}

/// A text as PromQL has it between quotes.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            _ if letter.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            _ => out.push(letter),
        }
    }
    out + "\""
}

/// The times that are asked for: in seconds since 1970, the last one first to be chosen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Grid {
    /// The first time.
    pub from: u64,
    /// The last time.
    pub to: u64,
    /// How far apart they are.
    pub step: u64,
}

impl Grid {
    /// Of so many series in this time, in seconds since 1970. However long that is, there are fewer points than Prometheus refuses.
    pub fn of(from: u64, to: u64, series: u64) -> Self {
        let (most, least) = TIMES;
        let times = (ROOM / series.max(1)).clamp(least, most);
        let span = to.saturating_sub(from);
        let step = span.div_ceil(times).next_multiple_of(FINEST).max(FINEST);
        Self {
            from: to - span / step * step,
            to,
            step,
        }
    }

    /// The same in parts, for a request each.
    pub fn parts(self) -> impl Iterator<Item = Self> {
        let each = AT_ONCE * self.step;
        (self.from..=self.to)
            .step_by(usize::try_from(each).unwrap_or(usize::MAX))
            .map(move |from| Self {
                from,
                to: self.to.min(from + each - self.step),
                ..self
            })
    }

    /// The place of a time; None where it is not one of these.
    pub fn place(self, milliseconds: u64) -> Option<u32> {
        let after = milliseconds.checked_sub(self.from * 1000)?;
        let step = self.step * 1000;
        (after.is_multiple_of(step) && milliseconds <= self.to * 1000)
            .then(|| u32::try_from(after / step).ok())?
    }
}

/// What the answer to a query is.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// When each target's agent was scraped.
    Scraped,
    /// In how much of the step each probe was in place.
    Attached,
    /// The same of the target as a whole.
    TargetAttached,
    /// In how much of it each probe counted something.
    Firing,
    /// What measuring was estimated to cost.
    Cost,
    /// What it might have cost.
    Granted,
    /// Whether calls were counted and not timed.
    EntryOnly,
    /// What could not be recorded.
    Lost,
    /// How often the process was found anew.
    Reattaches,
    /// Time without a probe.
    WithoutProbe,
    /// Rows that the agent leaves out.
    RowsLeftOut,
    /// What was seen of a row.
    Samples,
    /// In how much of the time it was recorded.
    Share,
    /// How far off its count may be.
    Error,
    /// A figure of a row or of its parts.
    Figure(Kind, &'static Metric),
    /// The sum of a histogram's values.
    Sum(Kind, &'static Metric),
}

/// A query.
#[derive(Clone, Debug)]
pub struct Query {
    /// In PromQL.
    pub text: String,
    /// What its answer is.
    pub what: What,
}

/// How many series there are of it.
pub fn series(subject: &Subject) -> String {
    let selector = subject.selector(false);
    let matchers = selector.trim_start_matches('{');
    format!("count({{__name__=~\"ckb_probe_.+\",{matchers})")
}

/// What tells whether anything is there at all.
pub fn scraped(subject: &Subject) -> Query {
    let text = format!(
        "timestamp({}{})",
        metrics::TARGET_ATTACHED,
        subject.selector(false)
    );
    Query {
        text,
        what: What::Scraped,
    }
}

/// What is asked of targets, and of rows whatever their kind.
pub fn of_targets(subject: &Subject, grid: Grid) -> Vec<Query> {
    let step = grid.step;
    let of_target = subject.selector(false);
    let of_probe = subject.selector(true);
    // A gauge is told as it is at a scrape: of several scrapes the mean.
    let mean = |name: &str, selector: &str| format!("avg_over_time({name}{selector}[{step}s])");
    let as_is = |name: &str, selector: &str| format!("{name}{selector}");
    [
        (What::Attached, mean(metrics::ATTACHED, &of_probe)),
        (
            What::TargetAttached,
            mean(metrics::TARGET_ATTACHED, &of_target),
        ),
        (What::Firing, mean(metrics::TARGET_FIRING, &of_target)),
        (What::Cost, mean(metrics::OVERHEAD, &of_target)),
        (What::Granted, mean(metrics::OVERHEAD_GRANTED, &of_target)),
        (What::EntryOnly, as_is(metrics::ENTRY_ONLY, &of_target)),
        (What::Lost, as_is(metrics::LOST, &of_target)),
        (What::Reattaches, as_is(metrics::REATTACHES, &of_target)),
        (What::WithoutProbe, as_is(metrics::GAP, &of_target)),
        (What::RowsLeftOut, as_is(metrics::ROWS_LEFT_OUT, &of_target)),
        (What::Samples, as_is(metrics::SAMPLES, &of_probe)),
        (What::Share, mean(metrics::SAMPLING, &of_probe)),
        (What::Error, mean(metrics::RELATIVE_ERROR, &of_probe)),
    ]
    .into_iter()
    .map(|(what, text)| Query { text, what })
    .collect()
}

/// What is asked of the rows of these kinds.
pub fn of_kinds(subject: &Subject, kinds: &[Kind]) -> Vec<Query> {
    let selector = subject.selector(true);
    let mut queries = Vec::new();
    for kind in kinds {
        for metric in kind.descriptor().metrics {
            let mut ask = |ending: &str, what| {
                queries.push(Query {
                    text: format!("{}{ending}{selector}", metric.name),
                    what,
                });
            };
            match metric.export {
                Export::Histogram(_) => {
                    ask("_bucket", What::Figure(*kind, metric));
                    ask("_sum", What::Sum(*kind, metric));
                }
                Export::Counter(_) | Export::Gauge(_) => ask("", What::Figure(*kind, metric)),
            }
        }
    }
    queries
}
