//! What is needed of an ELF file to unwind through it, and to say what function an address is in.
//!
//! Of symbols only numbers are kept: names are read when they are asked for.

use std::{ops::Range, sync::Arc};

use object::{
    Endianness,
    elf::{self, Sym64},
    read::elf::{ProgramHeader as _, SectionHeader as _, Sym as _},
};

use super::{
    FileRange, Header, ReadAt, Reader, SearchError, at_most, for_each_symbol, reader::Budget,
};
use crate::demangle::SYMBOL_LIMIT;

/// No file has more functions, each in each symbol table that has it: CKB has 84,000. They take 12 MB.
const FUNCTION_LIMIT: u64 = 1 << 19;

/// So many labels, which have no size and may be functions of assembly, are asked for their names.
const LABEL_LIMIT: usize = 1 << 14;

/// So many tables of symbols are read. Files have two.
const TABLE_LIMIT: usize = 16;

/// What unwind tables take, with what is made of them to find a function's, is no more than so many times their length.
const INDEXED: u64 = 3;

/// ckb-vm's interpreter in assembly.
const CKB_VM: &[u8] = b"ckb_vm_x64_execute\0";

/// A file, as far as it matters for stacks.
#[derive(Debug, Default)]
pub struct CodeFile {
    /// What is mapped executable.
    segments: Vec<Segment>,
    /// In order of offset, each offset once.
    functions: Vec<Function>,
    /// The string tables.
    strings: Vec<FileRange>,
    /// Where ckb-vm's interpreter is, by offsets in the file.
    ckb_vm: Option<(u64, u64)>,
}

/// What there is to unwind by, as it stands in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnwindSections {
    /// The tables.
    pub eh_frame: Arc<[u8]>,
    /// Where they are, in the file's own terms.
    pub eh_frame_address: u64,
    /// What they may refer to.
    pub text: Option<Range<u64>>,
    /// Where the section `.got` is, in the file's own addresses.
    pub got: Option<Range<u64>>,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    offset: u64,
    address: u64,
    bytes: u64,
}

/// What is to be read of a file.
#[derive(Default)]
struct CodeParts {
    /// Tables of symbols, each with that of its strings.
    symbols: Vec<(FileRange, FileRange)>,
    /// The unwind tables, and where they are in the file's own terms.
    eh_frame: Option<(FileRange, u64)>,
    text: Option<Range<u64>>,
    got: Option<Range<u64>>,
}

/// A function: by numbers, of which a file may have half a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    offset: u64,
    /// The better name first: of what has a size, and is no label.
    rank: u8,
    table: u8,
    size: u32,
    name: u32,
}

impl CodeParts {
    fn of(reader: &mut Reader<impl ReadAt + ?Sized>, header: &Header) -> Result<Self, SearchError> {
        let mut parts = Self::default();
        if header.section_names >= header.sections {
            return Ok(parts);
        }
        let names = header.section(reader, header.section_names)?;
        let names = header.part(&names);
        for index in 0..header.sections {
            let section = header.section(reader, index)?;
            if let Some(tables) = header.symbol_table(reader, &section)? {
                if parts.symbols.len() < TABLE_LIMIT {
                    parts.symbols.push(tables);
                }
                continue;
            }
            let name = names
                .offset
                .saturating_add(section.sh_name(header.endian).into());
            let Some((name, _)) = reader.bytes::<16>(name) else {
                continue;
            };
            let begin = section.sh_addr(header.endian);
            let range = begin..begin.saturating_add(section.sh_size(header.endian));
            if name.starts_with(b".eh_frame\0") {
                let part = FileRange {
                    what: "unwind tables",
                    ..header.part(&section)
                };
                parts.eh_frame = Some((part, begin));
            } else if name.starts_with(b".text\0") {
                parts.text = Some(range);
            } else if name.starts_with(b".got\0") {
                parts.got = Some(range);
            }
        }
        Ok(parts)
    }

    /// Makes sure that they are in the file, and may be read: what it says of them may be anything.
    fn check(&self, reader: &Reader<impl ReadAt + ?Sized>) -> Result<(), SearchError> {
        let symbols = self.symbols.iter().map(|(symbols, _)| *symbols);
        let tables = self.eh_frame.map(|(part, _)| part);
        symbols
            .chain(tables)
            .try_for_each(|part| reader.check(part))
    }

    /// What is kept of them takes no more memory.
    fn most(&self) -> u64 {
        // Of a symbol as much is kept as stands in the file.
        const { assert!(size_of::<Function>() <= size_of::<Sym64<Endianness>>()) };
        let symbols = self.symbols.iter().map(|(symbols, _)| symbols.bytes);
        let tables = self.eh_frame.map_or(0, |(part, _)| part.bytes);
        symbols.fold(tables.saturating_mul(INDEXED), u64::saturating_add)
    }
}

impl CodeFile {
    /// Reads what there is; with it the tables, as they stand in the file. `has_room` is asked before whether there are so many bytes
    /// of memory, which is what is kept of it, or more.
    pub fn read(
        file: &(impl ReadAt + ?Sized),
        budget: &mut Budget,
        has_room: impl FnOnce(u64) -> bool,
    ) -> Result<(Self, Option<UnwindSections>), SearchError> {
        let mut reader = Reader::new(file, budget)?;
        let header = Header::read(&mut reader)?;
        let segments = header.segments.iter().map(|segment| Segment {
            offset: segment.p_offset(header.endian),
            address: segment.p_vaddr(header.endian),
            bytes: segment.p_filesz(header.endian),
        });
        let mut image = Self {
            segments: segments.collect(),
            ..Self::default()
        };
        let parts = CodeParts::of(&mut reader, &header)?;
        parts.check(&reader)?;
        if !has_room(parts.most()) {
            return Err(SearchError::NoRoom(parts.most()));
        }
        for (symbols, strings) in &parts.symbols {
            image.take_symbols(&mut reader, &header, *symbols, *strings)?;
        }
        let sections = match parts.eh_frame {
            Some((part, address)) if part.bytes > 0 => Some(UnwindSections {
                eh_frame: reader.whole(part)?,
                eh_frame_address: address,
                text: parts.text,
                got: parts.got,
            }),
            _ => None,
        };
        image.functions.sort_unstable();
        image.functions.dedup_by_key(|function| function.offset);
        image.functions.shrink_to_fit();
        image.ckb_vm = image.find_ckb_vm(&reader);
        Ok((image, sections))
    }

    fn take_symbols(
        &mut self,
        reader: &mut Reader<impl ReadAt + ?Sized>,
        header: &Header,
        symbols: FileRange,
        strings: FileRange,
    ) -> Result<(), SearchError> {
        let table = u8::try_from(self.strings.len()).unwrap_or(u8::MAX);
        self.strings.push(strings);
        for_each_symbol(reader, symbols, |symbol| {
            let kind = symbol.st_type();
            // Assembly may not say what is a function. What is local to it is a label more often.
            let is_label = kind == elf::STT_NOTYPE && symbol.st_bind() == elf::STB_GLOBAL;
            let is_function = kind == elf::STT_FUNC || kind == elf::STT_GNU_IFUNC;
            if !is_label && !is_function || symbol.st_shndx(header.endian) == elf::SHN_UNDEF {
                return Ok(());
            }
            let address = symbol.st_value(header.endian);
            let Some(offset) = self.offset_of(address) else {
                return Ok(());
            };
            let size = u32::try_from(symbol.st_size(header.endian)).unwrap_or(u32::MAX);
            self.functions.push(Function {
                offset,
                rank: u8::from(size == 0) + 2 * u8::from(is_label),
                table,
                size,
                name: symbol.st_name(header.endian),
            });
            at_most(FUNCTION_LIMIT, self.functions.len() as u64, "functions")
        })
    }

    fn find_ckb_vm(&self, reader: &Reader<impl ReadAt + ?Sized>) -> Option<(u64, u64)> {
        let labels = self.functions.iter().enumerate();
        let labels = labels.filter(|(_, function)| function.size == 0);
        labels.take(LABEL_LIMIT).find_map(|(index, function)| {
            let strings = self.strings.get(usize::from(function.table))?;
            let at = strings.offset.checked_add(function.name.into())?;
            let (name, count) = reader.bytes::<{ CKB_VM.len() }>(at)?;
            let is_it = count == CKB_VM.len() && name == CKB_VM;
            is_it.then(|| (function.offset, self.end(index)))
        })
    }

    /// Where a function ends: without a size, where the next one begins.
    fn end(&self, index: usize) -> u64 {
        let Some(function) = self.functions.get(index) else {
            return 0;
        };
        if function.size > 0 {
            return function.offset.saturating_add(function.size.into());
        }
        let next = self.functions.get(index + 1);
        let segment = self.segments.iter().find(|segment| {
            let within = function.offset.checked_sub(segment.offset);
            within.is_some_and(|within| within < segment.bytes)
        });
        let end = segment.map_or(0, |segment| segment.offset.saturating_add(segment.bytes));
        next.map_or(end, |next| next.offset.min(end))
    }

    /// Where in the file an address in its own terms is.
    fn offset_of(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let within = address.checked_sub(segment.address)?;
            (within < segment.bytes).then(|| segment.offset.checked_add(within))?
        })
    }

    /// What has to be added to an address in the file's own terms, where the offset of the file is mapped to an address.
    pub fn bias(&self, offset: u64, address: u64) -> Option<u64> {
        // Mappings begin at pages.
        let page = |offset: u64| offset & !4095;
        let mut segments = self.segments.iter();
        let segment = segments.find(|segment| {
            let end = segment.offset.saturating_add(segment.bytes);
            page(segment.offset) <= offset && offset < end
        })?;
        Some(
            address
                .wrapping_sub(offset)
                .wrapping_add(segment.offset)
                .wrapping_sub(segment.address),
        )
    }

    /// What it takes of memory, in bytes.
    pub fn bytes(&self) -> u64 {
        (self.functions.capacity() * size_of::<Function>()) as u64
    }

    /// Where ckb-vm's interpreter in assembly is in the file.
    pub fn ckb_vm(&self) -> Option<(u64, u64)> {
        self.ckb_vm
    }

    /// The symbol of the function that an offset is in.
    pub fn symbol(&self, file: &(impl ReadAt + ?Sized), offset: u64) -> Option<String> {
        let after = self
            .functions
            .partition_point(|function| function.offset <= offset);
        let index = after.checked_sub(1)?;
        if offset >= self.end(index) {
            return None;
        }
        let function = self.functions.get(index)?;
        let strings = self.strings.get(usize::from(function.table))?;
        let name = u64::from(function.name);
        let length = strings
            .bytes
            .checked_sub(name)?
            .min(SYMBOL_LIMIT as u64 + 1);
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, strings.offset.checked_add(name)?)
            .ok()?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        bytes.truncate(end);
        String::from_utf8(bytes)
            .ok()
            .filter(|name| !name.is_empty())
    }
}
