//! Profiles, drawn: what `ckb-probe render` and `diff` do with files, and `flamegraph`, `threads` and `diff` with CkbProfiles.

use std::{
    fmt,
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use ckb_probe_profiles::{
    Mismatch, Profile, SampleType, Stacks,
    changes::Changes,
    names::shorten,
    pprof::{Limits, ReadError},
    render::{self, By, Difference, RenderError, View},
};
use ckb_probe_symbols::{demangle, text};
use ckb_probe_views::{
    differences,
    document::{self, Document},
};
use clap::Args;

/// How a profile is drawn.
#[derive(Args, Clone, Debug)]
pub struct HowArguments {
    /// The sample type to draw, if the profile has several: cpu or samples, for example. Unset: the default of the profile.
    #[arg(long = "type", value_name = "TYPE")]
    sample_type: Option<String>,
    /// What to group stacks by, below all functions: thread, target, heading, or nothing.
    #[arg(long, default_value = "thread")]
    by: By,
    /// The title of the picture. Unset: the names of what is drawn.
    #[arg(long)]
    title: Option<String>,
}

/// What is printed of a difference where no file is named.
#[derive(Args, Clone, Copy, Debug)]
pub struct PrintArguments {
    /// Print each stack on a line, with what there was and is of it, instead of a table of functions.
    #[arg(long)]
    folded: bool,
}

/// Why a profile is not drawn.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum FlamesError {
    #[error("cannot read {0}: {1}")]
    Open(PathBuf, #[source] io::Error),
    #[error(
        "{0} is no profile: {1}. What is read is pprof, such as `ckb-probe profile`, Go or perf_to_profile write"
    )]
    Read(String, #[source] ReadError),
    #[error("cannot tell what {0} shall be: let its name end in {1}")]
    Form(PathBuf, &'static str),
    #[error("{name} has no sample type {asked}: it has {has}")]
    Type {
        name: String,
        asked: String,
        has: String,
    },
    #[error("{name} has nothing of the target {asked}: {has}")]
    Target {
        name: String,
        asked: String,
        has: String,
    },
    #[error("{0} and {1} cannot be compared: {2}")]
    Mismatch(String, String, #[source] Mismatch),
    #[error("{0}: {1}")]
    Render(String, #[source] RenderError),
    #[error("cannot write {0}: {1}")]
    Write(PathBuf, #[source] io::Error),
    #[error("cannot print: {0}")]
    Print(#[source] io::Error),
}

/// What comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A line for each stack.
    Folded,
    /// A picture.
    Svg,
    /// A page.
    Html,
    /// What was read, as it is: `go tool pprof` and others read it.
    Pprof,
    /// A file of speedscope's.
    Speedscope,
}

const FORMS: [(&str, Form); 5] = [
    (".svg", Form::Svg),
    (".html", Form::Html),
    (".folded", Form::Folded),
    (".pb.gz", Form::Pprof),
    (".speedscope.json", Form::Speedscope),
];

impl Form {
    /// By the ending of a file's name.
    ///
    /// # Errors
    ///
    /// When it is none of a profile's forms.
    pub fn of(file: &Path) -> Result<Self, FlamesError> {
        let name = file.to_string_lossy();
        let mut forms = FORMS.iter();
        let found = forms.find(|(end, _)| name.ends_with(end));
        found.map(|(_, form)| *form).ok_or_else(|| {
            let known = ".svg, .html, .folded, .pb.gz or .speedscope.json";
            FlamesError::Form(file.to_owned(), known)
        })
    }

    /// The same of the difference of two.
    ///
    /// # Errors
    ///
    /// When it is none of a difference's forms.
    pub fn of_difference(file: &Path) -> Result<Self, FlamesError> {
        match Self::of(file) {
            Ok(form @ (Self::Folded | Self::Svg | Self::Html)) => Ok(form),
            _ => Err(FlamesError::Form(file.to_owned(), ".svg, .html or .folded")),
        }
    }
}

/// Stacks, and what people call them.
#[derive(Clone, Debug)]
pub struct Named {
    /// The name of the file, or of the CkbProfile.
    pub name: String,
    /// What it holds.
    pub profile: Profile,
}

impl Named {
    /// Reads pprof, of whoever wrote it: names become as a person reads them.
    ///
    /// # Errors
    ///
    /// When it is none.
    pub fn read(name: &str, bytes: &[u8]) -> Result<Self, FlamesError> {
        let mut profile = Profile::from_pprof(bytes, &Limits::FILE)
            .map_err(|error| FlamesError::Read(name.to_owned(), error))?;
        // They go to a terminal, or to a file that somebody looks at in one.
        let called = |name: &str| {
            let name = demangle(name).map_or_else(|| shorten(name), |name| shorten(&name));
            text::shown(&name)
        };
        profile.stacks = profile.stacks.renamed(called);
        Ok(Self {
            name: name.to_owned(),
            profile,
        })
    }

    /// The stacks of the targets that are meant alone.
    ///
    /// # Errors
    ///
    /// When it has none of them, with those that it has.
    pub fn of_targets(
        mut self,
        asked: &str,
        is_meant: impl Fn(&str) -> bool,
    ) -> Result<Self, FlamesError> {
        let all = &self.profile.stacks;
        let stacks = all.filter(|stack| is_meant(stack.target));
        if !stacks.is_empty() {
            self.profile.stacks = stacks;
            return Ok(self);
        }
        let mut targets: Vec<&str> = all.iter().map(|stack| stack.target).collect();
        targets.sort_unstable();
        targets.dedup();
        targets.retain(|target| !target.is_empty());
        let has = match targets.is_empty() {
            true => "its stacks have no target".to_owned(),
            false => format!("it has {}", targets.join(", ")),
        };
        Err(FlamesError::Target {
            name: self.name.clone(),
            asked: asked.to_owned(),
            has,
        })
    }
}

/// What is in a file, or piped in.
///
/// # Errors
///
/// When it cannot be read.
pub fn bytes(file: &Path) -> Result<Vec<u8>, FlamesError> {
    let mut bytes = Vec::new();
    let most = Limits::FILE.unzipped as u64 + 1;
    let read = if file == Path::new("-") {
        io::stdin().lock().take(most).read_to_end(&mut bytes)
    } else {
        File::open(file).and_then(|file| file.take(most).read_to_end(&mut bytes))
    };
    read.map_err(|error| FlamesError::Open(file.to_owned(), error))?;
    Ok(bytes)
}

impl HowArguments {
    /// The sample type that is drawn, and what is below all functions.
    ///
    /// # Errors
    ///
    /// When there is no sample type of that name.
    pub fn view(&self, of: &Named) -> Result<View, FlamesError> {
        let stacks = &of.profile.stacks;
        let place = match &self.sample_type {
            None => stacks.shown(),
            Some(asked) => {
                let mut types = stacks.types().iter();
                types.position(|of| of.name == *asked).ok_or_else(|| {
                    let names = stacks.types().iter().map(|of| of.name.as_str());
                    FlamesError::Type {
                        name: of.name.clone(),
                        asked: asked.clone(),
                        has: names.collect::<Vec<_>>().join(", "),
                    }
                })?
            }
        };
        Ok(View { place, by: self.by })
    }

    fn title(&self, otherwise: impl fmt::Display) -> String {
        self.title.clone().unwrap_or_else(|| otherwise.to_string())
    }

    /// One profile, in a form.
    ///
    /// # Errors
    ///
    /// When there is nothing to draw.
    pub fn draw(&self, of: &Named, form: Form) -> Result<Vec<u8>, FlamesError> {
        let view = self.view(of)?;
        let stacks = &of.profile.stacks;
        let title = self.title(format_args!(
            "{}, {}",
            short(&of.name),
            type_name(stacks, view)
        ));
        let drawn = match form {
            Form::Pprof => return Ok(of.profile.to_pprof()),
            Form::Speedscope => Ok(render::speedscope(stacks, view, &title)),
            Form::Folded => Ok(render::folded(stacks, view)),
            Form::Svg => render::svg(stacks, view, &title),
            Form::Html => render::html(stacks, view, &title),
        };
        let drawn = drawn.map_err(|error| FlamesError::Render(of.name.clone(), error))?;
        Ok(drawn.into_bytes())
    }

    /// The difference of two, in a form; where no form is asked for, a table of functions, or whatever else is to be printed.
    ///
    /// # Errors
    ///
    /// When they are of different things, or there is nothing to draw.
    pub fn difference(
        &self,
        [old, new]: [&Named; 2],
        output: &Output,
        print: PrintArguments,
    ) -> Result<String, FlamesError> {
        let view = self.view(new)?;
        let mismatch = |error| FlamesError::Mismatch(old.name.clone(), new.name.clone(), error);
        let both = [&old.profile.stacks, &new.profile.stacks];
        let is_table = matches!(output, Output::Printed) && !print.folded;
        if is_table || matches!(output, Output::Json) {
            let changes = Changes::of(both[0], both[1], view.place).map_err(mismatch)?;
            let found = differences::of(&old.name, &new.name, &changes);
            return Ok(match is_table {
                true => found.text(),
                false => Document::of(document::View::Difference(found)).line() + "\n",
            });
        }
        let difference = Difference::of(both[0], both[1], view).map_err(mismatch)?;
        let title = self.title(format_args!(
            "{} → {}, {}",
            short(&old.name),
            short(&new.name),
            type_name(both[1], view)
        ));
        let none = SampleType::new("weight", "");
        let of = both[1].types().get(view.place).unwrap_or(&none);
        let drawn = match output {
            Output::File(_, Form::Svg) => render::diff_svg(&difference, of, &title),
            Output::File(_, Form::Html) => render::diff_html(&difference, of, &title),
            _ => Ok(difference.folded()),
        };
        drawn.map_err(|error| FlamesError::Render(new.name.clone(), error))
    }
}

/// Where something goes, as `-o` says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// To standard output, for people.
    Printed,
    /// There, too, as a document: `-o json`.
    Json,
    /// To a file, in a form.
    File(PathBuf, Form),
}

impl Output {
    /// What is asked for. To be called before anything is read, or sampled for a while: a wrong name costs no time.
    ///
    /// # Errors
    ///
    /// When the file's name says no form, or its folder is not there.
    pub fn of(
        asked: Option<&Path>,
        form: impl Fn(&Path) -> Result<Form, FlamesError>,
    ) -> Result<Self, FlamesError> {
        match asked {
            None => Ok(Self::Printed),
            Some(json) if json == Path::new("json") => Ok(Self::Json),
            Some(file) => {
                let form = form(file)?;
                // With the dot it is to be a folder.
                let folder = file.parent().unwrap_or(file).join(".");
                std::fs::metadata(folder)
                    .map_err(|error| FlamesError::Write(file.to_owned(), error))?;
                Ok(Self::File(file.to_owned(), form))
            }
        }
    }

    /// Writes what was drawn to where it was asked for.
    ///
    /// # Errors
    ///
    /// When that is not possible.
    pub fn write(&self, bytes: &[u8]) -> Result<(), FlamesError> {
        match self {
            Self::File(file, _) => write(Some(file), bytes),
            Self::Printed | Self::Json => write(None, bytes),
        }
    }
}

/// To a file, or to standard output where there is none.
///
/// # Errors
///
/// When it cannot be written.
pub fn write(output: Option<&Path>, bytes: &[u8]) -> Result<(), FlamesError> {
    let Some(output) = output else {
        let mut out = io::stdout().lock();
        let written = out.write_all(bytes).and_then(|()| out.flush());
        return written.map_err(FlamesError::Print);
    };
    std::fs::write(output, bytes).map_err(|error| FlamesError::Write(output.to_owned(), error))
}

/// What a file, or a CkbProfile, is called in a title: without its folders, or its namespace.
fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn type_name(stacks: &Stacks, view: View) -> &str {
    stacks
        .types()
        .get(view.place)
        .map_or("", |of| of.name.as_str())
}
