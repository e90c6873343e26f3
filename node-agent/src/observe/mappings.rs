//! Which memory of a process is its own, and which it shares.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    ops::Range,
};

use super::{ProcessId, survivor::directory};

/// No more is read of the list of what a process has mapped.
const MAPS_LIMIT: u64 = 4 << 20;

/// What a process has mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mappings(Vec<Mapping>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapping {
    range: Range<u64>,
    is_private: bool,
}

impl Mappings {
    /// As they are now.
    pub fn of(process: ProcessId) -> io::Result<Self> {
        let maps = File::open(directory(process.pid).join("maps"))?;
        Self::read(BufReader::new(maps.take(MAPS_LIMIT)))
    }

    fn read(maps: impl BufRead) -> io::Result<Self> {
        let mut all = Vec::new();
        for line in maps.split(b'\n') {
            all.extend(mapping(&line?));
        }
        Ok(Self(all))
    }

    /// Whether what is mapped at an address is the process's own, so that to write to a page that is there copies it; None where nothing
    /// was mapped when this was read.
    pub fn is_private(&self, address: u64) -> Option<bool> {
        // In order of address.
        let place = self
            .0
            .partition_point(|mapping| mapping.range.end <= address);
        let mapping = self.0.get(place)?;
        mapping
            .range
            .contains(&address)
            .then_some(mapping.is_private)
    }
}

/// Of a line: `7f0c8a400000-7f0c8a428000 rw-p 00000000 fe:00 1234  /some/path`.
fn mapping(line: &[u8]) -> Option<Mapping> {
    // A path may be anything, and comes last.
    let head = line.get(..line.len().min(64))?;
    let mut fields = head.split(|byte| *byte == b' ');
    let mut word = || std::str::from_utf8(fields.next()?).ok();
    let (range, rights) = (word()?, word()?);
    let (start, end) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        range: number(start)?..number(end)?,
        is_private: rights.ends_with('p'),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_is_told_from_what_is_the_process_s_own() {
        let maps = b"00400000-00401000 r-xp 00000000 fe:00 77 /bin/\xff - s\n\
            7f0000000000-7f0000002000 rw-s 00000000 fe:00 78 /data/LOCK\n\
            7f0000002000-7f0000003000 rw-p 00000000 00:00 0 \n\
            nothing of the sort\n\
            ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n";
        let mappings = Mappings::read(&maps[..]).unwrap();
        let found = [
            0x3f_ffff,
            0x40_0000,
            0x40_0fff,
            0x40_1000,
            0x7f00_0000_1fff,
            0x7f00_0000_2000,
            u64::MAX,
        ];
        let found = found.map(|address| mappings.is_private(address));
        let expected = [
            None,
            Some(true),
            Some(true),
            None,
            Some(false),
            Some(true),
            None,
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn this_test_has_its_own_stack() {
        let own = ProcessId {
            pid: std::process::id(),
            start_ticks: 0,
        };
        let mappings = Mappings::of(own).unwrap();
        let here = (&raw const mappings).addr() as u64;
        assert_eq!(mappings.is_private(here), Some(true));
    }
}
