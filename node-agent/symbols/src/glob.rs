//! Patterns for the names of functions, such as `rocksdb::DBImpl::*`.
//!
//! The names are the target's to choose, so a pattern is matched in a time that only their length decides: all the ways of
//! matching are followed at once, a bit for each, instead of one after the other.

/// No pattern is longer, in bytes.
pub const GLOB_LIMIT: usize = 256;

/// Why a pattern is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// It would match nothing.
    #[error("it is empty")]
    Empty,
    /// It has more than [`GLOB_LIMIT`] bytes.
    #[error("it has more than {GLOB_LIMIT} bytes")]
    TooLong,
    /// A `[` stands for one byte of those up to the next `]`.
    #[error("a [ in it has no ] (a [ itself is written [[])")]
    Unclosed,
    /// It has an umlaut, a control character or the like.
    #[error("it has characters that are not plain ASCII")]
    NotAscii,
}

/// A pattern: `*` stands for any bytes or none, `?` for any one, `[abc]` and `[a-c]` for one of these, `[!abc]` for any other one.
/// A `]` that comes first in such a class is one of its bytes. Everything else stands for itself, case included, and the pattern
/// matches a name as a whole.
#[derive(Clone, Debug)]
pub struct Glob {
    text: String,
    /// For each byte, the items of the pattern that accept it: bit n for the item that comes after n others.
    accepts: Vec<Bits>,
    /// The numbers of items that may have been matched where a `*` is met: it stays there, whatever byte comes.
    stars: Bits,
    /// How many items there are. A star is none.
    items: usize,
    pieces: Vec<String>,
}

/// Enough words for the items of the longest pattern, and one more bit.
const WORDS: usize = GLOB_LIMIT / 64 + 1;
type Bits = [u64; WORDS];

fn put(bits: &mut Bits, bit: usize) {
    bits[bit / 64] |= 1 << (bit % 64);
}

impl Glob {
    /// Reads a pattern.
    pub fn new(text: &str) -> Result<Self, GlobError> {
        if text.is_empty() {
            return Err(GlobError::Empty);
        }
        if text.len() > GLOB_LIMIT {
            return Err(GlobError::TooLong);
        }
        if text.bytes().any(|byte| !matches!(byte, b' '..=b'~')) {
            return Err(GlobError::NotAscii);
        }
        let mut glob = Self {
            text: text.to_string(),
            accepts: vec![[0; WORDS]; 256],
            stars: [0; WORDS],
            items: 0,
            pieces: Vec::new(),
        };
        let mut piece = String::new();
        let mut rest = text.as_bytes();
        while let [first, after @ ..] = rest {
            rest = after;
            if is_identifier(*first) {
                piece.push(char::from(*first));
            } else if !piece.is_empty() {
                glob.pieces.push(std::mem::take(&mut piece));
            }
            match first {
                b'*' => put(&mut glob.stars, glob.items),
                b'?' => glob.item(|_| true),
                b'[' => rest = glob.class(rest)?,
                literal => glob.item(|byte| byte == *literal),
            }
        }
        glob.pieces.extend((!piece.is_empty()).then_some(piece));
        Ok(glob)
    }

    fn item(&mut self, accepts: impl Fn(u8) -> bool) {
        for byte in 0..=u8::MAX {
            if accepts(byte) {
                put(&mut self.accepts[usize::from(byte)], self.items);
            }
        }
        self.items += 1;
    }

    /// What follows a `[`. Returns what follows its `]`.
    fn class<'a>(&mut self, rest: &'a [u8]) -> Result<&'a [u8], GlobError> {
        let (is_negated, rest) = match rest {
            [b'!', rest @ ..] => (true, rest),
            _ => (false, rest),
        };
        let closed = rest.iter().skip(1).position(|byte| *byte == b']');
        let length = closed.ok_or(GlobError::Unclosed)? + 1;
        let mut ranges = Vec::new();
        let mut members = &rest[..length];
        while let [first, after @ ..] = members {
            let (last, after) = match after {
                [b'-', last, after @ ..] => (last, after),
                _ => (first, after),
            };
            ranges.push(*first..=*last);
            members = after;
        }
        self.item(|byte| ranges.iter().any(|range| range.contains(&byte)) != is_negated);
        Ok(&rest[length + 1..])
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The identifiers in it, and parts of such: every name that matches has each.
    pub fn pieces(&self) -> &[String] {
        &self.pieces
    }

    /// Whether it matches a name as a whole.
    pub fn matches(&self, name: &str) -> bool {
        let words = self.items / 64 + 1;
        let mut reached = [0; WORDS];
        put(&mut reached, 0);
        for byte in name.bytes() {
            let accepts = &self.accepts[usize::from(byte)];
            let (mut carry, mut any) = (0, 0);
            for word in 0..words {
                let further = reached[word] & accepts[word];
                reached[word] = reached[word] & self.stars[word] | further << 1 | carry;
                carry = further >> 63;
                any |= reached[word];
            }
            if any == 0 {
                return false;
            }
        }
        reached[self.items / 64] >> (self.items % 64) & 1 == 1
    }
}

/// Whether a byte may be part of an identifier.
pub fn is_identifier(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

#[cfg(test)]
mod tests;
