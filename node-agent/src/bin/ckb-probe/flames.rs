//! Profiles in files, drawn.

use std::{
    fmt,
    io::{Read, Write},
    path::{Path, PathBuf},
};

use ckb_probe_agent::{observe::demangle, text};
use ckb_probe_profiles::{
    Mismatch, Profile, SampleType, Stacks,
    names::shorten,
    pprof::{Limits, ReadError},
    render::{self, By, Difference, RenderError, View},
};
use clap::Args;

use super::{
    Outcome,
    blocks::RangeArguments,
    cluster::{self, ClusterError},
};

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ckb-probe render cpu.pb.gz -o cpu.svg              a picture: Ctrl-F searches, a click zooms\n  \
    ckb-probe render cpu.pb.gz -o cpu.html             a page, also with the top functions\n  \
    ckb-probe render cpu.pb.gz -o cpu.svg --by heading each part of CKB separately\n  \
    ckb-probe render heap.pb.gz -o heap.svg --type inuse_space\n  \
    ckb-probe render --from-cluster default/ckb.flames.cpu.2963011 -o cpu.html  a profile that a CkbProbe made\n  \
    ckb-probe render cpu.pb.gz | grep rocksdb          each stack as a line of text, with its weight")]
pub struct RenderArguments {
    /// The profile to draw: pprof, gzipped or not. - reads it from standard input.
    file: PathBuf,
    #[command(flatten)]
    how: How,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ckb-probe diff before.pb.gz after.pb.gz -o diff.svg    orange: more, blue: less\n  \
    ckb-probe diff before.pb.gz after.pb.gz -o diff.html   the same as a page with a field to search\n  \
    ckb-probe diff before.pb.gz after.pb.gz | grep '\\[new\\]' what was not there before, as text\n  \
    ckb-probe diff --from-cluster default/ckb.flames.cpu.2963011 default/ckb.flames.cpu.2963012 -o diff.svg\n\n\
    Shares are compared, not absolute times: the first profile is scaled to the total of the second. Each function shows its\n\
    share before and after, including all that it called. A stack that is gone is drawn as wide as it was.")]
pub struct DiffArguments {
    /// The profile from before; or blocks, as chain --threshold 0s --events printed them.
    pub before: PathBuf,
    /// The profile from after, of the same mode; or blocks.
    pub after: PathBuf,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    pub blocks: RangeArguments,
}

#[derive(Args, Debug)]
struct How {
    /// The file to write; its ending, .svg, .html or .folded, chooses the format. Unset: print text.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// The sample type to draw, if the profile has several: cpu or samples, for example. Unset: the default of the profile.
    #[arg(long = "type")]
    of: Option<String>,
    /// What to group stacks by, below all functions: thread, target, heading, or nothing.
    #[arg(long, default_value = "thread")]
    by: By,
    /// Draw only the process that has this name in the profile.
    #[arg(long)]
    target: Option<String>,
    /// The profiles are not files but CkbProfiles of the cluster of KUBECONFIG, as NAMESPACE/NAME.
    #[arg(long)]
    from_cluster: bool,
    /// The title of the picture. Unset: the names of the files.
    #[arg(long)]
    title: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum FlamesError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("cannot read {0}: {1}")]
    Open(PathBuf, #[source] std::io::Error),
    #[error(
        "{0} is no profile: {1}. What is read is pprof, such as `ckb-probe profile`, Go or perf_to_profile write"
    )]
    Read(PathBuf, #[source] ReadError),
    #[error("cannot tell what {0} shall be: let its name end in .svg, .html or .folded")]
    Form(PathBuf),
    #[error("{file} has no sample type {asked}: it has {has}")]
    Type {
        file: PathBuf,
        asked: String,
        has: String,
    },
    #[error("{file} has nothing of the target {asked}: {has}")]
    Target {
        file: PathBuf,
        asked: String,
        has: String,
    },
    #[error("{0} and {1} cannot be compared: {2}")]
    Mismatch(PathBuf, PathBuf, #[source] Mismatch),
    #[error("{0}: {1}")]
    Render(PathBuf, #[source] RenderError),
    #[error("cannot write {0}: {1}")]
    Write(PathBuf, #[source] std::io::Error),
    #[error("cannot print: {0}")]
    Print(#[source] std::io::Error),
}

/// What comes out.
#[derive(Clone, Copy)]
enum Form {
    Folded,
    Svg,
    Html,
}

impl How {
    /// Before anything is read: a wrong name costs no time.
    fn form(&self) -> Result<Form, FlamesError> {
        let Some(output) = &self.output else {
            return Ok(Form::Folded);
        };
        match output.extension().and_then(|end| end.to_str()) {
            Some("svg") => Ok(Form::Svg),
            Some("html") => Ok(Form::Html),
            Some("folded") => Ok(Form::Folded),
            _ => Err(FlamesError::Form(output.clone())),
        }
    }

    fn view(&self, file: &Path, stacks: &Stacks) -> Result<View, FlamesError> {
        let place = match &self.of {
            None => stacks.shown(),
            Some(asked) => {
                let mut types = stacks.types().iter();
                types
                    .position(|of| of.name == *asked)
                    .ok_or_else(|| FlamesError::Type {
                        file: file.to_owned(),
                        asked: asked.clone(),
                        has: listed(stacks.types().iter().map(|of| &of.name)),
                    })?
            }
        };
        Ok(View { place, by: self.by })
    }

    async fn stacks(&self, file: &Path) -> Result<Stacks, FlamesError> {
        let bytes = match self.from_cluster {
            true => cluster::pprof(&text::of_path(file)).await?,
            false => bytes(file)?,
        };
        let stacks = read(file, &bytes)?.stacks;
        let Some(asked) = &self.target else {
            return Ok(stacks);
        };
        let kept = stacks.filter(|stack| stack.target == asked);
        if kept.is_empty() {
            let mut targets: Vec<&str> = stacks.iter().map(|stack| stack.target).collect();
            targets.sort_unstable();
            targets.dedup();
            targets.retain(|target| !target.is_empty());
            let has = if targets.is_empty() {
                "its stacks have no target".to_owned()
            } else {
                format!("it has {}", listed(targets))
            };
            return Err(FlamesError::Target {
                file: file.to_owned(),
                asked: asked.clone(),
                has,
            });
        }
        Ok(kept)
    }

    fn title(&self, otherwise: impl fmt::Display) -> String {
        self.title.clone().unwrap_or_else(|| otherwise.to_string())
    }

    fn write(&self, text: &str) -> Result<Outcome, FlamesError> {
        match &self.output {
            Some(output) => std::fs::write(output, text)
                .map_err(|error| FlamesError::Write(output.clone(), error))?,
            None => {
                let mut out = std::io::stdout().lock();
                out.write_all(text.as_bytes())
                    .and_then(|()| out.flush())
                    .map_err(FlamesError::Print)?;
            }
        }
        Ok(Outcome::Measured)
    }
}

/// Draws one profile.
pub async fn render(arguments: &RenderArguments) -> Result<Outcome, FlamesError> {
    let RenderArguments { file, how } = arguments;
    let form = how.form()?;
    let stacks = how.stacks(file).await?;
    let view = how.view(file, &stacks)?;
    let title = how.title(format_args!(
        "{}, {}",
        base_name(file),
        type_name(&stacks, view)
    ));
    let drawn = match form {
        Form::Folded => Ok(render::folded(&stacks, view)),
        Form::Svg => render::svg(&stacks, view, &title),
        Form::Html => render::html(&stacks, view, &title),
    };
    how.write(&drawn.map_err(|error| FlamesError::Render(file.clone(), error))?)
}

/// Draws the difference of two.
pub async fn diff(arguments: &DiffArguments) -> Result<Outcome, FlamesError> {
    let DiffArguments {
        before, after, how, ..
    } = arguments;
    let form = how.form()?;
    let (old, new) = (how.stacks(before).await?, how.stacks(after).await?);
    let view = how.view(after, &new)?;
    let difference = Difference::of(&old, &new, view)
        .map_err(|error| FlamesError::Mismatch(before.clone(), after.clone(), error))?;
    let title = how.title(format_args!(
        "{} → {}, {}",
        base_name(before),
        base_name(after),
        type_name(&new, view)
    ));
    let none = SampleType::new("weight", "");
    let of = new.types().get(view.place).unwrap_or(&none);
    let drawn = match form {
        Form::Folded => Ok(difference.folded()),
        Form::Svg => render::diff_svg(&difference, of, &title),
        Form::Html => render::diff_html(&difference, of, &title),
    };
    how.write(&drawn.map_err(|error| FlamesError::Render(after.clone(), error))?)
}

/// What is in a file, or piped in.
fn bytes(file: &Path) -> Result<Vec<u8>, FlamesError> {
    let mut bytes = Vec::new();
    let most = Limits::FILE.unzipped as u64 + 1;
    let read = if file == Path::new("-") {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|file| file.take(most).read_to_end(&mut bytes))
    };
    read.map_err(|error| FlamesError::Open(file.to_owned(), error))?;
    Ok(bytes)
}

/// A profile with names as a person reads them, whoever wrote it.
fn read(file: &Path, bytes: &[u8]) -> Result<Profile, FlamesError> {
    let mut profile = Profile::from_pprof(bytes, &Limits::FILE)
        .map_err(|error| FlamesError::Read(file.to_owned(), error))?;
    // They go to a terminal, or to a file that somebody looks at in one.
    let called = |name: &str| {
        let name = demangle(name).map_or_else(|| shorten(name), |name| shorten(&name));
        text::shown(&name)
    };
    profile.stacks = profile.stacks.renamed(called);
    Ok(profile)
}

fn base_name(file: &Path) -> String {
    let name = file.file_name().unwrap_or(file.as_os_str());
    text::of_path(Path::new(name))
}

fn type_name(stacks: &Stacks, view: View) -> &str {
    stacks
        .types()
        .get(view.place)
        .map_or("", |of| of.name.as_str())
}

fn listed<Name: AsRef<str>>(names: impl IntoIterator<Item = Name>) -> String {
    let names: Vec<String> = names
        .into_iter()
        .map(|name| name.as_ref().to_owned())
        .collect();
    names.join(", ")
}
