//! How a record is written: a line of JSON for each interval, with a checksum before it, in segments that each begin with who is measured.
//!
//! A program that is killed leaves at most a last line without its end; a machine that loses power may leave lines that are not what was
//! written. Either is discarded as it is read, and said.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    thread,
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};

use crate::record::{End, Header, Interval, Line, SCHEMA};

/// No line is longer.
const MAX_LINE: usize = 16 << 20;

/// No segment holds more, once it is unpacked.
const MAX_SEGMENT: u64 = 256 << 20;

/// What a segment tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    /// Who is measured; None where its first line is not there.
    pub header: Option<Header>,
    /// The intervals, in their order.
    pub intervals: Vec<Interval>,
    /// How the run ended, if it did with this segment.
    pub end: Option<End>,
    /// What could not be read.
    pub damage: Damage,
}

/// What could not be read of a segment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Damage {
    /// Whether the last line has no end: whoever wrote it was killed, or writes it still.
    pub cut: bool,
    /// Lines that are not what was written.
    pub lines: u64,
    /// Whether it could not be unpacked to its end.
    pub packed: bool,
}

impl Damage {
    /// Whether there is any.
    pub fn is_any(self) -> bool {
        self != Self::default()
    }

    /// That of both.
    pub fn and(self, other: Self) -> Self {
        Self {
            cut: self.cut || other.cut,
            lines: self.lines + other.lines,
            packed: self.packed || other.packed,
        }
    }
}

/// Why something is no record that can be read here.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Another version wrote it.
    #[error(
        "it is of the form {0:?}, and {SCHEMA:?} alone is read here: use the ckb-probe that wrote it"
    )]
    Schema(String),
}

/// A line as it is written, with its end.
pub fn encode(line: &Line) -> Vec<u8> {
    // There is nothing in it that JSON cannot have.
    let json = serde_json::to_string(line).unwrap_or_default();
    format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes())).into_bytes()
}

/// A line as it was written, without its end; None where it is not that.
fn decode(line: &[u8]) -> Option<Line> {
    let (sum, json) = line.split_at_checked(8)?;
    let json = json.strip_prefix(b" ")?;
    let sum = u32::from_str_radix(str::from_utf8(sum).ok()?, 16).ok()?;
    (sum == crc32fast::hash(json)).then(|| serde_json::from_slice(json).ok())?
}

/// Packs a segment that is complete.
///
/// # Errors
///
/// None that memory does not make.
pub fn pack(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(bytes)?;
    packed.finish()
}

/// Reads a segment that was packed.
///
/// # Errors
///
/// When another version wrote it. Damage is no error.
pub fn read_packed(bytes: &[u8]) -> Result<Segment, RecordError> {
    let mut unpacked = Vec::new();
    let read = GzDecoder::new(bytes)
        .take(MAX_SEGMENT)
        .read_to_end(&mut unpacked);
    let mut segment = read_segment(&unpacked)?;
    segment.damage.packed = read.is_err();
    Ok(segment)
}

/// Reads a segment.
///
/// # Errors
///
/// When another version wrote it. Damage is no error.
pub fn read_segment(bytes: &[u8]) -> Result<Segment, RecordError> {
    let mut segment = Segment::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            segment.damage.cut = true;
            break;
        };
        let line = &rest[..end];
        rest = &rest[end + 1..];
        let whole = line.len() <= MAX_LINE;
        match whole.then(|| decode(line)).flatten() {
            Some(Line::Header(header)) if header.schema != SCHEMA => {
                return Err(RecordError::Schema(header.schema));
            }
            Some(Line::Header(header)) => segment.header = Some(header),
            Some(Line::Interval(interval)) => segment.intervals.push(interval),
            Some(Line::End(end)) => segment.end = Some(end),
            None => segment.damage.lines += 1,
        }
    }
    Ok(segment)
}

/// Reads segments, packed or not, by as many threads as there are CPUs.
///
/// # Errors
///
/// When another version wrote one of them: its place.
pub fn read_all(segments: &[(bool, Vec<u8>)]) -> Result<Vec<Segment>, (usize, RecordError)> {
    let read = |(packed, bytes): &(bool, Vec<u8>)| match packed {
        true => read_packed(bytes),
        false => read_segment(bytes),
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let each = segments.len().div_ceil(threads).max(1);
    let mut all = Vec::with_capacity(segments.len());
    thread::scope(|scope| {
        let parts = segments.chunks(each);
        let parts =
            parts.map(|part| scope.spawn(move || part.iter().map(read).collect::<Vec<_>>()));
        for part in parts.collect::<Vec<_>>() {
            // Reading does not panic, whatever there is to read.
            all.extend(part.join().unwrap_or_default());
        }
    });
    let numbered = all.into_iter().enumerate();
    numbered
        .map(|(place, read)| read.map_err(|error| (place, error)))
        .collect()
}

/// What a file of a record is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Part {
    /// All intervals of a segment that is complete, packed.
    Whole,
    /// The same by minutes: what is left of it when there is no room for all.
    Minutes,
    /// The segment that is written.
    Open,
}

impl Part {
    const ALL: [Self; 3] = [Self::Whole, Self::Minutes, Self::Open];

    fn ending(self) -> &'static str {
        match self {
            Self::Whole => ".jsonl.gz",
            Self::Minutes => ".minutes.jsonl.gz",
            Self::Open => ".open.jsonl",
        }
    }

    /// The name of the file of this segment.
    pub fn file(self, segment: u64) -> String {
        format!("{segment:08}{}", self.ending())
    }

    /// What a file of this name is, and of which segment; None of any other.
    pub fn of(name: &str) -> Option<(u64, Self)> {
        Self::ALL.into_iter().find_map(|part| {
            let number = name.strip_suffix(part.ending())?;
            let digits = number.len() == 8 && number.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| Some((number.parse().ok()?, part)))?
        })
    }
}

/// Which files go so that the rest has room: the oldest wholes, whose minutes stay, and then the oldest minutes.
pub fn without_room(files: &BTreeMap<(u64, Part), u64>, most: u64) -> Vec<(u64, Part)> {
    let mut all: u64 = files.values().sum();
    let mut gone = Vec::new();
    for part in [Part::Whole, Part::Minutes] {
        for ((segment, of), bytes) in files {
            if all > most && *of == part {
                gone.push((*segment, part));
                all = all.saturating_sub(*bytes);
            }
        }
    }
    gone
}

#[cfg(test)]
mod tests;
