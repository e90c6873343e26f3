mod crafted;
pub(super) mod image;
mod limits;
mod properties;

use std::{cell::Cell, io};

use image::*;

use super::*;
use SymbolName::{Demangled, Exact};

const WRITE: &str = "rocksdb_write";
const SYNC: &str = "_ZN7rocksdb6DBImpl7SyncWALEv";

/// What searches of the images below say.
const NOTHING: &str = "nothing";
const BOTH: &str = "rocksdb_write at 440, Emulated; rocksdb::DBImpl::SyncWAL at 448, SingleStepped";
const WRITE_FOUND: &str = "rocksdb_write at 440, Emulated";
const SYNC_FOUND: &str = "rocksdb::DBImpl::SyncWAL at 448, SingleStepped";
const NO_ELF: &str = "it is no 64-bit ELF file: it does not begin like one";
const CUT_TABLES: &str = "it is cut short: its symbol tables reach beyond its end";
const CUT_SECTIONS: &str = "it is cut short: its section headers reach beyond its end";
const CUT_SEGMENTS: &str = "it is cut short: its program headers reach beyond its end";
const CUT_HEADER: &str = "it is cut short: its file headers reach beyond its end";

fn names() -> BTreeSet<SymbolName> {
    let sync = Demangled("rocksdb::DBImpl::SyncWAL");
    BTreeSet::from([Exact(WRITE), Exact("rocksdb_put"), sync])
}

fn search(file: &(impl ReadAt + ?Sized)) -> Result<Table, SearchError> {
    super::search(file, &names(), &mut Budget::default())
}

/// An image with both functions.
fn both() -> Image {
    assert_eq!((PUSHES, MOVES), (440, 448));
    Image::of(&[(WRITE, PUSHES), (SYNC, MOVES)])
}

/// An image with `rocksdb_write` in its string table, at 1, and these symbols.
fn symbols(symbols: &[Symbol]) -> Image {
    Image::with(symbols, b"\0rocksdb_write\0", false)
}

/// An image with one symbol, whose name is at an offset of the string table.
fn strings(name: u32, strings: &[u8]) -> Image {
    Image::with(&[function(name, PUSHES)], strings, false)
}

/// An image with the C++ function, with parameters in its symbol.
fn mangled(parameters: &str) -> Image {
    let name = format!("_ZN7rocksdb6DBImpl7SyncWALE{parameters}");
    Image::of(&[(&name, MOVES)])
}

/// An image with so many overloads of the C++ function, byte by byte.
fn overloads(count: usize) -> Image {
    let names: Vec<String> = (0..count).map(|index| format!("{SYNC}{index}")).collect();
    let names = names.iter().map(String::as_str);
    Image::of(&names.zip(PUSHES..).collect::<Vec<_>>())
}

/// An image with a section that is the whole file.
fn whole(image: Image, section: usize) -> Image {
    let bytes = image.bytes.len() as u64;
    image
        .set(section + OFFSET, 0u64)
        .set(section + BYTES, bytes)
}

/// What a search says, in words.
fn outcome(bytes: &[u8]) -> String {
    let table = match search(bytes) {
        Ok(table) => table,
        Err(error) => return error.to_string(),
    };
    let places = |(name, places): (&SymbolName, &Vec<Place>)| {
        let text =
            |place: &Place| format!("{name} at {}, {:?}", place.offset, place.first_instruction);
        places.iter().map(text).collect::<Vec<_>>()
    };
    let mut words: Vec<String> = table.found.iter().flat_map(places).collect();
    if !table.has_symbol_table {
        words.push("stripped".to_string());
    }
    if words.is_empty() {
        words.push(NOTHING.to_string());
    }
    words.join("; ")
}

/// Counts what is read of a file.
struct Counting<'a> {
    bytes: &'a [u8],
    read: Cell<u64>,
    /// Longest at once.
    most: Cell<usize>,
}

impl<'a> Counting<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let (read, most) = Default::default();
        Self { bytes, read, most }
    }
}

impl ReadAt for Counting<'_> {
    fn size(&self) -> io::Result<u64> {
        self.bytes.size()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read.set(self.read.get() + buffer.len() as u64);
        self.most.set(self.most.get().max(buffer.len()));
        self.bytes.read_exact_at(buffer, offset)
    }
}
