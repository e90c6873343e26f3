//! Where bytes of a target become text: names of threads and files, arguments, column families, functions, executables, peers.
//!
//! A target may be anybody's, and its names end up on terminals, in logs and in statuses. So no character gets through that
//! moves a cursor, begins a line, or turns the order of what is read: it is told as its number, `\u{1b}`.

use std::path::Path;

/// Bytes as text.
pub fn of(bytes: &[u8]) -> String {
    shown(&String::from_utf8_lossy(bytes))
}

/// Bytes that were put together here, of text.
pub fn of_own(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| of(error.as_bytes()))
}

/// Bytes up to the first NUL, or all of them.
pub fn of_padded(bytes: &[u8]) -> String {
    let name = bytes.split(|byte| *byte == 0).next();
    of(name.unwrap_or_default())
}

/// Bytes as a text in quotes, as a program would have it.
pub fn quoted(bytes: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(bytes))
}

/// A path as text: to be read, not to be opened.
pub fn of_path(path: &Path) -> String {
    shown(&path.to_string_lossy())
}

/// Text whose characters came from a target.
pub fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if commands(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Whether it tells a terminal or a reader what to do, instead of being read: the controls of C0 and C1, DEL, separators of
/// lines, and what sets the direction of text (Unicode's Bidi_Control).
fn commands(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'
                | '\u{2029}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests;
