//! Small ELF files, well-formed unless a test makes them otherwise.

use proptest::{prelude::*, sample::Index};

use super::super::reader::PIECE;

/// Where the file says that it is mapped.
pub const BASE: u64 = 0x40_0000;

/// The functions' code: one begins with `push %rbp`, one with `mov (%rdi),%rdi`.
pub const PUSHES: u64 = HEADERS as u64;
pub const MOVES: u64 = PUSHES + 8;
/// Where the symbol table begins.
pub const SYMBOLS: usize = HEADERS + CODE.len();
const CODE: [u8; 16] = [
    0x55, 0x5d, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90, 0x48, 0x8b, 0x3f, 0xc3, 0x90, 0x90, 0x90, 0x90,
];

// Fields of the file header.
pub const CLASS: usize = 4;
pub const PROGRAM_HEADERS: usize = 32;
pub const SECTION_HEADERS: usize = 40;
pub const PROGRAM_HEADER_COUNT: usize = 56;
pub const SECTION_COUNT: usize = 60;

// Fields of the one program header.
pub const SEGMENT_FLAGS: usize = 64 + 4;
pub const SEGMENT_OFFSET: usize = 64 + 8;
pub const SEGMENT_ADDRESS: usize = 64 + 16;
pub const SEGMENT_LENGTH: usize = 64 + 32;

/// The section headers, and fields in one.
const SECTIONS: usize = 120;
pub const NULL: usize = SECTIONS;
pub const SYMTAB: usize = SECTIONS + 64;
pub const STRTAB: usize = SECTIONS + 2 * 64;
pub const DYNSYM: usize = SECTIONS + 3 * 64;
pub const KIND: usize = 4;
pub const OFFSET: usize = 24;
pub const BYTES: usize = 32;
pub const LINK: usize = 40;
pub const INFO: usize = 44;
const HEADERS: usize = SECTIONS + 5 * 64;

/// An ELF file of one executable segment that is all of it, with a symbol table and an empty dynamic one.
#[derive(Clone, Debug)]
pub struct Image {
    pub bytes: Vec<u8>,
    big_endian: bool,
}

/// A symbol: the offset of its name in the string table, the kind of what it names (2: a function), the section (0: elsewhere),
/// and its offset in the file.
#[derive(Clone, Copy, Debug)]
pub struct Symbol {
    pub name: u32,
    pub kind: u8,
    pub section: u16,
    pub offset: u64,
}

impl Image {
    /// Functions by name, at offsets in the file.
    pub fn of(functions: &[(&str, u64)]) -> Self {
        let mut strings = vec![0];
        let mut symbols = Vec::new();
        for (name, offset) in functions {
            symbols.push(function(strings.len() as u32, *offset));
            strings.extend_from_slice(name.as_bytes());
            strings.push(0);
        }
        Self::with(&symbols, &strings, false)
    }

    pub fn with(symbols: &[Symbol], strings: &[u8], big_endian: bool) -> Self {
        let mut image = Self {
            bytes: vec![0; HEADERS],
            big_endian,
        };
        image.bytes.extend_from_slice(&CODE);
        for (index, symbol) in symbols.iter().enumerate() {
            let at = SYMBOLS + index * 24;
            image.bytes.resize(at + 24, 0);
            image.put(at, symbol.name);
            image.put(at + 4, symbol.kind);
            image.put(at + 6, symbol.section);
            image.put(at + 8, BASE.wrapping_add(symbol.offset));
        }
        let strings_offset = image.bytes.len();
        image.bytes.extend_from_slice(strings);
        let size = image.bytes.len();

        let data = if big_endian { 2 } else { 1 };
        image.bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, data, 1]);
        image.put(18, if big_endian { 21u16 } else { 62 });
        image.put(PROGRAM_HEADERS, 64u64);
        image.put(SECTION_HEADERS, SECTIONS as u64);
        image.put(PROGRAM_HEADER_COUNT, 1u16);
        image.put(SECTION_COUNT, 5u16);

        image.put(64, 1u32);
        image.put(SEGMENT_FLAGS, 5u32);
        image.put(SEGMENT_ADDRESS, BASE);
        image.put(SEGMENT_LENGTH, size as u64);

        let tables = [
            (SYMTAB, 2u32, SYMBOLS, strings_offset, 2u32),
            (STRTAB, 3, strings_offset, size, 0),
            (DYNSYM, 11, strings_offset, strings_offset, 4),
            (DYNSYM + 64, 3, strings_offset, size, 0),
        ];
        for (header, kind, begin, end, link) in tables {
            image.put(header + KIND, kind);
            image.put(header + OFFSET, begin as u64);
            image.put(header + BYTES, (end - begin) as u64);
            image.put(header + LINK, link);
        }
        image
    }

    /// The same with another field.
    pub fn set(mut self, at: usize, value: impl Field) -> Self {
        self.put(at, value);
        self
    }

    /// The first bytes of it.
    pub fn cut(mut self, bytes: usize) -> Self {
        self.bytes.truncate(bytes);
        self
    }

    /// The same with these numbers in it.
    pub fn patched(mut self, patches: Vec<(Index, u64, usize)>) -> Self {
        for (at, value, width) in patches {
            let at = at.index(self.bytes.len() - 8);
            self.bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        }
        self
    }

    fn put(&mut self, at: usize, value: impl Field) {
        let bytes = value.bytes(self.big_endian);
        self.bytes[at..at + bytes.len()].copy_from_slice(&bytes);
    }
}

pub fn function(name: u32, offset: u64) -> Symbol {
    Symbol {
        name,
        kind: 2,
        section: 1,
        offset,
    }
}

/// A string table, and symbols whose names begin somewhere in one of its strings.
fn named(strings: &[&String], picks: &[(Index, u32)]) -> (Vec<u8>, Vec<Symbol>) {
    let (mut table, mut starts) = (Vec::new(), Vec::new());
    for string in strings {
        starts.push(table.len() as u32);
        table.extend_from_slice(string.as_bytes());
        table.push(0);
    }
    let symbols = picks
        .iter()
        .zip(PUSHES..)
        .map(|((pick, within), offset)| function(pick.get(&starts) + within, offset));
    let symbols = symbols.collect();
    (table, symbols)
}

/// A string table of such strings, after the first of which one comes to lie where one piece of the table ends and the next begins; and
/// symbols whose names begin at, or within so many bytes of, the beginning of one of them.
pub fn tables(
    string: impl Strategy<Value = String>,
    within: u32,
) -> impl Strategy<Value = (Vec<u8>, Vec<Symbol>)> {
    let strings = prop::collection::vec(string, 1..20);
    let before = (0u64..40).prop_map(|less| "z".repeat((PIECE - less) as usize));
    let offset = prop_oneof![Just(0u32), 0..within];
    let picks = prop::collection::vec((any::<Index>(), offset), 1..40);
    (strings, before, picks).prop_map(|(strings, before, picks)| {
        let strings: Vec<&String> = [&before].into_iter().chain(&strings).collect();
        named(&strings, &picks)
    })
}

/// What the string table of a symbol's name has there.
pub fn string_at<'a>(table: &'a [u8], symbol: &Symbol) -> &'a str {
    let rest = table.get(symbol.name as usize..).unwrap_or_default();
    let string = rest.split(|byte| *byte == 0).next().unwrap_or_default();
    std::str::from_utf8(string).unwrap()
}

/// Numbers that matter, of some width, and where.
pub fn patches() -> impl Strategy<Value = Vec<(Index, u64, usize)>> {
    let number = prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(1 << 32),
        Just(1 << 63),
        any::<u64>(),
    ];
    prop::collection::vec((any::<Index>(), number, 1usize..=8), 1..6)
}

/// A number in a header.
pub trait Field: Copy {
    fn bytes(self, big_endian: bool) -> Vec<u8>;
}

macro_rules! field {
    ($($number:ty),*) => {$(
        impl Field for $number {
            fn bytes(self, big_endian: bool) -> Vec<u8> {
                if big_endian { self.to_be_bytes() } else { self.to_le_bytes() }.to_vec()
            }
        }
    )*};
}

field!(u8, u16, u32, u64);
