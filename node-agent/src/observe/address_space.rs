//! What code a process has mapped, and from which files.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    ops::Range,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use ckb_probe_bpf::Binary;
use ckb_probe_symbols::{
    demangle::called,
    elf::{Budget, CodeFile, ReadAt, SearchError, UnwindSections},
};

use super::{
    ProcessId,
    survivor::directory,
    symbols::{SymbolsError, open_executable, open_library, reader_of},
};
use crate::{
    text,
    unwind::{Code, Module, Section, Sections, Tables},
};

/// No more is read of the list of what a process has mapped.
const MAPS_LIMIT: u64 = 4 << 20;

/// No more files are looked at. CKB has six.
const FILE_LIMIT: usize = 256;

/// An unwinder has an index for each place where a file is mapped executable. Files have one; who has one mapped more often has it
/// without tables there.
const PLACES_LIMIT: usize = 2;

/// How the list calls what the kernel puts into each process.
const VDSO: &[u8] = b"[vdso]";

/// How it calls what the kernel has functions return to which are probed there.
const TRAMPOLINE: &[u8] = b"[uprobes]";

/// What code a process has mapped.
#[derive(Default)]
pub struct AddressSpace {
    /// In order of address.
    mappings: Vec<Mapping>,
    files: Vec<Known>,
    trampoline: Option<Range<u64>>,
}

struct Mapping {
    range: Range<u64>,
    offset: u64,
    file: usize,
}

/// What tells files apart: the number of the inode, and the path.
type Identity = (u64, Vec<u8>);

/// A file, as far as it is known.
struct Known {
    identity: Identity,
    name: Arc<str>,
    file: Option<(Source, CodeFile, Option<Arc<Tables>>)>,
    /// There was no room for it.
    left_out: bool,
}

/// Where bytes are.
enum Source {
    File(File),
    Memory(Vec<u8>),
}

impl ReadAt for Source {
    fn size(&self) -> io::Result<u64> {
        match self {
            Self::File(file) => ReadAt::size(file),
            Self::Memory(bytes) => ReadAt::size(bytes.as_slice()),
        }
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::File(file) => FileExt::read_exact_at(file, buffer, offset),
            Self::Memory(bytes) => ReadAt::read_exact_at(bytes.as_slice(), buffer, offset),
        }
    }
}

/// What a function is called, and what file it is in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionName {
    /// Its name, without parameters; None where the file has none.
    pub function: Option<Arc<str>>,
    /// The base name of the file; empty where there is none.
    pub file: Arc<str>,
}

impl AddressSpace {
    /// Reads what a process has mapped, and the files of that, if there is other code by now, or what there was no room for is
    /// `wanted`; whether more is known now. `has_room` is asked before each file is read whether there are so many bytes of memory
    /// for all of them. Files that are known are not read again. Of a process that has ended what was known remains.
    pub fn read_again(
        &mut self,
        process: ProcessId,
        wanted: bool,
        has_room: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<bool> {
        let lines = lines_of_code(process)?;
        let mapped = lines.iter().filter_map(|line| Line::of_code(line));
        let is_known = mapped.eq(self.lines());
        let is_wanted = wanted && self.files.iter().any(|known| known.left_out);
        if is_known && !is_wanted {
            return Ok(false);
        }
        let before = self.kept();
        let mut known = std::mem::take(&mut self.files);
        known.retain(|known| !known.left_out);
        *self = Self::of(process, &lines, known, has_room);
        Ok(!is_known || self.kept() != before)
    }

    /// The lines that it was made of.
    fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        self.mappings.iter().filter_map(|mapping| {
            let (inode, path) = &self.files.get(mapping.file)?.identity;
            Some(Line {
                range: mapping.range.clone(),
                is_executable: true,
                offset: mapping.offset,
                inode: *inode,
                path,
            })
        })
    }

    /// What is kept of files, in bytes of memory.
    pub fn kept(&self) -> u64 {
        self.files.iter().map(Known::bytes).sum()
    }

    fn of(
        process: ProcessId,
        lines: &[Vec<u8>],
        mut earlier: Vec<Known>,
        has_room: &mut dyn FnMut(u64) -> bool,
    ) -> Self {
        let mut space = Self::default();
        let mut known: HashMap<Identity, usize> = HashMap::new();
        let mut budget = Budget::default();
        for line in lines.iter().filter_map(|line| Line::of_code(line)) {
            if line.path == TRAMPOLINE {
                space.trampoline = Some(line.range.clone());
            }
            let file = *known
                .entry((line.inode, line.path.to_vec()))
                .or_insert_with_key(|identity| {
                    let mut all = earlier.iter();
                    let known = match all.position(|known| known.identity == *identity) {
                        Some(at) => earlier.swap_remove(at),
                        None if space.files.len() < FILE_LIMIT => {
                            let others = space.files.iter().chain(&earlier);
                            let others: u64 = others.map(Known::bytes).sum();
                            Known::open(process, &line, &mut budget, |most| {
                                has_room(others.saturating_add(most))
                            })
                        }
                        None => Known::unread(&line),
                    };
                    space.files.push(known);
                    space.files.len() - 1
                });
            space.mappings.push(Mapping {
                range: line.range,
                offset: line.offset,
                file,
            });
        }
        space
    }

    /// All of it, to unwind in.
    pub fn modules(&self) -> Vec<Module> {
        let mut places = vec![0; self.files.len()];
        let module = |mapping: &Mapping| {
            let (_, image, tables) = self.files.get(mapping.file)?.file.as_ref()?;
            let start = mapping.range.start;
            let at = |offset: u64| start.wrapping_add(offset.wrapping_sub(mapping.offset));
            let place = places.get_mut(mapping.file)?;
            *place += 1;
            let has_tables = *place <= PLACES_LIMIT;
            Some(Module {
                range: mapping.range.clone(),
                bias: image.bias(mapping.offset, start)?,
                tables: tables.clone().filter(|_| has_tables),
                ckb_vm: image.ckb_vm().map(|(begin, end)| at(begin)..at(end)),
            })
        };
        self.mappings.iter().filter_map(module).collect()
    }

    /// Where functions return to whose ends the kernel sees, if there were any.
    pub fn trampoline(&self) -> Option<Range<u64>> {
        self.trampoline.clone()
    }

    fn mapping(&self, address: u64) -> Option<&Mapping> {
        let after = self
            .mappings
            .partition_point(|mapping| mapping.range.start <= address);
        let mapping = self.mappings.get(after.checked_sub(1)?)?;
        mapping.range.contains(&address).then_some(mapping)
    }

    /// What function an address is in.
    pub fn name(&self, address: u64) -> FunctionName {
        let Some(mapping) = self.mapping(address) else {
            return FunctionName::default();
        };
        let Some(known) = self.files.get(mapping.file) else {
            return FunctionName::default();
        };
        let offset = address - mapping.range.start + mapping.offset;
        let symbol = known.file.as_ref();
        let symbol = symbol.and_then(|(source, image, _)| image.symbol(source, offset));
        FunctionName {
            function: symbol.map(|symbol| Arc::from(text::shown(&called(&symbol)))),
            file: Arc::clone(&known.name),
        }
    }
}

impl Code for AddressSpace {
    fn before(&self, address: u64) -> Option<[u8; 7]> {
        let mapping = self.mapping(address)?;
        let (source, _, _) = self.files.get(mapping.file)?.file.as_ref()?;
        let offset = address - mapping.range.start + mapping.offset;
        let mut bytes = [0; 7];
        source
            .read_exact_at(&mut bytes, offset.checked_sub(7)?)
            .ok()?;
        Some(bytes)
    }
}

impl Known {
    fn unread(line: &Line<'_>) -> Self {
        let path = Path::new(OsStr::from_bytes(line.path));
        let name = path.file_name().unwrap_or(path.as_os_str());
        Self {
            identity: (line.inode, line.path.to_vec()),
            name: Arc::from(text::of(name.as_bytes())),
            file: None,
            left_out: false,
        }
    }

    fn open(
        process: ProcessId,
        line: &Line<'_>,
        budget: &mut Budget,
        has_room: impl FnOnce(u64) -> bool,
    ) -> Self {
        let unread = Self::unread(line);
        let read = source(process, line).map_err(SearchError::from);
        let read = read.and_then(|source| {
            let (image, sections) = CodeFile::read(&source, budget, has_room)?;
            let tables = sections.and_then(|sections| Tables::checked(known(sections)));
            Ok((source, image, tables.map(Arc::new)))
        });
        if let Err(error) = &read {
            tracing::debug!(file = %unread.name, %error, "a mapped file is not looked at");
        }
        Self {
            left_out: matches!(read, Err(SearchError::NoRoom(_))),
            file: read.ok(),
            ..unread
        }
    }

    /// What is kept of it, in bytes of memory.
    fn bytes(&self) -> u64 {
        self.file.as_ref().map_or(0, |(_, image, tables)| {
            let tables = tables.as_ref().map_or(0, |tables| {
                tables.bytes() + PLACES_LIMIT as u64 * tables.index_bytes()
            });
            image.bytes() + tables
        })
    }
}

fn known(sections: UnwindSections) -> Sections {
    Sections {
        eh_frame: Section {
            address: sections.eh_frame_address,
            bytes: sections.eh_frame,
        },
        text: sections.text,
        got: sections.got,
    }
}

/// The lines of what a process has mapped that are of code, in order of address; an error where there are none.
fn lines_of_code(process: ProcessId) -> io::Result<Vec<Vec<u8>>> {
    let maps = File::open(directory(process.pid).join("maps"))?;
    let mut lines = Vec::new();
    for line in BufReader::new(maps.take(MAPS_LIMIT)).split(b'\n') {
        let line = line?;
        if Line::of_code(&line).is_some() {
            lines.push(line);
        }
    }
    match lines.is_empty() {
        true => Err(io::ErrorKind::NotFound.into()),
        false => Ok(lines),
    }
}

/// The very file that is mapped, also when another one has its name by now.
fn source(process: ProcessId, line: &Line<'_>) -> io::Result<Source> {
    if line.path == VDSO {
        return own_vdso().map(Source::Memory);
    }
    let is_it = |file: &File| file.metadata().is_ok_and(|found| found.ino() == line.inode);
    let path = PathBuf::from(OsStr::from_bytes(line.path));
    let opened =
        |binary: Result<Binary, SymbolsError>| binary.and_then(|binary| reader_of(&binary));
    let by_path = opened(open_library(process, &path));
    let mut found = [by_path.ok(), opened(open_executable(process)).ok()];
    if let Some(file) = found
        .iter_mut()
        .find_map(|file| file.take_if(|file| is_it(file)))
    {
        return Ok(Source::File(file));
    }
    // Who may look there (CAP_CHECKPOINT_RESTORE) finds it also where it was deleted.
    let (begin, end) = (line.range.start, line.range.end);
    let files = directory(process.pid).join("map_files");
    File::open(files.join(format!("{begin:x}-{end:x}"))).map(Source::File)
}

/// The kernel puts the same into each process of 64 bits.
fn own_vdso() -> io::Result<Vec<u8>> {
    let maps = BufReader::new(File::open("/proc/self/maps")?);
    for line in maps.split(b'\n') {
        let line = line?;
        if let Some(line) = Line::parse(&line)
            && line.path == VDSO
        {
            let bytes = (line.range.end - line.range.start).min(1 << 20);
            let mut copy = vec![0; bytes as usize];
            let memory = File::open("/proc/self/mem")?;
            FileExt::read_exact_at(&memory, &mut copy, line.range.start)?;
            return Ok(copy);
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// A line of `maps`: `begin-end permissions offset device inode path`.
#[derive(PartialEq)]
struct Line<'a> {
    range: Range<u64>,
    is_executable: bool,
    offset: u64,
    inode: u64,
    path: &'a [u8],
}

impl<'a> Line<'a> {
    /// Of what is mapped executable, and has a name.
    fn of_code(line: &'a [u8]) -> Option<Self> {
        Self::parse(line).filter(|line| line.is_executable && !line.path.is_empty())
    }

    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.splitn(6, |byte| *byte == b' ');
        let text = |field: &'a [u8]| std::str::from_utf8(field).ok();
        let (begin, end) = text(fields.next()?)?.split_once('-')?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        let range = number(begin)?..number(end)?;
        let is_executable = fields.next()?.contains(&b'x');
        let offset = number(text(fields.next()?)?)?;
        let inode = text(fields.nth(1)?)?.parse().ok()?;
        let path = fields.next().unwrap_or_default().trim_ascii_start();
        Some(Self {
            range,
            is_executable,
            offset,
            inode,
            path,
        })
    }
}

#[cfg(test)]
mod tests;
