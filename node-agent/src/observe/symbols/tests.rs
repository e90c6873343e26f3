use std::process::Command;

use super::*;

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| name.to_string()).collect()
}

fn open(path: &Path) -> Binary {
    Binary::open(path).unwrap()
}

/// Compiles a C source into an executable of two functions and returns its path.
fn compile(directory: &Path, flags: &[&str]) -> PathBuf {
    let source = directory.join("two.c");
    std::fs::write(
        &source,
        "int first_function(int x) { return x + 1; }\n\
         int second_function(int x) { return x * 2; }\n\
         int main(void) { return first_function(1) + second_function(2); }\n",
    )
    .unwrap();
    let output = directory.join("two");
    let status = Command::new("gcc")
        .args(["-O0", "-o"])
        .arg(&output)
        .arg(&source)
        .args(flags)
        .status()
        .unwrap();
    assert!(status.success());
    output
}

fn scratch(name: &str) -> PathBuf {
    let directory =
        std::env::temp_dir().join(format!("ckb-probe-symbols-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// What nm(1) says, less the load address of the segment, is what a hand would compute.
fn offset_by_readelf(path: &Path, name: &str) -> u64 {
    let run = |tool: &str, flags: &[&str]| {
        let output = Command::new(tool).args(flags).arg(path).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let symbols = run("nm", &[]);
    let line = symbols
        .lines()
        .find(|line| line.ends_with(&format!(" {name}")))
        .unwrap();
    let address = hex(line.split_whitespace().next().unwrap());
    let segments = run("readelf", &["-lW"]);
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
    let directory = scratch("found");
    let path = compile(&directory, &[]);
    let table = search(
        &open(&path),
        &names(&["first_function", "second_function", "third_function"]),
    )
    .unwrap();
    assert!(table.has_symbol_table);
    assert_eq!(table.offsets.len(), 2);
    for name in ["first_function", "second_function"] {
        assert_eq!(
            table.offsets[name],
            offset_by_readelf(&path, name),
            "{name}"
        );
    }
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_stripped_executable_is_told_apart_from_one_that_lacks_the_function() {
    let directory = scratch("stripped");
    let path = compile(&directory, &["-s"]);
    let table = search(&open(&path), &names(&["first_function"])).unwrap();
    assert!(!table.has_symbol_table);
    assert_eq!(table.offsets.len(), 0);
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_file_cut_anywhere_is_an_error_or_a_smaller_table_but_no_panic() {
    let directory = scratch("cut");
    let path = compile(&directory, &[]);
    let whole = std::fs::read(&path).unwrap();
    let cut = directory.join("cut");
    for length in (0..whole.len()).step_by(97) {
        std::fs::write(&cut, &whole[..length]).unwrap();
        if let Ok(table) = search(&open(&cut), &names(&["first_function"])) {
            assert!(table.offsets.len() <= 1);
        }
    }
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_table_that_claims_more_than_the_file_holds_is_refused() {
    let directory = scratch("huge");
    let path = compile(&directory, &[]);
    let mut bytes = std::fs::read(&path).unwrap();
    let sections = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    let count = u16::from_le_bytes(bytes[60..62].try_into().unwrap()) as usize;
    for section in (0..count).map(|index| sections + index * 64) {
        let kind = u32::from_le_bytes(bytes[section + 4..section + 8].try_into().unwrap());
        if kind == elf::SHT_SYMTAB.0 {
            bytes[section + 32..section + 40].copy_from_slice(&(1u64 << 40).to_le_bytes());
        }
    }
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(
        search(&open(&path), &names(&["first_function"])),
        Err(SymbolsError::Format { .. })
    ));
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_function_of_a_mapped_library_is_found_through_the_process() {
    let stat = ProcProcess::myself().unwrap().stat().unwrap();
    let own = ProcessId {
        pid: std::process::id(),
        start_ticks: stat.starttime,
    };
    let symbols = find_symbols(own, &names(&["getpid", "no_such_function_anywhere"])).unwrap();
    assert_eq!(symbols.missing, names(&["no_such_function_anywhere"]));
    let location = &symbols.found["getpid"];
    let path = location.binary.path().to_string_lossy();
    assert!(path.contains("libc"), "{location:?}");
}

#[test]
fn a_link_out_of_the_targets_root_stays_in_it_and_a_pipe_is_refused_at_once() {
    let directory = scratch("root");
    std::fs::write(directory.join("inside"), "inside").unwrap();
    std::os::unix::fs::symlink("/inside", directory.join("link")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", directory.join("outside")).unwrap();
    let status = Command::new("mkfifo")
        .arg(directory.join("pipe"))
        .status()
        .unwrap();
    assert!(status.success());
    let root = File::open(&directory).unwrap();
    assert!(Binary::open_in_root(&root, Path::new("/link")).is_ok());
    assert!(Binary::open_in_root(&root, Path::new("/outside")).is_err());
    assert!(Binary::open_in_root(&root, Path::new("/pipe")).is_err());
    std::fs::remove_dir_all(directory).unwrap();
}
