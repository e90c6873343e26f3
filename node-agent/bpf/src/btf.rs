//! The kernel's type information: what its functions and tracepoints are numbered, and where the fields of its
//! structures lie. The format is that of `Documentation/bpf/btf.rst`.

use std::{fs, io};

use ckb_probe_common::Field;
use zerocopy::IntoBytes;

use super::AttachError;

const PATH: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u32 = 0xeb9f;

/// `BTF_KIND_…`, as far as they matter.
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const POINTER: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNCTION: u32 = 12;
    pub(super) const FLOAT: u32 = 16;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

/// Bytes that follow the head of a type, by its kind: so many, and so many more for each of its elements.
const TAILS: [(usize, usize); 20] = [
    (0, 0),  // void
    (4, 0),  // int
    (0, 0),  // pointer
    (12, 0), // array
    (0, 12), // struct
    (0, 12), // union
    (0, 8),  // enum
    (0, 0),  // forward declaration
    (0, 0),  // typedef
    (0, 0),  // volatile
    (0, 0),  // const
    (0, 0),  // restrict
    (0, 0),  // function
    (0, 8),  // prototype
    (4, 0),  // variable
    (0, 12), // section
    (0, 0),  // float
    (4, 0),  // declaration tag
    (0, 0),  // type tag
    (0, 12), // enum64
];

/// A type's head: its name, its kind and the number of its elements, its size or another type.
const HEAD: usize = 12;

/// Types refer to types at most so deep: more is a circle.
const MAX_DEPTH: u32 = 32;

/// The type information of the running kernel. It takes some megabytes, and 10 ms to read: read it when programs are
/// loaded, ask it, and drop it.
pub(super) struct Types {
    bytes: Vec<u8>,
    /// Where the strings begin.
    strings: usize,
    /// Where each type begins. The first is void, which is not there.
    places: Vec<u32>,
}

/// A type as it lies in the bytes.
#[derive(Clone, Copy)]
struct Type {
    place: usize,
    name: u32,
    kind: u32,
    elements: usize,
    /// Whether a structure's members tell how many bits they have.
    has_bit_fields: bool,
    /// A size in bytes, or the number of the type that this one refers to.
    size_or_type: u32,
}

/// A member of a structure.
struct Member {
    name: u32,
    type_id: u32,
    /// In bits, from the beginning of the structure.
    offset: u32,
    /// 0 for what is no bit field.
    bits: u32,
}

impl Types {
    /// Reads it.
    pub(super) fn read() -> Result<Self, AttachError> {
        fs::read(PATH)
            .and_then(Self::parse)
            .map_err(AttachError::NoTypes)
    }

    fn parse(bytes: Vec<u8>) -> io::Result<Self> {
        let malformed = || io::Error::from(io::ErrorKind::InvalidData);
        let word = |at| word(&bytes, at).ok_or_else(malformed);
        if word(0)? & 0xffff != MAGIC {
            return Err(malformed());
        }
        let header = word(4)? as usize;
        let begin = header + word(8)? as usize;
        let end = begin + word(12)? as usize;
        let strings = header + word(16)? as usize;
        let mut types = Self {
            strings,
            // The kernel's have 20 to 30 bytes each.
            places: Vec::with_capacity((end - begin) / 20),
            bytes: Vec::new(),
        };
        types.places.push(0);
        let mut place = begin;
        while place < end {
            types.places.push(place as u32);
            let information = word(place + 4)?;
            let kind = information >> 24 & 0x1f;
            let (fixed, each) = *TAILS.get(kind as usize).ok_or_else(malformed)?;
            place += HEAD + fixed + each * (information & 0xffff) as usize;
        }
        types.bytes = bytes;
        Ok(types)
    }

    /// The number of a function.
    pub(super) fn function(&self, name: &str) -> Option<u32> {
        self.find(name, &[kind::FUNCTION])
    }

    /// The number of a typedef.
    pub(super) fn typedef(&self, name: &str) -> Option<u32> {
        self.find(name, &[kind::TYPEDEF])
    }

    /// The value of an enumerator, of whatever enumeration.
    pub(super) fn enumerator(&self, name: &str) -> Option<u32> {
        let enumerations = (1..self.places.len() as u32).filter_map(|id| self.get(id));
        enumerations
            .filter(|found| found.kind == kind::ENUM)
            .flat_map(|found| (0..found.elements).map(move |index| found.place + HEAD + index * 8))
            .find(|place| word(&self.bytes, *place).is_some_and(|own| self.is_named(own, name)))
            .and_then(|place| word(&self.bytes, place + 4))
    }

    /// Where fields lie: each by its structure and the way to it, member by member (`"__sk_common.skc_num"`). Members
    /// of structures without a name are their container's.
    pub(super) fn fields(
        &self,
        wanted: &[(&'static str, &'static str)],
    ) -> Result<Vec<Field>, AttachError> {
        wanted
            .iter()
            .map(|&(structure, field)| {
                self.field(structure, field)
                    .ok_or(AttachError::NoField { structure, field })
            })
            .collect()
    }

    /// Where a field lies, if the kernel has it.
    pub(super) fn field(&self, structure: &str, path: &str) -> Option<Field> {
        let mut id = self.find(structure, &[kind::STRUCT, kind::UNION])?;
        let mut bits = 0;
        for name in path.split('.') {
            let member = self.member(id, name, 0)?;
            if member.bits > 0 {
                return None;
            }
            bits += member.offset;
            id = self.plain(member.type_id)?;
        }
        Some(Field {
            offset: bits / 8,
            size: self.size(id, 0)?,
        })
    }

    /// The number of the first type with this name, of one of these kinds.
    fn find(&self, name: &str, kinds: &[u32]) -> Option<u32> {
        (1..self.places.len() as u32).find(|id| {
            self.get(*id)
                .is_some_and(|found| kinds.contains(&found.kind) && self.is_named(found.name, name))
        })
    }

    fn get(&self, id: u32) -> Option<Type> {
        let place = *self.places.get(id as usize)? as usize;
        let information = word(&self.bytes, place + 4)?;
        (id > 0).then_some(Type {
            place,
            name: word(&self.bytes, place)?,
            kind: information >> 24 & 0x1f,
            elements: (information & 0xffff) as usize,
            has_bit_fields: information >> 31 == 1,
            size_or_type: word(&self.bytes, place + 8)?,
        })
    }

    fn is_named(&self, name: u32, wanted: &str) -> bool {
        let begin = self.strings + name as usize;
        let end = begin + wanted.len();
        self.bytes.get(begin..end) == Some(wanted.as_bytes()) && self.bytes.get(end) == Some(&0)
    }

    /// The member of this name, also where it is one of a member without a name.
    fn member(&self, id: u32, name: &str, depth: u32) -> Option<Member> {
        let found = self.get(id)?;
        if !matches!(found.kind, kind::STRUCT | kind::UNION) || depth > MAX_DEPTH {
            return None;
        }
        (0..found.elements).find_map(|index| {
            let member = self.member_at(found, index)?;
            if member.name != 0 {
                return self.is_named(member.name, name).then_some(member);
            }
            let inner = self.member(self.plain(member.type_id)?, name, depth + 1)?;
            Some(Member {
                offset: member.offset + inner.offset,
                ..inner
            })
        })
    }

    fn member_at(&self, structure: Type, index: usize) -> Option<Member> {
        let place = structure.place + HEAD + index * 12;
        let offset = word(&self.bytes, place + 8)?;
        let (offset, bits) = if structure.has_bit_fields {
            (offset & 0xff_ffff, offset >> 24)
        } else {
            (offset, 0)
        };
        Some(Member {
            name: word(&self.bytes, place)?,
            type_id: word(&self.bytes, place + 4)?,
            offset,
            bits,
        })
    }

    /// The type behind names and qualifiers.
    fn plain(&self, mut id: u32) -> Option<u32> {
        for _ in 0..MAX_DEPTH {
            let found = self.get(id)?;
            match found.kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    id = found.size_or_type
                }
                _ => return Some(id),
            }
        }
        None
    }

    /// Bytes that a value of the type takes.
    fn size(&self, id: u32, depth: u32) -> Option<u32> {
        let found = self.get(id)?;
        match found.kind {
            kind::POINTER => Some(8),
            kind::INT | kind::STRUCT | kind::UNION | kind::ENUM | kind::ENUM64 | kind::FLOAT => {
                Some(found.size_or_type)
            }
            kind::ARRAY if depth < MAX_DEPTH => {
                let element = self.plain(word(&self.bytes, found.place + HEAD)?)?;
                let count = word(&self.bytes, found.place + HEAD + 8)?;
                self.size(element, depth + 1)?.checked_mul(count)
            }
            _ => None,
        }
    }
}

impl Drop for Types {
    fn drop(&mut self) {
        self.bytes = Vec::new();
        self.places = Vec::new();
        super::release_memory();
    }
}

/// Fields as a program's static holds them.
pub(super) fn as_bytes(fields: &[Field]) -> Vec<u8> {
    fields.as_bytes().to_vec()
}

/// The number of the key's type in [`of_map`].
pub(super) const KEY_TYPE: u32 = 1;

/// The number of the value's type in [`of_map`].
pub(super) const VALUE_TYPE: u32 = 3;

/// Type information for a map from a thread to `words` words of 8 bytes.
pub(super) fn of_map(words: u32) -> Vec<u8> {
    const STRINGS: &[u8] = b"\0int\0";
    let int = |bytes: u32| [1, kind::INT << 24, bytes, bytes * 8];
    // The second is the type of the value's words.
    let array = [0, kind::ARRAY << 24, 0, 2, 1, words];
    let types: Vec<u32> = [&int(4)[..], &int(8)[..], &array[..]].concat();
    let size = types.len() as u32 * 4;
    let header = [MAGIC | 1 << 16, 24, 0, size, size, STRINGS.len() as u32];
    header
        .iter()
        .chain(&types)
        .flat_map(|word| word.to_ne_bytes())
        .chain(STRINGS.iter().copied())
        .collect()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests;
