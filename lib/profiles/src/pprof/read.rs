//! Reads profiles that anybody made: ours, Go's, what other tools make of perf's, and bytes that only look like one.
//!
//! A profile is read in pieces, so that what it takes is in proportion to its size unzipped, which is bounded: a message of many
//! empty ones would take thirty times that. The tables come first, whose texts stay where they are; then each sample by itself.

mod fields;
mod tables;

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;

use self::{
    fields::{Value, fields},
    tables::Tables,
};
use super::{
    label,
    messages::{Sample, field},
};
use crate::{Frame, Profile, Stack, Stacks, Window};

/// How much a profile may be. What is more is an error, and not cut.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// In bytes, unzipped.
    pub unzipped: usize,
    /// Samples, and so many of each of the things that they refer to.
    pub elements: usize,
    /// Functions of all stacks together, with those that were inlined.
    pub frames: usize,
}

impl Limits {
    /// For what agents send, which is 512 KiB zipped, and comes to a tenth of this.
    pub const PART: Self = Self {
        unzipped: 32 << 20,
        elements: 200_000,
        frames: 4_000_000,
    };
    /// For files of a person's own, from wherever.
    pub const FILE: Self = Self {
        unzipped: 256 << 20,
        elements: 2_000_000,
        frames: 16_000_000,
    };
}

/// No sample, location, function or mapping takes more bytes.
const ELEMENT_LIMIT: usize = 64 << 10;

/// No stack has more functions, with those that were inlined.
const DEPTH_LIMIT: usize = 16_384;

/// No profile has more sample types.
const TYPES_LIMIT: usize = 32;

/// Why bytes are no profile. Each says what is wrong with them.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum ReadError {
    #[error("it is empty")]
    Empty,
    #[error("it is {0}, not a pprof")]
    Other(&'static str),
    #[error("its gzip stream is damaged or cut off: {0}")]
    Gzip(#[source] io::Error),
    #[error("unzipped it is more than {} MiB, which is the limit", .0 >> 20)]
    TooLarge(usize),
    #[error("it is no pprof, or a damaged one: byte {at} of what was unzipped begins no field")]
    NoField { at: usize },
    #[error("it is no pprof, or a damaged one: {what} {number} cannot be read")]
    Damaged { what: &'static str, number: usize },
    #[error("it has more than {limit} of this kind, which is the limit: {what}")]
    TooMany { what: &'static str, limit: usize },
    #[error("a {what} takes more than {} KiB, which is the limit", ELEMENT_LIMIT >> 10)]
    TooLong { what: &'static str },
    #[error("it does not say what its samples are: it has no sample type")]
    NoSampleType,
    #[error("sample {sample} has {found} values, but there are {types} sample types")]
    Values {
        sample: usize,
        found: usize,
        types: usize,
    },
    #[error(
        "sample {sample} is negative: this is the difference of two profiles; give both of them to `ckb-probe diff` instead"
    )]
    Negative { sample: usize },
    #[error("it refers to {what} {id}, which is not in it")]
    Missing { what: &'static str, id: u64 },
}

impl Profile {
    /// Reads a pprof, gzipped or not.
    ///
    /// # Errors
    ///
    /// When it is none, or more than the limits.
    pub fn from_pprof(bytes: &[u8], limits: &Limits) -> Result<Self, ReadError> {
        if bytes.is_empty() {
            return Err(ReadError::Empty);
        }
        if bytes.starts_with(&[0x1f, 0x8b]) {
            let mut unzipped = Vec::new();
            let most = limits.unzipped as u64 + 1;
            MultiGzDecoder::new(bytes)
                .take(most)
                .read_to_end(&mut unzipped)
                .map_err(ReadError::Gzip)?;
            return read(&unzipped, limits);
        }
        read(bytes, limits)
    }
}

fn read(bytes: &[u8], limits: &Limits) -> Result<Profile, ReadError> {
    if bytes.len() > limits.unzipped {
        return Err(ReadError::TooLarge(limits.unzipped));
    }
    if let Some(what) = something_else(bytes) {
        return Err(ReadError::Other(what));
    }
    let tables = Tables::read(bytes, limits)?;
    let types = tables.sample_types()?;
    let shown = types.iter().position(|of| of.name == tables.shown_name());
    // By convention it is the last, where none is named.
    let shown = shown.unwrap_or(types.len().saturating_sub(1));
    let mut profile = Profile {
        stacks: Stacks::new(types, shown),
        window: Window {
            start_ns: tables.start_ns,
            duration_ns: tables.duration_ns,
        },
        period: tables.period,
    };
    let mut frames = limits.frames;
    let mut number = 0;
    for found in fields(bytes) {
        let (field::SAMPLE, Value::Bytes(encoded)) = found? else {
            continue;
        };
        number += 1;
        let sample: Sample = tables::element(encoded, "sample", number)?;
        add(&mut profile.stacks, &tables, &sample, number, &mut frames)?;
        if frames == 0 {
            let limit = limits.frames;
            return Err(ReadError::TooMany {
                what: "frame",
                limit,
            });
        }
    }
    Ok(profile)
}

fn add(
    stacks: &mut Stacks,
    tables: &Tables,
    sample: &Sample,
    number: usize,
    frames_left: &mut usize,
) -> Result<(), ReadError> {
    let (what, limit) = ("frame of one stack", DEPTH_LIMIT);
    let (found, types) = (sample.value.len(), stacks.types().len());
    if found != types {
        return Err(ReadError::Values {
            sample: number,
            found,
            types,
        });
    }
    let weights: Result<Vec<u64>, _> = sample
        .value
        .iter()
        .map(|value| u64::try_from(*value))
        .collect();
    let weights = weights.map_err(|_| ReadError::Negative { sample: number })?;
    let mut names: Vec<(Option<usize>, &str, &str)> = Vec::new();
    let mut nameless = Vec::new();
    for id in sample.location_id.iter().rev() {
        let location = tables.location(*id)?;
        let count = location.functions.len().max(1);
        if count > *frames_left {
            *frames_left = 0;
            return Ok(());
        }
        if names.len() + count > DEPTH_LIMIT {
            return Err(ReadError::TooMany { what, limit });
        }
        *frames_left -= count;
        if location.functions.is_empty() {
            names.push((Some(nameless.len()), "", location.module));
            nameless.push(location.address_text());
        }
        // The innermost comes first.
        for name in location.functions.iter().rev() {
            names.push((None, name, location.module));
        }
    }
    let frames = names.iter().map(|(text, name, module)| Frame {
        name: text.map_or(*name, |place| nameless[place].as_str()),
        module,
    });
    let mut stack = Stack {
        frames: frames.collect(),
        weights: &weights,
        ..Stack::default()
    };
    for one in &sample.label {
        let (key, text) = (tables.text(one.key)?, tables.text(one.text)?);
        match key {
            label::TARGET => stack.target = text,
            label::STATE => stack.state = text,
            label::WAIT => stack.wait = text,
            _ if label::THREADS.contains(&key) => stack.thread = text,
            _ => {}
        }
    }
    stacks.add(&stack);
    Ok(())
}

/// What people have at hand, and take for a profile.
fn something_else(bytes: &[u8]) -> Option<&'static str> {
    let starts: [(&[u8], &str); 7] = [
        (b"PERFILE2", "perf's own file"),
        (b"\x7fELF", "a program"),
        (b"<", "a drawing or a page"),
        (b"{", "JSON"),
        (b"go 1.", "a trace of Go's"),
        (b"--- ", "text of Go's"),
        (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
    ];
    let start = starts.iter().find(|(start, _)| bytes.starts_with(start));
    let is_text = || {
        // A pprof begins with its first sample type, which has numbers below 9.
        let head = &bytes[..bytes.len().min(64)];
        head.iter()
            .all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t' | b'\r'))
    };
    start
        .map(|(_, what)| *what)
        .or_else(|| is_text().then_some("text"))
}
