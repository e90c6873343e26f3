use std::{
    io::Read,
    process::{Child, Command, Stdio},
    thread,
};

use ckb_probe_testkit::Folder;

use super::*;
use crate::observe::symbols::tests::{C, CPP, bytes_read, compile, offset_by_readelf, own_process};

fn pattern(glob: &str) -> Pattern {
    Pattern {
        glob: glob.to_string(),
        library: None,
        limit: 50,
    }
}

fn find(process: ProcessId, pattern: &Pattern) -> Result<Matches, FunctionsError> {
    find_functions(process, pattern, &FunctionCache::default())
}

/// A process of a program that was compiled for the test, which waits for its end.
struct Program {
    path: PathBuf,
    process: Child,
    // It goes last.
    _folder: Folder,
}

/// Comes before the source of a program.
const WAIT: &str = "
#include <stdio.h>
__attribute__((constructor)) static void waits(void) { puts(\"up\"); fflush(stdout); getchar(); }
";

impl Program {
    fn of(compiler: &str, source: &str, flags: &[&str]) -> Self {
        let folder = Folder::new();
        let path = compile(&folder, compiler, &format!("{WAIT}{source}"), flags);
        let mut program = Command::new(&path);
        let program = program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = program.spawn().unwrap();
        // By then its libraries are mapped.
        let said = process.stdout.as_mut().unwrap();
        said.read_exact(&mut [0]).unwrap();
        Self {
            path,
            process,
            _folder: folder,
        }
    }

    fn id(&self) -> ProcessId {
        ProcessId {
            pid: self.process.id(),
            start_ticks: 0,
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn names(matches: &Matches) -> Vec<&str> {
    let names = matches.found.iter().map(|function| function.name.as_str());
    names.collect()
}

#[test]
fn functions_of_a_rust_program_are_found_by_their_paths() {
    let glob = "ckb_probe_agent::observe::functions::find_functions";
    let found = find(own_process(), &pattern(glob)).unwrap();
    assert_eq!(names(&found), [glob]);
    assert_eq!(found.sample, [glob]);
    assert_eq!(found.total, 1);
    assert!(!found.stripped && !found.go && !found.is_static);
    let function = &found.found[0];
    assert!(function.size > 100, "{function:?}");
    let anywhere = find(own_process(), &pattern("*find_functions*")).unwrap();
    assert!(names(&anywhere).contains(&glob));
}

#[test]
fn functions_of_a_cpp_program_are_found_where_readelf_says() {
    let program = Program::of("g++", CPP, &[]);
    let found = find(program.id(), &pattern("rocksdb::Job::R*")).unwrap();
    // The lambda is a function in a function.
    let run = "rocksdb::Job::Run";
    let lambda = "rocksdb::Job::Run()::{lambda(rocksdb::Status&)#1}::operator()";
    assert_eq!(names(&found), [run, run, lambda, "rocksdb::Job::Run<long>"]);
    let mut overloads = [
        "rocksdb::Job::Run()",
        "rocksdb::Job::Run(int, rocksdb::Status*) const",
    ]
    .map(|name| offset_by_readelf(&program.path, name));
    overloads.sort_unstable();
    let mut offsets = [0, 1].map(|index| found.found[index].location.offset);
    offsets.sort_unstable();
    assert_eq!(offsets, overloads);
    let exact = find(program.id(), &pattern("rocksdb::Job::Run")).unwrap();
    assert_eq!(names(&exact), [run, run]);
}

#[test]
fn what_is_not_there_is_told_with_what_comes_near() {
    let program = Program::of("gcc", C, &[]);
    let error = |glob| find(program.id(), &pattern(glob)).unwrap_err().to_string();
    assert_eq!(
        error("no_such_*"),
        "no function in executable matches no_such_*"
    );
    assert_eq!(
        error("first::*_function"),
        "no function in executable matches first::*_function; there is first_function, second_function, alias_of_first"
    );
    assert_eq!(
        error("first["),
        "first[ is no pattern: a [ in it has no ] (a [ itself is written [[])"
    );
    // One of two names.
    assert_eq!(
        names(&find(program.id(), &pattern("*first*")).unwrap()),
        ["alias_of_first"]
    );
}

#[test]
fn a_stripped_program_has_what_it_exports() {
    let program = Program::of("gcc", C, &["-s", "-rdynamic"]);
    let found = find(program.id(), &pattern("second_*")).unwrap();
    assert_eq!(names(&found), ["second_function"]);
    assert!(found.stripped);
    let error = find(program.id(), &pattern("waits")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "executable is stripped: its symbol table is gone, and of what it exports nothing matches waits"
    );
}

#[test]
fn a_static_program_has_no_libraries() {
    let program = Program::of("gcc", C, &["-static"]);
    let found = find(program.id(), &pattern("first_function")).unwrap();
    assert!(found.is_static && !found.stripped && !found.go);
    assert!(find(program.id(), &pattern("puts")).is_ok());
    // It is indirect: its variants are functions.
    let said = "in executable memmove is picked for the machine as the program begins, and what is called by then has another name: name \
                that, such as *memmove_avx* for memmove, where the file's symbol table has it";
    let refused = find(program.id(), &pattern("memmove"));
    assert_eq!(refused.unwrap_err().to_string(), said);
    let found = find(program.id(), &pattern("*memmove*")).unwrap();
    assert!(found.indirect.contains(&"memmove".to_string()));
    assert!(found.found.iter().all(|one| one.name != "memmove"));
    let library = Pattern {
        library: Some("libc.so.6".to_string()),
        ..pattern("puts")
    };
    assert_eq!(
        find(program.id(), &library).unwrap_err().to_string(),
        "executable has no library libc.so.6: it is linked statically, so what it uses is in the executable itself"
    );
}

#[test]
fn functions_of_a_mapped_library_are_found_in_it_alone() {
    let program = Program::of("gcc", C, &[]);
    let of = |library: &str, glob| {
        let library = Some(library.to_string());
        let pattern = Pattern {
            library,
            ..pattern(glob)
        };
        find(program.id(), &pattern)
    };
    for library in ["libc.so.6", "libc"] {
        let found = of(library, "getpi[de]").unwrap();
        assert_eq!(names(&found), ["getpid"]);
        let path = found.found[0].location.binary.path();
        assert!(path.ends_with("libc.so.6"), "{path:?}");
    }
    assert!(of("libc", "first_function").is_err());
    let error = of("libroc", "*").unwrap_err().to_string();
    assert_eq!(
        error,
        "executable has no library libroc: it has ld-linux-x86-64.so.2, libc.so.6"
    );
}

#[test]
fn a_library_is_named_as_a_whole_or_up_to_a_dot_or_dash() {
    let paths = [
        "/a/libcrypto.so.3",
        "/a/libc-2.31.so",
        "/b/libc.so.6",
        "/b/libc",
    ]
    .map(PathBuf::from);
    let found = |library| find_library(&paths, library).and_then(Path::to_str);
    assert_eq!(found("libc"), Some("/b/libc"));
    assert_eq!(found("libc.so.6"), Some("/b/libc.so.6"));
    assert_eq!(found("libc.so"), Some("/b/libc.so.6"));
    assert_eq!(found("libcrypt"), None);
    assert_eq!(found("libcrypto"), Some("/a/libcrypto.so.3"));
    assert_eq!(find_library(&paths[..3], "libc"), Some(paths[1].as_path()));
    assert_eq!(
        mapped_libraries(&paths, "libc"),
        ["libc-2.31.so", "libc.so.6", "libcrypto.so.3"]
    );
    let many: Vec<String> = (0..14).map(|number| format!("l{number}")).collect();
    assert_eq!(
        list_libraries(&many, false),
        "it has l0, l1, l2, l3, l4, l5, l6, l7, l8, l9, l10, l11 and 2 more"
    );
    assert_eq!(list_libraries(&[], false), "it has none");
}

#[test]
fn more_than_the_limit_is_counted_and_a_second_search_reads_nothing() {
    // This executable may have been built a moment ago.
    thread::sleep(Duration::from_millis(2100));
    let cache = FunctionCache::default();
    let pattern = pattern("ckb_probe_agent::*");
    let search = || {
        let before = bytes_read();
        let found = find_functions(own_process(), &pattern, &cache).unwrap();
        (found, bytes_read() - before)
    };
    let (first, cold) = search();
    let (second, cached) = search();
    assert!(first.total > 50, "{}", first.total);
    assert_eq!(names(&first), <[&str; 0]>::default());
    assert_eq!(first.sample.len(), 10);
    assert_eq!((first.total, first.sample), (second.total, second.sample));
    assert!(cold > 1 << 20, "{cold}");
    assert!(cached < 64 << 10, "{cached}");
}
