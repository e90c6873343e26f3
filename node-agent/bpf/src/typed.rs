//! Maps and rings by the types of what is in them, which are those of `ckb_probe_common`. That any bytes make such a type, and that
//! it has no padding, is proved where it is defined: no reader needs `unsafe`. Each knows its name, for what is said when it fails.

use std::{marker::PhantomData, os::fd::AsRawFd};

use aya::{
    maps::{Array, HashMap, MapData, MapError, PerCpuArray, PerCpuValues, RingBuf},
    util::nr_cpus,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{AttachError, ReadError, object::Object, walk::Walk};

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
}

impl<T: Plain> Values<T> {
    /// The object's map of this name.
    pub(super) fn take(object: &mut Object, name: &'static str) -> Result<Self, AttachError> {
        let map = object.take_map(name)?;
        Ok(Self { map, name })
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
}

impl<T: Plain> PerCpu<T> {
    /// The object's map of this name.
    pub(super) fn take(object: &mut Object, name: &'static str) -> Result<Self, AttachError> {
        let map = object.take_map(name)?;
        Ok(Self { map, name })
    }

    /// What each CPU has.
    pub(super) fn get(&self, index: u32) -> Result<Vec<T>, ReadError> {
        let cpus = self.map.get(&index, 0).map_err(error(self.name))?;
        Ok(cpus.iter().map(|Raw(cpu)| *cpu).collect())
    }

    /// Has each CPU have this.
    pub(super) fn set(&mut self, index: u32, value: T) -> Result<(), ReadError> {
        let failed = error(self.name);
        let cpus = nr_cpus().map_err(|(_, source)| failed(MapError::IoError(source)))?;
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

impl<T> AsRawFd for Ring<T> {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.ring.as_raw_fd()
    }
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
