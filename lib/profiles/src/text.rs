//! Text that others wrote: names of functions, threads, files and peers are whoever's, and are to be read, not obeyed.

/// Whether a letter is there and not seen, or turns around what follows: marks of direction, joiners and tags, which are Unicode's characters
/// of format without width, and what is no character at all.
pub fn is_unseen(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' | '\u{e0000}'..='\u{e0fff}')
}

/// A letter as it can be shown: what is not seen, or tells a terminal or a browser what to do, is replaced.
pub fn shown(letter: char) -> char {
    match letter.is_control() || is_unseen(letter) {
        true => char::REPLACEMENT_CHARACTER,
        false => letter,
    }
}

/// A text as a page has it, within an element or an attribute.
pub fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            _ => out.push(shown(letter)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_is_markup_or_a_command(text in "[\\x00-\\x1f<>&\"'a-zé\\u{9b}\\u{ad}\\u{2000}-\\u{2070}\\u{fffe}]{0,32}") {
            let page = html(&text);
            let no = |letter: char| letter.is_control() || is_unseen(letter) || "<>\"'".contains(letter);
            prop_assert!(!page.contains(no), "{page:?}");
            prop_assert_eq!(page.matches('&').count(), text.matches(['&', '<', '>', '"', '\'']).count());
        }

        #[test]
        fn what_is_only_read_is_as_it_was(text in "[a-zA-Z0-9_:/. é漢-]{0,32}") {
            prop_assert_eq!(html(&text), text);
        }
    }
}
