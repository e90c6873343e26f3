//! How a record is written: a line of JSON for each interval, with a checksum before it, in segments that each begin with who is measured.
//!
//! A program that is killed leaves at most a last line without its end; a machine that loses power may leave lines that are not what was
//! written. Either is discarded as it is read, and said.

mod thin;

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    thread,
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};

use thin::{Known, ThinInterval};

use crate::{
    merge::by_time,
    record::{End, Header, Interval, Line, SCHEMA},
};

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
    /// The same put together, with the parts of rows, which the intervals themselves have not then; empty where nothing was.
    pub coarse: Vec<Interval>,
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

impl Segment {
    /// Puts intervals together to about this length, and leaves parts of rows and what was listed individually in these alone: what days
    /// would take gigabytes for is drawn in no finer columns.
    fn put_together(&mut self, milliseconds: u64) {
        self.coarse = by_time(&self.intervals, milliseconds);
        let probes = self.intervals.iter_mut().flat_map(|one| &mut one.probes);
        for probe in probes {
            probe.events = Vec::new();
            for row in &mut probe.rows {
                row.parts = Vec::new();
            }
        }
    }
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

/// What a line holds, without its checksum and its end; None where it is not what was written.
fn checked(line: &[u8]) -> Option<&[u8]> {
    let (sum, json) = line.split_at_checked(8)?;
    let json = json.strip_prefix(b" ")?;
    let sum = u32::from_str_radix(str::from_utf8(sum).ok()?, 16).ok()?;
    (sum == crc32fast::hash(json)).then_some(json)
}

/// What the line of an interval begins with, as [`encode`] writes it.
const INTERVAL: &[u8] = b"{\"line\":\"interval\",";

/// Nearly all lines are intervals, and tell so first: these are read as what they are. By its tag alone, wherever that stands, a line is
/// read into a tree of values before anything is made of it.
fn parse(json: &[u8]) -> Option<Line> {
    let interval = json
        .starts_with(INTERVAL)
        .then(|| serde_json::from_slice(json));
    match interval {
        Some(Ok(interval)) => Some(Line::Interval(interval)),
        _ => serde_json::from_slice(json).ok(),
    }
}

/// The same without totals that are known from a later line.
fn parse_thin(json: &[u8], known: &mut Known) -> Option<Line> {
    if json.starts_with(INTERVAL)
        && let Ok(thin) = serde_json::from_slice::<ThinInterval>(json)
    {
        let interval = Interval::from(thin);
        if known.has(&interval) {
            return Some(Line::Interval(interval));
        }
    }
    let line = parse(json);
    if let Some(Line::Interval(interval)) = &line {
        known.add(interval);
    }
    line
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
    unpacked(bytes, false)
}

/// Reads a segment.
///
/// # Errors
///
/// When another version wrote it. Damage is no error.
pub fn read_segment(bytes: &[u8]) -> Result<Segment, RecordError> {
    read(bytes, false)
}

fn unpacked(bytes: &[u8], thin: bool) -> Result<Segment, RecordError> {
    let mut unpacked = Vec::new();
    let unpacking = GzDecoder::new(bytes)
        .take(MAX_SEGMENT)
        .read_to_end(&mut unpacked);
    let mut segment = read(&unpacked, thin)?;
    segment.damage.packed = unpacking.is_err();
    Ok(segment)
}

/// Reads a segment; a thin one has each total once, where it is last told.
fn read(bytes: &[u8], thin: bool) -> Result<Segment, RecordError> {
    let mut segment = Segment::default();
    let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    // Behind the last end there is nothing, or a line without one.
    segment.damage.cut = lines.pop().is_some_and(|rest| !rest.is_empty());
    let mut known = Known::default();
    let read = lines.iter().rev().map(|line| {
        let whole = line.len() <= MAX_LINE;
        let json = whole.then(|| checked(line)).flatten()?;
        match thin {
            true => parse_thin(json, &mut known),
            false => parse(json),
        }
    });
    let read: Vec<Option<Line>> = read.collect();
    for line in read.into_iter().rev() {
        match line {
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

/// Reads segments, packed or not, by as many threads as there are CPUs. Of many, parts of rows are put together to about this many
/// milliseconds as they are read; None: they stay as they are.
///
/// # Errors
///
/// When another version wrote one of them: its place.
pub fn read_all(
    segments: &[(bool, Vec<u8>)],
    parts: Option<u64>,
) -> Result<Vec<Segment>, (usize, RecordError)> {
    let read_one = |(packed, bytes): &(bool, Vec<u8>)| {
        let mut segment = match packed {
            true => unpacked(bytes, parts.is_some())?,
            false => read(bytes, parts.is_some())?,
        };
        if let Some(milliseconds) = parts {
            segment.put_together(milliseconds);
        }
        Ok(segment)
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let each = segments.len().div_ceil(threads).max(1);
    let mut all = Vec::with_capacity(segments.len());
    thread::scope(|scope| {
        let parts = segments.chunks(each);
        let parts =
            parts.map(|part| scope.spawn(move || part.iter().map(read_one).collect::<Vec<_>>()));
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
