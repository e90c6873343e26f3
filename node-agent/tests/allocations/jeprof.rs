//! Held against jemalloc's own profile of the same stretch, as its `jeprof` reckons it: of a build with `profiling`, whose other functions
//! are the same. Neither knows inlined functions: the program has no debug information, as CKB has none.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use ckb_probe_profiles::{Profile, names::shorten};
use ckb_probe_testkit::{Fixture, Folder, run};

use super::{OFF, build, cache, watched};

/// How many callers are compared.
const CALLERS: usize = 10;

/// Of what `jeprof` shows of a stack, what belongs to the allocator, or to the way from a language to it.
const ALLOCATOR: &str = "^(_rjem_je_|prof_|imalloc|do_rallocx|(__rustc::)?__rust_|operator new|\
     tikv_jemallocator::|malloc$|calloc$|realloc$)";

/// Bytes that were allocated, by the function that asked for them.
type Allocated = BTreeMap<String, u64>;

/// What jemalloc was built with to have profiles, and `jeprof`, which its build makes.
struct Profiling {
    program: PathBuf,
    jeprof: PathBuf,
}

fn profiling() -> &'static Profiling {
    static PROFILING: OnceLock<Profiling> = OnceLock::new();
    PROFILING.get_or_init(|| {
        let target = cache().join("allocates-profiling");
        let program = build(&target, "profiling");
        let builds = fs::read_dir(target.join("release/build")).unwrap();
        let of_each = builds.map(|one| one.unwrap().path().join("out/build/bin/jeprof"));
        let jeprof = of_each.into_iter().find(|path| path.is_file()).unwrap();
        Profiling { program, jeprof }
    })
}

impl Profiling {
    /// A program that samples what it allocates each so many bytes at random, by the power of two.
    fn start(&self, log_of_bytes: u32) -> Fixture {
        let options =
            format!("prof:true,prof_active:true,prof_accum:true,lg_prof_sample:{log_of_bytes}");
        let mut command = Command::new(&self.program);
        let mut fixture = Fixture::run(command.env("MALLOC_CONF", options));
        assert_eq!(fixture.tell("ready"), "");
        fixture
    }

    /// What was allocated from one profile to another.
    fn between(&self, before: &Path, after: &Path) -> Allocated {
        let output = run(Command::new("perl")
            .arg(&self.jeprof)
            .args(["--text", "--show_bytes", "--alloc_space", "--exclude"])
            .arg(ALLOCATOR)
            .arg(format!("--base={}", before.display()))
            .args([&self.program, after]));
        let mut allocated = Allocated::new();
        // Its own bytes, their share, that of all so far, bytes with what it calls, their share, and its name.
        for line in String::from_utf8_lossy(&output.stdout).lines().skip(1) {
            let mut columns = line.split_whitespace();
            let bytes: u64 = columns.next().unwrap().parse().unwrap();
            let name: Vec<&str> = columns.skip(4).collect();
            *allocated.entry(plain(&name.join(" "))).or_default() += bytes;
        }
        allocated
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

/// What ckb-probe told.
fn told(profile: &Profile) -> Allocated {
    let mut allocated = Allocated::new();
    for stack in profile.stacks.iter() {
        let innermost = stack.frames.last().map_or("none", |frame| frame.name);
        *allocated.entry(plain(innermost)).or_default() += stack.weights[0];
    }
    allocated
}

fn share(of: &Allocated, name: &str) -> f64 {
    let all: u64 = of.values().sum();
    100.0 * of.get(name).copied().unwrap_or_default() as f64 / all.max(1) as f64
}

/// By how many points `jeprof` itself may be off, in 95 of 100 cases: it has a sample for each so many bytes at random. Of what is larger
/// than that it has each, and is off by less.
fn own_error(share: f64, allocated: &Allocated, log_of_bytes: u32) -> f64 {
    let samples = allocated.values().sum::<u64>() >> log_of_bytes;
    2.0 * (share * (100.0 - share) / samples.max(1) as f64).sqrt()
}

/// That the callers with most of the one have the same share of the other.
fn are_alike(order: &str, theirs: &Allocated, ours: &Allocated, log_of_bytes: u32) {
    let mut callers: Vec<(&String, &u64)> = theirs.iter().collect();
    callers.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
    let mut off = Vec::new();
    for (name, _) in callers.into_iter().take(CALLERS) {
        let (known, found) = (share(theirs, name), share(ours, name));
        let error = own_error(known, theirs, log_of_bytes);
        println!("{order}: {known:5.2} % (± {error:.2}), told {found:5.2} %  {name}");
        assert!(
            error < 1.0,
            "{order}: jeprof has too few samples of {name} to be held against: ± {error:.2} points"
        );
        if (found - known).abs() > OFF {
            off.push(format!("{name} has {known:.1} %, told {found:.1} %"));
        }
    }
    assert!(off.is_empty(), "{order}: {off:?}");
}

/// That both say the same of one stretch of a program's work.
fn is_as_jeprof_tells(order: &str, log_of_bytes: u32) {
    let folder = Folder::new();
    let [before, after] = ["before", "after"].map(|name| folder.path(name));
    let dump = |fixture: &mut Fixture, to: &Path| {
        assert_eq!(fixture.tell(&format!("dump {}", to.display())), "0");
    };
    let mut fixture = profiling().start(log_of_bytes);
    let ((), profile, summary) = watched(&mut fixture, |fixture| {
        dump(fixture, &before);
        fixture.tell(&order.replace("FOLDER", &folder.path("db").display().to_string()));
        dump(fixture, &after);
    });
    println!("{order}: {summary}");
    let (theirs, ours) = (profiling().between(&before, &after), told(&profile));
    let [known, found] = [&theirs, &ours].map(|all| all.values().sum::<u64>() as f64);
    // jeprof's sum is an estimate, too.
    let ratio = found / known;
    println!("{order}: {known} bytes, told {found}");
    assert!((0.95..1.05).contains(&ratio), "{order}: {ratio}");
    are_alike(order, &theirs, &ours, log_of_bytes);
}

#[test]
fn who_allocates_in_rocksdb_at_full_speed_is_told_as_by_jeprof() {
    // As long as jeprof has enough samples of it, on a machine that is slow or has other things to do, too.
    is_as_jeprof_tells("rocksdb FOLDER 0 12", 16);
}

#[test]
fn who_allocates_in_rocksdb_that_is_mostly_idle_is_told_as_by_jeprof() {
    is_as_jeprof_tells("rocksdb FOLDER 80 10", 13);
}

#[test]
fn who_allocates_small_blocks_or_large_ones_is_told_as_by_jeprof() {
    is_as_jeprof_tells("churn 1 1000 2", 16);
    is_as_jeprof_tells("mixed 16 1500 2", 17);
    is_as_jeprof_tells("large 2 3000 2", 17);
}

#[test]
fn who_allocates_in_bursts_or_late_is_told_as_by_jeprof() {
    is_as_jeprof_tells("bursts 16 1000 2", 16);
    is_as_jeprof_tells("late 2 1000 2", 16);
}
