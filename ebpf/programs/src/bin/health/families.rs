//! Column families, and whether writes to them are held back: `rocksdb::ColumnFamilyData` begins with its number and its name.

use aya_ebpf::{helpers::bpf_probe_read_user_str_bytes, macros::map, maps::HashMap};
use ckb_probe_common::health::{FamilyState, HealthCall, HealthKey, MAX_FAMILIES, held};

use crate::{account, now, read_user};

/// How each was judged last, by the address of its structure.
#[map]
static FAMILIES: HashMap<u64, FamilyState> = HashMap::with_max_entries(MAX_FAMILIES, 0);

/// A key that names a column family; None where it cannot be read.
#[inline(always)]
pub fn named(slot: u32, family: u64) -> Option<HealthKey> {
    let [id, text] = read_user(family)?;
    let mut key = HealthKey {
        slot,
        family: id as u32,
        ..HealthKey::default()
    };
    // SAFETY: the helper checks the address itself.
    unsafe { bpf_probe_read_user_str_bytes(text as *const u8, &mut key.name) }.ok()?;
    Some(key)
}

/// Takes down how a family was judged, and for how long it was so before.
#[inline(never)]
pub fn judged(slot: u32, call: &HealthCall) {
    let now = now();
    let Some(mut key) = named(slot, call.about) else {
        account::lose_call();
        return;
    };
    key.judgement = call.judgement;
    if let Some(before) = FAMILIES.get_ptr(&call.about) {
        // SAFETY: a map's value; RocksDB judges a family under a lock.
        let (since, before) = unsafe { ((*before).since_ns, (*before).key) };
        if before.judgement.held != held::NOT {
            account::add_to(&before, 0, now.saturating_sub(since));
        }
    }
    account::add_to(&key, 1, 0);
    let state = FamilyState {
        since_ns: now,
        key,
        memtables: call.memtables,
        level0_files: call.numbers[0] as u32,
        pending_bytes: call.numbers[1],
    };
    if FAMILIES.insert(&call.about, &state, 0).is_err() {
        account::lose_call();
    }
}
