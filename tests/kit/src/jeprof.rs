//! What `jeprof` says of jemalloc's own profiles of a program that was built with `profiling`, to hold against what ckb-probe tells of it.
//! Neither knows inlined functions, where a program has no debug information.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use ckb_probe_profiles::{Profile, names::shorten};

use crate::run;

/// How many callers are compared.
const CALLERS: usize = 10;

/// Of what `jeprof` shows of a stack, what belongs to the allocator, or to the way from a language to it.
const ALLOCATOR: &str = "^(_rjem_je_|prof_|imalloc|do_rallocx|(__rustc::)?__rust_|operator new|\
     tikv_jemallocator::|malloc$|calloc$|realloc$)";

/// Bytes that were allocated, by the function that asked for them.
#[derive(Clone, Debug, Default)]
pub struct Allocated(BTreeMap<String, u64>);

/// A caller in both.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Its name, without what only one of both says.
    pub name: String,
    /// Its share by `jeprof`, in percent.
    pub known: f64,
    /// By how many points `jeprof` itself may be off, in 95 of 100 cases.
    pub error: f64,
    /// Its share as it was told.
    pub told: f64,
}

impl Caller {
    /// By how many points it is told otherwise.
    pub fn off(&self) -> f64 {
        self.told - self.known
    }
}

/// `jeprof`, and a program that it reads the profiles of.
#[derive(Clone, Debug)]
pub struct Jeprof {
    /// A script, in Perl.
    pub script: PathBuf,
    /// The program, for its names.
    pub program: PathBuf,
}

impl Jeprof {
    /// The one that was made as a program's jemalloc was compiled, in this folder of cargo's.
    ///
    /// # Panics
    /// When there is none.
    pub fn built_in(profile: &Path, program: PathBuf) -> Self {
        let builds = fs::read_dir(profile.join("build")).unwrap();
        let of_each = builds.map(|one| one.unwrap().path().join("out/build/bin/jeprof"));
        let script = of_each.into_iter().find(|path| path.is_file()).unwrap();
        Self { script, program }
    }

    /// What was allocated from one profile to another, or until that from the beginning on.
    pub fn between(&self, before: Option<&Path>, after: &Path) -> Allocated {
        let base = before.map(|before| format!("--base={}", before.display()));
        let output = run(Command::new("perl")
            .arg(&self.script)
            .args(["--text", "--show_bytes", "--alloc_space", "--exclude"])
            .arg(ALLOCATOR)
            .args(base)
            .args([&self.program, after]));
        Allocated::said(&String::from_utf8_lossy(&output.stdout))
    }
}

impl Allocated {
    /// What a listing says: after its first line, bytes of each function's own, their share, that of all so far, bytes with what it calls,
    /// their share, and its name.
    fn said(listing: &str) -> Self {
        let mut allocated = Self::default();
        for line in listing.lines().skip(1) {
            let mut columns = line.split_whitespace();
            let bytes = columns.next().unwrap().parse().unwrap();
            let name: Vec<&str> = columns.skip(4).collect();
            allocated.add(&name.join(" "), bytes);
        }
        allocated
    }

    /// What ckb-probe told.
    pub fn told(profile: &Profile) -> Self {
        let mut allocated = Self::default();
        for stack in profile.stacks.iter() {
            let innermost = stack.frames.last().map_or("none", |frame| frame.name);
            allocated.add(innermost, stack.weights[0]);
        }
        allocated
    }

    fn add(&mut self, name: &str, bytes: u64) {
        *self.0.entry(plain(name)).or_default() += bytes;
    }

    /// All bytes.
    pub fn bytes(&self) -> u64 {
        self.0.values().sum()
    }

    /// A caller's share, in percent.
    pub fn share(&self, name: &str) -> f64 {
        100.0 * self.0.get(name).copied().unwrap_or_default() as f64 / self.bytes().max(1) as f64
    }

    /// By how many points `jeprof` may be off of a share: it has a sample for each so many bytes at random, by their power of two. Of what is
    /// larger than that it has each, and is off by less.
    fn error(&self, share: f64, log_of_bytes: u32) -> f64 {
        let samples = self.bytes() >> log_of_bytes;
        2.0 * (share * (100.0 - share) / samples.max(1) as f64).sqrt()
    }

    /// Functions whose type it does not have: what stands in angle brackets `jeprof` takes for arguments of a template, be it all that is before
    /// the function's own name.
    fn without_type(&self) -> BTreeSet<&str> {
        let names = self.0.keys();
        names.filter_map(|name| name.strip_prefix("::")).collect()
    }

    /// The same, where all functions of these names are one each.
    fn with_one(&self, without_type: &BTreeSet<&str>) -> Self {
        let mut allocated = Self::default();
        for (name, bytes) in &self.0 {
            let own = name.rsplit("::").next().unwrap_or(name);
            let name = match without_type.get(own) {
                Some(own) => format!("::{own}"),
                None => name.clone(),
            };
            *allocated.0.entry(name).or_default() += bytes;
        }
        allocated
    }

    /// The callers with most, and what was told of them. A sample of `jeprof` stands for so many bytes.
    pub fn beside(&self, told: &Self, log_of_bytes: u32) -> Vec<Caller> {
        let without_type = self.without_type();
        let [known, told] = [self, told].map(|one| one.with_one(&without_type));
        known.compared(&told, log_of_bytes)
    }

    fn compared(&self, told: &Self, log_of_bytes: u32) -> Vec<Caller> {
        let mut callers: Vec<(&String, &u64)> = self.0.iter().collect();
        callers.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
        let caller = |(name, _): (&String, _)| {
            let known = self.share(name);
            Caller {
                name: name.clone(),
                known,
                error: self.error(known, log_of_bytes),
                told: told.share(name),
            }
        };
        callers.into_iter().take(CALLERS).map(caller).collect()
    }
}

/// A name without what one of the two leaves out: arguments of templates, which of several functions of that name it is, unnamed
/// namespaces, and what the compiler made of it.
fn plain(name: &str) -> String {
    let mut depth = 0_usize;
    let mut outside = String::new();
    for letter in shorten(name).chars() {
        match letter {
            '<' | '(' => depth += 1,
            '>' | ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => outside.push(letter),
            _ => {}
        }
    }
    let ends = ["@", ".isra.", ".part.", ".constprop.", ".cold"];
    let end = ends.iter().filter_map(|end| outside.find(end)).min();
    let known = &outside[..end.unwrap_or(outside.len())];
    let spelt = known.replace("::::", "::");
    spelt.replace("std::basic_string", "std::string")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_whose_type_one_of_both_leaves_out_is_all_of_its_name() {
        let theirs = Allocated::said(
            "Total:\n 60 0% 0% 60 0% ::grow\n 30 0% 0% 30 0% a::B::grow\n 10 0% 0% 10 0% c::f\n",
        );
        let ours = Allocated::said("Total:\n 90 0% 0% 90 0% a::B::grow\n 10 0% 0% 10 0% c::f\n");
        let told = theirs.beside(&ours, 0);
        let told: Vec<_> = told
            .iter()
            .map(|one| (&*one.name, one.known, one.told))
            .collect();
        assert_eq!(told, [("::grow", 90.0, 90.0), ("c::f", 10.0, 10.0)]);
    }

    #[test]
    fn callers_of_two_listings_are_held_against_each_other() {
        let theirs = Allocated::said(
            "Total: 1000 B\n 600 60.0% 60.0% 700 70.0% rocksdb::Arena::Allocate<int>(int)\n 400 40.0% 100.0% 400 40.0% main\n",
        );
        let ours = Allocated::said(
            "Total:\n 50 50.0% 50.0% 50 50.0% rocksdb::Arena::Allocate\n 50 50% 100% 50 50% other\n",
        );
        let callers = theirs.beside(&ours, 0);
        let told = |caller: &Caller| (caller.name.clone(), caller.known, caller.told);
        let told: Vec<_> = callers.iter().map(told).collect();
        assert_eq!(
            told,
            [
                ("rocksdb::Arena::Allocate".to_string(), 60.0, 50.0),
                ("main".to_string(), 40.0, 0.0)
            ]
        );
        assert_eq!(callers[0].off(), -10.0);
        // 1,000 samples: the square root of 60 times 40 thousandths, twice.
        assert!((callers[0].error - 3.098).abs() < 0.001);
    }
}
