use std::{process::Command, sync::mpsc::RecvTimeoutError, thread, time::Duration};

use super::*;
use ckb_probe_symbols::SymbolName::{Demangled, Exact};
use ckb_probe_testkit::Folder;

fn open(path: &Path) -> Binary {
    Binary::open(path).unwrap()
}

pub(in crate::observe) fn own_process() -> ProcessId {
    let stat = procfs::process::Process::myself().unwrap().stat().unwrap();
    ProcessId {
        pid: std::process::id(),
        start_ticks: stat.starttime,
    }
}

/// Searches a file without a cache.
fn table(path: &Path, names: &[SymbolName]) -> Table {
    search(
        &open(path),
        &names.iter().copied().collect(),
        &SymbolCache::default(),
        &mut Budget::default(),
    )
    .unwrap()
    .1
}

fn offsets(table: &Table, name: SymbolName) -> Vec<u64> {
    let places = table.found.get(&name).into_iter().flatten();
    places.map(|place| place.offset).collect()
}

/// Two functions and an alias of the first.
pub(in crate::observe) const C: &str = "
int first_function(int x) { return x + 1; }
int second_function(int x) { return x * 2; }
int alias_of_first(int x) __attribute__((alias(\"first_function\")));
int main(void) { return first_function(1) + second_function(2); }
";

/// Overloads, a template, another class, a lambda in a function, a function as template argument, a clone by hand.
pub(in crate::observe) const CPP: &str = "
namespace rocksdb {
struct Status {};
struct Job {
  __attribute__((noinline)) int Run() { auto f = [](Status &) { return 1; }; Status s; return f(s); }
  __attribute__((noinline)) int Run(int x, Status *) const { return x; }
  template <class T> __attribute__((noinline)) int Run(T x) { return x; }
};
struct JobReadOnly { __attribute__((noinline)) int Run() { return 3; } };
}
template <int (rocksdb::Job::*F)()> struct Foo { __attribute__((noinline)) int Run() { return 4; } };
extern \"C\" int cold() __asm__(\"_ZN7rocksdb3Job3RunEv.cold\");
int cold() { return 5; }
int main() {
  rocksdb::Job job; rocksdb::JobReadOnly other; rocksdb::Status status; Foo<&rocksdb::Job::Run> foo;
  return job.Run() + job.Run(1, &status) + job.Run<long>(2) + other.Run() + foo.Run() + cold();
}
";

/// Compiles a source and returns the executable's path.
pub(in crate::observe) fn compile(
    folder: &Folder,
    compiler: &str,
    source: &str,
    flags: &[&str],
) -> PathBuf {
    let language = if compiler == "gcc" { "c" } else { "c++" };
    let file = folder.path("source");
    std::fs::write(&file, source).unwrap();
    let output = folder.path("executable");
    let status = Command::new(compiler)
        .args(["-O0", "-x", language, "-o"])
        .arg(&output)
        .arg(&file)
        .args(flags)
        .status()
        .unwrap();
    assert!(status.success());
    output
}

fn output(tool: &str, flags: &[&str], path: &Path) -> String {
    let output = Command::new(tool).args(flags).arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// What nm(1) says, less the load address of the segment, is what a hand would compute.
pub(in crate::observe) fn offset_by_readelf(path: &Path, name: &str) -> u64 {
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let symbols = output("nm", &["-C"], path);
    let line = symbols
        .lines()
        .find(|line| line.splitn(3, ' ').last() == Some(name))
        .unwrap();
    let address = hex(line.split_whitespace().next().unwrap());
    let segments = output("readelf", &["-lW"], path);
    let (offset, virtual_address) = segments
        .lines()
        .filter(|line| line.trim_start().starts_with("LOAD"))
        .map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            (hex(fields[1]), hex(fields[2]), hex(fields[4]))
        })
        .find(|(_, start, size)| (*start..start + size).contains(&address))
        .map(|(offset, start, _)| (offset, start))
        .unwrap();
    address - virtual_address + offset
}

#[test]
fn functions_are_found_where_nm_and_readelf_say() {
    let folder = Folder::new();
    let path = compile(&folder, "gcc", C, &[]);
    let names = ["first_function", "second_function", "third_function"].map(Exact);
    let table = table(&path, &names);
    assert!(table.has_symbol_table);
    assert_eq!(table.found.len(), 2);
    for name in ["first_function", "second_function"] {
        assert_eq!(
            offsets(&table, Exact(name)),
            [offset_by_readelf(&path, name)],
            "{name}"
        );
    }
    // The same function in two tables, under two names.
    let path = compile(&folder, "gcc", C, &["-rdynamic"]);
    let table = super::tests::table(&path, &[Exact("first_function"), Exact("alias_of_first")]);
    let first = offset_by_readelf(&path, "first_function");
    assert_eq!(offsets(&table, Exact("first_function")), [first]);
    assert_eq!(offsets(&table, Exact("alias_of_first")), [first]);
}

#[test]
fn a_cpp_name_finds_every_overload_and_nothing_else() {
    let folder = Folder::new();
    let path = compile(&folder, "g++", CPP, &[]);
    let name = Demangled("rocksdb::Job::Run");
    let found = offsets(&table(&path, &[name]), name);
    let mut expected = [
        "rocksdb::Job::Run()",
        "rocksdb::Job::Run(int, rocksdb::Status*) const",
    ]
    .map(|name| offset_by_readelf(&path, name));
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn the_first_instruction_tells_what_a_probe_costs() {
    let folder = Folder::new();
    let source = "
        __attribute__((naked)) void pushes(void) { __asm__(\"push %rbp; pop %rbp; ret\"); }
        __attribute__((naked)) void moves(void) { __asm__(\"mov (%rdi),%rdi; ret\"); }
        int main(void) { return 0; }";
    let path = compile(&folder, "gcc", source, &["-fcf-protection=none"]);
    let table = table(&path, &[Exact("pushes"), Exact("moves")]);
    let verdict = |name| table.found[&Exact(name)][0].first_instruction;
    assert_eq!(verdict("pushes"), FirstInstruction::Emulated);
    assert_eq!(verdict("moves"), FirstInstruction::SingleStepped);
}

#[test]
fn a_stripped_executable_is_told_apart_from_one_that_lacks_the_function() {
    let folder = Folder::new();
    let path = compile(&folder, "gcc", C, &["-s"]);
    assert_eq!(table(&path, &[Exact("first_function")]), Table::default());
}

#[test]
fn a_function_of_a_mapped_library_is_found_through_the_process() {
    let missing = Exact("no_such_function_anywhere");
    let names = BTreeSet::from([Exact("getpid"), missing]);
    let symbols = find_symbols(own_process(), &names, &SymbolCache::default()).unwrap();
    assert_eq!(symbols.missing, BTreeSet::from([missing]));
    let [location] = &symbols.found[&Exact("getpid")][..] else {
        panic!("{symbols:?}");
    };
    let path = location.binary.path().to_string_lossy();
    assert!(path.contains("libc"), "{location:?}");
}

/// Bytes that this thread has asked the kernel for, as the kernel counts them.
pub(in crate::observe) fn bytes_read() -> u64 {
    let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.unwrap().parse().unwrap()
}

#[test]
fn a_second_search_of_the_same_files_reads_none_of_them() {
    // This executable may have been built a moment ago.
    thread::sleep(Duration::from_millis(2100));
    let names = ["main", "getpid", "no_such_function_anywhere"];
    let names = names.map(Exact).into();
    let cache = SymbolCache::default();
    let search = || {
        let before = bytes_read();
        let symbols = find_symbols(own_process(), &names, &cache).unwrap();
        (symbols, bytes_read() - before)
    };
    let (first, cold) = search();
    let (second, cached) = search();
    assert_eq!(first.missing, second.missing);
    let offset = |symbols: &Symbols| symbols.found[&Exact("getpid")][0].offset;
    assert_eq!(offset(&first), offset(&second));
    // /proc/PID/maps is read each time. This executable's symbol table has megabytes, which are read once, although the
    // executable is also among the files that are searched for what it lacks.
    let before = bytes_read();
    table(Path::new("/proc/self/exe"), &[Exact("getpid")]);
    let own = bytes_read() - before;
    assert!((own..own * 3 / 2).contains(&cold), "{cold} of {own}");
    assert!(cached < 64 << 10, "{cached}");
}

#[test]
fn a_file_that_is_written_to_while_it_is_searched_is_refused() {
    let folder = Folder::new();
    let path = folder.path("executable");
    // Its symbol table takes longer to search than the file system's clock to move on.
    std::fs::copy("/proc/self/exe", &path).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let writer = thread::spawn(move || {
        while stopped.recv_timeout(Duration::from_millis(1)) == Err(RecvTimeoutError::Timeout) {
            file.set_modified(SystemTime::now()).unwrap();
        }
    });
    let names = BTreeSet::from([Exact("main")]);
    let (cache, mut budget) = (SymbolCache::default(), Budget::default());
    let error = super::search(&open(&path), &names, &cache, &mut budget).unwrap_err();
    drop(stop);
    writer.join().unwrap();
    let expected = format!(
        "cannot search {}: it was changed while it was read",
        path.display()
    );
    assert_eq!(error.to_string(), expected);
    assert!(super::search(&open(&path), &names, &cache, &mut budget).is_ok());
}

#[test]
fn a_changed_file_is_searched_anew() {
    let folder = Folder::new();
    let path = compile(&folder, "gcc", C, &[]);
    let names = BTreeSet::from([Exact("first_function")]);
    let cache = SymbolCache::default();
    let count = || {
        let (file, mut budget) = (open(&path), Budget::default());
        let (_, table) = super::search(&file, &names, &cache, &mut budget).unwrap();
        table.found.len()
    };
    // Not kept yet, as the file is too young; then kept; then kept no more, however alike the file looks.
    assert_eq!(count(), 1);
    thread::sleep(Duration::from_millis(2100));
    assert_eq!(count(), 1);
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    let changed = std::fs::read(&path).unwrap();
    let name = b"first_function";
    let at: Vec<usize> = (0..changed.len() - name.len())
        .filter(|at| changed[*at..].starts_with(name))
        .collect();
    let file = File::options().write(true).open(&path).unwrap();
    for at in at {
        std::os::unix::fs::FileExt::write_all_at(&file, b"fir5t", at as u64).unwrap();
    }
    file.set_modified(modified).unwrap();
    assert_eq!(count(), 0);
}

#[test]
fn a_link_out_of_the_targets_root_stays_in_it_and_a_pipe_is_refused_at_once() {
    let folder = Folder::new();
    std::fs::write(folder.path("inside"), "inside").unwrap();
    std::os::unix::fs::symlink("/inside", folder.path("link")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.path("outside")).unwrap();
    let status = Command::new("mkfifo")
        .arg(folder.path("pipe"))
        .status()
        .unwrap();
    assert!(status.success());
    let root = File::open(folder.root()).unwrap();
    assert!(Binary::open_in_root(&root, Path::new("/link")).is_ok());
    assert!(Binary::open_in_root(&root, Path::new("/outside")).is_err());
    assert!(Binary::open_in_root(&root, Path::new("/pipe")).is_err());
}

#[test]
fn mapped_files_are_those_that_are_executable_and_have_a_path() {
    let maps = "\
00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/ckb node
00651000-00652000 r--p 00051000 08:02 173521      /usr/bin/data
00e03000-00e24000 rw-p 00000000 00:00 0           [heap]
35b1800000-35b1820000 r-xp 00000000 08:02 135522  /usr/lib64/ld-2.15.so
35b1820000-35b1821000 r-xp 0001f000 08:02 135522  /usr/lib64/ld-2.15.so
7f2c00000000-7f2c00021000 r-xp 00000000 00:00 0 
ffffffffff600000-ffffffffff601000 r-xp 00000000 00:00 0 [vsyscall]
nonsense
35b1a00000-35b1bac000 r-xp 00000000 08:02 135870  /usr/lib64/libc-2.15.so (deleted)
35b1c00000-35b1d";
    let expected = [
        "/usr/bin/ckb node",
        "/usr/lib64/ld-2.15.so",
        "/usr/lib64/libc-2.15.so (deleted)",
    ];
    assert_eq!(
        mapped_files(maps.as_bytes(), LIBRARY_LIMIT),
        expected.map(PathBuf::from)
    );
    let many: String = (0..1000)
        .map(|index| format!("0-1 r-xp 0 0:0 0 /{index}\n"))
        .collect();
    assert_eq!(
        mapped_files(many.as_bytes(), LIBRARY_LIMIT).len(),
        LIBRARY_LIMIT
    );
}
