//! Maps and rings by the types of what is in them, which are those of `ckb_probe_common`. That any bytes make such a type, and that
//! it has no padding, is proved where it is defined: no reader needs `unsafe`. Each knows its name, for what is said when it fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    marker::PhantomData,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use aya::{
    maps::{Array, HashMap, MapData, MapError, PerCpuArray, PerCpuValues, RingBuf},
    util::nr_cpus,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{AttachError, ReadError, object::Object, sys, walk::Walk};

/// A type whose bytes cross from and to the kernel as they are.
pub(super) trait Plain: FromBytes + Immutable + IntoBytes + Copy + 'static {}

impl<T: FromBytes + Immutable + IntoBytes + Copy + 'static> Plain for T {}

/// As aya's maps take it, whose trait can't be implemented for types of another crate.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct Raw<T>(pub T);

// SAFETY: transparent; any bytes are a value of it, and all of its bytes are of its fields: see [`Plain`].
unsafe impl<T: Plain> aya::Pod for Raw<T> {}

/// Counts alone, one after the other: what CPUs have of them adds up.
pub(super) trait Counts: Plain {
    /// The sum of all.
    fn sum(all: impl Iterator<Item = Self>) -> Self {
        let mut sum = Self::new_zeroed();
        for one in all {
            let counts = sum.as_mut_bytes().chunks_exact_mut(size_of::<u64>());
            for (count, more) in counts.zip(one.as_bytes().chunks_exact(size_of::<u64>())) {
                let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
                let total = number(count).saturating_add(number(more));
                count.copy_from_slice(&total.to_ne_bytes());
            }
        }
        sum
    }
}

impl Counts for u64 {}

/// Values by number.
pub(super) struct Values<T: Plain> {
    map: Array<MapData, Raw<T>>,
    name: &'static str,
    /// Where all are read at a time: the map once more, since aya does not show its own.
    batches: Option<OwnedFd>,
}

impl<T: Plain> Values<T> {
    /// The object's map of this name.
    pub(super) fn take(object: &mut Object, name: &'static str) -> Result<Self, AttachError> {
        let map = object.take_map(name)?;
        Ok(Self {
            map,
            name,
            batches: None,
        })
    }

    /// The same, for [`Self::all`].
    pub(super) fn take_for_batches(
        object: &mut Object,
        name: &'static str,
    ) -> Result<Self, AttachError> {
        let batches = Some(object.duplicate(name)?);
        Ok(Self {
            batches,
            ..Self::take(object, name)?
        })
    }

    /// All of them: by one call to the kernel, where it can do that (Linux 5.6).
    pub(super) fn all(&self) -> Result<Vec<T>, ReadError> {
        let (count, each) = (self.len(), size_of::<T>());
        let looked_up = self
            .batches
            .as_ref()
            .map(|map| sys::lookup_array(map.as_fd(), count as usize, each));
        match looked_up {
            // What is read has the length of a value, rounded up to eight bytes.
            Some(Ok(bytes)) if each % 8 == 0 && bytes.len() == count as usize * each => {
                let values = bytes.chunks_exact(each);
                Ok(values
                    .filter_map(|value| T::read_from_bytes(value).ok())
                    .collect())
            }
            _ => (0..count).map(|index| self.get(index)).collect(),
        }
    }

    pub(super) fn get(&self, index: u32) -> Result<T, ReadError> {
        let value = self.map.get(&index, 0).map_err(error(self.name))?;
        Ok(value.0)
    }

    pub(super) fn set(&mut self, index: u32, value: T) -> Result<(), ReadError> {
        let set = self.map.set(index, Raw(value), 0);
        set.map_err(error(self.name))
    }

    /// How many there are.
    pub(super) fn len(&self) -> u32 {
        self.map.len()
    }
}

/// Values by number, of which each CPU has its own.
pub(super) struct PerCpu<T: Plain> {
    map: PerCpuArray<MapData, Raw<T>>,
    name: &'static str,
    /// Where many are read at a time: the map once more, since aya does not show its own.
    batches: Option<OwnedFd>,
}

impl<T: Plain> PerCpu<T> {
    /// The object's map of this name.
    pub(super) fn take(object: &mut Object, name: &'static str) -> Result<Self, AttachError> {
        let map = object.take_map(name)?;
        Ok(Self {
            map,
            name,
            batches: None,
        })
    }

    /// The same, for [`Self::first`].
    pub(super) fn take_for_batches(
        object: &mut Object,
        name: &'static str,
    ) -> Result<Self, AttachError> {
        let batches = Some(object.duplicate(name)?);
        Ok(Self {
            batches,
            ..Self::take(object, name)?
        })
    }

    /// What each CPU has.
    pub(super) fn get(&self, index: u32) -> Result<Vec<T>, ReadError> {
        let cpus = self.map.get(&index, 0).map_err(error(self.name))?;
        Ok(cpus.iter().map(|Raw(cpu)| *cpu).collect())
    }

    /// What each CPU has of the first so many values: by one call to the kernel, where it can do that (Linux 5.13).
    pub(super) fn first(&self, count: u32) -> Result<Vec<Vec<T>>, ReadError> {
        let cpus = cpus().map_err(error(self.name))?;
        let each = size_of::<T>().next_multiple_of(size_of::<u64>());
        let looked_up = self
            .batches
            .as_ref()
            .map(|map| sys::lookup_array(map.as_fd(), count as usize, cpus * each));
        match looked_up {
            Some(Ok(bytes)) if bytes.len() == count as usize * cpus * each => {
                let value = |bytes: &[u8]| Some(T::read_from_prefix(bytes).ok()?.0);
                let values = bytes.chunks_exact(cpus * each);
                let values = values.map(|cpus| cpus.chunks_exact(each).filter_map(value).collect());
                Ok(values.collect())
            }
            _ => (0..count).map(|index| self.get(index)).collect(),
        }
    }

    /// Has each CPU have this.
    pub(super) fn set(&mut self, index: u32, value: T) -> Result<(), ReadError> {
        let failed = error(self.name);
        let cpus = cpus().map_err(&failed)?;
        let values = PerCpuValues::try_from(vec![Raw(value); cpus]);
        let values = values.map_err(|source| failed(MapError::IoError(source)))?;
        self.map.set(index, values, 0).map_err(failed)
    }

    /// How many there are.
    pub(super) fn len(&self) -> u32 {
        self.map.len()
    }
}

impl<T: Counts> PerCpu<T> {
    /// What all CPUs have together.
    pub(super) fn sum(&self, index: u32) -> Result<T, ReadError> {
        Ok(T::sum(self.get(index)?.into_iter()))
    }
}

/// Values by key.
pub(super) struct Table<K: Plain, V: Plain> {
    map: HashMap<MapData, Raw<K>, Raw<V>>,
    walk: Walk<Raw<K>, Raw<V>>,
    name: &'static str,
}

impl<K: Plain, V: Plain> Table<K, V> {
    /// The object's map of this name.
    pub(super) fn take(object: &mut Object, name: &'static str) -> Result<Self, AttachError> {
        let walk = object.walk(name)?;
        let map = object.take_map(name)?;
        Ok(Self { map, walk, name })
    }

    pub(super) fn get(&self, key: K) -> Result<V, ReadError> {
        let value = self.map.get(&Raw(key), 0).map_err(error(self.name))?;
        Ok(value.0)
    }

    /// Puts it there, in place of what was.
    pub(super) fn insert(&mut self, key: K, value: V) -> Result<(), ReadError> {
        let inserted = self.map.insert(Raw(key), Raw(value), 0);
        inserted.map_err(error(self.name))
    }

    /// Sees to it that it is not there.
    pub(super) fn remove(&mut self, key: K) -> Result<(), ReadError> {
        match self.map.remove(&Raw(key)) {
            Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
            Err(MapError::SyscallError(error))
                if error.io_error.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(())
            }
            Err(other) => Err(error(self.name)(other)),
        }
    }

    /// What is there all the time, once; of what comes and goes meanwhile, some.
    pub(super) fn entries(&self) -> Result<Vec<(K, V)>, ReadError> {
        let entries = self.walk.entries();
        let entries = entries.map_err(|source| ReadError::of(self.name, source))?;
        Ok(entries
            .into_iter()
            .map(|(Raw(key), Raw(value))| (key, value))
            .collect())
    }

    /// The keys of these.
    pub(super) fn keys(&self) -> Result<Vec<K>, ReadError> {
        let entries = self.entries()?;
        Ok(entries.into_iter().map(|(key, _)| key).collect())
    }
}

/// What programs tell, one after the other: each a `T`, some with more behind it.
pub(super) struct Ring<T> {
    ring: RingBuf<MapData>,
    of: PhantomData<fn() -> T>,
}

impl<T: FromBytes> Ring<T> {
    /// The object's ring of this name.
    pub(super) fn take(object: &mut Object, name: &'static str) -> Result<Self, AttachError> {
        Ok(Self {
            ring: object.take_map(name)?,
            of: PhantomData,
        })
    }

    /// The next that waits, and what is behind it. What is too short to be one is passed over.
    pub(super) fn next(&mut self) -> Option<(T, Vec<u8>)> {
        loop {
            let item = self.ring.next()?;
            if let Ok((head, more)) = T::read_from_prefix(&item) {
                return Some((head, more.to_vec()));
            }
        }
    }

    /// All that wait, without what is behind them.
    pub(super) fn drain(&mut self) -> Vec<T> {
        std::iter::from_fn(|| self.next().map(|(head, _)| head)).collect()
    }
}

/// A ring that several share: see `ring_shares` of the programs. A payer may have as much in it as it leaves to others.
pub(super) struct SharedRing<T> {
    ring: Ring<T>,
    taken: Values<u64>,
    /// By payer: bytes that were taken out.
    totals: BTreeMap<u32, u64>,
}

impl<T: FromBytes> SharedRing<T> {
    /// The object's ring of this name.
    pub(super) fn take(object: &mut Object, name: &'static str) -> Result<Self, AttachError> {
        Ok(Self {
            ring: Ring::take(object, name)?,
            taken: Values::take(object, "TAKEN")?,
            totals: BTreeMap::new(),
        })
    }

    /// All that wait, with what is behind each: who pays for one, `payer` says. No more than were there at once: payers have room again
    /// when all of that is taken.
    pub(super) fn drain(&mut self, payer: impl Fn(&T) -> u32) -> Vec<(T, Vec<u8>)> {
        let mut changed = BTreeSet::new();
        let mut taken = Vec::new();
        while let Some((head, more)) = self.ring.next() {
            let payer = payer(&head);
            let bytes = (size_of::<T>() + more.len()).next_multiple_of(8) + RECORD_HEAD;
            *self.totals.entry(payer).or_default() += bytes as u64;
            changed.insert(payer);
            taken.push((head, more));
        }
        for payer in changed {
            let total = self.totals.get(&payer).copied().unwrap_or_default();
            // Of an array that is there this does not fail; if it did, this payer would have less room.
            let _ = self.taken.set(payer, total);
        }
        taken
    }
}

/// What the kernel puts in front of each record of a ring.
const RECORD_HEAD: usize = 8;

impl<T> AsRawFd for Ring<T> {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.ring.as_raw_fd()
    }
}

fn cpus() -> Result<usize, MapError> {
    nr_cpus().map_err(|(_, source)| MapError::IoError(source))
}

pub(super) fn error(map: &'static str) -> impl Fn(MapError) -> ReadError {
    move |source| ReadError {
        map: map.to_string(),
        source: Box::new(source),
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert_eq, proptest};

    use super::*;

    #[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, PartialEq)]
    #[repr(C)]
    struct Pair {
        one: u64,
        other: u64,
    }

    impl Counts for Pair {}

    #[test]
    fn values_read_at_once_are_those_read_one_by_one() {
        let per_cpu_array = 6;
        let made = aya_obj::Map::new_from_params(per_cpu_array, 4, 16, 5, 0);
        let data = MapData::create(made, "batched", None).unwrap();
        let batches = data.fd().as_fd().try_clone_to_owned().unwrap();
        let map = aya::maps::Map::from_map_data(data).unwrap();
        let mut map: PerCpu<Pair> = PerCpu {
            map: map.try_into().unwrap(),
            name: "batched",
            batches: Some(batches),
        };
        for index in 0..5 {
            let (one, other) = (index.into(), u64::MAX - u64::from(index));
            map.set(index, Pair { one, other }).unwrap();
        }
        for count in [1, 4, 5] {
            let each: Vec<_> = (0..count).map(|index| map.get(index).unwrap()).collect();
            assert_eq!(map.first(count).unwrap(), each);
        }
        // More than there are are an error, as one of them is.
        assert!(map.first(6).is_err());
        map.batches = None;
        assert_eq!(map.first(5).unwrap().len(), 5);
    }

    proptest! {
        #[test]
        fn what_cpus_have_adds_up_field_by_field(all: Vec<(u32, u64)>) {
            let pairs = all.iter().map(|(one, other)| Pair { one: (*one).into(), other: *other });
            let sum = Pair::sum(pairs);
            prop_assert_eq!(sum.one, all.iter().map(|(one, _)| u64::from(*one)).sum::<u64>());
            let other = all.iter().fold(0_u64, |sum, (_, other)| sum.saturating_add(*other));
            prop_assert_eq!(sum.other, other);
        }
    }
}
