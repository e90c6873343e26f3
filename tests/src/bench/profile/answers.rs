//! Test programs that say what is true of them, as often as they are asked.

use ckb_probe_testkit::Fixture;

use crate::bench::prelude::*;

/// What `waits` can wait in.
pub const WAITS: [&str; 5] = ["futex", "fsync", "sleep", "epoll", "pipe"];

/// A running one. It ends when it is dropped.
pub struct Program {
    /// The process of the program.
    pub process: Process,
    fixture: Fixture,
}

/// What it has answered: names, and a number after each.
pub struct Answers(String);

impl Program {
    /// Starts the one of this name, and waits until it is ready.
    pub fn start(name: &str, arguments: &[&str]) -> Result<Self> {
        let mut fixture = Fixture::named(name, arguments);
        assert_eq!(fixture.answer(), "ready");
        let process = Process::of(fixture.pid() as i32)?;
        Ok(Self { process, fixture })
    }

    /// `waits`, whose threads go through all waits; the file is synchronised.
    pub fn that_waits(threads: usize, file: &Path) -> Result<Self> {
        let file = file.display().to_string();
        Self::start("waits", &["rounds", &threads.to_string(), &file])
    }

    /// What is so by now.
    pub fn ask(&mut self) -> Answers {
        Answers(self.fixture.tell(""))
    }
}

impl Answers {
    /// The number after a name.
    pub fn number(&self, name: &str) -> Result<f64> {
        let mut words = self.0.split_whitespace();
        let number = words.find(|word| *word == name).and(words.next());
        let number = number.and_then(|number| number.parse().ok());
        number.ok_or_else(|| Failure::format("an answer")(format!("no {name:?} in {:?}", self.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_says_is_read() {
        let said = Answers("futex 1 fsync 2 interrupted 6".to_string());
        assert_eq!(said.number("futex").unwrap(), 1.0);
        assert_eq!(said.number("interrupted").unwrap(), 6.0);
        said.number("sleep").unwrap_err();
    }
}
