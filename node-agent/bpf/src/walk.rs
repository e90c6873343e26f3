//! Going through a hash map that programs change meanwhile.
//!
//! From key to key (`BPF_MAP_GET_NEXT_KEY`) that may never end: where the key that a walk stands on is removed, the kernel has it
//! begin anew. So a map is read bucket by bucket (`BPF_MAP_LOOKUP_BATCH`, Linux 5.6), of which there are so many and no more.

use std::{
    io,
    marker::PhantomData,
    os::fd::{AsFd, OwnedFd},
};

use aya::{Pod, maps::MapData};

use super::sys;

/// So many entries are asked for at a time, at first.
const AT_A_TIME: usize = 256;

/// A way through a map's entries.
pub(super) struct Walk<K, V> {
    map: OwnedFd,
    room: usize,
    of: PhantomData<fn() -> (K, V)>,
}

impl<K: Pod, V: Pod> Walk<K, V> {
    /// Through this map, which is a hash map of these keys and values with room for so many.
    pub(super) fn through(map: &MapData, room: u32) -> io::Result<Self> {
        Ok(Self {
            map: map.fd().as_fd().try_clone_to_owned()?,
            room: room as usize,
            of: PhantomData,
        })
    }

    /// What is in the map: each entry that is there all the time, once; of those that come and go meanwhile, some.
    pub(super) fn entries(&self) -> io::Result<Vec<(K, V)>> {
        let mut entries = Vec::new();
        let mut size = AT_A_TIME.min(self.room.max(1));
        let mut place = None;
        loop {
            match sys::lookup_batch(self.map.as_fd(), place, size, &mut entries) {
                Ok(Some(next)) => place = Some(next),
                Ok(None) => return Ok(entries),
                // One bucket has more than was asked for; none has more than the map.
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && size < self.room => {
                    size = (size * 2).min(self.room);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use aya::maps::{HashMap, Map};

    use super::*;

    const ROOM: u32 = 8192;

    /// These stay; those that come and go are greater.
    const STAY: u64 = 1000;

    fn made(room: u32) -> (HashMap<MapData, u64, u64>, Walk<u64, u64>) {
        let hash = 1;
        let made = aya_obj::Map::new_from_params(hash, 8, 8, room, 0);
        let data = MapData::create(made, "walked", None).unwrap();
        let walk = Walk::through(&data, room).unwrap();
        let map = Map::from_map_data(data).unwrap();
        (HashMap::try_from(map).unwrap(), walk)
    }

    #[test]
    fn a_walk_ends_and_sees_all_that_stays_whoever_writes_meanwhile() {
        let (mut map, walk) = made(ROOM);
        for key in 0..STAY {
            map.insert(key, key * 3, 0).unwrap();
        }
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // What is there goes, and other keys come: whoever stands on one of them begins anew.
                let mut turn = 0;
                while !over.load(Ordering::Relaxed) {
                    for key in 0..2000 {
                        let _ = map.insert(STAY + turn * 2000 + key, 0, 0);
                    }
                    for key in 0..2000 {
                        let _ = map.remove(&(STAY + turn * 2000 + key));
                    }
                    turn += 1;
                }
            });
            for _ in 0..20 {
                let entries = walk.entries().unwrap();
                assert!(entries.len() <= ROOM as usize, "{}", entries.len());
                let seen: BTreeMap<u64, u64> = entries.iter().copied().collect();
                let stayed: Vec<_> = seen
                    .range(..STAY)
                    .map(|(key, value)| (*key, *value))
                    .collect();
                let all: Vec<_> = (0..STAY).map(|key| (key, key * 3)).collect();
                assert_eq!(stayed, all);
                let once = entries.iter().filter(|(key, _)| *key < STAY).count();
                assert_eq!(once as u64, STAY);
            }
            over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn what_is_there_is_seen_also_where_it_is_nothing_or_all() {
        let (mut map, walk) = made(3);
        assert!(walk.entries().unwrap().is_empty());
        for key in 0..3 {
            map.insert(key, 7, 0).unwrap();
        }
        let mut entries = walk.entries().unwrap();
        entries.sort_unstable();
        assert_eq!(entries, [(0, 7), (1, 7), (2, 7)]);
    }
}
