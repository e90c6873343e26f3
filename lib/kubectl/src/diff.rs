//! `diff`: what became of one profile in another, of windows of a CkbProbe, of two of these, or of files.

use std::path::{Path, PathBuf};

use ckb_probe_views::windows::Wanted;
use clap::Args;
use kube::Client;

use crate::{
    ClusterArguments, Outcome, VerbError,
    flames::{self, Form, HowArguments, Named, Output, PrintArguments},
    windows::{WindowArguments, Windows, named},
};

/// What is said at the end of `--help`.
pub const EXAMPLES: &str = "Examples:\n  \
    kubectl ckbprobe diff ckb -n ckb                          its two newest windows, function by function\n  \
    kubectl ckbprobe diff ckb-old ckb-new -n ckb --of cpu     the newest of two CkbProbes\n  \
    kubectl ckbprobe diff ckb.flames.cpu.2963011 ckb -n ckb --of ckb-0/cpu -o diff.svg\n  \
    kubectl ckbprobe diff before.pb.gz ckb -n ckb             a file that was kept, and the newest window\n\n\
    Shares are compared, with all that a function called. What may be chance is called noise where samples were counted (cpu).\n\
    Exit codes: 0 compared; 1 not; 2 wrong arguments.";

/// What the plugin takes.
#[derive(Args, Clone, Debug)]
pub struct DiffArguments {
    /// The profile from before: a CkbProbe, a CkbProfile, or a file of pprof.
    #[arg(value_name = "BEFORE")]
    pub name: String,
    /// The profile from after. Unset: of the CkbProbe before the window before the newest, and the newest.
    pub after: Option<String>,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Which stacks of CkbProbes: TARGET/MODE, such as cpu, ckb-0/off-cpu or ckb-0.
    #[arg(long, value_name = "TARGET/MODE")]
    pub of: Option<Wanted>,
    /// The probe of the CkbProbes. Unset: the first that makes such profiles.
    #[arg(long, value_name = "NAME")]
    probe: Option<String>,
    /// The file to write; its ending, .svg, .html or .folded, chooses the format. json prints a line of JSON, in the form that
    /// docs/reference/view.schema.json has. Unset: print a table.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// What is printed.
    #[command(flatten)]
    pub print: PrintArguments,
    /// How it is drawn.
    #[command(flatten)]
    pub how: HowArguments,
}

/// A side of it.
enum Side<'a> {
    File(&'a Path),
    Profile(&'a str),
    Probe(&'a str),
}

impl DiffArguments {
    /// Both, where both are files.
    pub fn files(&self) -> Option<[&Path; 2]> {
        match (Side::of(&self.name), Side::of(self.after.as_deref()?)) {
            (Side::File(before), Side::File(after)) => Some([before, after]),
            _ => None,
        }
    }
}

impl<'a> Side<'a> {
    /// A file is there, or has a folder in its name; a CkbProfile's name has dots, and a CkbProbe's has none.
    fn of(text: &'a str) -> Self {
        let path = Path::new(text);
        match () {
            () if path.is_file() || text.contains('/') => Self::File(path),
            () if text.ends_with(".pb.gz") || text.ends_with(".pb") => Self::File(path),
            () if text.contains('.') => Self::Profile(text),
            () => Self::Probe(text),
        }
    }
}

/// Compares.
pub async fn run(arguments: &DiffArguments) -> Result<Outcome, VerbError> {
    let DiffArguments {
        name,
        after,
        cluster,
        of,
        probe,
        output,
        print,
        how,
    } = arguments;
    let output = Output::of(output.as_deref(), Form::of_difference)?;
    let wanted = of.clone().unwrap_or_default();
    let asked = WindowArguments {
        probe: probe.clone(),
        ..WindowArguments::default()
    };
    let both = match after {
        Some(after) => {
            let sides = [Side::of(name), Side::of(after)];
            let is_file = |side: &Side| matches!(side, Side::File(_));
            let connected = match sides.iter().all(is_file) {
                true => None,
                false => Some(cluster.connect().await?),
            };
            let connected = connected.as_ref();
            let [before, after] = sides;
            [
                side(before, connected, &asked, &wanted).await?,
                side(after, connected, &asked, &wanted).await?,
            ]
        }
        None if matches!(Side::of(name), Side::File(_)) => {
            return Err(VerbError::NoWindow(format!(
                "{name} is one file, and two are compared: name the other, too"
            )));
        }
        None => {
            let (client, namespace) = cluster.connect().await?;
            let windows = Windows::of(&client, &namespace, name);
            let [before, after] = windows.last_two(&asked, wanted.mode).await?;
            [named(&before, &wanted)?, named(&after, &wanted)?]
        }
    };
    let drawn = how.difference([&both[0], &both[1]], &output, *print)?;
    output.write(drawn.as_bytes())?;
    Ok(Outcome::Well)
}

async fn side(
    side: Side<'_>,
    connected: Option<&(Client, String)>,
    asked: &WindowArguments,
    wanted: &Wanted,
) -> Result<Named, VerbError> {
    let (client, namespace, name) = match (side, connected) {
        (Side::File(file), _) => {
            let named = Named::read(&file.display().to_string(), &flames::bytes(file)?)?;
            return Ok(match &wanted.target {
                Some(asked) => named.of_targets(asked, |target| wanted.has(target))?,
                None => named,
            });
        }
        (Side::Profile(name), Some((client, namespace))) => {
            let windows = Windows::of(client, namespace, name);
            return named(&windows.read(name).await?, wanted);
        }
        (Side::Probe(name), Some((client, namespace))) => (client, namespace, name),
        // What is no file is connected for.
        (Side::Profile(name) | Side::Probe(name), None) => {
            return Err(VerbError::NoWindow(format!("there is no file {name}")));
        }
    };
    let windows = Windows::of(client, namespace, name);
    named(&windows.get(asked, wanted.mode).await?, wanted)
}
