//! What both programs have: a store, in the one column family that a database has which is opened with no other; orders; and answers.
//!
//! An order is `DO TIMES`. Each is answered with `done` and how many bytes went in and out: keys and values that were written, values that
//! were read.

use std::{
    env,
    io::{self, BufRead, Write},
    path::PathBuf,
    process,
};

use ckb_rocksdb::{DB, Direction, Error, IteratorMode, Options, WriteBatch, prelude::*};

/// Bytes of each value.
const VALUE: [u8; 100] = [7; 100];

/// What is done with one key, and how many bytes that was.
pub type Deed = fn(&Store, &str) -> Result<usize, Error>;

/// A database.
pub struct Store {
    db: DB,
    folder: PathBuf,
}

/// Each is a function of its own: what a program does not do, its linker leaves out, as it does of the real ones.
impl Store {
    /// An empty one, which goes with the process.
    pub fn open(options: &Options) -> Result<Self, Error> {
        let folder = env::temp_dir().join(format!("binding-{}", process::id()));
        let db = DB::open(options, &folder)?;
        Ok(Self { db, folder })
    }

    pub fn put(&self, key: &str) -> Result<usize, Error> {
        self.db.put(key, VALUE)?;
        Ok(key.len() + VALUE.len())
    }

    pub fn get(&self, key: &str) -> Result<usize, Error> {
        Ok(self.db.get(key)?.map_or(0, |found| found.len()))
    }

    pub fn get_nothing(&self, key: &str) -> Result<usize, Error> {
        self.get(&format!("{key}-none"))
    }

    pub fn get_pinned(&self, key: &str) -> Result<usize, Error> {
        Ok(self.db.get_pinned(key)?.map_or(0, |found| found.len()))
    }

    pub fn delete(&self, key: &str) -> Result<usize, Error> {
        self.db.delete(key)?;
        Ok(key.len())
    }

    pub fn write_batch(&self, key: &str) -> Result<usize, Error> {
        let mut batch = WriteBatch::default();
        batch.put(key, VALUE)?;
        batch.delete(format!("{key}-none"))?;
        self.db.write(&batch)?;
        Ok(0)
    }

    pub fn iterate(&self, key: &str) -> Result<usize, Error> {
        let mode = IteratorMode::From(key.as_bytes(), Direction::Forward);
        let first = self.db.iterator(mode).next();
        assert!(first.is_some_and(|(found, _)| *found == *key.as_bytes()));
        Ok(0)
    }

    /// Does what is ordered, line by line, until there is no more.
    pub fn obey(self, deeds: &[(&str, Deed)]) {
        let mut out = io::stdout();
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let answer = self.carry_out(&line, deeds);
            // Whoever gives orders is gone if not.
            let _ = writeln!(out, "done {answer}").and_then(|()| out.flush());
        }
        let Self { db, folder } = self;
        drop(db);
        let _ = DB::destroy(&Options::default(), folder);
    }

    fn carry_out(&self, line: &str, deeds: &[(&str, Deed)]) -> String {
        // Once its libraries are mapped, it answers.
        if line == "ready" {
            return String::new();
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let [order, times] = words[..] else {
            return "no order".to_owned();
        };
        let Some((_, deed)) = deeds.iter().find(|(name, _)| *name == order) else {
            return "no such order".to_owned();
        };
        let keys = (0..times.parse().unwrap_or(0)).map(|number: u32| format!("key-{number:06}"));
        let bytes: Result<Vec<usize>, Error> = keys.map(|key| deed(self, &key)).collect();
        bytes.map_or_else(
            |error| error.to_string(),
            |all| all.iter().sum::<usize>().to_string(),
        )
    }
}
