//! `report`: a page, or Markdown, of what a Prometheus has kept of a CkbProbe.

pub mod told;

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    str::FromStr,
};

use ckb_probe_crds::{Duration, metrics};
use ckb_probe_report::{
    content::{Content, content_of_prometheus},
    html, markdown,
    prometheus::{
        Kept,
        kept::Answers,
        question::{self, Grid, Subject},
    },
};
use ckb_probe_views::document::{Document, View};
use clap::Args;
use k8s_openapi::jiff::Timestamp;

use crate::{ClusterArguments, Outcome, VerbError, prometheus::Prometheus};

/// What is said at the end of `--help`.
pub const EXAMPLES: &str = "Examples:\n  \
    kubectl port-forward -n monitoring service/prometheus-operated 9090 &\n  \
    kubectl ckbprobe report ckb -n ckb --prometheus http://127.0.0.1:9090 -o report.html      the last day\n  \
    kubectl ckbprobe report ckb -n ckb --prometheus http://127.0.0.1:9090 --last 7d --pod ckb-0 -o report.html\n  \
    kubectl ckbprobe report ckb -n ckb --prometheus http://127.0.0.1:9090 --since 2026-11-26T10:00:00Z --until 2h\n  \
    kubectl ckbprobe report ckb -n ckb --prometheus http://127.0.0.1:9090 --last 2h --baseline-until 24h -o report.html\n  \
    kubectl ckbprobe report ckb -n ckb --prometheus http://127.0.0.1:9090 -o json | jq '.record, .unusual'\n\n\
    Nothing is asked of the API server: of the kubeconfig only the namespace is read, where -n does not say it.\n\
    Exit codes: 0 there is something; 1 there is nothing, or no answer; 2 wrong arguments.";

/// What the plugin takes.
#[derive(Args, Clone, Debug)]
pub struct ReportArguments {
    /// The CkbProbe.
    pub name: String,
    /// Of which namespace.
    #[command(flatten)]
    pub cluster: ClusterArguments,
    /// Where Prometheus is, such as http://127.0.0.1:9090; a path may follow.
    #[arg(long, value_name = "URL")]
    pub prometheus: String,
    /// Where it goes.
    #[command(flatten)]
    pub files: FileArguments,
    /// Of what of it.
    #[command(flatten)]
    pub which: WhichArguments,
}

/// Of what of a CkbProbe, and how Prometheus is asked.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "From Prometheus")]
pub struct WhichArguments {
    /// How far back: 90m, 24h or 7d.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = long, requires = "prometheus")]
    last: std::time::Duration,
    /// From when, in place of --last: a time such as 2026-11-26T10:00:00Z, or how long ago, such as 48h.
    #[arg(
        long,
        value_name = "TIME",
        conflicts_with = "last",
        requires = "prometheus"
    )]
    since: Option<When>,
    /// Until when, likewise. Unset: now.
    #[arg(long, value_name = "TIME", requires = "prometheus")]
    until: Option<When>,
    /// Also say what has changed since an earlier time that ended then and was as long, within which bounds, and what is noise.
    #[arg(long, value_name = "TIME", requires = "prometheus")]
    baseline_until: Option<When>,
    /// This pod alone.
    #[arg(long, value_name = "NAME", requires = "prometheus")]
    pod: Option<String>,
    /// This probe of the CkbProbe alone.
    #[arg(long, value_name = "NAME", requires = "prometheus")]
    probe: Option<String>,
    /// A file with a bearer token for Prometheus. Unset: CKB_PROBE_PROMETHEUS_TOKEN of the environment, if that is set.
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    token_file: Option<PathBuf>,
    /// A file with the certificates, in PEM, by which Prometheus is told. Unset: those of the system.
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    ca: Option<PathBuf>,
}

/// Where a report goes.
#[derive(Args, Clone, Debug)]
pub struct FileArguments {
    /// The page to write. json prints a line of JSON instead, in the form that docs/reference/view.schema.json has: of each target that Prometheus
    /// knows, or of the record.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The same as Markdown. Unset, and no page either: it is printed.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

impl FileArguments {
    /// Whether a document is asked for, and no file: the same word as elsewhere.
    pub fn is_document(&self) -> bool {
        self.output.as_deref() == Some(Path::new("json"))
    }

    /// Puts it there, or prints it; `failed` is what a file that cannot be written is.
    ///
    /// # Errors
    ///
    /// When it cannot be written, or printed.
    pub fn put<E: From<io::Error>>(
        &self,
        told: &Content,
        failed: impl Fn(&Path, io::Error) -> E,
    ) -> Result<(), E> {
        let write =
            |file: &Path, text: String| fs::write(file, text).map_err(|error| failed(file, error));
        if let Some(file) = &self.output {
            write(file, html::page(told))?;
        }
        match (&self.markdown, &self.output) {
            (Some(file), _) => write(file, markdown::text(told))?,
            (None, Some(_)) => {}
            (None, None) => {
                let mut out = io::stdout().lock();
                out.write_all(markdown::text(told).as_bytes())?;
                out.flush()?;
            }
        }
        Ok(())
    }
}

/// A time, or how long ago it was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum When {
    /// In seconds since 1970.
    At(u64),
    /// Before now, in seconds.
    Ago(u64),
}

/// Why there is nothing to make a report of.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The time has no length.
    #[error(
        "there is no time between {0} and {1}: --since is to be before --until, and before now"
    )]
    NoTime(Timestamp, Timestamp),
    /// There are no series.
    #[error(
        "Prometheus at {address} has nothing of CkbProbe {subject} between {from} and {to}: no series {metric}{selector}. It scrapes the agents \
         where the chart has metrics.podMonitor.enabled=true, or by a job of yours with honor_labels: true, without which these labels are called \
         exported_namespace and exported_pod. Of several CkbProbes that ask exactly the same of a pod the oldest one alone has series",
        metric = metrics::TARGET_ATTACHED
    )]
    Nothing {
        /// Where it was asked.
        address: String,
        /// Of which CkbProbe.
        subject: String,
        /// From which time on it was asked.
        from: Timestamp,
        /// Up to which time.
        to: Timestamp,
        /// The labels that were asked for.
        selector: String,
    },
}

/// Makes it.
pub async fn run(
    name: &str,
    cluster: &ClusterArguments,
    prometheus: &str,
    which: &WhichArguments,
    files: &FileArguments,
) -> Result<Outcome, VerbError> {
    let subject = Subject {
        namespace: cluster.namespace().await?,
        ckbprobe: name.to_owned(),
        pod: which.pod.clone(),
        probe: which.probe.clone(),
    };
    let now = u64::try_from(Timestamp::now().as_second()).unwrap_or_default();
    let (from, to) = which.time(now)?;
    let (token_file, ca) = (which.token_file.as_ref(), which.ca.as_ref());
    let mut prometheus = Prometheus::at(prometheus, token_file, ca)?;
    let kept = kept(&mut prometheus, &subject, (from, to)).await?;
    let before = match which.baseline_until.map(|until| until.seconds(now)) {
        Some(until) => {
            let from = until.saturating_sub(to - from);
            Some(self::kept(&mut prometheus, &subject, (from, until)).await?)
        }
        None => None,
    };
    for warning in prometheus.warnings() {
        eprintln!("Prometheus warns: {warning}");
    }
    if files.is_document() {
        let targets = told::of_prometheus(&kept, before.as_ref()).into_iter();
        let lines = targets.map(|one| Document::of(View::Record(Box::new(one))).line() + "\n");
        crate::print(&lines.collect::<String>()).map_err(VerbError::Print)?;
        return Ok(Outcome::Well);
    }
    let told = content_of_prometheus(prometheus.address(), &kept, before.as_ref());
    files.put(&told, |file, error| VerbError::File(file.to_owned(), error))?;
    Ok(Outcome::Well)
}

/// What Prometheus has of it in this time.
async fn kept(
    prometheus: &mut Prometheus,
    subject: &Subject,
    (from, to): (u64, u64),
) -> Result<Kept, VerbError> {
    // How many series there are says how many times can be asked for.
    let few = Grid::of(from, to, u64::MAX);
    let mut most: f64 = 0.0;
    prometheus
        .range(&question::series(subject), few, |answer| {
            let counts = answer.iter().flat_map(|series| &series.points);
            most = counts.fold(most, |most, (_, count)| most.max(*count));
        })
        .await?;
    let grid = Grid::of(from, to, most as u64);
    let mut answers = Answers::new(subject.clone(), grid);
    let mut queries = vec![question::scraped(subject)];
    queries.extend(question::of_targets(subject, grid));
    let mut asked_of_kinds = false;
    while !queries.is_empty() {
        for query in queries.drain(..) {
            prometheus
                .range(&query.text, grid, |answer| answers.add(query.what, &answer))
                .await?;
            if answers.is_empty() {
                return Err(nothing(prometheus, subject, grid).into());
            }
        }
        if !std::mem::replace(&mut asked_of_kinds, true) {
            queries = question::of_kinds(subject, &answers.kinds());
        }
    }
    Ok(answers.kept())
}

fn nothing(prometheus: &Prometheus, subject: &Subject, grid: Grid) -> ReportError {
    ReportError::Nothing {
        address: prometheus.address().to_owned(),
        subject: format!("{}/{}", subject.namespace, subject.ckbprobe),
        from: shown(grid.from),
        to: shown(grid.to),
        selector: subject.selector(false),
    }
}

fn shown(seconds: u64) -> Timestamp {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

impl WhichArguments {
    /// From when to when, in seconds since 1970. Nothing is known of what is to come.
    fn time(&self, now: u64) -> Result<(u64, u64), ReportError> {
        let until = self.until.map_or(now, |until| until.seconds(now)).min(now);
        let since = self.since.map_or_else(
            || until.saturating_sub(self.last.as_secs()),
            |since| since.seconds(now),
        );
        match since < until {
            true => Ok((since, until)),
            false => Err(ReportError::NoTime(shown(since), shown(until))),
        }
    }
}

impl When {
    fn seconds(self, now: u64) -> u64 {
        match self {
            Self::At(seconds) => seconds,
            Self::Ago(seconds) => now.saturating_sub(seconds),
        }
    }
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let at = text.parse::<Timestamp>().ok();
        let at = at.and_then(|time| u64::try_from(time.as_second()).ok());
        let ago = || long(text).map(|ago| Self::Ago(ago.as_secs()));
        at.map_or_else(ago, |at| Ok(Self::At(at))).map_err(|_| {
            format!("{text:?} is no time such as 2026-11-26T10:00:00Z, and no time ago such as 48h or 7d")
        })
    }
}

/// A duration, also of days, as Prometheus has them.
fn long(text: &str) -> Result<std::time::Duration, String> {
    if let Some(days) = text
        .strip_suffix('d')
        .and_then(|days| days.parse::<u32>().ok())
    {
        return Ok(std::time::Duration::from_secs(86_400 * u64::from(days)));
    }
    text.parse::<Duration>().map(Duration::get)
}
