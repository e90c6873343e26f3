//! A diagnosis as people read it, at 80 columns. Commands and links are lines of their own and are never broken: they are copied.

use std::fmt::Write as _;

use ckb_probe_profiles::text::is_unseen;

use crate::diagnosis::{Diagnosis, Finding, Mark};

/// The width that a terminal has at least.
pub const WIDTH: usize = 80;

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// All of it, place by place.
    Full,
    /// What is not as it should be, a line each.
    Short,
}

impl Diagnosis {
    /// The text, which ends with a line; empty where a short one has nothing to say.
    pub fn text(&self, detail: Detail) -> String {
        match detail {
            Detail::Full => self.full(),
            Detail::Short => self.short(),
        }
    }

    fn full(&self) -> String {
        let mut text = String::new();
        let mut before = None;
        for finding in &self.findings {
            // What is about one CkbProbe stands together, each line with its place.
            let (title, place) = match &finding.subject {
                Some(subject) => (subject.as_str(), format!("{}: ", finding.place.as_str())),
                None => (finding.place.as_str(), String::new()),
            };
            if before != Some(title) {
                let gap = if before.is_some() { "\n" } else { "" };
                let line = "-".repeat(title.chars().count());
                let _ = writeln!(text, "{gap}{title}\n{line}");
                before = Some(title);
            }
            tell(&mut text, &place, finding);
        }
        let parts = self.parts.iter();
        let versions: Vec<String> = parts
            .map(|one| format!("{} {}", one.name, one.version))
            .collect();
        text.push('\n');
        if !versions.is_empty() {
            let _ = writeln!(text, "{}", wrapped(&versions.join(", "), "", ""));
        }
        let _ = writeln!(text, "{}", self.verdict());
        text
    }

    fn short(&self) -> String {
        let mut text = String::new();
        for finding in self.findings.iter().filter(|one| one.mark != Mark::Passed) {
            let Finding {
                place,
                subject,
                mark,
                text: said,
                ..
            } = finding;
            let subject = subject
                .as_deref()
                .map_or_else(String::new, |one| format!(" {one}"));
            let _ = writeln!(
                text,
                "{} {}{subject}: {}",
                mark.sign(),
                place.as_str(),
                one_line(said)
            );
        }
        text
    }

    /// What it comes to, in a line.
    fn verdict(&self) -> String {
        let warnings = self
            .findings
            .iter()
            .filter(|one| one.mark == Mark::Warning)
            .count();
        match (self.first_failure(), warnings) {
            (Some(first), _) => format!(
                "{} broken first: {}{}",
                Mark::Failed.sign(),
                first.place.as_str(),
                first
                    .subject
                    .as_deref()
                    .map_or_else(String::new, |one| format!(" of {one}")),
            ),
            (None, 0) => format!("{} all is as it should be", Mark::Passed.sign()),
            (None, _) => format!("{} nothing is broken; see what has ‼", Mark::Passed.sign()),
        }
    }
}

fn tell(text: &mut String, place: &str, finding: &Finding) {
    let sign = finding.mark.sign();
    let said = format!("{place}{}", one_line(&finding.text));
    let said = wrapped(&said, &format!("{sign} "), "  ");
    let _ = writeln!(text, "{said}");
    if finding.mark == Mark::Passed {
        return;
    }
    for command in &finding.next {
        let _ = writeln!(text, "  next: {command}");
    }
    if let Some(see) = &finding.see {
        let _ = writeln!(text, "  see {see}");
    }
}

/// What others wrote, without what could move a terminal's cursor.
pub(crate) fn one_line(text: &str) -> String {
    neutral(text)
}

/// What others wrote, as it can be shown beside what we write: no character of it controls a terminal, turns what follows around, or is
/// there and not seen.
pub fn neutral(text: &str) -> String {
    let seen = text.chars().filter(|one| !is_unseen(*one));
    let shown = seen.map(|one| if one.is_control() { ' ' } else { one });
    shown.collect()
}

/// Words in lines of at most 80, the first of which begins with `first` and the others with `rest`. A longer word has a line of its own.
pub fn wrapped(text: &str, first: &str, rest: &str) -> String {
    let mut lines = vec![first.to_owned()];
    let mut empty = true;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if !empty && line + 1 + word.chars().count() > WIDTH {
            lines.push(rest.to_owned());
            empty = true;
        }
        if let Some(line) = lines.last_mut() {
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
            empty = false;
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests;
