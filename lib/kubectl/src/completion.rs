//! `completion` and `man`: what shells, kubectl and man(1) are told of the verbs, made from the verbs themselves.

mod engine;

use std::{
    env, fs,
    io::{self, Write},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use ckb_probe_crds::CkbProbe;
use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;
use engine::{Sought, complete};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Resource, ResourceExt, api::ListParams, config::Kubeconfig};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::{ClusterArguments, Outcome, PLUGIN, VerbError};

/// Under this name kubectl asks it what could come next.
pub const COMPLETER: &str = "kubectl_complete-ckbprobe";

/// Somebody waits at a prompt.
const PATIENCE: Duration = Duration::from_secs(2);

/// What kubectl is to do with the candidates: these are all (cobra's ShellCompDirectiveNoFileComp), or files could come, too.
const NO_FILES: u8 = 4;
const FILES: u8 = 0;

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    source <(ckb-probe completion bash)\n  \
    ckb-probe completion zsh > \"${fpath[1]}/_ckb-probe\"\n  \
    ckb-probe completion fish > ~/.config/fish/completions/ckb-probe.fish\n  \
    ckb-probe completion kubectl                      links kubectl-ckbprobe and kubectl_complete-ckbprobe beside it\n  \
    ckb-probe completion kubectl --folder ~/.local/bin")]
pub struct CompletionArguments {
    /// For whom.
    #[arg(value_enum)]
    shell: For,
    /// Of kubectl: a folder of the PATH. Unset: the one in which this program is.
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

/// Who completes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum For {
    /// Print a script for bash.
    Bash,
    /// Print one for zsh.
    Zsh,
    /// Print one for fish.
    Fish,
    /// Make this program kubectl's, as a plugin that completes: two links.
    Kubectl,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ckb-probe man /usr/local/share/man/man1 && man ckb-probe-doctor")]
pub struct ManArguments {
    /// Where the pages go, one for each verb.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Prints a script, or makes the links.
pub fn run(arguments: &CompletionArguments, root: Command) -> Result<Outcome, VerbError> {
    let shell = match arguments.shell {
        For::Bash => Shell::Bash,
        For::Zsh => Shell::Zsh,
        For::Fish => Shell::Fish,
        For::Kubectl => return install(arguments.folder.as_deref()),
    };
    let name = root.get_name().to_owned();
    // Shells know programs, and not that kubectl shows this one as a verb of its own.
    let mut root = root.bin_name(name.clone());
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut root, &name, &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if shell == Shell::Bash {
        // clap_complete 4.6 takes a dash in the program's name for the border of a verb at one place, and not at the other: then no verb
        // completes anything.
        let (wrong, right) = (name.replace('-', "__subcmd__"), name.replace('-', "__"));
        script = script.replace(&wrong, &right);
    }
    io::stdout().write_all(script.as_bytes())?;
    Ok(Outcome::Well)
}

/// Writes a page for each verb.
pub fn man(arguments: &ManArguments, root: Command) -> Result<Outcome, VerbError> {
    let folder = &arguments.folder;
    let failed = |error| VerbError::File(folder.clone(), error);
    fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(root, folder).map_err(failed)?;
    Ok(Outcome::Well)
}

/// Two links to this program, by which kubectl has the plugin and its completion.
fn install(folder: Option<&Path>) -> Result<Outcome, VerbError> {
    let program = env::current_exe()?;
    let beside = program.parent().unwrap_or(Path::new("/"));
    let folder = folder.unwrap_or(beside);
    fs::create_dir_all(folder).map_err(|error| VerbError::File(folder.to_owned(), error))?;
    let mut out = io::stdout().lock();
    for name in [PLUGIN, COMPLETER] {
        let link = folder.join(name);
        if link == program {
            continue;
        }
        let old = fs::symlink_metadata(&link);
        // Only what was a link before is replaced: a program of that name is somebody's.
        let replaced = match old {
            Ok(old) if old.is_symlink() => fs::remove_file(&link),
            Ok(_) => Err(io::Error::from(io::ErrorKind::AlreadyExists)),
            Err(_) => Ok(()),
        };
        let made = replaced.and_then(|()| symlink(&program, &link));
        made.map_err(|error| VerbError::File(link.clone(), error))?;
        writeln!(out, "{} -> {}", link.display(), program.display())?;
    }
    let path = env::var_os("PATH").unwrap_or_default();
    if !env::split_paths(&path).any(|one| one == folder) {
        eprintln!(
            "{} is not on the PATH, where kubectl looks for plugins",
            folder.display()
        );
    }
    Ok(Outcome::Well)
}

/// What `kubectl_complete-ckbprobe` prints: a candidate a line, with what it is, and what kubectl is to do with them.
pub async fn candidates(root: &Command, words: &[String]) -> Result<Outcome, VerbError> {
    let found = complete(root, words);
    let mut lines: Vec<String> = found.candidates;
    if let Some(sought) = &found.sought {
        let asked = timeout(PATIENCE, look_up(sought, &found.options)).await;
        // Who cannot say completes nothing.
        lines.extend(asked.unwrap_or_default());
    }
    let last = words.last().map_or("", String::as_str);
    lines.retain(|line| line.starts_with(last));
    let directive = if found.files { FILES } else { NO_FILES };
    let mut out = io::stdout().lock();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    writeln!(out, ":{directive}")?;
    Ok(Outcome::Well)
}

/// The names that there are, or none where nobody says.
async fn look_up(sought: &Sought, options: &engine::Options) -> Vec<String> {
    let cluster = ClusterArguments {
        namespace: options.get("namespace").cloned(),
        context: options.get("context").cloned(),
        kubeconfig: options.get("kubeconfig").map(PathBuf::from),
    };
    match sought {
        Sought::Contexts => {
            let read = match &cluster.kubeconfig {
                Some(file) => Kubeconfig::read_from(file),
                None => Kubeconfig::read(),
            };
            let contexts = read.map(|config| config.contexts).unwrap_or_default();
            contexts.into_iter().map(|one| one.name).collect()
        }
        Sought::Namespaces => match cluster.connect().await {
            Ok((client, _)) => names::<Namespace>(&Api::all(client)).await,
            Err(_) => Vec::new(),
        },
        Sought::CkbProbes => match cluster.connect().await {
            Ok((client, namespace)) => {
                names::<CkbProbe>(&Api::namespaced(client, &namespace)).await
            }
            Err(_) => Vec::new(),
        },
    }
}

async fn names<K>(api: &Api<K>) -> Vec<String>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let list = api.list_metadata(&ListParams::default()).await;
    let items = list.map(|list| list.items).unwrap_or_default();
    items.iter().map(ResourceExt::name_any).collect()
}
