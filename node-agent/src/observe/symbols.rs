//! Where functions are in the files that a process has mapped, in its own mount namespace.
//!
//! A symbol table may be tens of megabytes (CKB's is 15) and is the target's to write: it is read whole,
//! once, within a bound, searched, and given back. Nothing in it is trusted to be in range.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use object::{
    Endianness, ReadCache,
    elf::{self, FileHeader64, ProgramHeader64, SectionHeader64, Sym64},
    pod,
    read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _},
};
use procfs::process::{MMPermissions, MMapPath, Process as ProcProcess};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use super::ProcessId;

/// No symbol or string table longer than this is read: ten times the largest CKB's.
const TABLE_LIMIT: u64 = 256 << 20;

/// At most so many mapped libraries are searched.
const LIBRARY_LIMIT: usize = 64;

/// A file that a process has mapped, held open: whatever its container does to its paths meanwhile, what was
/// searched is what is attached to.
#[derive(Debug)]
pub struct Binary {
    file: File,
    path: PathBuf,
}

impl Binary {
    /// A file of this program's own.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: File::open(path)?,
            path: path.to_path_buf(),
        })
    }

    /// Opens a path as the target sees it: links lead nowhere but into its own root, and a pipe or a device does
    /// not keep anyone waiting.
    fn open_in_root(root: &File, path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let file = File::from(openat2(root, path, flags, Mode::empty(), resolve)?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        Ok(Self {
            file,
            path: path.to_path_buf(),
        })
    }

    /// Its path as the target sees it, for people.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path by which the kernel finds this very file, while it is held open.
    pub fn attach_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

/// Where a function is.
#[derive(Clone, Debug)]
pub struct Location {
    /// The file.
    pub binary: Arc<Binary>,
    /// The function's offset in the file, in bytes.
    pub offset: u64,
}

/// What a search found.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// The functions that are there, by name.
    pub found: BTreeMap<String, Location>,
    /// The names that no file of the process has.
    pub missing: BTreeSet<String>,
    /// The executable has no symbol table: strip(1) took it.
    pub stripped: bool,
}

/// The executable cannot be searched. (A library that cannot is skipped.)
#[derive(Debug, thiserror::Error)]
pub enum SymbolsError {
    /// The file cannot be opened or read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
    /// The file is not what it should be.
    #[error("{path} is no 64-bit ELF file that can be searched: {reason}")]
    Format {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The table is too long to be true.
    #[error("{path} has a symbol table of {bytes} bytes, more than is ever read")]
    TooLarge {
        /// Which.
        path: PathBuf,
        /// How long.
        bytes: u64,
    },
}

/// Looks for functions by exact name: in the executable first, and for what it lacks in the libraries that
/// the process has mapped.
pub fn find_symbols(process: ProcessId, names: &BTreeSet<String>) -> Result<Symbols, SymbolsError> {
    let path = PathBuf::from(format!("/proc/{}/exe", process.pid));
    let executable = Binary::open(&path).map_err(|source| SymbolsError::Read { path, source })?;
    let own = search(&executable, names)?;
    let mut symbols = Symbols {
        stripped: !own.has_symbol_table,
        missing: names.clone(),
        ..Symbols::default()
    };
    symbols.take(executable, own);
    for path in libraries(process) {
        if symbols.missing.is_empty() {
            break;
        }
        let found = open_library(process, &path).and_then(|library| {
            let table = search(&library, &symbols.missing)?;
            Ok((library, table))
        });
        match found {
            Ok((library, table)) => symbols.take(library, table),
            Err(error) => tracing::debug!(%error, "a mapped file is not searched"),
        }
    }
    Ok(symbols)
}

impl Symbols {
    fn take(&mut self, binary: Binary, table: Table) {
        let binary = Arc::new(binary);
        for (name, offset) in table.offsets {
            self.missing.remove(&name);
            let binary = Arc::clone(&binary);
            self.found.insert(name, Location { binary, offset });
        }
    }
}

fn open_library(process: ProcessId, path: &Path) -> Result<Binary, SymbolsError> {
    let root = format!("/proc/{}/root", process.pid);
    File::open(root)
        .and_then(|root| Binary::open_in_root(&root, path))
        .map_err(|source| SymbolsError::Read {
            path: path.to_path_buf(),
            source,
        })
}

/// The files that the process has mapped executable, by their paths in its own root.
fn libraries(process: ProcessId) -> Vec<PathBuf> {
    let Ok(maps) = ProcProcess::new(process.pid as i32).and_then(|process| process.maps()) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = maps
        .into_iter()
        .filter(|map| map.perms.contains(MMPermissions::EXECUTE))
        .filter_map(|map| match map.pathname {
            MMapPath::Path(path) => Some(path),
            _ => None,
        })
        .collect();
    paths.dedup();
    paths.truncate(LIBRARY_LIMIT);
    paths
}

struct Table {
    offsets: BTreeMap<String, u64>,
    has_symbol_table: bool,
}

fn search(binary: &Binary, names: &BTreeSet<String>) -> Result<Table, SymbolsError> {
    let metadata = binary
        .file
        .metadata()
        .map_err(|source| SymbolsError::Read {
            path: binary.path.clone(),
            source,
        })?;
    let elf = Elf {
        path: &binary.path,
        file: &binary.file,
        size: metadata.len(),
    };
    elf.search(names)
}

struct Elf<'a> {
    path: &'a Path,
    file: &'a File,
    size: u64,
}

impl Elf<'_> {
    fn search(&self, names: &BTreeSet<String>) -> Result<Table, SymbolsError> {
        let format = |error: object::Error| SymbolsError::Format {
            path: self.path.to_path_buf(),
            reason: error.to_string(),
        };
        let cache = ReadCache::new(self.file);
        let header = FileHeader64::<Endianness>::parse(&cache).map_err(format)?;
        let endian = header.endian().map_err(format)?;
        let segments = header.program_headers(endian, &cache).map_err(format)?;
        let sections = header.section_headers(endian, &cache).map_err(format)?;
        let mut table = Table {
            offsets: BTreeMap::new(),
            has_symbol_table: false,
        };
        for section in sections {
            let kind = section.sh_type(endian);
            table.has_symbol_table |= kind == elf::SHT_SYMTAB;
            if kind != elf::SHT_SYMTAB && kind != elf::SHT_DYNSYM {
                continue;
            }
            let Some(strings) = sections.get(section.sh_link(endian) as usize) else {
                continue;
            };
            let symbols = self.contents(section, endian)?;
            let strings = self.contents(strings, endian)?;
            let count = symbols.len() / size_of::<Sym64<Endianness>>();
            let Ok((symbols, _)) = pod::slice_from_bytes::<Sym64<Endianness>>(&symbols, count)
            else {
                continue;
            };
            for symbol in symbols {
                if symbol.st_type() != elf::STT_FUNC || symbol.st_shndx(endian) == elf::SHN_UNDEF {
                    continue;
                }
                let Some(name) = text(&strings, symbol.st_name(endian)) else {
                    continue;
                };
                if !names.contains(name) {
                    continue;
                }
                if let Some(offset) = file_offset(segments, endian, symbol.st_value(endian)) {
                    table.offsets.insert(name.to_string(), offset);
                }
            }
        }
        Ok(table)
    }

    /// A section's bytes, all of which must lie within the file.
    fn contents(
        &self,
        section: &SectionHeader64<Endianness>,
        endian: Endianness,
    ) -> Result<Vec<u8>, SymbolsError> {
        let Some((offset, bytes)) = section.file_range(endian) else {
            return Ok(Vec::new());
        };
        if offset.checked_add(bytes).is_none_or(|end| end > self.size) {
            return Err(SymbolsError::Format {
                path: self.path.to_path_buf(),
                reason: "a symbol table reaches beyond the end of the file".to_string(),
            });
        }
        if bytes > TABLE_LIMIT {
            return Err(SymbolsError::TooLarge {
                path: self.path.to_path_buf(),
                bytes,
            });
        }
        let mut contents = vec![0; bytes as usize];
        self.file
            .read_exact_at(&mut contents, offset)
            .map_err(|source| SymbolsError::Read {
                path: self.path.to_path_buf(),
                source,
            })?;
        Ok(contents)
    }
}

/// The NUL-terminated text at an offset of a string table. No C function's name is longer than 256 bytes.
fn text(strings: &[u8], offset: u32) -> Option<&str> {
    let rest = strings.get(offset as usize..)?;
    let window = rest.get(..257).unwrap_or(rest);
    let end = window.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&window[..end]).ok()
}

/// Where in the file the loader finds what it maps at a virtual address.
fn file_offset(
    segments: &[ProgramHeader64<Endianness>],
    endian: Endianness,
    address: u64,
) -> Option<u64> {
    segments
        .iter()
        .filter(|segment| segment.p_type(endian) == elf::PT_LOAD)
        .find_map(|segment| {
            let within = address.checked_sub(segment.p_vaddr(endian))?;
            (within < segment.p_filesz(endian))
                .then(|| segment.p_offset(endian).checked_add(within))
                .flatten()
        })
}

#[cfg(test)]
mod tests;
