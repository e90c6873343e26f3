//! `cost`: what a CkbProbe costs its targets, by windows with and without it, in an order that coins decide.

mod kubelet;
mod turn;

use std::{
    collections::BTreeMap,
    io::{self, Write},
    time::Duration,
};

use ckb_probe_crds::{CkbProbe, FEWEST_PAIRS, Turns};
use ckb_probe_views::{
    cost::{self, Account, Cost, Measure, Window},
    document::{Document, View},
    figures,
};
use clap::Args;
use kube::{Api, Client};
use tokio::time::{Instant, sleep};

use self::{
    kubelet::{Summary, Target, Watch},
    turn::{Held, Restored},
};
use crate::{
    ClusterArguments, Outcome, VerbError,
    commands::{CommandArguments, CommandError, Requests},
    interrupts::Interrupts,
};

/// How often kubelets and statuses are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// A kubelet that has told nothing new for so long will not.
const PATIENCE: Duration = Duration::from_secs(90);

/// Which CkbProbe is compared, and how.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    kubectl ckbprobe cost ckb -n ckb --ab 10m                  six pairs of windows of 20 s\n  \
    kubectl ckbprobe cost ckb -n ckb --ab 1h --each 1m         finer\n  \
    kubectl ckbprobe cost ckb -n ckb --counter 'sh tip.sh' --request 'sh tip.sh'\n  \
    kubectl ckbprobe cost ckb -n ckb --restore                 after one that was killed\n\n\
    spec.paused is set by turns, and put back in the end, at Ctrl-C too. It takes the rights to patch CkbProbes, and to get nodes/proxy.\n\
    Exit codes: 0 it was compared; 1 it was not; 2 wrong arguments.")]
pub struct CostArguments {
    /// The CkbProbe.
    name: String,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// How long to compare in all; six pairs of windows are compared in any case. The longer, the smaller an effect that is told from noise.
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    ab: ckb_probe_crds::Duration,
    /// How long each window lasts at least. Kubelets look at containers every ten seconds or so: it ends at such a look.
    #[arg(long, value_name = "DURATION", default_value = "20s")]
    each: ckb_probe_crds::Duration,
    /// How long to wait after each change, once the status says that it is made, for what it costs to be over.
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    settle: ckb_probe_crds::Duration,
    /// For how long it is waited for the status to say that it is attached, or paused.
    #[arg(long, value_name = "DURATION", default_value = "2m")]
    wait: ckb_probe_crds::Duration,
    #[command(flatten)]
    commands: CommandArguments,
    /// What coins are thrown from that say which window of a pair comes first. Unset: anything; it is told.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u32>,
    /// Compare nothing, and put spec.paused back to what one that was killed has found it as.
    #[arg(long)]
    restore: bool,
    /// Print all of it as a line of JSON, in the form that docs/reference/view.schema.json has.
    #[arg(short, long, value_parser = ["json"])]
    output: Option<String>,
}

/// Why it is not gone on with.
enum Stop {
    /// Somebody has seen enough.
    Interrupted,
    /// Windows that follow could not be compared with those before.
    Said(String),
    /// Something cannot be done.
    Failed(VerbError),
}

impl From<VerbError> for Stop {
    fn from(error: VerbError) -> Self {
        Self::Failed(error)
    }
}

impl From<CommandError> for Stop {
    fn from(error: CommandError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<kubelet::Lost> for Stop {
    fn from(lost: kubelet::Lost) -> Self {
        Self::Said(lost.to_string())
    }
}

impl CostArguments {
    /// Compares, leaves the CkbProbe as it was found, and says what came of it.
    pub async fn run(&self) -> Result<Outcome, VerbError> {
        run(self).await
    }
}

async fn run(arguments: &CostArguments) -> Result<Outcome, VerbError> {
    let (client, namespace) = arguments.cluster.connect().await?;
    let api: Api<CkbProbe> = Api::namespaced(client.clone(), &namespace);
    let subject = format!("{namespace}/{}", arguments.name);
    if arguments.restore {
        match turn::release(&api, &arguments.name).await? {
            Some(restored) => eprintln!("{}", told(&subject, restored)),
            None => {
                eprintln!("CkbProbe {subject} is not being compared: there is nothing to put back")
            }
        }
        return Ok(Outcome::Well);
    }
    // Before anything is changed: whoever interrupts wants it back.
    let interrupts = Interrupts::new()?;
    look_before(arguments, &client, &api, &namespace).await?;
    let held = Held::take(&api, &arguments.name).await?;
    let mut comparison = Comparison {
        arguments,
        client: &client,
        api: &api,
        namespace: &namespace,
        held,
        interrupts,
        windows: Vec::new(),
    };
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u32(..));
    let stopped = comparison.compare(seed).await.err();
    let Comparison {
        held, mut windows, ..
    } = comparison;
    let restored = held.release().await;
    // A pair of which one is missing is none.
    windows.truncate(windows.len() / 2 * 2);
    let (ended, failed) = match stopped {
        None => (None, None),
        Some(Stop::Interrupted) => (Some("it was interrupted".to_owned()), None),
        Some(Stop::Said(why)) => (Some(why), None),
        Some(Stop::Failed(error)) => (Some(error.to_string()), Some(error)),
    };
    let cost = Cost {
        subject: subject.clone(),
        seed,
        window: arguments.each.to_string(),
        settle: arguments.settle.to_string(),
        ended,
        compared: cost::compare(&windows),
        estimated_percent: cost::estimate(&windows),
        windows,
    };
    print(arguments, &cost)?;
    match restored {
        Ok(restored) => eprintln!("{}", told(&subject, restored)),
        Err(error) => {
            eprintln!(
                "CkbProbe {subject} is not as it was found: {error}. To put it back: kubectl ckbprobe cost {} -n {namespace} --restore",
                arguments.name
            );
            return Ok(Outcome::Broken);
        }
    }
    match failed {
        Some(error) => Err(error),
        None if cost.compared.is_empty() => Ok(Outcome::Broken),
        None => Ok(Outcome::Well),
    }
}

fn told(subject: &str, restored: Restored) -> String {
    match restored {
        Restored::To(paused) => {
            format!("CkbProbe {subject} is as it was found: spec.paused is {paused}")
        }
        Restored::Left(paused) => format!(
            "somebody else set spec.paused of CkbProbe {subject} to {paused} meanwhile: it is left at that"
        ),
    }
}

fn print(arguments: &CostArguments, cost: &Cost) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match arguments.output {
        Some(_) => writeln!(out, "{}", Document::of(View::Cost(cost.clone())).line())?,
        None => write!(out, "{}", cost.text())?,
    }
    out.flush()
}

/// What would come in the way, as far as it can be known before anything is changed.
async fn look_before(
    arguments: &CostArguments,
    client: &Client,
    api: &Api<CkbProbe>,
    namespace: &str,
) -> Result<(), VerbError> {
    let what = format!("read CkbProbe {}", arguments.name);
    let probe = api.get(&arguments.name).await;
    let probe = probe.map_err(|error| VerbError::request(what, namespace, error))?;
    arguments.commands.count()?;
    let instances = probe.status.iter().flat_map(|status| &status.instances);
    let targets = instances.filter_map(|one| {
        Some(Target {
            namespace: namespace.to_owned(),
            pod: one.pod.clone(),
            container: one.container.clone().unwrap_or_default(),
            node: one.node.clone()?,
        })
    });
    let targets: Vec<Target> = targets.collect();
    if targets.is_empty() {
        return Err(VerbError::Incomparable(format!(
            "CkbProbe {namespace}/{0} has no target: see kubectl ckbprobe doctor {0} -n {namespace}",
            arguments.name
        )));
    }
    kubelet::ask(client, &targets).await.map(drop)
}

struct Comparison<'a> {
    arguments: &'a CostArguments,
    client: &'a Client,
    api: &'a Api<CkbProbe>,
    namespace: &'a str,
    held: Held<'a>,
    interrupts: Interrupts,
    windows: Vec<Window>,
}

impl Comparison<'_> {
    /// Windows, until the time is up.
    async fn compare(&mut self, seed: u32) -> Result<(), Stop> {
        let attached = self.until(true).await?;
        let targets = self.targets(&attached);
        if targets.is_empty() || attached.status.is_some_and(|one| one.instances_omitted > 0) {
            let why = "a status names 50 targets at most, and of these all can be compared";
            return Err(Stop::Said(why.to_owned()));
        }
        let end = Instant::now() + self.arguments.ab.get();
        let mut took = Duration::ZERO;
        for (pair, probed_first) in Turns::of(seed).enumerate() {
            if pair >= FEWEST_PAIRS && Instant::now() + took > end {
                break;
            }
            let began = Instant::now();
            for probed in [probed_first, !probed_first] {
                let window = self.window(pair, probed, &targets).await?;
                self.windows.push(window);
            }
            took = began.elapsed();
            let left = end.saturating_duration_since(Instant::now());
            eprintln!("{}", cost::progress(pair + 1, &self.windows, left));
        }
        Ok(())
    }

    async fn window(
        &mut self,
        pair: usize,
        probed: bool,
        targets: &[Target],
    ) -> Result<Window, Stop> {
        self.held.pause(!probed).await?;
        let turned = self.until(probed).await?;
        self.same(probed, &turned, targets)?;
        self.pass(self.arguments.settle.get()).await?;
        let stale = kubelet::ask(self.client, targets).await?;
        let mut watch = Watch::begin(targets, &stale)?;
        self.watch(&mut watch, targets, Watch::has_begun).await?;
        let commands = &self.arguments.commands;
        let (began, counter, requests) = (Instant::now(), commands.count()?, commands.requests());
        let window = self.arguments.each.get();
        self.watch(&mut watch, targets, |watch| watch.lasts(window))
            .await?;
        let request = requests.map(Requests::end).transpose()?;
        let counted = commands.count()?.zip(counter);
        let counted = counted.map(|(now, before)| (now - before) / began.elapsed().as_secs_f64());
        let read = self.read().await?;
        self.unchanged(&read)?;
        self.same(probed, &read, targets)?;
        Ok(Window {
            pair,
            probed,
            account: account(&watch, counted, request),
            estimated_percent: match probed {
                true => watch.weighted(|target| estimate(&read, target)),
                false => None,
            },
            readings: watch.readings(),
            executed: false,
        })
    }

    /// Looks at kubelets until that is so.
    async fn watch(
        &mut self,
        watch: &mut Watch,
        targets: &[Target],
        is_so: impl Fn(&Watch) -> bool,
    ) -> Result<(), Stop> {
        let end = Instant::now() + self.arguments.each.get() + PATIENCE;
        while !is_so(watch) {
            if Instant::now() > end {
                let why = "the kubelets have told nothing new of the containers for too long";
                return Err(Stop::Said(why.to_owned()));
            }
            self.pass(LOOK).await?;
            let said: Result<BTreeMap<String, Summary>, VerbError> =
                kubelet::ask(self.client, targets).await;
            // One that does not answer may do so later.
            if let Ok(said) = said {
                watch.see(&said)?;
            }
        }
        Ok(())
    }

    /// Waits until the status says that it is attached, or paused.
    async fn until(&mut self, probed: bool) -> Result<CkbProbe, Stop> {
        let end = Instant::now() + self.arguments.wait.get();
        loop {
            let probe = self.read().await;
            match probe {
                Ok(probe) => {
                    self.unchanged(&probe)?;
                    if cost::stands(&probe, probed) {
                        return Ok(probe);
                    }
                    if Instant::now() > end {
                        let wanted = if probed { "attached" } else { "paused" };
                        return Err(Stop::Said(format!(
                            "it is not {wanted} after {}: {}",
                            self.arguments.wait,
                            figures::progress(&probe)
                        )));
                    }
                }
                Err(error) if Instant::now() > end => return Err(error.into()),
                // It may come back.
                Err(_) => {}
            }
            self.pass(LOOK).await?;
        }
    }

    async fn read(&self) -> Result<CkbProbe, VerbError> {
        let name = &self.arguments.name;
        let read = self.api.get(name).await;
        read.map_err(|error| {
            VerbError::request(format!("read CkbProbe {name}"), self.namespace, error)
        })
    }

    /// What was measured before it was edited is not of what is measured after it.
    fn unchanged(&self, probe: &CkbProbe) -> Result<(), Stop> {
        match probe.metadata.generation == self.held.generation {
            true => Ok(()),
            false => Err(Stop::Said(
                "somebody changed the CkbProbe meanwhile".to_owned(),
            )),
        }
    }

    /// Where probes are attached, they are where they were.
    fn same(&self, probed: bool, probe: &CkbProbe, targets: &[Target]) -> Result<(), Stop> {
        match !probed || self.targets(probe) == targets {
            true => Ok(()),
            false => Err(Stop::Said(
                "its targets are others than in the beginning".to_owned(),
            )),
        }
    }

    fn targets(&self, probe: &CkbProbe) -> Vec<Target> {
        let attached = cost::attached(probe).filter_map(|one| {
            Some(Target {
                namespace: self.namespace.to_owned(),
                pod: one.pod.clone(),
                container: one.container.clone()?,
                node: one.node.clone()?,
            })
        });
        let mut targets: Vec<Target> = attached.collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    /// Lets so much time pass.
    async fn pass(&mut self, time: Duration) -> Result<(), Stop> {
        tokio::select! {
            () = self.interrupts.next() => Err(Stop::Interrupted),
            () = sleep(time) => Ok(()),
        }
    }
}

fn account(watch: &Watch, counted: Option<f64>, request: Option<f64>) -> Account {
    let cpu = watch.cpu();
    let all = [
        (Measure::Cpu, cpu),
        (Measure::Network, watch.network()),
        (Measure::Counter, counted),
        (
            Measure::CpuOfCount,
            cpu.zip(counted).map(|(cpu, counted)| cpu / counted),
        ),
        (Measure::Request, request),
    ];
    let known = all
        .into_iter()
        .filter_map(|(measure, value)| Some((measure, value?)));
    known.filter(|(_, value)| value.is_finite()).collect()
}

/// What the status estimates that this CkbProbe costs a target, in percent.
fn estimate(probe: &CkbProbe, target: &Target) -> Option<f64> {
    let mut attached = cost::attached(probe);
    let one = attached.find(|one| {
        one.pod == target.pod && one.container.as_deref() == Some(target.container.as_str())
    })?;
    one.own_overhead_percent.as_deref()?.parse().ok()
}
