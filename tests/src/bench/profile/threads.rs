//! A dump of 200 threads: what it costs, that nobody is interrupted by it, and that gdb sees the same.

use super::{answers::Program, printed};
use crate::bench::prelude::*;

const THREADS: usize = 200;

const ROWS: [Row; 4] = table! {
    "calls that were interrupted" = "interrupted" in "", Exactly(0.0);
    "CPU of the whole dump" = "cpu" in "ms", AtMost(100.0);
    "threads that gdb has stacks of" = "all" in "", AtLeast(THREADS as f64);
    "stacks that are not gdb's" = "others" in "", Exactly(0.0);
};

/// The calls of each thread, by its number, from the innermost on: a function of the fixture, or a file.
type Dump = BTreeMap<u32, Vec<String>>;

pub async fn run(bench: &mut Bench) -> Result<()> {
    let mut waits = Program::start("waits", &["hold", &THREADS.to_string()])?;
    let program = bench.settings.programs.join("ckb-probe");
    let pid = waits.process.pid.to_string();
    let mut series = Series::default();
    let mut text = String::new();
    for _ in 0..bench.settings.rounds {
        let container = Container::new(1);
        let output = command(&container, &program, ["threads", "--pid", &pid])
            .output()
            .await
            .map_err(Failure::system("ckb-probe threads"))?;
        expect(output.status.success(), "a dump", || {
            String::from_utf8_lossy(&output.stderr).into_owned()
        })?;
        series.push("cpu", container.cpu_time().as_secs_f64() * 1000.0);
        text = String::from_utf8_lossy(&output.stdout).into_owned();
    }
    series.push("interrupted", waits.ask().number("interrupted")?);
    let ours = ours(&text);
    // Only now: it stops them all, and their waits are interrupted.
    let gdbs = gdb(waits.process).await?;
    let is_other = |(thread, calls): &(&u32, &Vec<String>)| ours.get(thread) != Some(calls);
    let others: Vec<_> = gdbs.iter().filter(is_other).collect();
    for (thread, calls) in others.iter().take(3) {
        let ours = ours.get(thread);
        println!("           {thread}: gdb {calls:?}, ours {ours:?}");
    }
    series.push("all", gdbs.len() as f64);
    series.push("others", others.len() as f64);
    bench.tell(
        &format!("profile-threads: {THREADS} threads: "),
        &series,
        &ROWS,
    );
    Ok(())
}

/// Of a file that is not the fixture's own only that it is in it: what has no exported name gdb calls by the one before.
fn told(function: &str, file: &str) -> String {
    match file {
        "" | "waits" => function.to_string(),
        file => format!("[{file}]"),
    }
}

/// Of what `ckb-probe threads` prints: paragraphs of a first line, the threads' names and numbers, and their calls.
fn ours(text: &str) -> Dump {
    let mut dump = Dump::new();
    for paragraph in text.split("\n\n").skip(1) {
        let mut lines = paragraph.lines().skip(1);
        let threads = lines.next().unwrap_or_default();
        let numbers = threads
            .split(['(', ')'])
            .filter_map(|word| word.parse().ok());
        let calls = lines.filter_map(|line| {
            // Functions of the kernel have no file.
            let (function, file) = line.trim().rsplit_once("  (")?;
            Some(told(function, file.trim_end_matches(')')))
        });
        let calls: Vec<String> = calls.collect();
        dump.extend(numbers.map(|number: u32| (number, calls.clone())));
    }
    dump
}

/// The same by gdb, which knows no more than we: no debug information but the fixture's own tables.
async fn gdb(process: Process) -> Result<Dump> {
    let pid = process.pid.to_string();
    let options = [
        "-nx",
        "-batch",
        "-iex",
        "set debug-file-directory /nowhere",
        "-iex",
        "set auto-load no",
    ];
    let whole = [
        "-ex",
        "set backtrace past-main on",
        "-ex",
        "set backtrace past-entry on",
    ];
    let arguments = ["-p", &pid, "-ex", "thread apply all bt"];
    let text = printed(
        Path::new("gdb"),
        &[&options[..], &whole, &arguments].concat(),
    )
    .await?;
    Ok(of_gdb(&text))
}

/// Of `Thread 2 (Thread 0x7f… (LWP 42) "name"):`, and lines such as `#1  0x… in read () from /lib/libc.so.6`.
fn of_gdb(text: &str) -> Dump {
    let mut dump = Dump::new();
    let mut thread = None;
    for line in text.lines() {
        if let Some((_, rest)) = line
            .split_once("(LWP ")
            .filter(|_| line.starts_with("Thread "))
        {
            thread = rest
                .split(')')
                .next()
                .and_then(|number| number.parse::<u32>().ok());
        } else if let (Some(thread), true) = (thread, line.starts_with('#')) {
            let function = match line.split_once(" in ") {
                Some((_, rest)) => rest,
                None => line.split_once("  ").map_or(line, |(_, rest)| rest),
            };
            let file = function.rsplit_once(" from ").map_or("", |(_, file)| file);
            let file = file.trim().rsplit('/').next().unwrap_or_default();
            let function = function.split(" (").next().unwrap_or_default();
            dump.entry(thread).or_default().push(told(function, file));
        }
    }
    dump
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gdb_prints_and_what_we_print_of_a_thread_is_the_same() {
        let gdb = "Thread 2 (Thread 0x7f0 (LWP 42) \"held-0\"):\n\
                   #0  0x00007f in syscall () from /lib/x86_64-linux-gnu/libc.so.6\n\
                   #1  0x000055 in in_futex ()\n\
                   #2  0x000055 in hold ()\n\
                   #3  0x00007f in ?? () from /lib/x86_64-linux-gnu/libc.so.6\n";
        let ours_text = "process 41 (waits): 1 threads\n\n\
                    1 thread sleeping, waits for futex, since 3 s\n  held-0 (42)\n      \
                    futex_do_wait\n      syscall  (libc.so.6)\n      in_futex  (waits)\n      \
                    hold  (waits)\n      [libc.so.6]  (libc.so.6)\n";
        let calls = ["[libc.so.6]", "in_futex", "hold", "[libc.so.6]"].map(str::to_string);
        let expected = Dump::from([(42, calls.to_vec())]);
        assert_eq!(of_gdb(gdb), expected);
        assert_eq!(ours(ours_text), expected);
    }
}
