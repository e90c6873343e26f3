//! Where an ELF file has functions, by name.
//!
//! The file is the target's to write, and nothing in it is trusted: every count and offset may be anything. It is read in
//! pieces, so that a symbol table of any length takes little memory, and within a budget, so that it takes little time. First
//! the string table is searched for the names, then the symbol table for who bears them.

mod code_file;
mod functions;
mod reader;
mod usdt;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

pub use code_file::{CodeFile, UnwindSections};
pub use functions::{Found, Functions, Linkage, linkage, search_functions};
use object::{
    Endianness,
    elf::{self, FileHeader64, ProgramHeader64, SectionHeader64, Sym64},
    pod,
    read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _},
};
pub use reader::{Budget, ReadAt};
use reader::{FileRange, Reader};
pub use usdt::{Nops, RefusedSite, SiteError, UsdtProbes, UsdtSite, usdt_probes};

use crate::{
    Machine,
    instruction::{FirstInstruction, INSTRUCTION_BYTES},
    name::{NAME_LIMIT, Names, SymbolName},
};

/// No file that is searched has more program headers. Real ones have a dozen.
const SEGMENT_LIMIT: u64 = 64;

/// No file that is searched has more sections. Linked ones have three dozen.
const SECTION_LIMIT: u64 = 1 << 16;

/// No string table that is searched has the names in more places: a name is a string, or the end of one.
const STRING_LIMIT: u64 = 1 << 14;

/// No name stands for more functions, or a target could have a probe at every instruction.
const FUNCTION_LIMIT: u64 = 64;

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Its offset in the file, in bytes.
    pub offset: u64,
    /// How the kernel gets over a probe there.
    pub first_instruction: FirstInstruction,
}

/// What one file has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The places of each name that it has, in order and each once.
    pub found: BTreeMap<SymbolName, Vec<Place>>,
    /// Whether strip(1) left its symbol table.
    pub has_symbol_table: bool,
}

/// Why a file cannot be searched.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The system would not let it be opened or read.
    #[error("it cannot be read: {0}")]
    Read(#[source] io::Error),
    /// It is not what it should be.
    #[error("it is no 64-bit ELF file: {0}")]
    Format(&'static str),
    /// Something reaches beyond its end, as in a file that is still being written.
    #[error("it is cut short: its {0} reach beyond its end")]
    Truncated(&'static str),
    /// Somebody wrote to it meanwhile.
    #[error("it was changed while it was read")]
    Changed,
    /// A length is too large to be true.
    #[error("its {what} take {bytes} bytes, more than is ever read of a process's files")]
    TooLarge {
        /// The part of the file that it is about.
        what: &'static str,
        /// How many bytes the part has.
        bytes: u64,
    },
    /// There is no room for so much.
    #[error("its symbols and unwind tables take {0} bytes of memory, more than there are for them")]
    NoRoom(u64),
    /// There is more of something than is ever taken.
    #[error("it has more than {limit} {what}")]
    TooMany {
        /// What there is too much of, in the plural.
        what: &'static str,
        /// How many would be taken.
        limit: u64,
    },
    /// Its names are made to be hard to read.
    #[error("its names take longer to read than any file's should")]
    TooSlow,
}

impl SearchError {
    /// Whether another search of the file as it is would come to the same.
    pub fn is_lasting(&self) -> bool {
        !matches!(self, Self::Read(_) | Self::Changed | Self::NoRoom(_))
    }
}

impl From<io::Error> for SearchError {
    /// Only what lies within a file's length is asked for: if it is not there, the file has become shorter.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Changed,
            _ => Self::Read(error),
        }
    }
}

/// Looks for functions by name.
pub fn search(
    file: &(impl ReadAt + ?Sized),
    names: &BTreeSet<SymbolName>,
    budget: &mut Budget,
) -> Result<Table, SearchError> {
    let mut reader = Reader::new(file, budget)?;
    let header = Header::read(&mut reader)?;
    let names = Names::new(names);
    let mut found: BTreeMap<SymbolName, BTreeSet<u64>> = BTreeMap::new();
    let mut has_symbol_table = false;
    for index in 0..header.sections {
        let section = header.section(&mut reader, index)?;
        has_symbol_table |= section.sh_type(header.endian) == elf::SHT_SYMTAB;
        let Some((symbols, strings)) = header.symbol_table(&mut reader, &section)? else {
            continue;
        };
        let strings = Strings::read(&mut reader, strings, &names)?;
        for_each_symbol(&mut reader, symbols, |symbol| {
            for name in strings.names(symbol.st_name(header.endian)) {
                let Some(offset) = header.function(symbol) else {
                    break;
                };
                let offsets = found.entry(name).or_default();
                offsets.insert(offset);
                let count = offsets.len() as u64;
                at_most(FUNCTION_LIMIT, count, "functions of one name")?;
            }
            Ok(())
        })?;
    }
    let place = |offset| Place {
        offset,
        first_instruction: header.first_instruction(&reader, offset),
    };
    let places = |offsets: BTreeSet<u64>| offsets.into_iter().map(place).collect();
    Ok(Table {
        found: found
            .into_iter()
            .map(|(name, offsets)| (name, places(offsets)))
            .collect(),
        has_symbol_table,
    })
}

fn at_most(limit: u64, count: u64, what: &'static str) -> Result<(), SearchError> {
    if count > limit {
        return Err(SearchError::TooMany { what, limit });
    }
    Ok(())
}

/// What the headers say, as far as it matters here.
struct Header {
    endian: Endianness,
    machine: elf::Machine,
    sections_offset: u64,
    sections: u64,
    /// What is mapped executable.
    segments: Vec<ProgramHeader64<Endianness>>,
    /// What is mapped writable.
    writable: Vec<ProgramHeader64<Endianness>>,
    /// It says who is to load the libraries it needs.
    has_interpreter: bool,
    /// The section that has the names of sections.
    section_names: u64,
    size: u64,
}

impl Header {
    fn read(reader: &mut Reader<impl ReadAt + ?Sized>) -> Result<Self, SearchError> {
        let header: FileHeader64<Endianness> = reader.entry("file headers", 0, 0)?;
        if !header.is_supported() {
            return Err(SearchError::Format("it does not begin like one"));
        }
        let endian = header
            .endian()
            .map_err(|_| SearchError::Format("its byte order is unknown"))?;
        let mut read = Self {
            endian,
            machine: header.e_machine(endian),
            sections_offset: header.e_shoff(endian),
            sections: u64::from(header.e_shnum(endian)),
            segments: Vec::new(),
            writable: Vec::new(),
            has_interpreter: false,
            section_names: u64::from(header.e_shstrndx(endian).0),
            size: reader.size(),
        };
        let mut segments = u64::from(header.e_phnum(endian));
        if read.sections_offset == 0 {
            read.sections = 0;
        } else if read.sections == 0 || segments == u64::from(elf::PN_XNUM) {
            // Counts that do not fit their field stand in the first section header.
            let first = read.section(reader, 0)?;
            if read.sections == 0 {
                read.sections = first.sh_size(endian);
            }
            if segments == u64::from(elf::PN_XNUM) {
                segments = u64::from(first.sh_info(endian));
            }
        }
        at_most(SECTION_LIMIT, read.sections, "sections")?;
        at_most(SEGMENT_LIMIT, segments, "program headers")?;
        for index in 0..segments {
            let table = header.e_phoff(endian);
            let segment: ProgramHeader64<_> = reader.entry("program headers", table, index)?;
            read.has_interpreter |= segment.p_type(endian) == elf::PT_INTERP;
            let flags = segment.p_flags(endian);
            if segment.p_type(endian) != elf::PT_LOAD {
                continue;
            }
            if flags.contains(elf::PF_W) {
                read.writable.push(segment);
            }
            if flags.contains(elf::PF_X) {
                read.segments.push(segment);
            }
        }
        Ok(read)
    }

    fn section(
        &self,
        reader: &mut Reader<impl ReadAt + ?Sized>,
        index: u64,
    ) -> Result<SectionHeader64<Endianness>, SearchError> {
        reader.entry("section headers", self.sections_offset, index)
    }

    /// The symbols of a section that is a table of such, and their strings.
    fn symbol_table(
        &self,
        reader: &mut Reader<impl ReadAt + ?Sized>,
        section: &SectionHeader64<Endianness>,
    ) -> Result<Option<(FileRange, FileRange)>, SearchError> {
        let kind = section.sh_type(self.endian);
        let link = u64::from(section.sh_link(self.endian));
        if kind != elf::SHT_SYMTAB && kind != elf::SHT_DYNSYM || link >= self.sections {
            return Ok(None);
        }
        let strings = self.section(reader, link)?;
        let has_strings = strings.sh_type(self.endian) == elf::SHT_STRTAB;
        Ok(has_strings.then(|| (self.part(section), self.part(&strings))))
    }

    fn part(&self, section: &SectionHeader64<Endianness>) -> FileRange {
        // One without contents has no range.
        let (offset, bytes) = section.file_range(self.endian).unwrap_or_default();
        FileRange {
            what: "symbol tables",
            offset,
            bytes,
        }
    }

    /// Whether what is defined here picks a function for the machine, and is called once for that.
    fn is_indirect(&self, symbol: &Sym64<Endianness>) -> bool {
        let kind = symbol.st_type();
        kind == elf::STT_GNU_IFUNC && symbol.st_shndx(self.endian) != elf::SHN_UNDEF
    }

    /// Where in the file a function begins that is defined here.
    fn function(&self, symbol: &Sym64<Endianness>) -> Option<u64> {
        if symbol.st_type() != elf::STT_FUNC || symbol.st_shndx(self.endian) == elf::SHN_UNDEF {
            return None;
        }
        let address = symbol.st_value(self.endian);
        self.segments.iter().find_map(|segment| {
            let within = address.checked_sub(segment.p_vaddr(self.endian))?;
            (within < segment.p_filesz(self.endian))
                .then(|| segment.p_offset(self.endian).checked_add(within))
                .flatten()
                .filter(|offset| *offset < self.size)
        })
    }

    /// What cannot be read is taken for the worse.
    fn first_instruction(
        &self,
        reader: &Reader<impl ReadAt + ?Sized>,
        offset: u64,
    ) -> FirstInstruction {
        match reader.bytes::<INSTRUCTION_BYTES>(offset) {
            Some((code, count)) => match Machine::of_file(self.machine) {
                Some(machine) => FirstInstruction::of(machine, &code[..count]),
                None => FirstInstruction::SingleStepped,
            },
            None => FirstInstruction::SingleStepped,
        }
    }
}

/// Where a string table has the names: offsets in it, in order.
struct Strings(Vec<(u64, SymbolName)>);

impl Strings {
    fn read(
        reader: &mut Reader<impl ReadAt + ?Sized>,
        part: FileRange,
        names: &Names,
    ) -> Result<Self, SearchError> {
        let mut found = Vec::new();
        // No name is longer, so none begins in what is dropped of a string that is.
        reader.pieces(part, NAME_LIMIT, |start, bytes| {
            let mut done = 0;
            while let Some(length) = bytes[done..].iter().position(|byte| *byte == 0) {
                names.ends(&bytes[done..done + length], |at, name| {
                    found.push((start + (done + at) as u64, name));
                });
                let count = found.len() as u64;
                at_most(STRING_LIMIT, count, "strings that end in a name")?;
                done += length + 1;
            }
            Ok(done)
        })?;
        found.sort_unstable();
        Ok(Self(found))
    }

    /// The names of the string at an offset: more than one only if names end in each other.
    fn names(&self, offset: u32) -> impl Iterator<Item = SymbolName> {
        let offset = u64::from(offset);
        let first = self.0.partition_point(|(at, _)| *at < offset);
        self.0[first..]
            .iter()
            .take_while(move |(at, _)| *at == offset)
            .map(|(_, name)| *name)
    }
}

fn for_each_symbol(
    reader: &mut Reader<impl ReadAt + ?Sized>,
    part: FileRange,
    mut each: impl FnMut(&Sym64<Endianness>) -> Result<(), SearchError>,
) -> Result<(), SearchError> {
    let length = size_of::<Sym64<Endianness>>();
    reader.pieces(part, length, |_, bytes| {
        let count = bytes.len() / length;
        let (symbols, rest) =
            pod::slice_from_bytes(bytes, count).map_err(|()| SearchError::Changed)?;
        symbols.iter().try_for_each(&mut each)?;
        Ok(bytes.len() - rest.len())
    })
}

#[cfg(test)]
mod tests;
