//! What people call a function, from its symbol.
//!
//! The symbols are the target's to make up. So nothing here is tried in one way and then in another, which takes exponential time
//! of symbols that are made to that end; what refers to itself is followed so far and no further; and what would become longer
//! than any name is none.

mod cpp;

use std::fmt::{self, Write};

/// No symbol is longer, in bytes, nor is what one is called. What is, has no other name than itself.
pub const SYMBOL_LIMIT: usize = 1024;

/// What a C++ or Rust function is called, without parameters and without the hash of a build. None for all others.
pub fn demangle(symbol: &str) -> Option<String> {
    if symbol.len() > SYMBOL_LIMIT {
        return None;
    }
    match symbol.as_bytes() {
        [b'_', b'Z', ..] => legacy_rust(symbol).or_else(|| cpp::name(symbol)),
        [b'_', b'R', ..] => rust(symbol),
        _ => None,
    }
}

/// What a function is called on a stack: also one that a compiler has added to another (`A::f{thunk}`), which nobody asks for by name;
/// and one of no language known here by its symbol.
pub fn called(symbol: &str) -> String {
    let added = || Some(symbol).filter(|symbol| symbol.len() <= SYMBOL_LIMIT);
    demangle(symbol)
        .or_else(|| added().and_then(cpp::added))
        .unwrap_or_else(|| plain(symbol).to_string())
}

/// Rust's symbols before 2025 look like those of C++, but end in a hash.
fn legacy_rust(symbol: &str) -> Option<String> {
    let hash = symbol.rfind("17h").map(|at| &symbol.as_bytes()[at + 3..])?;
    let is_hash = hash.len() > 16 && hash[..16].iter().all(u8::is_ascii_hexdigit);
    (is_hash && hash[16] == b'E')
        .then(|| rust(symbol))
        .flatten()
}

fn rust(symbol: &str) -> Option<String> {
    let name = rustc_demangle::try_demangle(symbol).ok()?;
    let mut bounded = Bounded(String::new());
    write!(bounded, "{name:#}").ok()?;
    Some(path_of_method(&bounded.0).unwrap_or(bounded.0))
}

/// `chain::Header::check` of `<chain::Header>::check`, as newer symbols tell a type's own method: one function has one name,
/// whichever its symbol's form. Methods of traits (`<chain::Header as core::fmt::Debug>::fmt`) stay what they are in both.
fn path_of_method(name: &str) -> Option<String> {
    let rest = name.strip_prefix('<')?;
    let (mut depth, mut before) = (1_u32, ' ');
    let mut end = None;
    for (at, letter) in rest.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            ' ' if depth == 1 => return None,
            _ => {}
        }
        if depth == 0 {
            end = Some(at);
            break;
        }
        before = letter;
    }
    let (of, method) = rest.split_at(end?);
    let of_path = of.split('<').next()?;
    let is_path = of_path.contains("::") && !of_path.contains(['(', '[', '&', '*']);
    let method = method[1..].strip_prefix("::")?;
    is_path.then(|| format!("{of}::{method}"))
}

/// A name that does not become longer than any.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len() + part.len() > SYMBOL_LIMIT {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

/// What a compiler made of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The function.
    Whole,
    /// A variant beside it, for some callers or of some part (`.constprop.0`, `.isra.0`, `.part.0`).
    Clone,
    /// The part that is seldom run (`.cold`). It is jumped into, and nobody returns from it: what lies on the stack where it
    /// begins is no return address, and to replace that, as return probes do, would break the target.
    Fragment,
}

/// The form that a symbol's suffixes tell.
pub fn form(symbol: &str) -> Form {
    let (mut symbol, mut form) = (symbol, Form::Whole);
    while let Some((rest, suffix)) = symbol.rsplit_once('.') {
        symbol = rest;
        match suffix {
            "cold" => return Form::Fragment,
            "part" | "isra" | "constprop" => form = Form::Clone,
            number if number.bytes().all(|byte| byte.is_ascii_digit()) => {}
            "lto_priv" | "llvm" => {}
            _ => break,
        }
    }
    form
}

/// The symbol of the function that one of a variant is a variant of.
pub fn without_variant(symbol: &str) -> &str {
    let mut whole = symbol;
    while form(whole) == Form::Clone {
        whole = whole.rsplit_once('.').map_or("", |(rest, _)| rest);
    }
    whole
}

/// The symbol of a plain function without what linkers add: a version (`@@GLIBC_2.2.5`), and what makes it unique (`.llvm.12`).
pub fn plain(symbol: &str) -> &str {
    let cut = |name: &str, at: &str| name.find(at).filter(|at| *at > 0).unwrap_or(name.len());
    let symbol = &symbol[..cut(symbol, "@")];
    let symbol = &symbol[..cut(symbol, ".llvm.")];
    &symbol[..cut(symbol, ".lto_priv.")]
}

/// What demanglers say that is in no symbol word by word. (`St` is `std`, `i` is `int`, `ix` is `operator[]`.)
#[rustfmt::skip]
const WORDS: [&str; 85] = [
    "std", "allocator", "basic_string", "string", "char_traits", "basic_istream", "basic_ostream",
    "basic_iostream", "istream", "ostream", "iostream", "operator", "new", "delete", "co_await", "anonymous",
    "namespace", "lambda", "unnamed", "type", "default", "arg", "abi", "auto", "decltype", "nullptr", "const",
    "volatile", "restrict", "void", "wchar_t", "bool", "char", "signed", "unsigned", "short", "int", "long",
    "__int128", "float", "double", "__float128", "char8_t", "char16_t", "char32_t", "_Float16", "_Float32",
    "_Float64", "_Float128", "decimal32", "decimal64", "decimal128", "half", "true", "false", "ull", "noexcept",
    "_Complex", "closure", "shim", "vtable", "reify", "dyn", "for", "extern", "unsafe", "fn", "mut", "str",
    "usize", "isize", "u8", "u16", "u32", "u64", "u128", "i8", "i16", "i32", "i64", "i128", "f16", "f32", "f64",
    "f128",
];

/// Whether each symbol of a function whose name has this part of an identifier has it too.
pub fn is_verbatim(piece: &str) -> bool {
    // Numbers are written otherwise, and so are single characters.
    let letters = piece.trim_start_matches(|first: char| first.is_ascii_digit());
    letters.len() > 1 && !WORDS.iter().any(|word| word.contains(letters))
}

#[cfg(test)]
mod tests;
