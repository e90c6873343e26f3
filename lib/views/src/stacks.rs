//! Where the time or the memory went in one window: its largest functions, and what each thread did.

use std::{cmp::Reverse, collections::BTreeMap, fmt::Write as _};

use ckb_probe_profiles::{Frame, Stacks, categories, functions::top};

use crate::{
    document::{ProfileFunction, StackProfile},
    figures::cut,
    text::{WIDTH, one_line, wrapped},
};

/// So many functions are told.
const FUNCTIONS: usize = 20;

/// What is told of stacks, by the sample type at this place. Whoever has them says of what they are.
pub fn of(stacks: &Stacks, place: usize) -> StackProfile {
    let found = top(stacks, place, FUNCTIONS);
    let percent = |weight: u64| format!("{:.1}", 100.0 * weight as f64 / found.of.max(1) as f64);
    let of = stacks.types().get(place);
    let mode = stacks.mode().map_or("", |mode| mode.as_str());
    StackProfile {
        mode: mode.to_owned(),
        sample_type: of.map(|of| of.name.clone()).unwrap_or_default(),
        unit: of.map(|of| of.unit.clone()).unwrap_or_default(),
        total: found.of,
        headline: categories::summary(stacks),
        functions: found
            .by_total
            .iter()
            .map(|function| ProfileFunction {
                name: function.name.clone(),
                module: function.module.clone(),
                self_percent: percent(function.itself),
                total_percent: percent(function.total),
            })
            .collect(),
        ..StackProfile::default()
    }
}

impl StackProfile {
    /// As people read it, at 80 columns.
    pub fn text(&self) -> String {
        let mut text = self.head();
        if !self.headline.is_empty() {
            let _ = writeln!(text, "{}", wrapped(&self.headline, "", ""));
        }
        let _ = writeln!(text, "\n{:>8}{:>8}  FUNCTION", "TOTAL", "SELF");
        for one in &self.functions {
            let line = format!(
                "{:>7}%{:>7}%  {}",
                one.total_percent,
                one.self_percent,
                one_line(&one.name)
            );
            let _ = writeln!(text, "{}", cut(&line, WIDTH));
        }
        text
    }

    /// Whose it is, and of when.
    pub fn head(&self) -> String {
        let target = self.target.as_deref();
        let target = target.map_or_else(String::new, |target| format!(" {target}"));
        let window = match (&self.began_at, self.milliseconds) {
            (Some(began), Some(milliseconds)) => {
                format!(", {:.0} s from {began}", milliseconds as f64 / 1e3)
            }
            _ => String::new(),
        };
        let amount = match self.unit.as_str() {
            "nanoseconds" => format!("{:.2} s", self.total as f64 / 1e9),
            "bytes" => format!("{:.1} MB", self.total as f64 / 1e6),
            _ => self.total.to_string(),
        };
        let head = format!(
            "{}{target}: {} {amount}{window}",
            self.subject, self.sample_type
        );
        format!("{}\n", cut(&one_line(&head), WIDTH))
    }
}

/// What each thread did, of a profile of the mode `Threads`: those that do the same together, the most first.
pub fn threads(stacks: &Stacks) -> String {
    let mut groups: BTreeMap<(&str, &str, Vec<Frame>), BTreeMap<&str, u64>> = BTreeMap::new();
    for stack in stacks.iter() {
        let count = stack.weights.first().copied().unwrap_or_default();
        let threads = groups
            .entry((stack.state, stack.wait, stack.frames))
            .or_default();
        *threads.entry(stack.thread).or_default() += count;
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, threads)| Reverse(threads.values().sum::<u64>()));
    let mut text = String::new();
    for ((state, wait, frames), threads) in groups {
        let count: u64 = threads.values().sum();
        let plural = if count == 1 { "" } else { "s" };
        let wait = wait.trim_matches(['[', ']']);
        let wait = match wait.is_empty() {
            true => String::new(),
            false => format!(", waits for {wait}"),
        };
        let names = threads.into_iter().map(|(name, count)| match count {
            1 => name.to_owned(),
            _ => format!("{name} ({count} of them)"),
        });
        let head = format!("{count} thread{plural} {state}{wait}");
        let _ = writeln!(text, "\n{}", one_line(&head));
        let names = names.collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "{}", wrapped(&one_line(&names), "  ", "  "));
        for frame in frames {
            let file = match frame.module {
                "" => String::new(),
                file => format!("  ({file})"),
            };
            let _ = writeln!(text, "      {}", one_line(&format!("{}{file}", frame.name)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use ckb_probe_profiles::{ProfileMode, Stack};

    use super::*;

    #[test]
    fn the_largest_functions_are_told_with_their_shares() {
        let mut stacks = Stacks::of(ProfileMode::Cpu);
        let main = Frame::user("main", "ckb");
        for (name, samples) in [("rocksdb_get_pinned_cf", 30), ("\u{1b}[2J", 10)] {
            stacks.add(&Stack {
                frames: vec![main, Frame::user(name, "ckb")],
                weights: &[samples, samples * 10_000_000],
                ..Stack::default()
            });
        }
        let mut found = of(&stacks, 1);
        found.subject = "ckb/ckb.flames.cpu.7".to_owned();
        found.began_at = Some("12:00:00".to_owned());
        found.milliseconds = Some(30_000);
        assert_eq!(
            found.text(),
            "ckb/ckb.flames.cpu.7: cpu 0.40 s, 30 s from 12:00:00\n\
             Cpu: rocksdb read 75 %, other 25 %\n\
             \n   TOTAL    SELF  FUNCTION\n  \
             100.0%    0.0%  main\n   \
             75.0%   75.0%  rocksdb_get_pinned_cf\n   \
             25.0%   25.0%   [2J\n"
        );
    }

    #[test]
    fn threads_that_do_the_same_are_together_the_most_first() {
        let mut stacks = Stacks::of(ProfileMode::Threads);
        for (thread, state, wait, count) in [
            ("verify", "running", "", 1),
            ("rayon-0", "sleeping", "[futex]", 1),
            ("rayon-1", "sleeping", "[futex]", 2),
        ] {
            stacks.add(&Stack {
                frames: vec![Frame::user("run", "ckb")],
                thread,
                state,
                wait,
                weights: &[count, 5],
                ..Stack::default()
            });
        }
        assert_eq!(
            threads(&stacks),
            "\n3 threads sleeping, waits for futex\n  rayon-0, rayon-1 (2 of them)\n      run  (ckb)\n\
             \n1 thread running\n  verify\n      run  (ckb)\n"
        );
    }
}
