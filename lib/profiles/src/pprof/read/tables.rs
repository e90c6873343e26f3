//! What samples refer to.

use std::{borrow::Cow, collections::HashMap};

use prost::Message;

use super::{
    ELEMENT_LIMIT, Limits, ReadError, TYPES_LIMIT,
    fields::{Value, fields},
};
use crate::{
    Frame, SampleType,
    pprof::messages::{Function, Location, Mapping, ValueType, field},
};

/// The tables of a profile. Texts are where they were unzipped.
#[derive(Default)]
pub struct Tables<'a> {
    texts: Vec<Cow<'a, str>>,
    types: Vec<ValueType>,
    mappings: HashMap<u64, Mapping>,
    /// The names' places.
    functions: HashMap<u64, i64>,
    locations: HashMap<u64, Location>,
    shown: i64,
    /// When it began.
    pub start_ns: u64,
    /// How long it lasted.
    pub duration_ns: u64,
    /// What lies between two samples.
    pub period: u64,
}

/// A place in the program, and its functions, the innermost first.
pub struct ResolvedLocation<'t> {
    pub module: &'t str,
    pub functions: Vec<&'t str>,
    address: u64,
}

impl<'a> Tables<'a> {
    pub fn read(bytes: &'a [u8], limits: &Limits) -> Result<Self, ReadError> {
        let mut tables = Self::default();
        let mut samples = 0;
        let within = |what, count| {
            let limit = limits.elements;
            if count < limit {
                Ok(count + 1)
            } else {
                Err(ReadError::TooMany { what, limit })
            }
        };
        for found in fields(bytes) {
            match found? {
                (field::STRING_TABLE, Value::Bytes(text)) => {
                    within("text", tables.texts.len())?;
                    tables.texts.push(String::from_utf8_lossy(text));
                }
                (field::SAMPLE_TYPE, Value::Bytes(encoded)) => {
                    let number = tables.types.len() + 1;
                    if number > TYPES_LIMIT {
                        let (what, limit) = ("sample type", TYPES_LIMIT);
                        return Err(ReadError::TooMany { what, limit });
                    }
                    tables.types.push(element(encoded, "sample type", number)?);
                }
                (field::SAMPLE, Value::Bytes(_)) => samples = within("sample", samples)?,
                (field::MAPPING, Value::Bytes(encoded)) => {
                    let number = within("mapping", tables.mappings.len())?;
                    let mapping: Mapping = element(encoded, "mapping", number)?;
                    tables.mappings.insert(mapping.id, mapping);
                }
                (field::LOCATION, Value::Bytes(encoded)) => {
                    let number = within("location", tables.locations.len())?;
                    let location: Location = element(encoded, "location", number)?;
                    tables.locations.insert(location.id, location);
                }
                (field::FUNCTION, Value::Bytes(encoded)) => {
                    let number = within("function", tables.functions.len())?;
                    let function: Function = element(encoded, "function", number)?;
                    let name = [function.name, function.system_name];
                    let name = name.into_iter().find(|name| *name != 0).unwrap_or(0);
                    tables.functions.insert(function.id, name);
                }
                (field::TIME_NANOS, Value::Number(number)) => tables.start_ns = positive(number),
                (field::DURATION_NANOS, Value::Number(number)) => {
                    tables.duration_ns = positive(number)
                }
                (field::PERIOD, Value::Number(number)) => tables.period = positive(number),
                (field::DEFAULT_SAMPLE_TYPE, Value::Number(number)) => {
                    tables.shown = i64::try_from(number).unwrap_or_default();
                }
                _ => {}
            }
        }
        Ok(tables)
    }

    pub fn sample_types(&self) -> Result<Vec<SampleType>, ReadError> {
        if self.types.is_empty() {
            return Err(ReadError::NoSampleType);
        }
        let types = self.types.iter();
        types
            .map(|of| Ok(SampleType::new(self.text(of.name)?, self.text(of.unit)?)))
            .collect()
    }

    /// The type that is shown where nobody asks for another, or nothing.
    pub fn shown_name(&self) -> &str {
        self.text(self.shown).unwrap_or_default()
    }

    pub fn text(&self, place: i64) -> Result<&str, ReadError> {
        let text = usize::try_from(place)
            .ok()
            .and_then(|place| self.texts.get(place));
        text.map(AsRef::as_ref).ok_or(ReadError::Missing {
            what: "text",
            id: place.cast_unsigned(),
        })
    }

    pub fn location(&self, id: u64) -> Result<ResolvedLocation<'_>, ReadError> {
        let missing = |what| move |id| ReadError::Missing { what, id };
        let location = self
            .locations
            .get(&id)
            .ok_or_else(|| missing("location")(id))?;
        let mapping = match location.mapping_id {
            0 => None,
            id => Some(
                self.mappings
                    .get(&id)
                    .ok_or_else(|| missing("mapping")(id))?,
            ),
        };
        let functions = location.line.iter().map(|line| {
            let id = line.function_id;
            let name = self
                .functions
                .get(&id)
                .ok_or_else(|| missing("function")(id))?;
            self.text(*name)
        });
        let module = mapping.map_or(Ok(""), |mapping| self.text(mapping.filename))?;
        // The kernel has as many names as there are tools.
        let is_kernel = ["[kernel", "[guest.kernel", "[vmlinux"]
            .iter()
            .any(|start| module.starts_with(start));
        let offset = mapping.map_or(0, |mapping| {
            mapping.file_offset.wrapping_sub(mapping.memory_start)
        });
        Ok(ResolvedLocation {
            module: if is_kernel { Frame::KERNEL } else { module },
            functions: functions.collect::<Result<_, _>>()?,
            address: location.address.wrapping_add(offset),
        })
    }
}

impl ResolvedLocation<'_> {
    /// What a place is called that has no function: `[libc.so.6+0x1234]`.
    pub fn address_text(&self) -> String {
        let file = self.module.rsplit('/').next().unwrap_or_default();
        let address = self.address;
        match file.trim_matches(['[', ']']) {
            "" => format!("[{address:#x}]"),
            file => format!("[{file}+{address:#x}]"),
        }
    }
}

/// One of the things that there are many of.
pub fn element<T: Message + Default>(
    encoded: &[u8],
    what: &'static str,
    number: usize,
) -> Result<T, ReadError> {
    if encoded.len() > ELEMENT_LIMIT {
        return Err(ReadError::TooLong { what });
    }
    T::decode(encoded).map_err(|_| ReadError::Damaged { what, number })
}

/// Negative times are none.
fn positive(number: u64) -> u64 {
    if i64::try_from(number).is_ok() {
        number
    } else {
        0
    }
}
