//! Allocates by known callers as much as it is told, with the allocator that CKB has, and says how much that was.
//!
//! It reads orders, `PATTERN THREADS MEGABYTES SECONDS`, and answers each with `done` and a line of JSON: by caller how many bytes it allocated,
//! and how many were freed by the function that frees what it allocated, in jemalloc's classes of sizes. `rocksdb FOLDER BLOCKS SECONDS` has RocksDB
//! do what it does for a CKB node, and `dump FILE` has jemalloc write its own profile of what was allocated, where it was built to.

mod callers;
mod patterns;

use std::{
    ffi::{CString, c_char, c_int},
    io::{self, BufRead, Write},
    ptr, thread,
};

use callers::{CALLERS, Told};
use patterns::Pattern;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    let mut out = io::stdout();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words[..] {
            ["rocksdb", folder, blocks, seconds] => load(folder, blocks, seconds),
            [pattern, threads, megabytes, seconds] => match Pattern::named(pattern) {
                Some(pattern) => allocate(
                    pattern,
                    threads.parse().unwrap_or(1),
                    megabytes.parse().unwrap_or(1),
                    seconds.parse().unwrap_or(0.0),
                ),
                None => "no such pattern".to_owned(),
            },
            ["dump", path] => dump(path),
            _ => String::new(),
        };
        // Whoever gives orders is gone if not.
        let _ = writeln!(out, "done {answer}").and_then(|()| out.flush());
    }
}

/// All threads together allocate so much, in so long.
fn allocate(pattern: Pattern, threads: u64, megabytes: u64, seconds: f64) -> String {
    let bytes = (megabytes << 20) / threads.max(1);
    let work = (0..threads).map(|number| {
        let named = thread::Builder::new().name(format!("allocates-{number}"));
        named.spawn(move || pattern.run(number, bytes, seconds))
    });
    let work: Vec<_> = work.collect();
    let mut all = [Told::default(); CALLERS];
    for one in work {
        if let Ok(Ok(told)) = one.map(thread::JoinHandle::join) {
            for (sum, told) in all.iter_mut().zip(told) {
                sum.allocated += told.allocated;
                sum.freed += told.freed;
            }
        }
    }
    let each = all.iter().enumerate();
    let each = each.map(|(caller, told)| {
        let Told { allocated, freed } = told;
        let name = char::from(b'a' + caller as u8);
        format!("\"{name}\": [{allocated}, {freed}]")
    });
    format!("{{{}}}", each.collect::<Vec<_>>().join(", "))
}

unsafe extern "C" {
    /// `main` of tests/workload.
    fn rocksdb_load(count: c_int, arguments: *const *const c_char) -> c_int;
}

/// RocksDB at work in a folder for so many seconds, with so many blocks a second (0: as fast as it goes). Once: it has what it uses in variables of its own.
fn load(folder: &str, blocks: &str, seconds: &str) -> String {
    let arguments = format!(
        "rocksdb_load --calls-file /dev/null --readers 3 --db {folder} --blocks-per-second {blocks} --seconds {seconds}"
    );
    let arguments = arguments.split(' ').map(CString::new);
    let arguments: Vec<CString> = arguments.map_while(Result::ok).collect();
    let mut pointers: Vec<*const c_char> = arguments.iter().map(|one| one.as_ptr()).collect();
    let count = pointers.len() as c_int;
    pointers.push(ptr::null());
    // SAFETY: as a program is given its arguments. It waits for signals that it blocks, on the only thread that there is until then.
    let status = unsafe { rocksdb_load(count, pointers.as_ptr()) };
    format!("{status}")
}

/// jemalloc's own profile.
fn dump(path: &str) -> String {
    let path = format!("{path}\0");
    let mut at = path.as_ptr();
    // SAFETY: it is a text, and that is what this takes.
    let error = unsafe {
        tikv_jemalloc_sys::mallctl(
            c"prof.dump".as_ptr(),
            ptr::null_mut(),
            ptr::null_mut(),
            (&raw mut at).cast(),
            size_of::<*const u8>(),
        )
    };
    format!("{error}")
}
