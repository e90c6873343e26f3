//! The folder of a record: segments that are written, packed when they are complete, and removed when there is no room.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use ckb_probe_agent::text;
use ckb_probe_report::{
    End, Header, Interval, Line, Part, RecordError, Segment, history::parts_each, lines, merge,
};

/// A segment is complete after so long, or when it has so many bytes.
const SEGMENT: (Duration, u64) = (Duration::from_secs(600), 16 << 20);

/// What is kept where there is no room for all: so many milliseconds in one interval.
const MINUTE: u64 = 60_000;

/// Of a record of more segments those that are complete are read by minutes.
const READ_WHOLE: usize = 12;

/// Why a folder cannot be written to, or not be read.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("cannot write the record in {0}: {1}")]
    Write(String, #[source] io::Error),
    #[error("cannot read {0}: {1}")]
    Read(String, #[source] io::Error),
    #[error("{0} is no record that can be read here: {1}")]
    Record(String, #[source] RecordError),
    #[error("there is no record in {0}: `ckb-probe record -o {0}` writes one")]
    Empty(String),
    #[error("{0} is a file, and a record is a folder: name that which `ckb-probe record` wrote")]
    File(String),
}

/// A record that is written.
pub struct Writer {
    folder: PathBuf,
    header: Header,
    most: u64,
    number: u64,
    file: File,
    bytes: u64,
    begun: Instant,
}

impl Writer {
    /// Begins a run in a folder, after whatever is there. What another run left open is completed first.
    pub fn begin(folder: &Path, header: Header, most: u64) -> Result<Self, FolderError> {
        let failed = |error| FolderError::Write(text::of_path(folder), error);
        fs::create_dir_all(folder).map_err(failed)?;
        let mut last = 0;
        for ((number, part), _) in files(folder)? {
            last = last.max(number);
            if part == Part::Open {
                complete(folder, number)?;
            }
        }
        let number = last + 1;
        let (file, bytes) = open(folder, number, &header).map_err(failed)?;
        Ok(Self {
            folder: folder.to_owned(),
            header,
            most,
            number,
            file,
            bytes,
            begun: Instant::now(),
        })
    }

    /// Writes an interval. What is killed afterwards has it.
    pub fn write(&mut self, interval: Interval) -> Result<(), FolderError> {
        self.append(&Line::Interval(interval))?;
        let (time, bytes) = SEGMENT;
        // A record with little room is made of small segments: there are some of them to go one by one.
        if self.begun.elapsed() >= time || self.bytes >= bytes.min(self.most / 8) {
            complete(&self.folder, self.number)?;
            self.make_room()?;
            self.number += 1;
            let opened = open(&self.folder, self.number, &self.header);
            (self.file, self.bytes) = opened.map_err(|error| self.failed(error))?;
            self.begun = Instant::now();
        }
        Ok(())
    }

    /// Ends the run in good order.
    pub fn end(mut self, end: End) -> Result<(), FolderError> {
        self.append(&Line::End(end))?;
        complete(&self.folder, self.number)?;
        self.make_room()
    }

    fn append(&mut self, line: &Line) -> Result<(), FolderError> {
        let bytes = lines::encode(line);
        // One write: whoever is killed has written all of it, or the beginning.
        self.file
            .write_all(&bytes)
            .map_err(|error| self.failed(error))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn make_room(&self) -> Result<(), FolderError> {
        for (number, part) in lines::without_room(&files(&self.folder)?, self.most) {
            let gone = fs::remove_file(self.folder.join(part.file(number)));
            gone.map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    fn failed(&self, error: io::Error) -> FolderError {
        FolderError::Write(text::of_path(&self.folder), error)
    }
}

fn open(folder: &Path, number: u64, header: &Header) -> io::Result<(File, u64)> {
    let path = folder.join(Part::Open.file(number));
    let mut file = OpenOptions::new()
        .append(true)
        .create_new(true)
        .open(path)?;
    let line = lines::encode(&Line::Header(header.clone()));
    file.write_all(&line)?;
    Ok((file, line.len() as u64))
}

/// Packs a segment that is written, also as minutes, and removes what it was written to. At any moment one of both is whole.
fn complete(folder: &Path, number: u64) -> Result<(), FolderError> {
    let path = folder.join(Part::Open.file(number));
    let bytes = fs::read(&path).map_err(|error| FolderError::Read(text::of_path(&path), error))?;
    let segment = lines::read_segment(&bytes)
        .map_err(|error| FolderError::Record(text::of_path(&path), error))?;
    let Segment {
        header,
        intervals,
        end,
        ..
    } = segment;
    let minutes = merge::by_time(&intervals, MINUTE)
        .into_iter()
        .map(Line::Interval);
    let all = header.into_iter().map(Line::Header).chain(minutes);
    let all = all.chain(end.into_iter().map(Line::End));
    let minutes: Vec<u8> = all.flat_map(|line| lines::encode(&line)).collect();
    for (part, bytes) in [(Part::Minutes, &minutes), (Part::Whole, &bytes)] {
        let packed =
            lines::pack(bytes).and_then(|packed| replace(folder, &part.file(number), &packed));
        packed.map_err(|error| FolderError::Write(text::of_path(folder), error))?;
    }
    fs::remove_file(&path).map_err(|error| FolderError::Write(text::of_path(&path), error))
}

/// Writes a file so that at any moment, whatever happens, it is as it was or as it is to be.
pub fn replace(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = folder.join(format!("{name}.tmp"));
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, folder.join(name))?;
    File::open(folder)?.sync_all()
}

/// The files of the record, with their sizes.
fn files(folder: &Path) -> Result<BTreeMap<(u64, Part), u64>, FolderError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotADirectory => FolderError::File(text::of_path(folder)),
        _ => FolderError::Read(text::of_path(folder), error),
    };
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if let Some(key) = entry.file_name().to_str().and_then(Part::of) {
            found.insert(key, entry.metadata().map_err(failed)?.len());
        }
    }
    Ok(found)
}

/// Whether there is a record in it.
pub fn is_record(folder: &Path) -> bool {
    files(folder).is_ok_and(|files| !files.is_empty())
}

/// Reads a record: each segment whole where there are few, and by minutes where there are many, or where that is all that is left.
/// Of many, parts of rows are put together as they are read, as finely as what is to come of it needs: it may be `compared`.
pub fn read(folder: &Path, compared: bool) -> Result<Vec<Segment>, FolderError> {
    let mut by_segment: BTreeMap<u64, Vec<Part>> = BTreeMap::new();
    for ((number, part), _) in files(folder)? {
        by_segment.entry(number).or_default().push(part);
    }
    if by_segment.is_empty() {
        return Err(FolderError::Empty(text::of_path(folder)));
    }
    let order = match by_segment.len() > READ_WHOLE {
        true => [Part::Minutes, Part::Whole, Part::Open],
        false => [Part::Whole, Part::Open, Part::Minutes],
    };
    let chosen = by_segment.iter().filter_map(|(number, parts)| {
        let part = order.iter().find(|part| parts.contains(part))?;
        Some((*number, *part))
    });
    let mut paths = Vec::new();
    let mut files = Vec::new();
    for (number, part) in chosen {
        let path = folder.join(part.file(number));
        match fs::read(&path) {
            Ok(bytes) => files.push((part != Part::Open, bytes)),
            // It was completed, or removed, as it was looked at: the gap is told.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(FolderError::Read(text::of_path(&path), error)),
        }
        paths.push(text::of_path(&path));
    }
    let segment = u64::try_from(SEGMENT.0.as_millis()).unwrap_or(u64::MAX);
    let each = || parts_each(files.len(), segment, compared);
    let parts = (by_segment.len() > READ_WHOLE).then(each);
    lines::read_all(&files, parts).map_err(|(place, error)| {
        let path = paths.get(place).cloned();
        FolderError::Record(path.unwrap_or_default(), error)
    })
}
