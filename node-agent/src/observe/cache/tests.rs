use std::collections::BTreeMap;

use super::*;
use ckb_probe_symbols::{FirstInstruction::Emulated, elf::Place};

const NAME: SymbolName = SymbolName::Exact("rocksdb_write");

fn state(inode: u64) -> FileState {
    FileState {
        device: 1,
        inode,
        bytes: 100,
        modified_ns: 5,
        changed_ns: 6,
    }
}

fn table(offset: u64) -> Table {
    let place = Place {
        offset,
        first_instruction: Emulated,
    };
    Table {
        found: BTreeMap::from([(NAME, vec![place])]),
        has_symbol_table: true,
    }
}

fn found(offset: u64) -> Known<Table> {
    Ok(table(offset))
}

fn kept(cache: &SymbolCache, inode: u64, names: &BTreeSet<SymbolName>) -> Option<Table> {
    let known = cache.get(state(inode), names);
    known.map(|known| known.unwrap())
}

#[test]
fn what_was_found_is_kept_for_this_file_in_this_state_and_these_names() {
    let names = BTreeSet::from([NAME]);
    let cache = SymbolCache::default();
    cache.insert(state(1), names.clone(), found(7));
    assert_eq!(kept(&cache, 1, &names), Some(table(7)));
    assert_eq!(kept(&cache, 1, &BTreeSet::new()), None);
    let others = [
        FileState {
            device: 2,
            ..state(1)
        },
        FileState {
            inode: 2,
            ..state(1)
        },
        FileState {
            bytes: 101,
            ..state(1)
        },
        FileState {
            modified_ns: 6,
            ..state(1)
        },
        FileState {
            changed_ns: 7,
            ..state(1)
        },
    ];
    for other in others {
        assert!(cache.get(other, &names).is_none(), "{other:?}");
    }
}

#[test]
fn the_file_that_was_not_used_for_longest_goes() {
    let names = BTreeSet::from([NAME]);
    let cache = SymbolCache::default();
    let limit = ENTRY_LIMIT as u64;
    for inode in 0..limit {
        cache.insert(state(inode), names.clone(), found(inode));
    }
    assert_eq!(kept(&cache, 0, &names), Some(table(0)));
    cache.insert(state(limit), names.clone(), found(limit));
    assert_eq!(cache.entries().len(), ENTRY_LIMIT);
    assert_eq!(kept(&cache, 1, &names), None);
    for inode in (2..=limit).chain([0]) {
        assert_eq!(kept(&cache, inode, &names), Some(table(inode)));
    }
}

#[test]
fn a_file_changed_just_now_or_in_the_future_may_change_again_unseen() {
    let changed = SystemTime::UNIX_EPOCH + Duration::from_nanos(6);
    assert!(!state(1).is_settled(SystemTime::UNIX_EPOCH));
    assert!(!state(1).is_settled(changed));
    assert!(!state(1).is_settled(changed + CLOCK_STEP));
    assert!(state(1).is_settled(changed + CLOCK_STEP + Duration::from_nanos(1)));
}
