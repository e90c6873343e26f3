//! What became of one profile in another, function by function.

use std::fmt::Write as _;

use ckb_probe_profiles::changes::{CONFIDENCE, Change, Changes};

use crate::{
    document::{Difference, DifferenceFunction},
    figures::cut,
    text::{WIDTH, one_line, wrapped},
};

/// So many functions are shown that changed by more than noise, and so many that did not.
const CHANGED: usize = 20;
const NOISE: usize = 5;

/// The two, by the names that people have for them.
pub fn of(before: &str, after: &str, changes: &Changes) -> Difference {
    let [total_before, total_after] = changes.totals;
    Difference {
        before: before.to_owned(),
        after: after.to_owned(),
        sample_type: changes.of.name.clone(),
        unit: changes.of.unit.clone(),
        total_before,
        total_after,
        samples_before: changes.samples.map(|[before, _]| before),
        samples_after: changes.samples.map(|[_, after]| after),
        functions: changes.functions.iter().map(function).collect(),
    }
}

fn function(change: &Change) -> DifferenceFunction {
    let percent = |share: f64| format!("{:.2}", 100.0 * share);
    DifferenceFunction {
        name: change.name.clone(),
        module: change.module.clone(),
        before: percent(change.before),
        after: percent(change.after),
        change: format!("{:+.2}", 100.0 * change.change()),
        within: change.within.map(percent),
        is: change.word().to_owned(),
    }
}

impl Difference {
    /// As people read it, at 80 columns.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let head = format!("{} -> {}: {}", self.before, self.after, self.sample_type);
        let _ = writeln!(text, "{}", cut(&one_line(&head), WIDTH));
        let _ = writeln!(text, "{}", wrapped(&self.said(), "", ""));
        if self.functions.is_empty() {
            return text;
        }
        let _ = writeln!(
            text,
            "\n{:>8}{:>9}{:>9}{:>8}  {:<6} FUNCTION, WITH ALL THAT IT CALLED",
            "BEFORE", "AFTER", "CHANGE", "WITHIN", "IT IS"
        );
        let is_told = |one: &&DifferenceFunction| !matches!(one.is.as_str(), "same" | "noise");
        let changed = self.functions.iter().filter(is_told);
        let noise = self.functions.iter().filter(|one| one.is == "noise");
        for one in changed.take(CHANGED).chain(noise.take(NOISE)) {
            line(&mut text, one);
        }
        text
    }

    fn said(&self) -> String {
        let count = |word: &str| self.functions.iter().filter(|one| one.is == word).count();
        let (same, noise) = (count("same"), count("noise"));
        let changed = self.functions.len() - same - noise;
        let shares = "Shares are compared, each in percent of its own total.";
        let Some((before, after)) = self.samples_before.zip(self.samples_after) else {
            return format!(
                "{changed} functions have another share, {same} have not. {shares} What is noise cannot be told: samples of these profiles \
                 weigh more or less, and are not counted."
            );
        };
        format!(
            "{changed} functions have changed by more than noise, {} have not, of {before} and {after} samples. {shares} All changes that are \
             chance are within their bounds in {:.0} of 100 cases, as far as samples are independent of each other; those within are called \
             noise.",
            noise + same,
            100.0 * CONFIDENCE,
        )
    }
}

fn line(text: &mut String, one: &DifferenceFunction) {
    let DifferenceFunction {
        name,
        module: _,
        before,
        after,
        change,
        within,
        is,
    } = one;
    let share = |share: &str, word: &str| match is == word {
        true => "-".to_owned(),
        false => format!("{share}%"),
    };
    let within = within
        .as_deref()
        .map_or_else(|| "-".to_owned(), |within| format!("±{within}"));
    let figures = format!(
        "{:>8}{:>9}{change:>9}{within:>8}  {is:<6} {}",
        share(before, "new"),
        share(after, "gone"),
        one_line(name),
    );
    let _ = writeln!(text, "{}", cut(&figures, WIDTH));
}

#[cfg(test)]
mod tests {
    use ckb_probe_profiles::{Frame, ProfileMode, Stack, Stacks};

    use super::*;

    fn stacks(mode: ProfileMode, functions: &[(&str, u64)]) -> Stacks {
        let mut stacks = Stacks::of(mode);
        for (name, samples) in functions {
            let frames = vec![Frame::user("main", "ckb"), Frame::user(name, "ckb")];
            stacks.add(&Stack {
                frames,
                weights: &[*samples, samples * 10_000_000],
                ..Stack::default()
            });
        }
        stacks
    }

    #[test]
    fn both_sides_are_told_what_is_gone_too_and_noise_is_called_noise() {
        let before = stacks(
            ProfileMode::Cpu,
            &[("read", 300), ("old", 200), ("rest", 500)],
        );
        let after = stacks(
            ProfileMode::Cpu,
            &[("read", 310), ("\u{1b}[2Jnew", 150), ("rest", 540)],
        );
        let found = of("a", "b", &Changes::of(&before, &after, 1).unwrap());
        assert_eq!(
            found.text(),
            "a -> b: cpu\n\
             2 functions have changed by more than noise, 3 have not, of 1000 and 1000\n\
             samples. Shares are compared, each in percent of its own total. All changes that\n\
             are chance are within their bounds in 95 of 100 cases, as far as samples are\n\
             independent of each other; those within are called noise.\n\
             \n  BEFORE    AFTER   CHANGE  WITHIN  IT IS  FUNCTION, WITH ALL THAT IT CALLED\n  \
             20.00%        -   -20.00   ±3.46  gone   old\n       \
             -   15.00%   +15.00   ±3.03  new     [2Jnew\n  \
             50.00%   54.00%    +4.00   ±5.76  noise  rest\n  \
             30.00%   31.00%    +1.00   ±5.30  noise  read\n"
        );
        assert_eq!(found.functions.len(), 5);
        assert_eq!(found.samples_before, Some(1000));
    }

    #[test]
    fn where_samples_are_not_counted_that_is_said() {
        let before = stacks(ProfileMode::OffCpu, &[("a", 1), ("b", 1)]);
        let after = stacks(ProfileMode::OffCpu, &[("a", 2), ("b", 1)]);
        let found = of("a", "b", &Changes::of(&before, &after, 0).unwrap());
        let text = found.text();
        assert!(text.contains("What is noise cannot be told"), "{text}");
        assert!(
            text.contains("50.00%   66.67%   +16.67       -  more   a\n"),
            "{text}"
        );
    }
}
