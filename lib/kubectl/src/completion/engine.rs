//! What could come next on a command line, by what clap knows of it.

use std::collections::BTreeMap;

use clap::{Arg, Command};

/// Options that were given, by their ids.
pub type Options = BTreeMap<String, String>;

/// Names that the cluster, or the kubeconfig, has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sought {
    /// Contexts of the kubeconfig.
    Contexts,
    /// Namespaces.
    Namespaces,
    /// CkbProbes of the namespace.
    CkbProbes,
}

/// What could come next.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Completion {
    /// Words, each with what it is after a tab. Those that do not begin as the last word does are among them.
    pub candidates: Vec<String>,
    /// Names that could come, too.
    pub sought: Option<Sought>,
    /// Whether files could.
    pub files: bool,
    /// What was given before.
    pub options: Options,
}

/// Of these words the last is to be completed; it may be empty.
pub fn complete(root: &Command, words: &[String]) -> Completion {
    let mut root = root.clone();
    // Options that all verbs have, such as --help, are there only then.
    root.build();
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", &[][..]),
    };
    let mut command = &root;
    let mut options = Options::new();
    let mut place = 0;
    let mut awaited: Option<&Arg> = None;
    for word in before {
        if let Some(option) = awaited.take() {
            options.insert(option.get_id().to_string(), word.clone());
        } else if let Some(option) = option(command, word) {
            awaited = takes_value(option).then_some(option);
        } else if word.starts_with('-') {
            if let Some((name, value)) = word.split_once('=')
                && let Some(option) = self::option(command, name)
            {
                options.insert(option.get_id().to_string(), value.to_owned());
            }
        } else if let Some(verb) = command.find_subcommand(word) {
            command = verb;
        } else {
            place += 1;
        }
    }
    let completion = Completion {
        options,
        ..Completion::default()
    };
    if let Some(option) = awaited {
        return of_value(option, completion);
    }
    if last.starts_with('-') {
        let named = command.get_arguments().filter(|one| !one.is_hide_set());
        let candidates = named.filter_map(|one| Some(with(&format!("--{}", one.get_long()?), one)));
        return Completion {
            candidates: candidates.collect(),
            ..completion
        };
    }
    let verbs = command.get_subcommands().filter(|one| !one.is_hide_set());
    let verbs: Vec<String> = verbs
        .map(|one| {
            let about = one.get_about().map(ToString::to_string).unwrap_or_default();
            described(one.get_name(), &about)
        })
        .collect();
    match command.get_positionals().nth(place) {
        _ if !verbs.is_empty() => Completion {
            candidates: verbs,
            ..completion
        },
        Some(positional) => of_value(positional, completion),
        None => completion,
    }
}

fn option<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|one| {
        let long = one
            .get_long()
            .is_some_and(|long| word == format!("--{long}"));
        let short = one
            .get_short()
            .is_some_and(|short| word == format!("-{short}"));
        long || short
    })
}

fn takes_value(option: &Arg) -> bool {
    option.get_action().takes_values()
}

fn of_value(arg: &Arg, completion: Completion) -> Completion {
    let values = arg.get_possible_values();
    let values = values.iter().map(|one| {
        let help = one.get_help().map(ToString::to_string).unwrap_or_default();
        described(one.get_name(), &help)
    });
    let sought = match arg.get_id().as_str() {
        "namespace" | "system" => Some(Sought::Namespaces),
        "context" => Some(Sought::Contexts),
        "name" => Some(Sought::CkbProbes),
        _ => None,
    };
    Completion {
        candidates: values.collect(),
        sought,
        files: matches!(arg.get_id().as_str(), "kubeconfig" | "folder"),
        ..completion
    }
}

fn with(word: &str, arg: &Arg) -> String {
    described(
        word,
        &arg.get_help().map(ToString::to_string).unwrap_or_default(),
    )
}

/// A word, and what it is in a line.
fn described(word: &str, what: &str) -> String {
    match what.lines().next().unwrap_or_default() {
        "" => word.to_owned(),
        what => format!("{word}\t{what}"),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Program;

    fn of(words: &[&str]) -> Completion {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        complete(&Program::command(), &words)
    }

    fn words(completion: &Completion) -> Vec<&str> {
        let all = completion.candidates.iter();
        all.map(|one| one.split('\t').next().unwrap()).collect()
    }

    #[test]
    fn verbs_options_values_and_names_come_where_they_may() {
        assert_eq!(words(&of(&[""]))[..2], ["try", "doctor"]);
        assert_eq!(words(&of(&["try", ""]))[..2], ["storage", "latency"]);
        assert_eq!(of(&["try", "storage", ""]), Completion::default());
        assert!(words(&of(&["try", "--pr"])).contains(&"--print-only"));
        assert_eq!(words(&of(&["doctor", "-o", ""])), ["full", "short", "json"]);
        let named = of(&["doctor", "-n", "ckb", "--context=c", ""]);
        assert_eq!(named.sought, Some(Sought::CkbProbes));
        let given = [("namespace", "ckb"), ("context", "c")];
        let given = given.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(named.options, given.into());
        assert_eq!(
            of(&["try", "--namespace", ""]).sought,
            Some(Sought::Namespaces)
        );
        assert_eq!(
            of(&["doctor", "--context", ""]).sought,
            Some(Sought::Contexts)
        );
        assert!(of(&["doctor", "--kubeconfig", ""]).files);
    }
}
