//! Where an ELF file has USDT probes: what `sys/sdt.h` and its like leave in the section `.note.stapsdt`.
//!
//! A note says where the probe's instruction is (a nop), where its semaphore is if it has one (a counter of those who want the probe
//! to be met, which the program looks at), what it is called, and where its arguments are. What moved the file after it was linked
//! (prelink) did not move what the notes say; how far it did is told by a section that was moved with it, `.stapsdt.base`.

use std::collections::{BTreeMap, BTreeSet};

use object::{
    elf::{self, ProgramHeader64},
    endian::{Endian as _, Endianness},
    read::elf::{ProgramHeader as _, SectionHeader as _, Sym as _},
};

use super::{
    Budget, FileRange, Header, ReadAt, Reader, SearchError, at_most, for_each_symbol,
    functions::for_each_name,
};
use crate::{
    Machine,
    usdt_argument::{Argument, ArgumentError, parse_arguments},
};

/// More is not read of a file's notes: those of a Java machine's 566 probes take 50 kB.
const NOTES_LIMIT: u64 = 1 << 20;

/// No file that is searched has more probes.
const PROBE_LIMIT: u64 = 1 << 13;

/// No name of a provider or a probe is longer, in bytes.
const NAME_LIMIT: usize = 128;

/// Symbols that may be those of arguments, in one table.
const SYMBOL_LIMIT: u64 = 1 << 19;

/// `NT_STAPSDT`, and whose notes are of that type.
const NOTE_TYPE: u32 = 3;
const OWNER: &[u8] = b"stapsdt\0";

/// The two sections, with the ends of their names.
const NOTES: &[u8] = b".note.stapsdt\0";
const BASE: &[u8] = b".stapsdt.base\0";

/// The probes of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsdtProbes {
    /// Their sites, in the order of the notes. A probe has one for each place in the source, and more where that was inlined.
    pub sites: Vec<UsdtSite>,
    /// Those that there is no attaching to.
    pub refused: Vec<RefusedSite>,
    /// Notes that are not as they should be.
    pub malformed: u64,
}

/// A place in a file at which a probe is met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsdtSite {
    /// Whose probe it is.
    pub provider: String,
    /// What it is called.
    pub name: String,
    /// The offset of its instruction in the file, in bytes.
    pub offset: u64,
    /// What stands there.
    pub nops: Nops,
    /// The offset of its semaphore, of two bytes, in the file, if it has one.
    pub semaphore: Option<u64>,
    /// Its arguments, as far as they are understood.
    pub arguments: Vec<Result<Argument, ArgumentError>>,
}

/// A place that is not attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedSite {
    /// Whose probe it is.
    pub provider: String,
    /// What it is called.
    pub name: String,
    /// Why it is not attached to.
    pub why: SiteError,
}

/// What stands at a probe's site. That which comes after the first is there for kernels that make a call of it, which needs no trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nops {
    /// `nop`.
    One,
    /// `nop` and a nop of five bytes.
    OneAndFive,
    /// `nop` and a nop of ten bytes.
    OneAndTen,
}

/// Why a site is not attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum SiteError {
    /// Nothing is known of where arguments are, or of what a nop is.
    #[error("the file is for another machine than x86-64 and arm64")]
    Machine,
    /// It is nowhere in the file's code.
    #[error("its address is not in the code of the file")]
    NoCode,
    /// A breakpoint there might be in the midst of an instruction, and break the program.
    #[error("there is no nop at its address")]
    NoNop,
    /// Where a counter should be that the kernel writes to is nothing that the program may write to.
    #[error("its semaphore is not in the data of the file")]
    NoSemaphore,
}

/// Reads all probes of a file.
pub fn usdt_probes(
    file: &(impl ReadAt + ?Sized),
    budget: &mut Budget,
) -> Result<UsdtProbes, SearchError> {
    let mut reader = Reader::new(file, budget)?;
    let header = Header::read(&mut reader)?;
    let sections = header.usdt_sections(&mut reader)?;
    let mut probes = UsdtProbes::default();
    let mut addresses = Vec::new();
    // Of another machine all sites are refused, whatever their arguments are.
    let machine = Machine::of_file(header.machine).unwrap_or(Machine::X86_64);
    for part in sections.notes {
        if part.bytes > NOTES_LIMIT {
            let (what, bytes) = (part.what, part.bytes);
            return Err(SearchError::TooLarge { what, bytes });
        }
        let bytes = reader.whole(part)?;
        let mut notes = Bytes {
            left: &bytes,
            endian: header.endian,
        };
        while let Some(note) = notes.note(&mut probes.malformed) {
            let count = (addresses.len() + probes.refused.len()) as u64 + probes.malformed;
            at_most(PROBE_LIMIT, count + 1, "USDT probes")?;
            let Some(note) = note.read(header.endian, machine) else {
                probes.malformed += 1;
                continue;
            };
            let note = note.moved(sections.base);
            match header.usdt_site(&reader, &note) {
                Ok(site) => {
                    addresses.push(note.address);
                    probes.sites.push(site);
                }
                Err(why) => probes.refused.push(RefusedSite {
                    provider: note.provider.to_string(),
                    name: note.name.to_string(),
                    why,
                }),
            }
        }
    }
    header.resolve(&mut reader, &mut probes.sites, &addresses)?;
    Ok(probes)
}

/// Where the notes are, and by what they are moved.
struct UsdtSections {
    notes: Vec<FileRange>,
    base: Option<u64>,
}

impl Header {
    fn usdt_sections(
        &self,
        reader: &mut Reader<impl ReadAt + ?Sized>,
    ) -> Result<UsdtSections, SearchError> {
        let mut found = UsdtSections {
            notes: Vec::new(),
            base: None,
        };
        if self.section_names >= self.sections {
            return Ok(found);
        }
        let names = self.section(reader, self.section_names)?;
        let names = self.part(&names);
        for index in 0..self.sections {
            let section = self.section(reader, index)?;
            let name = u64::from(section.sh_name(self.endian));
            let Some((name, _)) = reader.bytes::<16>(names.offset.saturating_add(name)) else {
                continue;
            };
            if section.sh_type(self.endian) == elf::SHT_NOTE && name.starts_with(NOTES) {
                found.notes.push(FileRange {
                    what: "notes of USDT probes",
                    ..self.part(&section)
                });
            } else if name.starts_with(BASE) {
                found.base = Some(section.sh_addr(self.endian));
            }
        }
        Ok(found)
    }

    fn usdt_site(
        &self,
        reader: &Reader<impl ReadAt + ?Sized>,
        note: &Note,
    ) -> Result<UsdtSite, SiteError> {
        let machine = Machine::of_file(self.machine).ok_or(SiteError::Machine)?;
        let offset = self.offset(&self.segments, note.address, 1);
        let offset = offset.ok_or(SiteError::NoCode)?;
        let code = reader.bytes::<11>(offset);
        let code = code.as_ref().map(|(code, count)| &code[..*count]);
        let nops = code.and_then(|code| match machine {
            Machine::X86_64 => Nops::of_x86_64(code),
            Machine::Aarch64 => Nops::of_aarch64(note.address, code),
        });
        let semaphore = match note.semaphore {
            0 => None,
            address => {
                let offset = self.offset(&self.writable, address, 2);
                Some(offset.ok_or(SiteError::NoSemaphore)?)
            }
        };
        Ok(UsdtSite {
            provider: note.provider.to_string(),
            name: note.name.to_string(),
            offset,
            nops: nops.ok_or(SiteError::NoNop)?,
            semaphore,
            arguments: note.arguments.clone(),
        })
    }

    /// Where in the file there are so many bytes for an address of one of these segments.
    fn offset(
        &self,
        segments: &[ProgramHeader64<Endianness>],
        address: u64,
        bytes: u64,
    ) -> Option<u64> {
        segments.iter().find_map(|segment| {
            let within = address.checked_sub(segment.p_vaddr(self.endian))?;
            let end = within.checked_add(bytes)?;
            let offset = segment.p_offset(self.endian).checked_add(within)?;
            let is_there = end <= segment.p_filesz(self.endian)
                && offset
                    .checked_add(bytes)
                    .is_some_and(|end| end <= self.size);
            is_there.then_some(offset)
        })
    }

    /// Finds the symbols that arguments name.
    fn resolve(
        &self,
        reader: &mut Reader<impl ReadAt + ?Sized>,
        sites: &mut [UsdtSite],
        addresses: &[u64],
    ) -> Result<(), SearchError> {
        let arguments = sites.iter().flat_map(|site| &site.arguments);
        let named = arguments.filter_map(|argument| argument.as_ref().ok()?.symbol());
        let named: BTreeSet<String> = named.map(str::to_string).collect();
        let found = match named.is_empty() {
            true => BTreeMap::new(),
            false => self.variables(reader, &named)?,
        };
        let address = |name: &str| match found.get(name) {
            Some(Some(address)) => Ok(*address),
            Some(None) => Err(ArgumentError::ThreadLocal(name.to_string())),
            None => Err(ArgumentError::NoSymbol(name.to_string())),
        };
        for (site, at) in sites.iter_mut().zip(addresses) {
            for argument in &mut site.arguments {
                if let Ok(read) = argument {
                    *argument = read.clone().resolved(*at, address);
                }
            }
        }
        Ok(())
    }

    /// The addresses of what has these names; none of what each thread has for itself.
    fn variables(
        &self,
        reader: &mut Reader<impl ReadAt + ?Sized>,
        names: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, Option<u64>>, SearchError> {
        const THREAD_LOCAL: u32 = 1;
        let mut found = BTreeMap::new();
        let mut count = 0;
        for index in 0..self.sections {
            let section = self.section(reader, index)?;
            let Some((symbols, strings)) = self.symbol_table(reader, &section)? else {
                continue;
            };
            let mut all = Vec::new();
            for_each_symbol(reader, symbols, |symbol| {
                let kind = symbol.st_type();
                let is_local = kind == elf::STT_TLS;
                let may_be = is_local || kind == elf::STT_OBJECT || kind == elf::STT_NOTYPE;
                if may_be && symbol.st_shndx(self.endian) != elf::SHN_UNDEF {
                    all.push((
                        symbol.st_name(self.endian),
                        u32::from(is_local) * THREAD_LOCAL,
                        symbol.st_value(self.endian),
                    ));
                    count += 1;
                }
                at_most(SYMBOL_LIMIT, count, "variables")
            })?;
            all.sort_unstable();
            for_each_name(
                reader,
                strings,
                &all,
                || true,
                |name, kind, address| {
                    if names.contains(name) {
                        let address = (kind != THREAD_LOCAL).then_some(address);
                        found.entry(name.to_string()).or_insert(address);
                    }
                },
            )?;
        }
        Ok(found)
    }
}

impl Nops {
    /// What x86-64 code begins with, if that is one of these.
    fn of_x86_64(code: &[u8]) -> Option<Self> {
        const FIVE: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];
        const TEN: [u8; 10] = [0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
        let (first, rest) = code.split_first()?;
        (*first == 0x90).then_some(match rest {
            _ if rest.starts_with(&FIVE) => Self::OneAndFive,
            _ if rest.starts_with(&TEN) => Self::OneAndTen,
            _ => Self::One,
        })
    }

    /// The same of arm64, where nothing longer is there for anybody, and what is not at a multiple of four is no instruction.
    fn of_aarch64(address: u64, code: &[u8]) -> Option<Self> {
        const NOP: [u8; 4] = 0xd503_201f_u32.to_le_bytes();
        (address.is_multiple_of(4) && code.starts_with(&NOP)).then_some(Self::One)
    }

    /// As assemblers write them.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::One => "nop",
            Self::OneAndFive => "nop,nop5",
            Self::OneAndTen => "nop,nop10",
        }
    }
}

/// What is left of a section of notes.
struct Bytes<'a> {
    left: &'a [u8],
    endian: Endianness,
}

/// What one note is about, unread.
struct RawNote<'a>(&'a [u8]);

/// What one note says.
struct Note<'a> {
    address: u64,
    base: u64,
    semaphore: u64,
    provider: &'a str,
    name: &'a str,
    arguments: Vec<Result<Argument, ArgumentError>>,
}

impl<'a> Bytes<'a> {
    /// The next note of a probe. What is cut off ends the section, and counts as malformed.
    fn note(&mut self, malformed: &mut u64) -> Option<RawNote<'a>> {
        loop {
            if self.left.is_empty() {
                return None;
            }
            let Some((owner, kind, about)) = self.next() else {
                // Also what pads a section.
                *malformed += u64::from(self.left.iter().any(|byte| *byte != 0));
                self.left = &[];
                return None;
            };
            if kind == NOTE_TYPE && owner == OWNER {
                return Some(RawNote(about));
            }
        }
    }

    fn next(&mut self) -> Option<(&'a [u8], u32, &'a [u8])> {
        let [owner, about, kind] = [self.number()?, self.number()?, self.number()?];
        if [owner, about, kind] == [0; 3] {
            return None;
        }
        Some((self.take(owner)?, kind, self.take(about)?))
    }

    fn number(&mut self) -> Option<u32> {
        let (number, left) = self.left.split_first_chunk()?;
        self.left = left;
        Some(self.endian.read_u32(*number))
    }

    /// So many bytes, and what fills them up to a multiple of four.
    fn take(&mut self, length: u32) -> Option<&'a [u8]> {
        let (taken, left) = self.left.split_at_checked(length as usize)?;
        let padding = (length as usize).next_multiple_of(4) - length as usize;
        self.left = left.get(padding..).unwrap_or_default();
        Some(taken)
    }
}

impl<'a> RawNote<'a> {
    /// Three addresses of 64 bits, and three strings. None where that is not what there is.
    fn read(&self, endian: Endianness, machine: Machine) -> Option<Note<'a>> {
        let mut left = self.0;
        let mut address = || {
            let (number, rest) = left.split_first_chunk::<8>()?;
            left = rest;
            Some(endian.read_u64(*number))
        };
        let [at, base, semaphore] = [address()?, address()?, address()?];
        let mut string = || {
            let end = left.iter().position(|byte| *byte == 0)?;
            let (string, rest) = left.split_at(end);
            left = &rest[1..];
            std::str::from_utf8(string).ok()
        };
        let [provider, name, arguments] = [string()?, string()?, string()?];
        // Some write a dash where others write two underlines; neither is a command for a terminal.
        let is_name = |name: &str| {
            (1..=NAME_LIMIT).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_graphic())
        };
        (is_name(provider) && is_name(name)).then_some(())?;
        Some(Note {
            address: at,
            base,
            semaphore,
            provider,
            name,
            arguments: parse_arguments(machine, arguments)?,
        })
    }
}

impl Note<'_> {
    /// The same where its file is now: the base was at another address as the note was written. Without one, nothing has moved.
    fn moved(mut self, base: Option<u64>) -> Self {
        if let Some(base) = base {
            let by = base.wrapping_sub(self.base);
            self.address = self.address.wrapping_add(by);
            if self.semaphore != 0 {
                self.semaphore = self.semaphore.wrapping_add(by);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests;
