//! Which functions of an ELF file have a name that matches a pattern.
//!
//! First the symbol tables are read for where functions are and where their names stand, 16 bytes for each, then the string tables
//! for the names, in the order in which they stand there. Only what matches is kept, and only as long as it is to be listed.

mod other_names;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashSet},
};

use object::{
    elf,
    read::elf::{SectionHeader as _, Sym as _},
};

use other_names::OtherNames;

use super::{
    FileRange, Header, Place, ReadAt, Reader, SearchError, at_most, for_each_symbol, reader::Budget,
};
use crate::{
    demangle::{Form, SYMBOL_LIMIT, demangle, form, is_verbatim, plain},
    glob::Glob,
    text,
};

/// No file that is searched has more functions, each in each symbol table that has it: CKB has 84,000. They take 16 MB.
const FUNCTION_LIMIT: u64 = 1 << 19;

/// So many names serve as examples, and so many come near.
const SAMPLE_LIMIT: usize = 10;
const NEAR_LIMIT: usize = 3;

/// Shorter words are in too many names.
const WORD_LENGTH: usize = 3;

/// Between two looks at the clock. The worst name takes some milliseconds.
const NAMES_AT_A_TIME: usize = 16;

/// So many that are indirect are listed.
const INDIRECT_LIMIT: usize = 10;

/// In place of where a function is: an indirect one is nowhere.
const INDIRECT: u64 = u64::MAX;

/// A section that only Go's linker makes, each.
const GO_SECTIONS: [&[u8]; 2] = [b".gopclntab\0", b".go.buildinfo\0"];

/// What is not called as functions are, so that a return probe would break it: that replaces a return address, and finds none
/// at a program's start and in what the kernel lets a signal handler return to; `setjmp` and its like return a second time, when
/// the replacement is long gone.
const NO_ORDINARY_FUNCTIONS: [&str; 14] = [
    "_start",
    "__restore_rt",
    "setjmp",
    "_setjmp",
    "__setjmp",
    "sigsetjmp",
    "__sigsetjmp",
    "getcontext",
    "__getcontext",
    "swapcontext",
    "__swapcontext",
    "vfork",
    "__vfork",
    "__libc_vfork",
];

/// A function that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What people call it, as far as that is known.
    pub name: String,
    /// What the linker calls it.
    pub symbol: String,
    /// How long it is, in bytes; 0 where that is unknown.
    pub size: u64,
    /// Where it is.
    pub place: Place,
    /// What else is called by this place: other functions, where a linker found that their code is the same.
    pub others: Vec<String>,
}

/// What one file has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Functions {
    /// Those that match, in order of name, unless there are more than were to be listed.
    pub found: Vec<Found>,
    /// How many match. One that has several names is one.
    pub total: usize,
    /// The first names in order of those that match.
    pub sample: Vec<String>,
    /// Names that have something of the pattern, when nothing matches.
    pub near: Vec<String>,
    /// Variants of functions that match, which are functions of their own (`f.constprop.0`) and not among those found: the first in
    /// order of name.
    pub variants: Vec<String>,
    /// What is called by a name that matches and is indirect: a function that picks one for the machine, as `memcpy` does. What it picked has
    /// another name. The first in order.
    pub indirect: Vec<String>,
    /// Whether strip(1) left its symbol table.
    pub has_symbol_table: bool,
}

/// How a file was linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linkage {
    /// By Go's linker.
    pub is_go: bool,
    /// It says who is to load the libraries that it needs. An executable that does not needs none.
    pub has_interpreter: bool,
}

/// Tells how a file was linked.
pub fn linkage(file: &(impl ReadAt + ?Sized), budget: &mut Budget) -> Result<Linkage, SearchError> {
    let mut reader = Reader::new(file, budget)?;
    let header = Header::read(&mut reader)?;
    Ok(Linkage {
        is_go: header.is_go(&mut reader)?,
        has_interpreter: header.has_interpreter,
    })
}

/// Looks for functions whose names match a pattern, and lists them if they are not more than `listed`. `has_time` tells whether
/// to carry on.
pub fn search_functions(
    file: &(impl ReadAt + ?Sized),
    glob: &Glob,
    listed: usize,
    budget: &mut Budget,
    has_time: impl Fn() -> bool,
) -> Result<Functions, SearchError> {
    let mut reader = Reader::new(file, budget)?;
    let header = Header::read(&mut reader)?;
    let mut has_symbol_table = false;
    let mut matching = Matching::new(glob, listed);
    let mut count = 0;
    for index in 0..header.sections {
        let section = header.section(&mut reader, index)?;
        has_symbol_table |= section.sh_type(header.endian) == elf::SHT_SYMTAB;
        let Some((symbols, strings)) = header.symbol_table(&mut reader, &section)? else {
            continue;
        };
        let (mut all, mut indirect) = (Vec::new(), Vec::new());
        for_each_symbol(&mut reader, symbols, |symbol| {
            if header.is_indirect(symbol) {
                indirect.push((symbol.st_name(header.endian), 0, INDIRECT));
                count += 1;
            }
            if let Some(offset) = header.function(symbol) {
                let size = u32::try_from(symbol.st_size(header.endian)).unwrap_or(u32::MAX);
                all.push((symbol.st_name(header.endian), size, offset));
                count += 1;
            }
            at_most(FUNCTION_LIMIT, count, "functions")
        })?;
        all.sort_unstable();
        matching.others.look_at(&all);
        if !indirect.is_empty() {
            all.append(&mut indirect);
            all.sort_unstable();
        }
        for_each_name(
            &mut reader,
            strings,
            &all,
            &has_time,
            |name, size, offset| match offset {
                INDIRECT => matching.take_indirect(name),
                offset => matching.take(name, size, offset),
            },
        )?;
    }
    let place = |offset| Place {
        offset,
        first_instruction: header.first_instruction(&reader, offset),
    };
    Ok(matching.into_functions(has_symbol_table, place))
}

impl Header {
    fn is_go(&self, reader: &mut Reader<impl ReadAt + ?Sized>) -> Result<bool, SearchError> {
        if self.section_names >= self.sections {
            return Ok(false);
        }
        let names = self.section(reader, self.section_names)?;
        let names = self.part(&names);
        let mut is_go = false;
        for index in 0..self.sections {
            let name = self.section(reader, index)?.sh_name(self.endian);
            let offset = names.offset.saturating_add(u64::from(name));
            let bytes = reader.bytes::<16>(offset);
            is_go |= bytes.is_some_and(|(bytes, _)| {
                GO_SECTIONS.iter().any(|section| bytes.starts_with(section))
            });
        }
        Ok(is_go)
    }
}

/// A function's name, by its offset in the string table, its size, and its offset in the file.
pub(super) type Named = (u32, u32, u64);

/// Gives the name of each function, which are in order of where their names stand, to `each`. Names that are too long, are cut off
/// by the table's end or are no text are left out.
pub(super) fn for_each_name(
    reader: &mut Reader<impl ReadAt + ?Sized>,
    strings: FileRange,
    functions: &[Named],
    has_time: impl Fn() -> bool,
    mut each: impl FnMut(&str, u32, u64),
) -> Result<(), SearchError> {
    let mut left = functions;
    reader.pieces(strings, SYMBOL_LIMIT + 1, |start, bytes| {
        while let [(name, size, offset), rest @ ..] = left {
            if left.len().is_multiple_of(NAMES_AT_A_TIME) && !has_time() {
                return Err(SearchError::TooSlow);
            }
            let at = u64::from(*name).saturating_sub(start) as usize;
            let Some(string) = bytes.get(at..) else {
                return Ok(bytes.len());
            };
            let end = string
                .iter()
                .take(SYMBOL_LIMIT + 1)
                .position(|byte| *byte == 0);
            match end {
                Some(end) => {
                    if let Ok(name) = std::str::from_utf8(&string[..end]) {
                        each(name, *size, *offset);
                    }
                }
                None if string.len() <= SYMBOL_LIMIT => return Ok(at),
                None => {}
            }
            left = rest;
        }
        Ok(bytes.len())
    })
}

/// What matches, so far.
struct Matching<'a> {
    glob: &'a Glob,
    /// What every symbol has whose name matches.
    needed: Vec<&'a str>,
    /// What those names have that come near.
    words: Vec<&'a str>,
    listed: usize,
    /// Where functions are that match.
    offsets: HashSet<u64>,
    /// The same, as long as there are not too many: name, symbol, size.
    found: BTreeMap<u64, (String, String, u32)>,
    sample: BTreeSet<String>,
    /// Symbols that have something of the pattern, the most of it first.
    near: BTreeSet<(Reverse<usize>, String)>,
    others: OtherNames,
    indirect: BTreeSet<String>,
}

impl<'a> Matching<'a> {
    fn new(glob: &'a Glob, listed: usize) -> Self {
        let pieces = glob.pieces().iter().map(String::as_str);
        let needed = pieces.filter(|piece| is_verbatim(piece)).collect();
        let words = glob.pieces().iter().flat_map(|piece| piece.split('_'));
        let words = words.filter(|word| word.len() >= WORD_LENGTH && is_verbatim(word));
        Self {
            glob,
            words: words.collect(),
            needed,
            listed,
            offsets: HashSet::new(),
            found: BTreeMap::new(),
            sample: BTreeSet::new(),
            near: BTreeSet::new(),
            others: OtherNames::default(),
            indirect: BTreeSet::new(),
        }
    }

    fn take_indirect(&mut self, symbol: &str) {
        let name = self.name(symbol);
        self.indirect.extend(name.map(|name| text::shown(&name)));
        if self.indirect.len() > INDIRECT_LIMIT {
            self.indirect.pop_last();
        }
    }

    fn take(&mut self, symbol: &str, size: u32, offset: u64) {
        self.others.take(symbol, offset);
        let Some(name) = self.name(symbol).map(|name| text::shown(&name)) else {
            if self.offsets.is_empty() {
                self.comes_near(symbol);
            }
            if self.has_needed(symbol) && !self.glob.as_str().contains('.') {
                self.others.take_variant(symbol, self.glob);
            }
            return;
        };
        self.sample.insert(name.clone());
        if self.sample.len() > SAMPLE_LIMIT {
            self.sample.pop_last();
        }
        self.offsets.insert(offset);
        if self.offsets.len() > self.listed {
            self.found.clear();
            return;
        }
        let new = (name, text::shown(symbol), size);
        self.found
            .entry(offset)
            .and_modify(|known| {
                if (&new.0, &new.1) < (&known.0, &known.1) {
                    known.clone_from(&new);
                }
            })
            .or_insert(new);
    }

    fn has_needed(&self, symbol: &str) -> bool {
        self.needed.iter().all(|piece| symbol.contains(piece))
    }

    /// What a function is called, if that or its symbol matches.
    fn name(&self, symbol: &str) -> Option<String> {
        if !self.has_needed(symbol) {
            return None;
        }
        match form(symbol) {
            Form::Whole => {
                let plain = plain(symbol);
                if NO_ORDINARY_FUNCTIONS.contains(&plain) {
                    return None;
                }
                let name = demangle(symbol).unwrap_or_else(|| plain.to_string());
                (self.glob.matches(&name) || self.glob.matches(plain)).then_some(name)
            }
            // Who wants one says so.
            Form::Clone => (self.glob.as_str().contains('.') && self.glob.matches(symbol))
                .then(|| symbol.to_string()),
            Form::Fragment => None,
        }
    }

    fn comes_near(&mut self, symbol: &str) {
        let words = self.words.iter().filter(|word| symbol.contains(**word));
        let has: usize = words.map(|word| word.len()).sum();
        let is_nearer =
            |(Reverse(least), last): &(_, String)| (Reverse(has), symbol) < (Reverse(*least), last);
        let is_full = self.near.len() == NEAR_LIMIT;
        if has == 0
            || form(symbol) != Form::Whole
            || is_full && !self.near.last().is_some_and(is_nearer)
        {
            return;
        }
        self.near.insert((Reverse(has), text::shown(symbol)));
        if self.near.len() > NEAR_LIMIT {
            self.near.pop_last();
        }
    }

    fn into_functions(self, has_symbol_table: bool, place: impl Fn(u64) -> Place) -> Functions {
        let mut found: Vec<Found> = self
            .found
            .into_iter()
            .map(|(offset, (name, symbol, size))| Found {
                others: self.others.of(offset, &name),
                name,
                symbol,
                size: u64::from(size),
                place: place(offset),
            })
            .collect();
        found.sort_by(|one, other| (&one.name, &one.symbol).cmp(&(&other.name, &other.symbol)));
        let is_near = self.offsets.is_empty();
        let near = self.near.into_iter().filter(|_| is_near);
        Functions {
            found,
            total: self.offsets.len(),
            sample: self.sample.into_iter().collect(),
            near: near
                .map(|(_, symbol)| demangle(&symbol).unwrap_or_else(|| plain(&symbol).to_string()))
                .collect(),
            variants: self.others.into_variants(),
            indirect: self.indirect.into_iter().collect(),
            has_symbol_table,
        }
    }
}

#[cfg(test)]
mod tests;
