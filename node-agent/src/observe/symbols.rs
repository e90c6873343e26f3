//! Where functions are in the files that a process has mapped, in its own mount namespace.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::File,
    io::{BufRead, BufReader, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use ckb_probe_bpf::Binary;
use ckb_probe_symbols::{
    FirstInstruction, Machine, SymbolName,
    elf::{self, Budget, SearchError, Table},
};

use super::{
    ProcessId,
    cache::{Cache, FileState, Known, SymbolCache},
    survivor::directory,
};
use crate::text;

/// At most so many mapped libraries are searched.
pub(super) const LIBRARY_LIMIT: usize = 64;

/// No more is read of the list of what a process has mapped, which may be hundreds of megabytes.
pub(super) const MAPS_LIMIT: u64 = 4 << 20;

/// Where a function is.
#[derive(Clone, Debug)]
pub struct Location {
    /// The file.
    pub binary: Arc<Binary>,
    /// The function's offset in the file, in bytes.
    pub offset: u64,
    /// How the kernel gets over a probe there.
    pub first_instruction: FirstInstruction,
}

impl Location {
    /// Whether it is not measured unless that is asked for, since it is single-stepped: on machines where what most functions begin with
    /// is not, and there is something cheaper to be measured instead.
    pub fn is_left_out(&self, include_single_stepped: bool) -> bool {
        self.first_instruction == FirstInstruction::SingleStepped
            && !include_single_stepped
            && FirstInstruction::is_often_emulated(Machine::NATIVE)
    }
}

/// What a search found.
///
/// Two names may have an offset in common: linkers fold functions of the same code into one. Its calls cannot be told apart.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// The functions that are there, in order of offset: one of an exact name (or several that are local to their sources), and
    /// every overload of a demangled one. A function that has several symbols of one name is there once.
    pub found: BTreeMap<SymbolName, Vec<Location>>,
    /// The names that no file of the process has.
    pub missing: BTreeSet<SymbolName>,
    /// The executable has no symbol table: strip(1) took it.
    pub stripped: bool,
}

/// The executable cannot be searched. (A library that cannot is skipped.)
#[derive(Debug, thiserror::Error)]
#[error("cannot search {}: {source}", text::of_path(.path))]
pub struct SymbolsError {
    /// The file that cannot be searched.
    path: PathBuf,
    /// Why not.
    source: Arc<SearchError>,
}

impl SymbolsError {
    pub(super) fn new(path: &Path, source: impl Into<SearchError>) -> Self {
        Self {
            path: path.to_path_buf(),
            source: Arc::new(source.into()),
        }
    }
}

/// Looks for functions: in the executable first, and for what it lacks in the libraries that the process has mapped. Files
/// that are as they were at an earlier search are not read again.
pub fn find_symbols(
    process: ProcessId,
    names: &BTreeSet<SymbolName>,
    cache: &SymbolCache,
) -> Result<Symbols, SymbolsError> {
    let mut budget = Budget::default();
    let executable = open_executable(process)?;
    let (state, table) = search(&executable, names, cache, &mut budget)?;
    let mut symbols = Symbols {
        stripped: !table.has_symbol_table,
        missing: names.clone(),
        ..Symbols::default()
    };
    symbols.take(executable, table);
    // The executable is mapped too.
    let mut searched = vec![state];
    for path in libraries(process, LIBRARY_LIMIT) {
        if symbols.missing.is_empty() {
            break;
        }
        let found = open_library(process, &path).and_then(|library| {
            if searched.contains(&state_of(&library)?) {
                return Ok(None);
            }
            let (state, table) = search(&library, &symbols.missing, cache, &mut budget)?;
            searched.push(state);
            Ok(Some((library, table)))
        });
        match found {
            Ok(Some((library, table))) => symbols.take(library, table),
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "a mapped file is not searched"),
        }
    }
    Ok(symbols)
}

/// Looks for functions in a file that nobody need run.
pub fn symbols_of_file(path: &Path, names: &BTreeSet<SymbolName>) -> Result<Symbols, SymbolsError> {
    let binary = Binary::open(path).map_err(|error| SymbolsError::new(path, error))?;
    let (_, table) = search(
        &binary,
        names,
        &SymbolCache::default(),
        &mut Budget::default(),
    )?;
    let mut symbols = Symbols {
        stripped: !table.has_symbol_table,
        missing: names.clone(),
        ..Symbols::default()
    };
    symbols.take(binary, table);
    Ok(symbols)
}

impl Symbols {
    fn take(&mut self, binary: Binary, table: Table) {
        let binary = Arc::new(binary);
        for (name, places) in table.found {
            self.missing.remove(&name);
            let locations = places.into_iter().map(|place| Location {
                binary: Arc::clone(&binary),
                offset: place.offset,
                first_instruction: place.first_instruction,
            });
            self.found.insert(name, locations.collect());
        }
    }
}

pub(super) fn open_executable(process: ProcessId) -> Result<Binary, SymbolsError> {
    let path = directory(process.pid).join("exe");
    Binary::open(&path).map_err(|error| SymbolsError::new(&path, error))
}

pub(super) fn open_library(process: ProcessId, path: &Path) -> Result<Binary, SymbolsError> {
    let root = directory(process.pid).join("root");
    File::open(root)
        .and_then(|root| Binary::open_in_root(&root, path))
        .map_err(|error| SymbolsError::new(path, error))
}

/// The files that the process has mapped executable, by their paths in its own root, at most so many.
pub(super) fn libraries(process: ProcessId, limit: usize) -> Vec<PathBuf> {
    match File::open(directory(process.pid).join("maps")) {
        Ok(maps) => mapped_files(BufReader::new(maps.take(MAPS_LIMIT)), limit),
        Err(_) => Vec::new(),
    }
}

/// The files that are mapped executable in a process, in order of address: the lines of its `maps` are
/// `address permissions offset device inode path`. What is no file has no path that begins with a slash.
fn mapped_files(maps: impl BufRead, limit: usize) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for line in maps.split(b'\n').map_while(Result::ok) {
        let mut fields = line.splitn(6, |byte| *byte == b' ').skip(1);
        let (Some(permissions), Some(path)) = (fields.next(), fields.nth(3)) else {
            continue;
        };
        let path = Path::new(OsStr::from_bytes(path.trim_ascii_start()));
        let is_new = || !paths.iter().any(|known| known == path);
        if permissions.contains(&b'x') && path.is_absolute() && is_new() {
            paths.push(path.to_path_buf());
        }
        if paths.len() == limit {
            break;
        }
    }
    paths
}

fn search(
    binary: &Binary,
    names: &BTreeSet<SymbolName>,
    cache: &SymbolCache,
    budget: &mut Budget,
) -> Result<(FileState, Table), SymbolsError> {
    cached(binary, names, cache, |file| {
        elf::search(file, names, budget)
    })
}

/// The file, to be read and closed again.
pub(super) fn reader_of(binary: &Binary) -> Result<File, SymbolsError> {
    let opened = binary.reader();
    opened.map_err(|error| SymbolsError::new(binary.path(), error))
}

/// By what it is told whether a file has changed since.
fn state_of(binary: &Binary) -> Result<FileState, SymbolsError> {
    let metadata = binary.metadata();
    metadata
        .map(|metadata| FileState::of(&metadata))
        .map_err(|error| SymbolsError::new(binary.path(), error))
}

/// What a search of a file finds, or found at an earlier time when the file was as it is now: also that there is nothing to be
/// found in such a file.
pub(super) fn cached<KindSpec: Clone + PartialEq, Answer: Clone, const LIMIT: usize>(
    binary: &Binary,
    question: &KindSpec,
    cache: &Cache<KindSpec, Answer, LIMIT>,
    search: impl FnOnce(&File) -> Result<Answer, SearchError>,
) -> Result<(FileState, Answer), SymbolsError> {
    let state = state_of(binary)?;
    let told = |answer: Known<Answer>| match answer {
        Ok(answer) => Ok((state, answer)),
        Err(source) => Err(SymbolsError {
            path: binary.path().to_path_buf(),
            source,
        }),
    };
    if let Some(known) = cache.get(state, question) {
        return told(known);
    }
    let answer = search(&reader_of(binary)?).map_err(Arc::new);
    // What was half written may have looked like anything.
    if state_of(binary)? != state {
        return Err(SymbolsError::new(binary.path(), SearchError::Changed));
    }
    let lasts = answer.as_ref().err().is_none_or(|error| error.is_lasting());
    if lasts && state.is_settled(SystemTime::now()) {
        cache.insert(state, question.clone(), answer.clone());
    }
    told(answer)
}

#[cfg(test)]
pub(super) mod tests;
