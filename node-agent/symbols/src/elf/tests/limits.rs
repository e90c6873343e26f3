//! What a search costs, whatever the file says.

use std::{cell::RefCell, fs::File, time::Instant};

use reader::PIECE;

use super::*;

#[test]
fn no_more_is_read_than_the_budget_allows() {
    let image = both();
    let file = Counting::new(&image.bytes);
    let mut budget = Budget::default();
    super::super::search(&file, &names(), &mut budget).unwrap();
    let taken = Budget::default().0 - budget.0;
    // The two functions' first instructions come on top.
    assert_eq!(file.read.get(), taken + 32);
    let mut exact = Budget(taken);
    assert_eq!(
        super::super::search(&file, &names(), &mut exact)
            .unwrap()
            .found
            .len(),
        2
    );
    assert_eq!(exact.0, 0);
    let short = super::super::search(&file, &names(), &mut Budget(taken - 1));
    assert!(
        matches!(
            short,
            Err(SearchError::TooLarge {
                what: "section headers",
                bytes: 64
            })
        ),
        "{short:?}"
    );
}

#[test]
fn of_a_piece_no_more_is_kept_than_is_asked_for() {
    let bytes = vec![7; 3 * PIECE as usize + 5];
    let whole = FileRange {
        what: "pieces",
        offset: 0,
        bytes: bytes.len() as u64,
    };
    let lengths = |keep, done: fn(usize) -> usize| {
        let mut budget = Budget::default();
        let mut reader = Reader::new(&bytes[..], &mut budget).unwrap();
        let mut lengths = Vec::new();
        let mut take = |start, piece: &[u8]| {
            lengths.push((start, piece.len() as u64));
            Ok(done(piece.len()))
        };
        reader.pieces(whole, keep, &mut take).unwrap();
        lengths
    };
    let piece = PIECE;
    let all = [
        (0, piece),
        (piece, piece),
        (2 * piece, piece),
        (3 * piece, 5),
    ];
    assert_eq!(lengths(10, |length| length), all);
    let kept = [
        (0, piece),
        (piece - 10, piece + 10),
        (2 * piece - 10, piece + 10),
        (3 * piece - 10, 15),
    ];
    assert_eq!(lengths(10, |_| 0), kept);
    let left = [
        (0, piece),
        (piece - 2, piece + 2),
        (2 * piece - 2, piece + 2),
        (3 * piece - 2, 7),
    ];
    assert_eq!(lengths(10, |length| length - 2), left);
}

/// A file that becomes shorter, or unreadable, after so many reads.
struct Failing<'a>(&'a [u8], RefCell<Vec<io::ErrorKind>>);

impl ReadAt for Failing<'_> {
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self.1.borrow_mut().pop() {
            Some(error) => Err(error.into()),
            None => self.0.read_exact_at(buffer, offset),
        }
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_read_was_changed() {
    let image = both();
    let fails = |kind| search(&Failing(&image.bytes, RefCell::new(vec![kind]))).unwrap_err();
    let error = fails(io::ErrorKind::UnexpectedEof);
    assert_eq!(error.to_string(), "it was changed while it was read");
    let error = fails(io::ErrorKind::PermissionDenied);
    assert_eq!(error.to_string(), "it cannot be read: permission denied");
}

#[test]
fn ten_million_symbols_are_too_many_and_five_million_a_matter_of_seconds() {
    let path = std::env::temp_dir().join(format!("ckb-probe-sparse-{}", std::process::id()));
    let sparse = |symbols: u64| {
        let image = both();
        let end = image.bytes.len() as u64;
        let image = image
            .set(DYNSYM + OFFSET, end)
            .set(DYNSYM + BYTES, symbols * 24);
        std::fs::write(&path, &image.bytes).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(end + symbols * 24).unwrap();
        let start = Instant::now();
        (search(&File::open(&path).unwrap()), start.elapsed())
    };
    let (found, time) = sparse(5_000_000);
    assert_eq!(found.unwrap().found.len(), 2);
    assert!(time.as_secs() < 30, "{time:?}");
    let (found, _) = sparse(10_000_000);
    assert_eq!(
        found.unwrap_err().to_string(),
        "its symbol tables take 240000000 bytes, more than is ever read of a process's files"
    );
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn strings_that_end_in_a_name_are_taken_so_often_and_no_more() {
    let table = |count: usize| strings(0, "rocksdb_write\0".repeat(count).as_bytes()).bytes;
    assert_eq!(outcome(&table(16384)), WRITE_FOUND);
    assert_eq!(
        outcome(&table(16385)),
        "it has more than 16384 strings that end in a name"
    );
}
