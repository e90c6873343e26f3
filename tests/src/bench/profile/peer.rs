//! The functions in which a CKB import spends its time, against what perf sees of the same imports.

use object::{Object as _, ObjectSymbol as _};
use tokio::process::Command;

use super::{Profiling, Stack, Stacks, names::plain, printed};
use crate::bench::prelude::*;

/// Asked of both: it keeps no step with anything, and no more than the kernel ticks.
pub const FREQUENCY: &str = "199";

/// So many functions are compared.
const TOP: usize = 20;

/// Until perf is at work, and until it has written what it copied.
const PERF: Duration = Duration::from_secs(60);

pub async fn run(bench: &mut Bench) -> Result<()> {
    let (mut ours, mut perfs) = (Stacks::default(), Stacks::default());
    for _ in 0..bench.settings.rounds {
        let container = Container::new(1);
        let import = Import::start(&bench.settings, &container)?;
        let process = import.process().await?;
        let options = ["--mode", "cpu", "--frequency", FREQUENCY];
        let profiling =
            Profiling::start(&bench.settings, 2, process, "ours.folded", &options).await?;
        let perf = Perf::start(&bench.settings, &["--call-graph", "dwarf,32768"]).await?;
        import.finish().await?;
        let file = perf.stop().await?;
        let found = profiling.stop().await?.stacks()?;
        ours.0.extend(found.0);
        perfs.0.extend(perf_stacks(&file, process).await?.0);
        fs::remove_file(&file).map_err(Failure::system("perf.data"))?;
    }
    for stack in ours.0.iter_mut().chain(&mut perfs.0) {
        for call in &mut stack.calls {
            *call = plain(call);
        }
    }
    let samples = ours.total();
    bench.value("profile-perf: samples, ours", samples, "", None);
    bench.value("profile-perf: samples, perf's", perfs.total(), "", None);
    let places = ["its own", "with what it calls"];
    let shares = ours.by_function().into_iter().zip(perfs.by_function());
    for (place, (ours, perfs)) in places.into_iter().zip(shares) {
        let worst = compare(place, &ours, &perfs);
        let name = format!("profile-perf: top {TOP}, share of time, {place}: off by");
        bench.value(&name, worst, "points", Some(Bound::Within(2.0)));
    }
    Ok(())
}

/// The greatest difference among the functions with the greatest shares, by either. Prints all that are worth a word.
fn compare(place: &str, ours: &BTreeMap<&str, f64>, perfs: &BTreeMap<&str, f64>) -> f64 {
    let names: BTreeSet<&str> = top(ours).chain(top(perfs)).collect();
    let of =
        |shares: &BTreeMap<&str, f64>, name: &str| shares.get(name).copied().unwrap_or_default();
    let mut worst = 0.0_f64;
    for name in names {
        let (ours, perfs) = (of(ours, name), of(perfs, name));
        if (ours - perfs).abs() > 1.0 {
            println!("           {place}: {name}: {ours:.2} %, perf {perfs:.2} %");
        }
        if (ours - perfs).abs() > worst.abs() {
            worst = ours - perfs;
        }
    }
    worst
}

/// The functions with the greatest shares.
fn top<'a>(shares: &BTreeMap<&'a str, f64>) -> impl Iterator<Item = &'a str> {
    let mut names: Vec<_> = shares.iter().map(|(name, share)| (*name, *share)).collect();
    names.sort_by(|one, other| other.1.total_cmp(&one.1));
    names.into_iter().take(TOP).map(|(name, _)| name)
}

/// `perf record` of the whole machine: a timer on each processor that is there all the time. One for each thread would cost each
/// switch between threads, and not see what it costs.
pub struct Perf {
    child: Child,
    file: PathBuf,
}

impl Perf {
    /// Begins, with call chains of this kind.
    pub async fn start(settings: &Settings, options: &[&str]) -> Result<Self> {
        Self::begin(settings, FREQUENCY, options).await
    }

    /// The same, so many times a second.
    pub async fn begin(settings: &Settings, frequency: &str, options: &[&str]) -> Result<Self> {
        let file = in_folder(settings, "perf.data")?;
        let mut command = Command::new("perf");
        command
            .args(["record", "-q", "-e", "cpu-clock", "-F", frequency, "-a"])
            .args(options)
            .arg("-o")
            .arg(&file);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(Failure::system("perf"))?;
        let process = of(&child)?;
        wait::closely("perf to begin", PERF, async || {
            let folder = PathBuf::from(format!("/proc/{}/fd", process.pid));
            let open = fs::read_dir(&folder).map_err(Failure::system("perf"))?;
            let is_event = |path: PathBuf| path.to_string_lossy().contains("perf_event");
            let events = open
                .flatten()
                .filter_map(|entry| fs::read_link(entry.path()).ok())
                .filter(|path| is_event(path.clone()));
            expect(events.count() > 0, "events", || "none")
        })
        .await?;
        Ok(Self { child, file })
    }

    /// Has it end, and returns what it wrote.
    pub async fn stop(mut self) -> Result<PathBuf> {
        of(&self.child)?.signal(Signal::INT)?;
        let ended = timeout(PERF, self.child.wait()).await;
        expect(ended.is_ok(), "perf to end", || "it does not")?;
        Ok(self.file)
    }
}

/// What perf saw of a process, unwound by perf. Functions of libraries that have no name without debug information are called by
/// their file, as we do.
pub async fn perf_stacks(file: &Path, process: Process) -> Result<Stacks> {
    let (path, pid) = (file.display().to_string(), process.pid.to_string());
    let fields = ["-F", "comm,tid,ip,sym,dso", "--max-stack", "1024"];
    let arguments = ["script", "-i", &path, "--no-inline", "--pid", &pid];
    let text = printed(Path::new("perf"), &[&arguments[..], &fields].concat()).await?;
    let mut exported = Exported::default();
    let mut stacks = Stacks::default();
    for sample in text
        .split("\n\n")
        .filter(|sample| !sample.trim().is_empty())
    {
        let mut lines = sample.trim_matches('\n').lines();
        let head = lines.next().unwrap_or_default().trim_end();
        let thread = head.rsplit_once(' ').map_or(head, |(name, _)| name.trim());
        let mut calls: Vec<String> = lines.filter_map(|line| call(line, &mut exported)).collect();
        calls.reverse();
        stacks.0.push(Stack {
            thread: thread.to_string(),
            calls,
            weight: 1.0,
        });
    }
    expect(!stacks.0.is_empty(), "samples of perf", || "none")?;
    Ok(stacks)
}

/// Of a line such as `  7f1 malloc (/lib/libc.so.6)`.
fn call(line: &str, exported: &mut Exported) -> Option<String> {
    let (_, rest) = line.trim().split_once(' ')?;
    let (symbol, file) = rest.rsplit_once(" (")?;
    let file = file.trim_end_matches(')');
    let base = file.rsplit('/').next().unwrap_or(file);
    let unnamed = symbol == "[unknown]"
        || symbol.ends_with("@plt")
        || (base.contains(".so") && !exported.has(file, symbol));
    Some(match unnamed {
        true => format!("[{base}]"),
        false => symbol.to_string(),
    })
}

/// The functions that libraries name to others.
#[derive(Default)]
struct Exported(BTreeMap<String, BTreeSet<String>>);

impl Exported {
    fn has(&mut self, file: &str, symbol: &str) -> bool {
        let names = self.0.entry(file.to_string()).or_insert_with(|| {
            let bytes = fs::read(file).unwrap_or_default();
            let Ok(parsed) = object::File::parse(&bytes[..]) else {
                return BTreeSet::new();
            };
            let symbols = parsed.symbols().chain(parsed.dynamic_symbols());
            symbols
                .filter(|symbol| symbol.is_definition())
                .filter_map(|symbol| symbol.name().ok().map(str::to_string))
                .collect()
        });
        let name = symbol.split_once("@@").map_or(symbol, |(name, _)| name);
        // Demangled ones are taken for what they are called.
        names.contains(name) || name.contains("::")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_perf_is_a_function_or_its_file() {
        let call = |line| call(line, &mut Exported::default());
        let of = |name: &str| Some(name.to_string());
        let line = "  21e1 rocksdb::DB::Get(int (*)()) (/bin/ckb)";
        assert_eq!(call(line), of("rocksdb::DB::Get(int (*)())"));
        assert_eq!(call("  7f12 [unknown] (/lib/libc.so.6)"), of("[libc.so.6]"));
        assert_eq!(
            call("  7f12 __hidden (/nowhere/libc.so.6)"),
            of("[libc.so.6]")
        );
        assert_eq!(call("  7f12 free@plt (/bin/ckb)"), of("[ckb]"));
    }

    #[test]
    fn the_greatest_difference_is_told_also_of_what_one_of_both_never_saw() {
        let ours = BTreeMap::from([("a", 50.0), ("b", 3.0)]);
        let perfs = BTreeMap::from([("a", 51.0)]);
        assert_eq!(compare("", &ours, &perfs), 3.0);
    }
}
