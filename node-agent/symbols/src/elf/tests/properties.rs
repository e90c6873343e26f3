//! Files of many shapes.

use proptest::prelude::*;
use reader::PIECE;

use super::*;

/// Strings for a string table: names, what resembles them, and what is long enough to make pieces of the table.
fn string() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(WRITE.to_string()),
        Just(SYNC.to_string()),
        Just(format!("my_{WRITE}")),
        Just(format!("_GLOBAL__sub_I_{SYNC}")),
        Just(format!("{SYNC}.cold")),
        (0usize..6000).prop_map(|count| format!("{}{SYNC}", "x".repeat(count))),
        (0usize..60_000).prop_map(|count| "y".repeat(count)),
        "[a-z_]{0,20}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Wherever pieces of the table begin and end, the names found are those that a look at each symbol's string finds.
    #[test]
    fn pieces_find_what_a_look_at_each_string_finds(
        (table, symbols) in tables(string(), 40),
    ) {
        let mut expected: BTreeMap<SymbolName, Vec<u64>> = BTreeMap::new();
        for symbol in &symbols {
            let name = match string_at(&table, symbol) {
                WRITE => Exact(WRITE),
                SYNC => Demangled("rocksdb::DBImpl::SyncWAL"),
                _ => continue,
            };
            expected.entry(name).or_default().push(symbol.offset);
        }
        let image = Image::with(&symbols, &table, false);
        let file = Counting::new(&image.bytes);
        let found = search(&file).unwrap().found;
        let offsets: BTreeMap<SymbolName, Vec<u64>> = found
            .into_iter()
            .map(|(name, places)| (name, places.iter().map(|place| place.offset).collect()))
            .collect();
        prop_assert_eq!(offsets, expected);
        prop_assert!(file.most.get() as u64 <= PIECE);
    }

    /// Numbers that matter, anywhere in a file.
    #[test]
    fn a_file_with_any_numbers_in_it_is_searched_or_refused(
        patches in patches(),
    ) {
        let bytes = both().patched(patches).bytes;
        let file = Counting::new(&bytes);
        if let Ok(table) = search(&file) {
            for place in table.found.values().flatten() {
                prop_assert!(place.offset < bytes.len() as u64);
            }
        }
        prop_assert!(file.read.get() <= 1 << 20);
    }
}
