//! docs/tutorial.md as what it tells a reader to type, and what it says is printed then.

use crate::pages::Page;

/// The page.
pub const PAGE: &str = "docs/tutorial.md";

/// Stands for anything: in a line for a part of it, and by itself for any number of lines.
const ANYTHING: char = '…';

/// The namespace that the page is about.
const NAMESPACE: &str = "ckb";

/// How it is named in commands and in what they print: `*` is the name.
const FORMS: &[&str] = &["-n * ", " */", "namespace=\"*\"", "from * namespace"];

/// The command line, where the demo builds it.
const PROGRAM: &str = "target/release/ckb-probe";

/// What is not typed by whoever runs the page: what runs it has done so, or does so afterwards.
const PREPARED: &[&str] = &["make demo WORKLOAD=rocksdb", "make demo-down", "export "];

/// A command of the page, with what it prints.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Step {
    /// What a reader types after the `$`.
    pub command: String,
    /// The lines below it.
    pub expected: Vec<String>,
}

/// What becomes of a command where the page is run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum How {
    /// It is run.
    Run,
    /// It is run, and the API server is asked what it would make of it: it would restart what others use.
    DryRun,
    /// The end-to-end tests did it before, or do it in the end.
    Prepared,
}

/// The commands of a page in their order. What is no console has none.
pub fn steps(page: &Page) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in page.sections.iter().flat_map(|section| &section.blocks) {
        if block.language != "console" {
            continue;
        }
        let mut goes_on = false;
        for line in &block.lines {
            let begun = line.strip_prefix("$ ");
            match (begun, steps.last_mut()) {
                (Some(command), _) => steps.push(Step {
                    command: command.to_owned(),
                    expected: Vec::new(),
                }),
                (None, Some(step)) if goes_on => {
                    step.command.push('\n');
                    step.command += line;
                }
                (None, Some(step)) => step.expected.push(line.clone()),
                (None, None) => {}
            }
            goes_on = line.ends_with('\\') && (begun.is_some() || goes_on);
        }
    }
    steps
}

impl Step {
    /// What becomes of it.
    pub fn how(&self) -> How {
        if PREPARED.iter().any(|begin| self.command.starts_with(begin)) {
            How::Prepared
        } else if self.command.starts_with("helm upgrade ") {
            How::DryRun
        } else {
            How::Run
        }
    }

    /// The same in another namespace, with the command line from elsewhere.
    pub fn elsewhere(&self, namespace: &str, program: &str) -> Self {
        let own = |text: &str| {
            FORMS.iter().fold(text.to_owned(), |text, form| {
                let [here, there] = [NAMESPACE, namespace].map(|name| form.replace('*', name));
                text.replace(&here, &there)
            })
        };
        // Where it ends in the namespace.
        let command = own(&format!("{} ", self.command)).trim_end().to_owned();
        let mut command = command.replace(PROGRAM, program);
        if self.how() == How::DryRun {
            command += " --dry-run=server";
        }
        let expected = self.expected.iter();
        let expected = expected
            .map(|line| own(&format!(" {line}"))[1..].to_owned())
            .collect();
        Self { command, expected }
    }

    /// The first line that is not there as it should be, if there is one.
    ///
    /// Numbers are of that run, and so are spaces, which go with them; `3/3` is as it is told.
    pub fn differs<'a>(&'a self, printed: &str) -> Option<&'a str> {
        let printed: Vec<String> = printed.lines().map(shape).collect();
        let lines: Vec<Option<String>> = self
            .expected
            .iter()
            .map(|line| (line.trim() != "…").then(|| shape(line)))
            .collect();
        let reached = furthest(&lines, &printed);
        match reached {
            Reached::End => None,
            Reached::Line(line) => Some(self.expected.get(line).map_or("", |line| line)),
        }
    }
}

/// How far lines are as they should be.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Reached {
    /// This one is not; one beyond them all is that more is printed.
    Line(usize),
    /// All are.
    End,
}

fn furthest(expected: &[Option<String>], printed: &[String]) -> Reached {
    match expected {
        [] if printed.is_empty() => Reached::End,
        [] => Reached::Line(0),
        [Some(line), rest @ ..] => match printed {
            [first, others @ ..] if is_like(line, first) => further(furthest(rest, others), 1),
            _ => Reached::Line(0),
        },
        [None, rest @ ..] => {
            let ways = (0..=printed.len()).map(|left_out| furthest(rest, &printed[left_out..]));
            further(ways.max().unwrap_or(Reached::Line(0)), 1)
        }
    }
}

fn further(reached: Reached, lines: usize) -> Reached {
    match reached {
        Reached::Line(line) => Reached::Line(line + lines),
        Reached::End => Reached::End,
    }
}

/// Whether a line is like one in which `…` stands for anything.
fn is_like(expected: &str, line: &str) -> bool {
    let mut parts = expected.split(ANYTHING);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in between {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// A line without what differs from run to run: each number with its unit is `0`, spaces and bars are one.
fn shape(line: &str) -> String {
    let letters: Vec<char> = line.trim_end().chars().collect();
    let mut shape = String::new();
    let mut place = 0;
    while let Some(&letter) = letters.get(place) {
        let end = match letter {
            '0'..='9' => number(&letters, place),
            ' ' | '#' | '-' => run(&letters, place, |next| next == letter),
            _ => place + 1,
        };
        let before = place.checked_sub(1).and_then(|before| letters.get(before));
        let is_share = before == Some(&'/') || letters.get(end) == Some(&'/');
        let followed_by_digit = letters.get(end + 1).is_some_and(char::is_ascii_digit);
        let is_of_digit = place >= 2 && letters[place - 2].is_ascii_digit();
        match letter {
            '0'..='9' if is_share && (followed_by_digit || is_of_digit) => {
                shape.extend(&letters[place..end]);
            }
            '0'..='9' => shape.push('0'),
            _ => shape.push(letter),
        }
        place = end;
    }
    shape.trim_end().to_owned()
}

fn run(letters: &[char], begin: usize, is_in: impl Fn(char) -> bool) -> usize {
    let rest = letters[begin..].iter();
    begin + rest.take_while(|letter| is_in(**letter)).count()
}

/// Where a number ends, its unit included, and what may follow it as in `5m22s`.
fn number(letters: &[char], begin: usize) -> usize {
    const UNITS: [&str; 10] = ["ns", "us", "ms", "min", "%", "s", "m", "h", "d", "B"];
    let mut end = run(letters, begin, |letter| letter.is_ascii_digit());
    while letters.get(end) == Some(&'.') && letters.get(end + 1).is_some_and(char::is_ascii_digit) {
        end = run(letters, end + 1, |letter| letter.is_ascii_digit());
    }
    for unit in UNITS {
        let after = end + unit.chars().count();
        let is_unit = letters
            .get(end..after)
            .is_some_and(|part| part.iter().copied().eq(unit.chars()));
        match letters.get(after) {
            Some(next) if is_unit && next.is_ascii_digit() => return number(letters, after),
            next if is_unit && next.is_none_or(|next| !next.is_alphanumeric()) => return after,
            _ => {}
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::fixture::repository;

    fn step(command: &str, expected: &[&str]) -> Step {
        Step {
            command: command.to_owned(),
            expected: expected.iter().map(|line| (*line).to_owned()).collect(),
        }
    }

    #[test]
    fn commands_are_what_follows_a_dollar_and_goes_on_behind_a_backslash() {
        let page =
            "# A\n```console\n$ one \\\n  more\nprinted\n…\n$ two\n```\n```yaml\n$ none\n```\n";
        let expected = [step("one \\\n  more", &["printed", "…"]), step("two", &[])];
        assert_eq!(steps(&Page::read(page)), expected);
    }

    #[test]
    fn a_command_is_of_the_scenes_namespace() {
        let here = step(
            "target/release/ckb-probe x -n ckb -f ckb/ckb.y",
            &["ckb/a", "made ckb/b"],
        );
        let there = step("/bin/p x -n e2e -f ckb/ckb.y", &["e2e/a", "made e2e/b"]);
        let there = Step {
            command: there.command.replace(" ckb/", " e2e/"),
            ..there
        };
        assert_eq!(here.elsewhere("e2e", "/bin/p"), there);
        let last = step("kubectl get pods -n ckb", &[]);
        assert_eq!(last.elsewhere("e2e", "").command, "kubectl get pods -n e2e");
        let printed = step(
            "x",
            &["a{namespace=\"ckb\"}", "b deleted from ckb namespace"],
        );
        let expected = ["a{namespace=\"e2e\"}", "b deleted from e2e namespace"];
        assert_eq!(printed.elsewhere("e2e", "").expected, expected);
        let helm = step("helm upgrade --install x", &[]);
        assert_eq!(
            helm.elsewhere("e2e", "").command,
            "helm upgrade --install x --dry-run=server"
        );
    }

    #[test]
    fn figures_may_differ_and_nothing_else() {
        let shown = step(
            "",
            &[
                "NAME   READY   TARGETS   AGE",
                "ckb    True    1/1       10s",
                "…",
                "Get  96.3us  ####",
            ],
        );
        let head = "NAME    READY TARGETS AGE\nckb  True  1/1  5m22s\n";
        assert_eq!(
            shown.differs(&format!("{head}more\nstill more\nGet 1ms #\n")),
            None
        );
        assert_eq!(shown.differs(&format!("{head}Get 1.5ms #\n")), None);
        assert_eq!(
            shown.differs(&format!("{head}Put 1.5ms #\n")),
            Some("Get  96.3us  ####")
        );
        let line = "ckb    True    1/1       10s";
        let missing = "NAME READY TARGETS AGE\nckb True 0/1 5s\nGet 1ms #\n";
        assert_eq!(shown.differs(missing), Some(line));
        let wrong = "NAME READY TARGETS AGE\nckb False 1/1 5s\nGet 1ms #\n";
        assert_eq!(shown.differs(wrong), Some(line));
        // More than is told is not what is told.
        assert_eq!(step("", &["a"]).differs("a\nb\n"), Some(""));
        assert_eq!(step("", &[]).differs("b\n"), Some(""));
    }

    #[test]
    fn dots_stand_for_anything_in_a_line() {
        let line = step("", &["made … in … s"]);
        assert_eq!(line.differs("made it all in 3 s"), None);
        assert_eq!(line.differs("made it all on 3 s"), Some("made … in … s"));
        assert_eq!(line.differs("made in s"), Some("made … in … s"));
    }

    #[test]
    fn each_block_of_the_page_is_run_or_is_a_file_that_is_applied() {
        let text = fs::read_to_string(repository().join(PAGE)).unwrap();
        let page = Page::read(&text);
        let steps = steps(&page);
        assert!(steps.len() > 10, "{steps:?}");
        for block in page.sections.iter().flat_map(|section| &section.blocks) {
            match &*block.language {
                "console" => assert!(block.lines[0].starts_with("$ "), "{block:?}"),
                "yaml" => {
                    let name = block.lines[0].trim_start_matches("# ");
                    let applied = format!("-f {name}");
                    assert!(
                        steps.iter().any(|step| step.command.contains(&applied)),
                        "{name}"
                    );
                    let file = fs::read_to_string(repository().join(name)).unwrap();
                    let shown: Vec<&str> = block.lines[1..].iter().map(|line| &**line).collect();
                    let applied: Vec<&str> =
                        file.lines().filter(|line| !line.starts_with('#')).collect();
                    assert_eq!(shown, applied, "{name}");
                }
                other => panic!("a block of {other:?} is run by nobody"),
            }
        }
        let prepared = steps
            .iter()
            .filter(|step| step.how() == How::Prepared)
            .count();
        assert_eq!(
            prepared, 3,
            "what is not run is what the end-to-end tests do themselves"
        );
    }
}
