//! `try`: a preset, measured for some minutes and taken away again.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use ckb_probe_crds::CkbProbe;
use ckb_probe_views::{
    document::{Document, Figures, View},
    figures,
    presets::{self, MANAGER, Preset, Trial},
    selector::{self, SelectorError},
    text::{Detail, WIDTH},
};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    ClusterArguments, Outcome, VerbError,
    error::sentence,
    gather::{self, Asked},
    interrupts::Interrupts,
};

/// How often the status is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// If nobody removes it, it stops by itself so long after it should have been.
const GRACE: Duration = Duration::from_secs(60);

/// So often it is tried to be removed, and with so long between.
const REMOVALS: u32 = 5;

/// So many rows are shown of a probe: all nine presets fit into 24 lines by that, but `everything`.
const ROWS: usize = 5;

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    kubectl ckbprobe try storage -n ckb -l app=ckb             five minutes of RocksDB\n  \
    kubectl ckbprobe try latency -n ckb -l app=ckb --for 30s\n  \
    kubectl ckbprobe try fiber -l app=fiber                    of fnn, instead of ckb
  \
    kubectl ckbprobe try network -l app=postgres --executable postgres\n  \
    kubectl ckbprobe try disk -l app=ckb --print-only          the CkbProbe that it would make, to keep\n\n\
    It is removed in the end, at Ctrl-C too. Exit codes: 0 it was measured; 1 it was not, and what is broken first is said;\n\
    2 wrong arguments.")]
pub struct TryArguments {
    /// What is asked.
    #[arg(value_parser = preset())]
    preset: Preset,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// The pods, by their labels, such as app=ckb.
    #[arg(short = 'l', long, value_name = "LABELS", value_parser = labels)]
    selector: LabelSelector,
    /// The container. Unset: each that runs the executable.
    #[arg(short, long)]
    container: Option<String>,
    /// The base name of the executable. Unset: that which the preset is about, ckb as a rule.
    #[arg(long)]
    executable: Option<String>,
    /// For how long it is shown, once it counts.
    #[arg(long = "for", value_name = "DURATION", default_value = "5m")]
    time: ckb_probe_crds::Duration,
    /// For how long it is waited for the first figures.
    #[arg(long, value_name = "DURATION", default_value = "2m")]
    wait: ckb_probe_crds::Duration,
    /// How often figures come, but no more often than the installation admits.
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    interval: ckb_probe_crds::Duration,
    /// How much CPU time it may cost, in percent of what the process itself uses.
    #[arg(long, default_value_t = 1.0)]
    max_percent: f64,
    /// Print the CkbProbe, for kubectl apply, and make nothing.
    #[arg(long)]
    print_only: bool,
    /// Print figures as lines of JSON, in the form that docs/reference/view.schema.json has.
    #[arg(short, long, value_parser = ["json"])]
    output: Option<String>,
}

fn preset() -> impl TypedValueParser<Value = Preset> {
    let names = presets::all().iter();
    let names = names
        .map(|one| clap::builder::PossibleValue::new(one.name.as_str()).help(one.what.as_str()));
    PossibleValuesParser::new(names)
        .try_map(|name| presets::named(&name).cloned().ok_or("no such preset"))
}

fn labels(text: &str) -> Result<LabelSelector, SelectorError> {
    selector::parse(text)
}

/// How it ended, if nobody interrupted.
enum End {
    /// It was shown for as long as it was to be.
    Shown,
    /// It did not count in time.
    Silent,
    /// Somebody else removed it.
    Gone,
}

/// Makes it, shows it, and removes it.
pub async fn run(arguments: &TryArguments) -> Result<Outcome, VerbError> {
    let name = format!(
        "try-{}-{:05x}",
        arguments.preset.name,
        fastrand::u32(..1 << 20)
    );
    if arguments.print_only {
        let name = format!("try-{}", arguments.preset.name);
        let namespace = arguments.cluster.namespace.as_deref();
        let trial = arguments.trial(&name, namespace);
        write!(io::stdout(), "{}", trial.yaml())?;
        return Ok(Outcome::Well);
    }
    let (client, namespace) = arguments.cluster.connect().await?;
    let object = arguments.trial(&name, Some(&namespace)).object();
    // A test reads what this makes.
    let probe: CkbProbe = serde_json::from_value(object).map_err(io::Error::from)?;
    let api: Api<CkbProbe> = Api::namespaced(client.clone(), &namespace);
    // Before it is there: whoever interrupts wants it gone.
    let mut interrupts = Interrupts::new()?;
    let parameters = PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    };
    match api.create(&parameters, &probe).await {
        Ok(_) => {}
        Err(error) => {
            // Without an answer nobody knows whether it was made.
            if !matches!(error, kube::Error::Api(_)) {
                drop(remove(&api, &name).await);
            }
            return Err(VerbError::request("make a CkbProbe", &namespace, error));
        }
    }
    eprintln!("made CkbProbe {namespace}/{name}");
    let mut screen = Screen::new(arguments.output.is_some());
    let end = tokio::select! {
        end = show(arguments, &api, &name, &mut screen) => Some(end),
        () = interrupts.next() => None,
    };
    screen.settle();
    // While it is still there to be looked at.
    if let Some(Ok(End::Silent)) = end {
        tell(&client, &namespace, &name).await?;
    }
    match remove(&api, &name).await {
        Ok(()) => eprintln!("removed CkbProbe {namespace}/{name}"),
        Err(error) => {
            eprintln!(
                "CkbProbe {namespace}/{name} is not removed: {}. It stops by itself; to remove it: kubectl -n {namespace} delete ckbprobe {name}",
                sentence(&error)
            );
            return Ok(Outcome::Broken);
        }
    }
    match end {
        Some(Err(error)) => Err(error),
        Some(Ok(End::Silent)) => Ok(Outcome::Broken),
        Some(Ok(End::Gone)) => {
            eprintln!("somebody else removed it meanwhile");
            Ok(Outcome::Broken)
        }
        Some(Ok(End::Shown)) => Ok(Outcome::Well),
        // Whoever has seen enough has what was wanted.
        None if screen.shown => Ok(Outcome::Well),
        None => Ok(Outcome::Broken),
    }
}

impl TryArguments {
    fn trial<'a>(&'a self, name: &'a str, namespace: Option<&'a str>) -> Trial<'a> {
        let longest = self.wait.get() + self.time.get() + GRACE;
        Trial {
            preset: &self.preset,
            name,
            namespace,
            selector: &self.selector,
            container: self.container.as_deref(),
            executable: self
                .executable
                .as_deref()
                .unwrap_or(&self.preset.executable),
            max_percent: self.max_percent,
            interval: self.interval,
            duration: longest.into(),
        }
    }
}

/// Looks at it until its time is up.
async fn show(
    arguments: &TryArguments,
    api: &Api<CkbProbe>,
    name: &str,
    screen: &mut Screen,
) -> Result<End, VerbError> {
    let began = Instant::now();
    let mut end = None;
    let mut last = None;
    loop {
        let next = Instant::now() + LOOK;
        match api.get_opt(name).await {
            Ok(None) => return Ok(End::Gone),
            Ok(Some(probe)) => {
                let told = figures::of(&probe);
                if let Some(told) = told.filter(|told| told.ready || end.is_some()) {
                    end.get_or_insert_with(|| Instant::now() + arguments.time.get());
                    let report = probe.status.and_then(|status| status.last_report_time);
                    if report.is_none() || report != last {
                        screen.figures(&told)?;
                        last = report;
                    }
                } else {
                    screen.progress(&figures::progress(&probe), began.elapsed());
                }
            }
            // It may come back.
            Err(error) => screen.progress(&sentence(&error), began.elapsed()),
        }
        match end {
            Some(end) if next > end => {
                sleep_until(end).await;
                return Ok(End::Shown);
            }
            None if began.elapsed() >= arguments.wait.get() => return Ok(End::Silent),
            _ => sleep_until(next).await,
        }
    }
}

/// What is broken first.
async fn tell(client: &Client, namespace: &str, name: &str) -> io::Result<()> {
    let asked = Asked {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        system: "ckb-probe".to_owned(),
    };
    let found = gather::snapshot(client, &asked).await.diagnose();
    write!(io::stderr(), "\n{}", found.text(Detail::Full))
}

/// Removes it, also where the API server has to be asked more than once.
async fn remove(api: &Api<CkbProbe>, name: &str) -> Result<(), kube::Error> {
    let mut tries = 0;
    loop {
        tries += 1;
        match api.delete(name, &DeleteParams::default()).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(error) if tries >= REMOVALS => return Err(error),
            Err(_) => sleep(LOOK).await,
        }
    }
}

/// Where it is shown: redrawn in a terminal, one after the other elsewhere.
struct Screen {
    json: bool,
    redraws: bool,
    line: String,
    drawn: usize,
    shown: bool,
}

impl Screen {
    fn new(json: bool) -> Self {
        Self {
            json,
            redraws: io::stderr().is_terminal() && io::stdout().is_terminal() && !json,
            line: String::new(),
            drawn: 0,
            shown: false,
        }
    }

    /// One line, that is written over as it changes.
    fn progress(&mut self, said: &str, elapsed: Duration) {
        if self.redraws {
            let line = format!("{:>3} s  {said}", elapsed.as_secs());
            eprint!("\r\x1b[K{}", figures::cut(&line, WIDTH - 1));
            self.line = line;
        } else if self.line != said {
            eprintln!("{said}");
            self.line = said.to_owned();
        }
    }

    /// Figures, over those before.
    fn figures(&mut self, figures: &Figures) -> io::Result<()> {
        let mut out = io::stdout().lock();
        self.shown = true;
        if self.json {
            let document = Document::of(View::Figures(figures.clone()));
            writeln!(out, "{}", document.line())?;
            return out.flush();
        }
        let text = figures.text(ROWS);
        if self.redraws {
            let up = match self.drawn {
                0 => "\r".to_owned(),
                lines => format!("\x1b[{lines}A"),
            };
            write!(out, "{up}\x1b[J")?;
            self.line.clear();
            self.drawn = text.lines().count();
        }
        write!(out, "{text}")?;
        out.flush()
    }

    /// What comes after it begins a line.
    fn settle(&self) {
        if self.redraws && !self.line.is_empty() {
            eprintln!();
        }
    }
}
