//! `top`: what each row of each target costs now, and how that went in the last minutes.

use std::{collections::BTreeSet, time::Duration};

use ckb_probe_crds::{CkbProbe, NodeProbe};
use ckb_probe_screen::{Input, Options, Screen};
use ckb_probe_views::{
    document::{Document, View},
    selector,
    text::WIDTH,
    top::{Moment, of_cluster},
};
use clap::Args;
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{Api, Client, ResourceExt, api::ListParams};
use tokio::{
    sync::mpsc::{Sender, channel},
    time::{Instant, sleep},
};

use crate::{ClusterArguments, Outcome, VerbError, error::sentence, print, suspension, terminal};

/// How often it is looked, and how often where there are many nodes.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_AT_MANY: Duration = Duration::from_secs(5);

/// So many nodes' reports are asked for by name; of more all are.
const FEW: usize = 4;

/// What is shown of a cluster.
#[derive(Args, Clone, Debug)]
pub struct TopArguments {
    /// The CkbProbe. Unset: all of the namespace.
    name: Option<String>,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Only targets in pods with these labels, such as app=ckb.
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// Instead of a screen.
    #[command(flatten)]
    pub picture: PictureArguments,
}

/// One picture instead of a screen.
#[derive(Args, Clone, Debug)]
pub struct PictureArguments {
    /// Print one picture, and end.
    #[arg(long)]
    once: bool,
    /// Print one picture as text, or as a line of JSON in the form that docs/reference/view.schema.json has.
    #[arg(short, long, value_parser = ["text", "json"])]
    output: Option<String>,
}

/// What is said at the end of `--help`.
pub const EXAMPLES: &str = "Examples:\n  \
    kubectl ckbprobe top -n ckb                   each CkbProbe of the namespace, live\n  \
    kubectl ckbprobe top ckb -n ckb -l app=ckb    targets of one, in pods with these labels\n  \
    kubectl ckbprobe top -A --once                one picture, without a terminal\n  \
    kubectl ckbprobe top ckb -o json | jq '.targets[].rows[] | select(.row == \"Get\").p99'\n\n\
    Keys: q quits, ? tells the others. Figures of each target are in NodeProbes: whoever may not list these is shown all targets\n\
    together. Exit codes: 0 something is measured; 1 nothing is; 2 wrong arguments.";

impl PictureArguments {
    /// Whether one picture is enough.
    pub fn is_asked(&self) -> bool {
        self.once || self.output.is_some()
    }

    /// It, as text.
    pub fn text(&self, title: &str, moment: &Moment) -> String {
        if self.output.as_deref() == Some("json") {
            let document = Document::of(View::Top(moment.document()));
            return document.line() + "\n";
        }
        let columns = std::env::var("COLUMNS").ok();
        let width = columns.and_then(|columns| columns.parse().ok());
        let width = width.unwrap_or(WIDTH as u16).max(40);
        let options = Options {
            title: title.to_owned(),
            colour: false,
        };
        let mut screen = Screen::new(options, width, u16::MAX);
        screen.on(Input::Moment(moment.clone(), Duration::ZERO, clock()));
        screen.text(width)
    }
}

/// What the clock on the wall says, in UTC, as times of events are.
pub fn clock() -> String {
    Timestamp::now().strftime("%H:%M:%S").to_string()
}

/// Which it is that is looked at.
struct Looker {
    client: Client,
    /// None: all.
    namespace: Option<String>,
    name: Option<String>,
    selector: Option<String>,
    /// Whether NodeProbes may not be listed: they are not asked for again.
    is_forbidden: bool,
    nodes: BTreeSet<String>,
}

/// Shows it.
pub async fn run(arguments: &TopArguments) -> Result<Outcome, VerbError> {
    if !arguments.picture.is_asked() {
        terminal::check()?;
    }
    if let Some(text) = &arguments.selector {
        selector::parse(text)?;
    }
    let (client, namespace) = arguments.cluster.connect().await?;
    let title = match (&arguments.name, arguments.all_namespaces) {
        (Some(name), false) => format!("{namespace}/{name}"),
        (Some(name), true) => format!("{name} of all namespaces"),
        (None, false) => format!("namespace {namespace}"),
        (None, true) => "all namespaces".to_owned(),
    };
    let title = format!("ckbprobe top  {title}");
    let mut looker = Looker {
        client,
        namespace: (!arguments.all_namespaces).then_some(namespace),
        name: arguments.name.clone(),
        selector: arguments.selector.clone(),
        is_forbidden: false,
        nodes: BTreeSet::new(),
    };
    let first = looker.look().await?;
    if arguments.picture.is_asked() {
        print(&arguments.picture.text(&title, &first))?;
        if let Some(said) = looker.said() {
            eprintln!("ckbprobe: {said}");
        }
        return Ok(outcome(&first));
    }
    let (told, tells) = channel(1);
    let suspend = async || {
        let is_stopped = suspension::stop_until_it_may_draw();
        (!is_stopped).then(|| suspension::NOBODY.to_owned())
    };
    let shown = terminal::show(title, tells, suspend);
    tokio::select! {
        shown = shown => shown?,
        () = looker.tell(first, told) => {}
    }
    Ok(Outcome::Well)
}

/// Whether anything is measured.
pub fn outcome(moment: &Moment) -> Outcome {
    match moment.targets.iter().any(|one| one.lost.is_none()) {
        true => Outcome::Well,
        false => Outcome::Broken,
    }
}

/// What a screen is told of a moment.
pub fn told_of(moment: Moment, now: Duration) -> Input {
    Input::Moment(moment, now, clock())
}

/// What a screen is told that is to be read beside what it shows.
pub fn said_of(text: String) -> Input {
    Input::Trouble(Some(text))
}

impl Looker {
    /// Until nobody listens.
    async fn tell(&mut self, first: Moment, told: Sender<Input>) {
        let began = Instant::now();
        let mut next = Ok(first);
        loop {
            let input = match next {
                Ok(moment) => told_of(moment, began.elapsed()),
                // It may come back.
                Err(error) => Input::Trouble(Some(match &error {
                    VerbError::Request { source, .. } => sentence(source),
                    other => other.to_string(),
                })),
            };
            let is_told = matches!(input, Input::Moment(..));
            if told.send(input).await.is_err() {
                return;
            }
            if is_told && told.send(Input::Trouble(self.said())).await.is_err() {
                return;
            }
            let pause = match self.nodes.len() {
                ..=FEW => LOOK,
                _ => LOOK_AT_MANY,
            };
            sleep(pause).await;
            next = self.look().await;
        }
    }

    fn said(&self) -> Option<String> {
        self.is_forbidden.then(|| {
            "all targets together: you may not list nodeprobes, which have the figures of each"
                .to_owned()
        })
    }

    async fn look(&mut self) -> Result<Moment, VerbError> {
        let api: Api<CkbProbe> = match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let namespace = self.namespace.clone().unwrap_or_else(|| "any".to_owned());
        let mut parameters = ListParams::default();
        if let Some(name) = &self.name {
            parameters = parameters.fields(&format!("metadata.name={name}"));
        }
        let probes = api.list(&parameters).await;
        let failed = |error| VerbError::request("list CkbProbes", &namespace, error);
        let mut probes = probes.map_err(failed)?.items;
        // Whoever serves this may not know of fields.
        probes.retain(|one| {
            self.name
                .as_deref()
                .is_none_or(|name| one.name_any() == name)
        });
        self.choose(&mut probes).await?;
        let statuses = probes.iter().filter_map(|one| one.status.as_ref());
        let nodes = statuses.flat_map(|status| &status.instances);
        self.nodes = nodes.filter_map(|one| one.node.clone()).collect();
        let orders = match self.is_forbidden {
            true => None,
            false => self.orders().await?,
        };
        Ok(of_cluster(&probes, orders.as_deref()))
    }

    /// Only targets in pods with the labels.
    async fn choose(&self, probes: &mut [CkbProbe]) -> Result<(), VerbError> {
        let Some(labels) = &self.selector else {
            return Ok(());
        };
        let api: Api<Pod> = match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let namespace = self.namespace.clone().unwrap_or_else(|| "any".to_owned());
        let pods = api
            .list_metadata(&ListParams::default().labels(labels))
            .await;
        let failed = |error| VerbError::request("list pods", &namespace, error);
        let pods = pods.map_err(failed)?.items;
        let pods = pods.iter().map(|pod| (pod.namespace(), pod.name_any()));
        let pods: BTreeSet<_> = pods.collect();
        for probe in probes {
            let namespace = probe.namespace();
            if let Some(status) = &mut probe.status {
                let is_chosen = |pod: &String| pods.contains(&(namespace.clone(), pod.clone()));
                status.instances.retain(|one| is_chosen(&one.pod));
            }
        }
        Ok(())
    }

    /// The reports of the nodes on which targets are; None where they may not be listed.
    async fn orders(&mut self) -> Result<Option<Vec<NodeProbe>>, VerbError> {
        let api: Api<NodeProbe> = Api::all(self.client.clone());
        let all = [ListParams::default()];
        let by_name =
            |name: &String| ListParams::default().fields(&format!("metadata.name={name}"));
        let few: Vec<ListParams> = self.nodes.iter().map(by_name).collect();
        let lists = match few.len() {
            ..=FEW => few,
            _ => all.into(),
        };
        let mut orders = Vec::new();
        for parameters in lists {
            match api.list(&parameters).await {
                Ok(list) => orders.extend(list.items),
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    self.is_forbidden = true;
                    return Ok(None);
                }
                Err(error) => return Err(VerbError::request("list NodeProbes", "any", error)),
            }
        }
        Ok(Some(orders))
    }
}
