//! Crafted ELF files: the search of a target's files, on any bytes.

use std::{cell::Cell, collections::BTreeSet, io};

use ckb_probe_symbols::{
    Machine,
    demangle::{SYMBOL_LIMIT, demangle},
    elf::{Budget, ReadAt, linkage, search, search_functions},
    glob::Glob,
    instruction::FirstInstruction,
    name::SymbolName::{Demangled, Exact},
};

/// All that a search may read: enough for any file the fuzzer makes, but for one that refers to its tables again and again.
const BUDGET: u64 = 1 << 20;

/// A function whose first instruction is looked at: at most 64 for each name.
const FUNCTIONS: u64 = 64;

struct Counting<'a> {
    bytes: &'a [u8],
    read: Cell<u64>,
}

impl ReadAt for Counting<'_> {
    fn size(&self) -> io::Result<u64> {
        self.bytes.size()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        assert!(buffer.len() <= 64 << 10, "pieces are small");
        self.read.set(self.read.get() + buffer.len() as u64);
        self.bytes.read_exact_at(buffer, offset)
    }
}

/// Searches the bytes as if they were an ELF file.
pub fn check(bytes: &[u8]) {
    let names = BTreeSet::from([
        Exact("rocksdb_write"),
        Exact("rocksdb_put"),
        Demangled("rocksdb::DBImpl::SyncWAL"),
        Demangled("rocksdb::CompactionJob::Run"),
    ]);
    let file = Counting {
        bytes,
        read: Cell::new(0),
    };
    let mut budget = Budget(BUDGET);
    let found = search(&file, &names, &mut budget);

    let most = BUDGET + names.len() as u64 * FUNCTIONS * 16;
    assert!(file.read.get() <= most, "no more is read than is allowed");
    for (name, places) in found.into_iter().flat_map(|table| table.found) {
        assert!(names.contains(&name));
        assert!((1..=FUNCTIONS).contains(&(places.len() as u64)));
        assert!(places.is_sorted_by(|one, next| one.offset < next.offset));
        for place in places {
            let code = &bytes[usize::try_from(place.offset).unwrap()..];
            let code = &code[..code.len().min(16)];
            let machines = [Machine::X86_64, Machine::Aarch64];
            let best = machines.map(|machine| FirstInstruction::of(machine, code));
            assert!(
                Some(place.first_instruction) >= best.into_iter().min(),
                "the worse is never told as the better"
            );
        }
    }
    FirstInstruction::of(Machine::X86_64, bytes);
    FirstInstruction::of(Machine::Aarch64, bytes);
    by_pattern(&file, bytes);
}

/// At most so many functions are listed.
const LISTED: usize = 8;

fn by_pattern(file: &Counting, bytes: &[u8]) {
    let glob = Glob::new("*[a-z_]*").unwrap();
    file.read.set(0);
    let found = search_functions(file, &glob, LISTED, &mut Budget(BUDGET), || true);
    // A section's name is looked at in the second.
    let _ = linkage(file, &mut Budget(BUDGET));
    assert!(
        file.read.get() <= 3 * BUDGET,
        "no more is read than is allowed"
    );
    if let Ok(functions) = found {
        assert!(functions.total <= LISTED || functions.found.is_empty());
        assert!(functions.found.len() <= functions.total);
        for function in functions.found {
            assert!(glob.matches(&function.name) || glob.matches(&function.symbol));
            assert!(function.place.offset < bytes.len() as u64);
        }
    }
    // Any bytes may be a symbol, and are often one that is made to be hard.
    for start in ["", "_ZN", "_ZNSt1AI", "_R"] {
        let symbol = format!("{start}{}", String::from_utf8_lossy(bytes));
        let name = demangle(symbol.trim_end_matches('\0'));
        assert!(name.is_none_or(|name| name.len() <= SYMBOL_LIMIT));
    }
    if let Ok(glob) = Glob::new(&String::from_utf8_lossy(bytes)) {
        glob.matches("rocksdb::DBImpl::SyncWAL");
    }
}
