//! Where functions are in the files that a process has mapped, in its own mount namespace.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::{File, Metadata},
    io::{self, BufRead, BufReader, Read},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use rustix::fs::{Mode, OFlags, ResolveFlags, fstatfs, open, openat2};

use super::{
    ProcessId,
    cache::{Cache, FileState, Known, SymbolCache},
    elf::{self, Budget, SearchError, Table},
    instruction::FirstInstruction,
    name::SymbolName,
};
use crate::text;

/// At most so many mapped libraries are searched.
const LIBRARY_LIMIT: usize = 64;

/// No more is read of the list of what a process has mapped, which may be hundreds of megabytes.
const MAPS_LIMIT: u64 = 4 << 20;

/// A file that a process has mapped, held: whatever its container does to its paths meanwhile, what was searched is what is
/// attached to.
///
/// It is held by its place only and opened while it is searched: a file system that does not answer any more keeps whoever closes
/// an open file waiting.
#[derive(Debug)]
pub struct Binary {
    place: OwnedFd,
    path: PathBuf,
}

/// What finds a file, and neither opens nor asks anything of it.
const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

impl Binary {
    /// A file by its path in this program's own root.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            place: open(path, PLACE, Mode::empty())?,
            path: path.to_path_buf(),
        })
    }

    /// Opens a path as the target sees it: links lead nowhere but into its own root, and a pipe or a device does
    /// not keep anyone waiting.
    fn open_in_root(root: &File, path: &Path) -> io::Result<Self> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let binary = Self {
            place: openat2(root, path, PLACE, Mode::empty(), resolve)?,
            path: path.to_path_buf(),
        };
        if !binary.metadata()?.is_file() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        Ok(binary)
    }

    /// Its path as the target sees it, for people.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, to be read and closed again.
    pub(super) fn reader(&self) -> Result<File, SymbolsError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = open(self.attach_path(), flags, Mode::empty()).map(File::from);
        file.map_err(|error| SymbolsError::new(&self.path, io::Error::from(error)))
    }

    fn metadata(&self) -> io::Result<Metadata> {
        // Of the place, whatever flags it is held with.
        File::from(self.place.try_clone()?).metadata()
    }

    /// Asks the file system that it is on for a sign of life: the kernel waits for one that has none while it holds what others
    /// need.
    pub fn ask(&self) -> io::Result<()> {
        Ok(fstatfs(&self.place).map(drop)?)
    }

    fn state(&self) -> Result<FileState, SymbolsError> {
        let metadata = self.metadata();
        metadata
            .map(|metadata| FileState::of(&metadata))
            .map_err(|error| SymbolsError::new(&self.path, error))
    }

    /// A path by which the kernel finds this very file, while it is held open.
    pub fn attach_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.place.as_raw_fd()))
    }
}

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
    /// Which file.
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
            if searched.contains(&library.state()?) {
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
    let path = PathBuf::from(format!("/proc/{}/exe", process.pid));
    Binary::open(&path).map_err(|error| SymbolsError::new(&path, error))
}

pub(super) fn open_library(process: ProcessId, path: &Path) -> Result<Binary, SymbolsError> {
    let root = format!("/proc/{}/root", process.pid);
    File::open(root)
        .and_then(|root| Binary::open_in_root(&root, path))
        .map_err(|error| SymbolsError::new(path, error))
}

/// The files that the process has mapped executable, by their paths in its own root, at most so many.
pub(super) fn libraries(process: ProcessId, limit: usize) -> Vec<PathBuf> {
    match File::open(format!("/proc/{}/maps", process.pid)) {
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

/// What a search of a file finds, or found at an earlier time when the file was as it is now: also that there is nothing to be
/// found in such a file.
pub(super) fn cached<Question: Clone + PartialEq, Answer: Clone, const LIMIT: usize>(
    binary: &Binary,
    question: &Question,
    cache: &Cache<Question, Answer, LIMIT>,
    search: impl FnOnce(&File) -> Result<Answer, SearchError>,
) -> Result<(FileState, Answer), SymbolsError> {
    let state = binary.state()?;
    let told = |answer: Known<Answer>| match answer {
        Ok(answer) => Ok((state, answer)),
        Err(source) => Err(SymbolsError {
            path: binary.path.clone(),
            source,
        }),
    };
    if let Some(known) = cache.get(state, question) {
        return told(known);
    }
    let answer = search(&binary.reader()?).map_err(Arc::new);
    // What was half written may have looked like anything.
    if binary.state()? != state {
        return Err(SymbolsError::new(&binary.path, SearchError::Changed));
    }
    let lasts = answer.as_ref().err().is_none_or(|error| error.is_lasting());
    if lasts && state.is_settled(SystemTime::now()) {
        cache.insert(state, question.clone(), answer.clone());
    }
    told(answer)
}

#[cfg(test)]
pub(super) mod tests;
