//! The functions of a process whose names match a pattern.

use std::{
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ckb_probe_bpf::Binary;
use ckb_probe_symbols::{
    Glob, GlobError,
    elf::{Budget, Found, Functions, Linkage, linkage, search_functions},
};

use super::{
    ProcessId,
    cache::FunctionCache,
    process::executable_of,
    symbols::{
        Location, SymbolsError, cached, libraries, open_executable, open_library, reader_of,
    },
    thread_time,
};
use crate::text;

/// However many are asked for, no more functions are listed.
pub const LISTED_LIMIT: usize = 512;

/// A library is looked for among so many mapped files.
const MAPPED_LIMIT: usize = 1024;

/// No more CPU time is spent on a search. CKB's takes a fiftieth.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// So many libraries are named to whoever asks for one that is not there.
const NAMED_LIBRARIES: usize = 12;

/// Which functions are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// What their names match: the name without parameters of a C++ function (`rocksdb::DBImpl::*`), the path of a Rust function
    /// without hash (`ckb_chain::verify::*`), what any other function is called, or the symbol itself. See [`Glob`].
    pub glob: String,
    /// The library they are in, by its file's name, as a whole or up to a `.` or `-` in it: `libc.so.6`, `librocksdb`.
    /// Otherwise they are in the executable.
    pub library: Option<String>,
    /// How many are to be listed, at most [`LISTED_LIMIT`].
    pub limit: usize,
}

/// A function.
#[derive(Clone, Debug)]
pub struct Function {
    /// What people call it, as far as that is known.
    pub name: String,
    /// What the linker calls it.
    pub symbol: String,
    /// Where it is.
    pub location: Location,
    /// How long it is, in bytes; 0 where that is unknown.
    pub size: u64,
    /// What else is called there: see [`Found::others`].
    pub others: Vec<String>,
}

/// What a search found: something.
#[derive(Clone, Debug)]
pub struct Matches {
    /// The functions, in order of name; none when there are more than the pattern's limit. One that has several names is there
    /// once, by the first of those that match.
    pub found: Vec<Function>,
    /// How many match.
    pub total: usize,
    /// Variants of those that match, which are not found: see [`Functions::variants`].
    pub variants: Vec<String>,
    /// What is called by such a name and is indirect, which is not found: see [`Functions::indirect`].
    pub indirect: Vec<String>,
    /// The first ten names of them, or all.
    pub sample: Vec<String>,
    /// The file has no symbol table: these are only what it exports.
    pub stripped: bool,
    /// The executable or the file is Go's. Its stacks move, and a return probe would break it.
    pub go: bool,
    /// The executable is linked statically: it uses no libraries.
    pub is_static: bool,
}

/// Why nothing was found.
#[derive(Debug, thiserror::Error)]
pub enum FunctionsError {
    /// The pattern is none.
    #[error("{glob} is no pattern: {source}")]
    Glob {
        /// What should be one.
        glob: String,
        /// What is wrong.
        source: GlobError,
    },
    /// The file cannot be searched.
    #[error(transparent)]
    Search(#[from] SymbolsError),
    /// The process does not use the library.
    #[error("{executable} has no library {library}: {}", list_libraries(.mapped, *.is_static))]
    NoLibrary {
        /// The executable's name.
        executable: String,
        /// The library asked for.
        library: String,
        /// Those that are mapped, in order.
        mapped: Vec<String>,
        /// The executable is linked statically.
        is_static: bool,
    },
    /// Nothing matches, but the names may be gone.
    #[error("{file} is stripped: its symbol table is gone, and of what it exports nothing matches {glob}{}", list_near(.near))]
    Stripped {
        /// The file's name.
        file: String,
        /// The pattern.
        glob: String,
        /// Names that have something of the pattern, at most three.
        near: Vec<String>,
    },
    /// What matches is called once, as the program begins.
    #[error(
        "in {file} {} picked for the machine as the program begins, and what is called by then has another name: name that, such as \
         *memmove_avx* for memmove, where the file's symbol table has it",
        are_indirect(.names)
    )]
    Indirect {
        /// The file's name.
        file: String,
        /// What it is called.
        names: Vec<String>,
    },
    /// Nothing matches.
    #[error("no function in {file} matches {glob}{}", list_near(.near))]
    Nothing {
        /// The file's name.
        file: String,
        /// The pattern.
        glob: String,
        /// Names that have something of the pattern, at most three.
        near: Vec<String>,
    },
}

fn list_libraries(mapped: &[String], is_static: bool) -> String {
    if is_static {
        return "it is linked statically, so what it uses is in the executable itself".to_string();
    }
    if mapped.is_empty() {
        return "it has none".to_string();
    }
    let named = mapped.len().min(NAMED_LIBRARIES);
    let more = match mapped.len() - named {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("it has {}{more}", mapped[..named].join(", "))
}

fn are_indirect(names: &[String]) -> String {
    let are = if names.len() == 1 { "is" } else { "are" };
    format!("{} {are}", names.join(", "))
}

fn list_near(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!("; there is {}", near.join(", ")),
    }
}

/// Looks for functions in the executable of a process, or in a library that it has mapped. A file that is as it was at an earlier
/// search for the same is not read again.
///
/// What is indirect (a function that picks one for the machine, as `memcpy` does), the parts of functions that are seldom run,
/// and what does not return as functions do, such as `setjmp`, is not found: there is no probing it. Variants of functions
/// (`.constprop.0`) are only found by a pattern that has a dot and matches their symbol.
pub fn find_functions(
    process: ProcessId,
    pattern: &Pattern,
    cache: &FunctionCache,
) -> Result<Matches, FunctionsError> {
    let glob = read(&pattern.glob)?;
    let mut budget = Budget::default();
    let executable = open_executable(process)?;
    let linked = linkage(&reader_of(&executable)?, &mut budget)
        .map_err(|error| SymbolsError::new(executable.path(), error))?;
    let name = executable_of(process.pid).unwrap_or_default();
    let (file, binary) = match &pattern.library {
        None => (name, executable),
        Some(library) => {
            let paths = libraries(process, MAPPED_LIMIT);
            let path = find_library(&paths, library).ok_or_else(|| FunctionsError::NoLibrary {
                library: library.clone(),
                mapped: mapped_libraries(&paths, &name),
                is_static: !linked.has_interpreter,
                executable: name,
            })?;
            (base_name(path), open_library(process, path)?)
        }
    };
    search(&glob, pattern, (file, binary), linked, cache, budget)
}

/// Looks for functions in a file that nobody need run, be it an executable or a library.
pub fn functions_of_file(path: &Path, pattern: &Pattern) -> Result<Matches, FunctionsError> {
    let glob = read(&pattern.glob)?;
    let mut budget = Budget::default();
    let binary = Binary::open(path).map_err(|error| SymbolsError::new(path, error))?;
    let linked = linkage(&reader_of(&binary)?, &mut budget)
        .map_err(|error| SymbolsError::new(path, error))?;
    let file = (base_name(path), binary);
    search(
        &glob,
        pattern,
        file,
        linked,
        &FunctionCache::default(),
        budget,
    )
}

fn read(glob: &str) -> Result<Glob, FunctionsError> {
    Glob::new(glob).map_err(|source| FunctionsError::Glob {
        glob: glob.to_owned(),
        source,
    })
}

/// Looks in a file of this name, of a program that is linked so.
fn search(
    glob: &Glob,
    pattern: &Pattern,
    (file, binary): (String, Binary),
    linked: Linkage,
    cache: &FunctionCache,
    mut budget: Budget,
) -> Result<Matches, FunctionsError> {
    let limit = pattern.limit.min(LISTED_LIMIT);
    let question = (pattern.glob.clone(), limit);
    let started = thread_time();
    let has_time = || thread_time().saturating_sub(started) < TIME_LIMIT;
    let (_, functions) = cached(&binary, &question, cache, |file| {
        search_functions(file, glob, limit, &mut budget, has_time)
    })?;
    if functions.total == 0 {
        return Err(nothing(file, pattern, functions));
    }
    let is_go = |binary: &Binary| {
        let linked = binary
            .reader()
            .map(|file| linkage(&file, &mut Budget::default()));
        linked.is_ok_and(|linked| linked.is_ok_and(|linked| linked.is_go))
    };
    Ok(Matches {
        stripped: !functions.has_symbol_table,
        go: linked.is_go || is_go(&binary),
        is_static: !linked.has_interpreter,
        total: functions.total,
        variants: functions.variants,
        indirect: functions.indirect,
        sample: functions.sample,
        found: located(functions.found, binary),
    })
}

fn located(found: Vec<Found>, binary: Binary) -> Vec<Function> {
    let binary = Arc::new(binary);
    let function = |found: Found| Function {
        name: found.name,
        symbol: found.symbol,
        size: found.size,
        others: found.others,
        location: Location {
            binary: Arc::clone(&binary),
            offset: found.place.offset,
            first_instruction: found.place.first_instruction,
        },
    };
    found.into_iter().map(function).collect()
}

fn nothing(file: String, pattern: &Pattern, functions: Functions) -> FunctionsError {
    let (glob, near) = (pattern.glob.clone(), functions.near);
    if !functions.indirect.is_empty() {
        let names = functions.indirect;
        FunctionsError::Indirect { file, names }
    } else if functions.has_symbol_table {
        FunctionsError::Nothing { file, glob, near }
    } else {
        FunctionsError::Stripped { file, glob, near }
    }
}

/// The mapped file that has the name, or else the first whose name begins with it, up to a dot or a dash: `libc` is not
/// `libcrypto.so.3`.
fn find_library<'a>(paths: &'a [PathBuf], library: &str) -> Option<&'a Path> {
    let begins = |path: &&PathBuf| {
        let name = base_name(path);
        let rest = name.strip_prefix(library);
        rest.is_some_and(|rest| rest.starts_with(['.', '-']))
    };
    let is_it = |path: &&PathBuf| base_name(path) == library;
    let found = paths.iter().find(is_it);
    found
        .or_else(|| paths.iter().find(begins))
        .map(PathBuf::as_path)
}

fn mapped_libraries(paths: &[PathBuf], executable: &str) -> Vec<String> {
    let names = paths.iter().map(|path| base_name(path));
    let mut names: Vec<String> = names.filter(|name| name != executable).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// What a mapped file is called. The kernel marks those that were replaced on disk, which cannot be opened any more.
fn base_name(path: &Path) -> String {
    text::of(path.file_name().unwrap_or_default().as_bytes())
}

#[cfg(test)]
mod tests;
