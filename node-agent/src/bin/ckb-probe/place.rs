//! Where something is looked at: in a cluster, or on this host. What names both is refused, since one of them would be passed over.

use clap::{ArgMatches, Command, error::ErrorKind, parser::ValueSource};

/// What names a process of this host.
const OF_THE_HOST: [&str; 2] = ["pid", "executable"];

/// What names something of a cluster, in whatever verb has it.
const OF_A_CLUSTER: [&str; 6] = [
    "name",
    "namespace",
    "context",
    "kubeconfig",
    "all_namespaces",
    "selector",
];

/// Of these verbs, unnamed arguments are of a cluster. Of others they may be a row or a mode of a process.
const NAMES_OF_A_CLUSTER: [&str; 1] = ["threads"];

/// Refuses a verb that names a process of this host and something of a cluster.
pub fn check(command: &mut Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let Some((verb, matches)) = matches.subcommand() else {
        return Ok(());
    };
    let Some(command) = command.find_subcommand_mut(verb) else {
        return Ok(());
    };
    let given = |id: &str| {
        let mut ids = matches.ids().map(clap::Id::as_str);
        ids.any(|of| of == id) && matches.value_source(id) == Some(ValueSource::CommandLine)
    };
    let host = OF_THE_HOST.into_iter().find(|id| given(id));
    let names = NAMES_OF_A_CLUSTER.contains(&verb).then_some("names");
    let cluster = names.into_iter().chain(OF_A_CLUSTER).find(|id| given(id));
    let (Some(host), Some(cluster)) = (host, cluster) else {
        return Ok(());
    };
    let shown = |id| {
        let mut arguments = command.get_arguments();
        let argument = arguments.find(|one| one.get_id() == id);
        argument.map(ToString::to_string).unwrap_or_default()
    };
    let message = format!(
        "{} is about a cluster, and {} names a process of this host: leave out one of them",
        shown(cluster),
        shown(host)
    );
    Err(command.error(ErrorKind::ArgumentConflict, message))
}
