//! Names of functions as a person reads them.
//!
//! A demangled name says every type in full, and every type of that type: `tokio` and RocksDB have names of 1,000 letters, in which
//! nobody finds the function. Here a function keeps its path; of the types in angle brackets stay the last parts, and of what
//! the compiler adds, nothing. What differs in nothing else becomes one, which is what one wants of a flame graph.

#[cfg(test)]
mod tests;

/// What angle brackets hold is told up to so many letters, and else by an ellipsis.
const GENERICS_LIMIT: usize = 40;

/// No name is looked into that is longer, in bytes, or has brackets deeper than [`DEPTH_LIMIT`]: it stays as it is.
const NAME_LIMIT: usize = 4096;
const DEPTH_LIMIT: usize = 32;

/// Types that nobody chose: what a container takes where nothing is said.
const DEFAULTS: [&str; 8] = [
    "std::allocator<",
    "std::char_traits<",
    "std::less<",
    "std::equal_to<",
    "std::hash<",
    "std::default_delete<",
    "alloc::alloc::Global",
    "std::hash::random::RandomState",
];

/// A demangled name of Rust, C++ or C, in short. What is short stays as it is, and so do other languages' names.
pub fn shorten(name: &str) -> String {
    if name.len() > NAME_LIMIT || !is_balanced(name) {
        return name.to_owned();
    }
    let name = without_suffixes(name);
    let plain = name
        .replace("std::__cxx11::", "std::")
        .replace("std::__1::", "std::");
    let mut short = path(&plain);
    for (long, brief) in [
        ("basic_string<char>", "string"),
        ("::{closure}::{closure}", "::{closure}"),
    ] {
        while short.contains(long) {
            short = short.replace(long, brief);
        }
    }
    short
}

/// Without a hash of the build, and without what linkers and optimizers put behind a name.
fn without_suffixes(name: &str) -> &str {
    let name = name.split(" [clone ").next().unwrap_or(name);
    let name = name.split(".llvm.").next().unwrap_or(name);
    match name.rsplit_once("::h") {
        Some((path, hash))
            if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
        {
            path
        }
        _ => name,
    }
}

/// A name at its outermost: paths stay, parameters go, and what is in angle brackets is told in brief.
fn path(name: &str) -> String {
    let mut out = String::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let operator = operator_at(rest, &out);
        let length = match first {
            _ if operator > 0 => {
                out.push_str(&rest[..operator]);
                operator
            }
            '<' => {
                let length = group(rest);
                angles(&rest[1..length - 1], &mut out);
                length
            }
            '(' => {
                let length = group(rest);
                let (inner, after) = (&rest[..length], &rest[length..]);
                if is_parameters(inner, after, &out) {
                    let qualified = ["const", " const", " volatile", " &", " &&"];
                    let qualifier = qualified.into_iter().find(|word| {
                        after
                            .strip_prefix(word)
                            .is_some_and(|end| end.is_empty() || end.starts_with("::"))
                    });
                    length + qualifier.map_or(0, str::len)
                } else {
                    out.push_str(inner);
                    length
                }
            }
            '{' => {
                let length = group(rest);
                out.push_str(&braces(&rest[..length]));
                length
            }
            _ => {
                out.push(first);
                first.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    out
}

/// How long the operator is that stands here: `operator<`, `operator()`, whose brackets are none.
fn operator_at(rest: &str, before: &str) -> usize {
    const OPERATORS: [&str; 16] = [
        "<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "()", "[]", "<", ">", "=", "&&",
        "||",
    ];
    if !before.ends_with("operator") {
        // An arrow closes no bracket.
        return if rest.starts_with("->") { 2 } else { 0 };
    }
    let operator = OPERATORS
        .into_iter()
        .find(|operator| rest.starts_with(operator));
    operator.map_or(0, str::len)
}

/// Parentheses behind a name, with nothing behind them but the rest of its path.
fn is_parameters(inner: &str, after: &str, before: &str) -> bool {
    let ends = before.chars().next_back();
    let behind_name = ends.is_some_and(|end| {
        end.is_alphanumeric() || matches!(end, '_' | '>' | ')' | ']' | '<' | '=')
    });
    let goes_on = after.is_empty()
        || ["::", " const", "const", " volatile", " &"]
            .iter()
            .any(|next| after.starts_with(next));
    inner != "(anonymous namespace)" && behind_name && goes_on
}

/// What is in angle brackets: a type and its trait, or the types that a function was made for.
fn angles(inner: &str, out: &mut String) {
    let of_trait = inner
        .strip_prefix("impl ")
        .and_then(|inner| split_at(inner, " for "));
    if let Some((of, for_type)) = of_trait {
        *out += &format!("<impl {} for {}>", last(&path(of)), last(&path(for_type)));
        return;
    }
    let before = out.chars().next_back();
    let is_type = before.is_none_or(|before| {
        !(before.is_alphanumeric() || matches!(before, '_' | ':' | '<' | ' ' | '}'))
    });
    if let Some((of, as_trait)) = split_at(inner, " as ") {
        *out += &format!("<{} as {}>", path(of), last(&path(as_trait)));
        return;
    }
    if is_type || inner.starts_with("impl ") {
        *out += &format!("<{}>", path(inner));
        return;
    }
    // `collect::<Vec<_>>` is no other function than `collect<Vec<_>>`.
    if out.ends_with("::") {
        out.truncate(out.len() - 2);
    }
    let arguments: Vec<String> = parts(inner)
        .into_iter()
        .map(str::trim)
        .filter(|argument| !argument.is_empty() && !argument.starts_with('\''))
        .filter(|argument| !DEFAULTS.iter().any(|default| argument.starts_with(default)))
        .map(|argument| last(&path(argument)))
        .collect();
    let brief = arguments.join(", ");
    if brief.chars().count() > GENERICS_LIMIT {
        *out += "<…>";
    } else if !brief.is_empty() {
        *out += &format!("<{brief}>");
    }
}

/// `{closure}` of `{{closure}}` and `{closure#3}`, `{lambda#2}` of `{lambda(int)#2}`.
fn braces(group: &str) -> String {
    let inner = group.trim_start_matches('{').trim_end_matches('}');
    let word = inner.split(['#', ':', '.', '(']).next().unwrap_or(inner);
    match word {
        "closure" => "{closure}".to_owned(),
        "vtable" | "shim" => "{shim}".to_owned(),
        "lambda" => match inner.rsplit_once('#') {
            Some((_, number)) => format!("{{lambda#{number}}}"),
            None => "{lambda}".to_owned(),
        },
        _ => group.to_owned(),
    }
}

/// A type without the paths of which it is made: `&[Header]` of `&[ckb_types::core::Header]`. A closure keeps its function.
fn last(name: &str) -> String {
    let name = name.replace("(anonymous namespace)::", "");
    let mut out = String::new();
    let mut word = 0;
    let mut rest = name.as_str();
    while let Some(first) = rest.chars().next() {
        let length = match rest.strip_prefix("::") {
            Some(after) if !after.starts_with(['{', '<']) && !out.ends_with('>') => {
                out.truncate(word);
                2
            }
            _ => {
                out.push(first);
                first.len_utf8()
            }
        };
        if !(first.is_alphanumeric() || matches!(first, '_' | ':' | '~')) {
            word = out.len();
        }
        rest = &rest[length..];
    }
    out
}

/// What stands before and after a word that is in no bracket.
fn split_at<'a>(text: &'a str, word: &str) -> Option<(&'a str, &'a str)> {
    let at = outermost(text).find(|at| text[*at..].starts_with(word))?;
    Some((&text[..at], &text[at + word.len()..]))
}

fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for at in outermost(text).filter(|at| text[*at..].starts_with(',')) {
        parts.push(&text[start..at]);
        start = at + 1;
    }
    parts.push(&text[start..]);
    parts
}

/// The places that are in no bracket.
fn outermost(text: &str) -> impl Iterator<Item = usize> {
    let (mut depth, mut before) = (0_usize, ' ');
    text.char_indices().filter_map(move |(at, letter)| {
        match letter {
            '<' | '(' | '[' | '{' => depth += 1,
            '>' if before == '-' => {}
            '>' | ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        before = letter;
        (depth == 0).then_some(at)
    })
}

/// How long the group is that begins here, with its brackets.
fn group(text: &str) -> usize {
    // Where the depth is 0 again, a bracket closes, which is one byte.
    outermost(text).next().map_or(text.len(), |at| at + 1)
}

/// Whether each bracket is closed by its like, so that no text is taken for brackets that has none.
fn is_balanced(name: &str) -> bool {
    let mut open = Vec::new();
    let mut rest = name;
    let mut before = "";
    while let Some(first) = rest.chars().next() {
        let operator = operator_at(rest, before);
        let closes = match first {
            _ if operator > 0 => None,
            '<' => open_one(&mut open, '>'),
            '(' => open_one(&mut open, ')'),
            '[' => open_one(&mut open, ']'),
            '{' => open_one(&mut open, '}'),
            '>' | ')' | ']' | '}' => Some(first),
            _ => None,
        };
        if closes.is_some_and(|closes| open.pop() != Some(closes)) || open.len() > DEPTH_LIMIT {
            return false;
        }
        rest = &rest[operator.max(first.len_utf8())..];
        before = &name[..name.len() - rest.len()];
    }
    open.is_empty()
}

fn open_one(open: &mut Vec<char>, closes: char) -> Option<char> {
    open.push(closes);
    None
}
