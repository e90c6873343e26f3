//! `flamegraph` and `threads`: stacks that a CkbProbe's windows are of, drawn, saved or opened.

use std::{
    env, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use ckb_probe_crds::{CkbProfile, ProfileMode};
use ckb_probe_views::{
    document::{Document, StackProfile, View},
    stacks,
    windows::Wanted,
};
use clap::Args;

use crate::{
    ClusterArguments, Outcome, VerbError,
    flames::{FlamesError, Form, HowArguments, Named, Output},
    windows::{WindowArguments, Windows, named},
};

/// What is said at the end of `--help`.
pub const EXAMPLES: &str = "Examples:\n  \
    kubectl ckbprobe flamegraph ckb -n ckb --open             the newest window, in a browser\n  \
    kubectl ckbprobe flamegraph ckb ckb-0/off-cpu -n ckb -o off.svg   what one pod waits for\n  \
    kubectl ckbprobe flamegraph ckb cpu -n ckb --next -o cpu.pb.gz    the window that comes, for go tool pprof\n  \
    kubectl ckbprobe flamegraph ckb -n ckb                    its largest functions\n\n\
    A CkbProbe with a probe of the kind profile makes them (kubectl ckbprobe try flames is one for a while), and one with stacks: true\n\
    those of slow calls. Exit codes: 0 there is one; 1 there is none; 2 wrong arguments.";
/// The same of `threads`.
pub const THREADS: &str = "Examples:\n  \
    kubectl ckbprobe threads ckb -n ckb                what each thread did at the end of the newest window\n  \
    kubectl ckbprobe threads ckb ckb-0 -n ckb --next   of one pod, at the end of the next\n\n\
    A CkbProbe with a probe of the kind profile and the mode Threads tells it. Exit codes: 0 there are some; 1 there are none;\n\
    2 wrong arguments.";

/// What the plugin takes.
#[derive(Args, Clone, Debug)]
pub struct FlamegraphArguments {
    /// The CkbProbe.
    pub(crate) name: String,
    /// The pod, or the pod and its container, and the mode: cpu, ckb-0/off-cpu, or ckb-0. Unset: all targets, and the first mode that
    /// there is.
    #[arg(value_name = "TARGET/MODE")]
    pub(crate) which: Option<Wanted>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
    #[command(flatten)]
    pub(crate) how: StacksArguments,
}

/// What `threads` takes.
#[derive(Args, Clone, Debug)]
pub struct ThreadsArguments {
    /// The CkbProbe.
    pub(crate) name: String,
    /// The pod, or the pod and its container. Unset: all targets.
    #[arg(value_name = "TARGET")]
    pub(crate) target: Option<String>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
    #[command(flatten)]
    pub(crate) how: StacksArguments,
}

/// Which window it is of, and where it goes.
#[derive(Args, Clone, Debug)]
pub struct StacksArguments {
    #[command(flatten)]
    window: WindowArguments,
    /// Where it goes.
    #[command(flatten)]
    pub save: SaveArguments,
}

/// Where a profile goes.
#[derive(Args, Clone, Debug)]
pub struct SaveArguments {
    /// The file to write; its ending, .svg, .html, .folded, .pb.gz or .speedscope.json, chooses the format. json prints a line of JSON,
    /// in the form that docs/reference/view.schema.json has. Unset: print what there is most of.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Open it: the file, or a page in the folder for temporary files.
    #[arg(long)]
    open: bool,
    #[command(flatten)]
    how: HowArguments,
}

/// Shows, saves or opens one window.
pub async fn run(
    name: &str,
    which: Option<&Wanted>,
    cluster: &ClusterArguments,
    how: &StacksArguments,
) -> Result<Outcome, VerbError> {
    let wanted = which.cloned().unwrap_or_default();
    show(name, &wanted, cluster, how, |_| None).await
}

/// Shows what each thread did.
pub async fn threads(
    name: &str,
    target: Option<&str>,
    cluster: &ClusterArguments,
    how: &StacksArguments,
) -> Result<Outcome, VerbError> {
    let wanted = Wanted {
        target: target.map(str::to_owned),
        mode: Some(ProfileMode::Threads),
    };
    let listed = |of: &Named| Some(stacks::threads(&of.profile.stacks));
    show(name, &wanted, cluster, how, listed).await
}

/// Puts a window where it is to go; for people with what is listed instead of functions, if anything is.
async fn show(
    name: &str,
    wanted: &Wanted,
    cluster: &ClusterArguments,
    how: &StacksArguments,
    instead: impl Fn(&Named) -> Option<String>,
) -> Result<Outcome, VerbError> {
    let StacksArguments { window, save } = how;
    let output = save.output()?;
    let (client, namespace) = cluster.connect().await?;
    let windows = Windows::of(&client, &namespace, name);
    let profile = windows.get(window, wanted.mode).await?;
    let of = named(&profile, wanted)?;
    let whose = whose(&of, &profile, wanted);
    save.put(&of, whose, &output, instead(&of).as_deref())
}

/// Whose stacks they are, and of when.
fn whose(of: &Named, profile: &CkbProfile, wanted: &Wanted) -> StackProfile {
    let window = &profile.spec.window;
    StackProfile {
        subject: of.name.clone(),
        target: wanted.target.clone(),
        began_at: Some(format!("{:.0}", window.began_at.0)),
        milliseconds: Some(window.milliseconds),
        ..StackProfile::default()
    }
}

impl SaveArguments {
    /// Whether it is to be opened.
    pub fn is_opened(&self) -> bool {
        self.open
    }

    /// Where it goes.
    ///
    /// # Errors
    ///
    /// When the file's name says no form.
    pub fn output(&self) -> Result<Output, VerbError> {
        Ok(Output::of(self.output.as_deref(), Form::of)?)
    }

    /// Puts it there: `whose` has the subject, the target and the window alone. What is printed for people is its largest functions, or what
    /// stands in their place.
    ///
    /// # Errors
    ///
    /// When it cannot be drawn, written or opened.
    pub fn put(
        &self,
        of: &Named,
        whose: StackProfile,
        output: &Output,
        instead: Option<&str>,
    ) -> Result<Outcome, VerbError> {
        let StackProfile {
            subject,
            target,
            began_at,
            milliseconds,
            ..
        } = whose;
        let told = StackProfile {
            subject,
            target,
            began_at,
            milliseconds,
            ..stacks::of(&of.profile.stacks, self.how.view(of)?.place)
        };
        let outcome = match of.profile.stacks.is_empty() {
            true => Outcome::Broken,
            false => Outcome::Well,
        };
        let file = match output {
            Output::File(file, form) => {
                output.write(&self.how.draw(of, *form)?)?;
                eprintln!("{}{}", told.head(), saved(file));
                file.clone()
            }
            Output::Json => {
                output
                    .write(format!("{}\n", Document::of(View::Profile(told)).line()).as_bytes())?;
                return Ok(outcome);
            }
            Output::Printed if !self.open => {
                let text = match instead {
                    Some(listed) => told.head() + listed,
                    None => told.text(),
                };
                output.write(text.as_bytes())?;
                return Ok(outcome);
            }
            Output::Printed => {
                let file = page(&of.name, &self.how.draw(of, Form::Html)?)?;
                eprintln!("{}{}", told.head(), saved(&file));
                file
            }
        };
        if self.open {
            open(&file)?;
        }
        Ok(outcome)
    }
}

fn saved(file: &Path) -> String {
    format!("written to {}", file.display())
}

/// Writes a page that nobody named among temporary files. Its name cannot be guessed: whoever draws may be root, and others write there, too.
fn page(name: &str, html: &[u8]) -> Result<PathBuf, FlamesError> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '.';
    let name = name.replace(|letter| !is_plain(letter), "-");
    let failed = |error| FlamesError::Write(env::temp_dir(), error);
    let mut file = tempfile::Builder::new()
        .prefix(&format!("{name}."))
        .suffix(".html")
        .tempfile()
        .map_err(failed)?;
    file.write_all(html).map_err(failed)?;
    let (_, file) = file.keep().map_err(|error| failed(error.error))?;
    Ok(file)
}

/// By whatever the desktop opens such files with.
fn open(file: &Path) -> Result<(), VerbError> {
    let program = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let failed = |source| VerbError::Open {
        file: file.to_owned(),
        program,
        source,
    };
    let path = fs::canonicalize(file).map_err(failed)?;
    let status = Command::new(program)
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(failed)?;
    match status.success() {
        true => Ok(()),
        false => Err(failed(io::Error::other(status.to_string()))),
    }
}
