//! Profiles in files, drawn; and those of a cluster by their names.

use std::path::{Path, PathBuf};

use ckb_probe_agent::text;
use ckb_probe_kubectl::{
    diff,
    flames::{self, Form, HowArguments, Named, Output},
};
use clap::Args;

use super::{CliError, Outcome, blocks::RangeArguments, cluster, record::folder::is_record};

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
    /// The file to write; its ending, .svg, .html, .folded, .pb.gz or .speedscope.json, chooses the format. Unset: print text.
    #[arg(short, long)]
    output: Option<PathBuf>,
    #[command(flatten)]
    how: HowArguments,
    #[command(flatten)]
    of: OfArguments,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ckb-probe diff before.pb.gz after.pb.gz                what changed, function by function, and what is noise\n  \
    ckb-probe diff before.pb.gz after.pb.gz -o diff.svg    orange: more, blue: less\n  \
    ckb-probe diff before.pb.gz after.pb.gz -o diff.html   the same as a page with a field to search\n  \
    ckb-probe diff before.pb.gz after.pb.gz --folded | grep '\\[new\\]' what was not there before, as text\n  \
    ckb-probe diff --from-cluster default/ckb.flames.cpu.2963011 default/ckb.flames.cpu.2963012 -o diff.svg\n  \
    ckb-probe diff before.record after.record              two records of ckb-probe record: each figure, and what is noise\n  \
    ckb-probe diff ckb -n ckb                              the two newest windows of a CkbProbe, as kubectl ckbprobe diff\n\n\
    Shares are compared, not absolute times: the first profile is scaled to the total of the second. Each function shows its\n\
    share before and after, including all that it called. A stack that is gone is drawn as wide as it was.")]
pub struct HostDiffArguments {
    #[command(flatten)]
    pub what: diff::DiffArguments,
    #[command(flatten)]
    of: OfArguments,
    #[command(flatten)]
    pub blocks: RangeArguments,
}

impl HostDiffArguments {
    /// Whether a document is asked for, in the form of `-o json`.
    pub fn is_document(&self) -> bool {
        self.what.output.as_deref() == Some(Path::new("json"))
    }

    /// The same of two runs of blocks, of which nothing is drawn.
    pub fn of_blocks(&self) -> Result<bool, CliError> {
        match self.what.output.is_some() && !self.is_document() {
            true => Err(CliError::Which(
                "of two runs of blocks a table is printed, or with -o json a document: there is no picture of them"
                    .to_owned(),
            )),
            false => Ok(self.is_document()),
        }
    }

    /// Both, where both are folders of `ckb-probe record`.
    pub fn records(&self) -> Result<Option<[&Path; 2]>, CliError> {
        let (before, after) = (Path::new(&self.what.name), self.what.after.as_deref());
        let Some(after) = after.map(Path::new).filter(|_| !self.of.from_cluster) else {
            return match is_record(before) && self.what.after.is_none() {
                true => Err(CliError::Which(format!(
                    "{} is one record, and two are compared: name the other, too",
                    text::of_path(before)
                ))),
                false => Ok(None),
            };
        };
        let [old, new] = [before, after].map(text::of_path);
        match [is_record(before), is_record(after)] {
            [true, true] if self.what.output.is_some() && !self.is_document() => {
                Err(CliError::Which(format!(
                    "of two records a text is printed: `ckb-probe report {new} --baseline {old} -o FILE` makes a page that says the same"
                )))
            }
            [true, true] => Ok(Some([before, after])),
            [false, false] => Ok(None),
            [is_record, _] => {
                let [record, other] = if is_record { [old, new] } else { [new, old] };
                Err(CliError::Which(format!(
                    "{record} is a record, and {other} is none: a record is compared with another that `ckb-probe record` wrote"
                )))
            }
        }
    }
}

/// Where profiles are, and what of them is meant.
#[derive(Args, Debug)]
struct OfArguments {
    /// Draw only the process that has this name in the profile.
    #[arg(long)]
    target: Option<String>,
    /// The profiles are not files but CkbProfiles of the cluster of KUBECONFIG, as NAMESPACE/NAME.
    #[arg(long)]
    from_cluster: bool,
}

impl OfArguments {
    async fn read(&self, file: &Path) -> Result<Named, CliError> {
        let name = text::of_path(file);
        let bytes = match self.from_cluster {
            true => cluster::pprof(&name).await?,
            false => flames::bytes(file)?,
        };
        let mut named = Named::read(&name, &bytes)?;
        if let Some(asked) = &self.target {
            named = named.of_targets(asked, |target| target == asked)?;
        }
        Ok(named)
    }
}

/// Draws one profile.
pub async fn render(arguments: &RenderArguments) -> Result<Outcome, CliError> {
    let RenderArguments {
        file,
        output,
        how,
        of,
    } = arguments;
    // Before anything is read: a wrong name costs no time.
    let form = output.as_deref().map(Form::of).transpose()?;
    let named = of.read(file).await?;
    let drawn = how.draw(&named, form.unwrap_or(Form::Folded))?;
    flames::write(output.as_deref(), &drawn)?;
    Ok(Outcome::Measured)
}

/// Draws the difference of two.
pub async fn diff(arguments: &HostDiffArguments) -> Result<Outcome, CliError> {
    let HostDiffArguments { what, of, .. } = arguments;
    let named = what.after.as_deref().map(Path::new);
    let named = named.map(|after| [Path::new(&what.name), after]);
    let is_named = of.from_cluster || what.files().is_some();
    let Some([before, after]) = named.filter(|_| is_named) else {
        let mut what = what.clone();
        if let Some(target) = &of.target {
            what.of.get_or_insert_default().target = Some(target.clone());
        }
        return Ok(Outcome::from(diff::run(&what).await?));
    };
    let output = Output::of(what.output.as_deref(), Form::of_difference)?;
    let both = [of.read(before).await?, of.read(after).await?];
    let drawn = (what.how).difference([&both[0], &both[1]], &output, what.print)?;
    output.write(drawn.as_bytes())?;
    Ok(Outcome::Measured)
}
