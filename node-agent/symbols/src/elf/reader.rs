//! Reads of a file that may claim anything of itself: within its length, within a budget, and in pieces.

use std::{fs::File, io, os::unix::fs::FileExt, sync::Arc};

use object::{Pod, pod};

use super::SearchError;

/// How much of a table is read at a time. A multiple of what a symbol takes, 24 bytes.
pub const PIECE: u64 = 2048 * 24;

/// Bytes that can be read at an offset.
pub trait ReadAt {
    /// How many there are.
    fn size(&self) -> io::Result<u64>;
    /// Fills the buffer, or fails.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, offset)
    }
}

impl ReadAt for [u8] {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|offset| self.get(offset..)?.get(..buffer.len()))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}

/// How many bytes may still be read, of all the files of a process.
#[derive(Clone, Copy, Debug)]
pub struct Budget(pub u64);

impl Default for Budget {
    /// Eight times what CKB and its libraries take. A second or two of work, however a file is made to spend it.
    fn default() -> Self {
        Self(128 << 20)
    }
}

/// A part of a file, as the file itself says.
#[derive(Clone, Copy, Debug)]
pub struct FileRange {
    /// What is in it, in the plural.
    pub what: &'static str,
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

/// A file that is read within a budget.
pub struct Reader<'a, F: ?Sized> {
    file: &'a F,
    size: u64,
    budget: &'a mut Budget,
}

impl<'a, F: ReadAt + ?Sized> Reader<'a, F> {
    pub fn new(file: &'a F, budget: &'a mut Budget) -> io::Result<Self> {
        let size = file.size()?;
        Ok(Self { file, size, budget })
    }

    /// The file's length.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// One entry of a table.
    pub fn entry<T: Pod>(
        &mut self,
        what: &'static str,
        table: u64,
        index: u64,
    ) -> Result<T, SearchError> {
        let bytes = size_of::<T>() as u64;
        let offset = index
            .checked_mul(bytes)
            .and_then(|before| table.checked_add(before))
            .ok_or(SearchError::Truncated(what))?;
        self.claim(FileRange {
            what,
            offset,
            bytes,
        })?;
        let mut buffer = vec![0; size_of::<T>()];
        self.file.read_exact_at(&mut buffer, offset)?;
        let (entry, _) = pod::from_bytes::<T>(&buffer).map_err(|()| SearchError::Changed)?;
        Ok(*entry)
    }

    /// Reads a part in pieces. `take` is given each, after what it left of the one before, with the offset within the part, and
    /// says how many bytes it is done with. Of those that it leaves no more than the last `keep` are kept.
    pub fn pieces(
        &mut self,
        part: FileRange,
        keep: usize,
        mut take: impl FnMut(u64, &[u8]) -> Result<usize, SearchError>,
    ) -> Result<(), SearchError> {
        self.claim(part)?;
        let mut buffer = Vec::new();
        let mut read = 0;
        while read < part.bytes {
            let kept = buffer.len();
            let fresh = (part.bytes - read).min(PIECE);
            buffer.resize(kept + fresh as usize, 0);
            self.file
                .read_exact_at(&mut buffer[kept..], part.offset + read)?;
            let done = take(read - kept as u64, &buffer)?;
            buffer.drain(..done.max(buffer.len().saturating_sub(keep)));
            read += fresh;
        }
        Ok(())
    }

    /// The whole of a part.
    pub fn whole(&mut self, part: FileRange) -> Result<Arc<[u8]>, SearchError> {
        self.claim(part)?;
        let mut whole: Arc<[u8]> = std::iter::repeat_n(0, part.bytes as usize).collect();
        // Nobody else has it yet.
        if let Some(bytes) = Arc::get_mut(&mut whole) {
            self.file.read_exact_at(bytes, part.offset)?;
        }
        Ok(whole)
    }

    /// The bytes at an offset, or fewer at the end of the file. `None` when they cannot be read.
    pub fn bytes<const N: usize>(&self, offset: u64) -> Option<([u8; N], usize)> {
        let mut bytes = [0; N];
        let count = self.size.checked_sub(offset)?.min(N as u64) as usize;
        self.file
            .read_exact_at(&mut bytes[..count], offset)
            .ok()
            .map(|()| (bytes, count))
    }

    /// Makes sure that a part is in the file, and that the budget allows it to be read.
    pub fn check(&self, part: FileRange) -> Result<(), SearchError> {
        let FileRange {
            what,
            offset,
            bytes,
        } = part;
        if offset.checked_add(bytes).is_none_or(|end| end > self.size) {
            return Err(SearchError::Truncated(what));
        }
        match bytes <= self.budget.0 {
            true => Ok(()),
            false => Err(SearchError::TooLarge { what, bytes }),
        }
    }

    /// The same, and takes its length off the budget.
    fn claim(&mut self, part: FileRange) -> Result<(), SearchError> {
        self.check(part)?;
        self.budget.0 -= part.bytes;
        Ok(())
    }
}
