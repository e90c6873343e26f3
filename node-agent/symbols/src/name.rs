//! How a function is named, and how its name stands in a string table.

use std::{collections::BTreeSet, fmt};

/// A function's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SymbolName {
    /// A C function, such as `rocksdb_get_pinned_cf`: the symbol itself.
    Exact(&'static str),
    /// A C++ function, such as `rocksdb::CompactionJob::Run`: its qualified name without parameters, which every overload of
    /// it has. Neither a clone of it (`[clone .cold]`, `.part.0`, `.isra.0`) nor a function inside it, such as a lambda, is
    /// meant. The name is of plain identifiers, at least two; no template, operator, constructor or member of `std`.
    Demangled(&'static str),
    /// A function of Rust by its path, as the mangling of old has it, which ends with a hash: such as
    /// `ckb_chain::verify::ConsumeUnverifiedBlockProcessor::verify_block`. All that have this path are meant; of types, `<`, `>`
    /// and `,` are known.
    Rust(&'static str),
}

impl SymbolName {
    /// The name, for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact(name) | Self::Demangled(name) | Self::Rust(name) => name,
        }
    }
}

impl fmt::Display for SymbolName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// No symbol asked for is longer. CKB's longest of all has 3,000 bytes.
pub const NAME_LIMIT: usize = 4096;

/// The names that are looked for, as a string table has them.
///
/// Not the file's names are demangled but the wanted ones are mangled: of plain identifiers that has one outcome, and is
/// compared byte by byte. Demanglers take exponential time for names that are made to that end, and a target may have any.
pub struct Names {
    exact: Vec<(SymbolName, Vec<u8>)>,
    nested: Vec<(SymbolName, Mangled)>,
    shortest: usize,
}

/// A qualified name as it stands in a symbol.
struct Mangled {
    /// All but the last of its parts.
    scope: Vec<u8>,
    /// The function's own.
    function: Vec<u8>,
    /// It is one of Rust, and ends with a hash.
    has_hash: bool,
}

/// Begins a symbol whose name is qualified.
const NESTED: &[u8] = b"_ZN";

impl Names {
    /// Those that are looked for.
    pub fn new(names: &BTreeSet<SymbolName>) -> Self {
        let (mut exact, mut nested) = (Vec::new(), Vec::new());
        for symbol in names {
            match symbol {
                SymbolName::Exact(name) => exact.push((*symbol, name.as_bytes().to_vec())),
                SymbolName::Demangled(name) => nested.push((*symbol, Mangled::new(name, false))),
                SymbolName::Rust(name) => {
                    nested.push((*symbol, Mangled::new(&in_types(name), true)))
                }
            }
        }
        let exact_lengths = exact.iter().map(|(_, bytes)| bytes.len());
        let nested_lengths = nested.iter().map(|(_, name)| name.function.len());
        let shortest = exact_lengths.chain(nested_lengths).min();
        Self {
            exact,
            nested,
            shortest: shortest.unwrap_or(usize::MAX),
        }
    }

    /// Calls `found` with each place in a string from where to its end it is a name. Linkers keep a string that is the end
    /// of another one only there.
    pub fn ends(&self, string: &[u8], mut found: impl FnMut(usize, SymbolName)) {
        if string.len() < self.shortest {
            return;
        }
        for (name, bytes) in &self.exact {
            if string.ends_with(bytes) {
                found(string.len() - bytes.len(), *name);
            }
        }
        if self.nested.is_empty() {
            return;
        }
        // Only clones have a dot in their names.
        let after_dot = string
            .iter()
            .rposition(|byte| *byte == b'.')
            .map_or(0, |dot| dot + 1);
        let begin = after_dot.max(string.len().saturating_sub(NAME_LIMIT));
        let starts = string[begin..].windows(NESTED.len()).enumerate();
        for (at, _) in starts.filter(|(_, window)| *window == NESTED) {
            let symbol = begin + at;
            let rest = after_qualifiers(&string[symbol + NESTED.len()..]);
            for (name, _) in self.nested.iter().filter(|(_, name)| name.begins(rest)) {
                found(symbol, *name);
            }
        }
    }
}

impl Mangled {
    fn new(name: &str, has_hash: bool) -> Self {
        let mangle = |part: &str| format!("{}{part}", part.len());
        let (scope, function) = name.rsplit_once("::").unwrap_or(("", name));
        let scope: String = match scope {
            "" => String::new(),
            scope => scope.split("::").map(mangle).collect(),
        };
        Self {
            scope: scope.into_bytes(),
            function: mangle(function).into_bytes(),
            has_hash,
        }
    }

    /// Whether this, which follows `_ZN` and qualifiers, is the name, to its end, and then parameters, or a hash.
    fn begins(&self, rest: &[u8]) -> bool {
        if self.has_hash {
            let after = rest.strip_prefix(self.scope.as_slice());
            let after = after.and_then(|rest| rest.strip_prefix(self.function.as_slice()));
            return after.is_some_and(is_hash);
        }
        let function = |rest: &[u8]| {
            // L: it is local to its source.
            let rest = rest.strip_prefix(b"L").unwrap_or(rest);
            let rest = after_tags(rest.strip_prefix(self.function.as_slice())?)?;
            rest.strip_prefix(b"E")
                .map(|parameters| !parameters.is_empty())
        };
        rest.strip_prefix(self.scope.as_slice())
            .and_then(function)
            .unwrap_or_default()
    }
}

/// How Rust writes what is in a type's name.
fn in_types(path: &str) -> String {
    path.replace('<', "$LT$")
        .replace('>', "$GT$")
        .replace(',', "$C$")
}

/// Whether this is the hash with which a path of Rust ends, and nothing else.
fn is_hash(rest: &[u8]) -> bool {
    let hash = rest
        .strip_prefix(b"17h")
        .and_then(|rest| rest.strip_suffix(b"E"));
    hash.is_some_and(|hash| hash.len() == 16 && hash.iter().all(u8::is_ascii_hexdigit))
}

/// What follows tags such as `[abi:cxx11]`, which a function has that returns a string: a `B`, a length, and so many bytes.
fn after_tags(mut rest: &[u8]) -> Option<&[u8]> {
    while let Some(tag) = rest.strip_prefix(b"B") {
        let digits = tag.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let length = std::str::from_utf8(&tag[..digits]).ok()?.parse().ok()?;
        rest = tag[digits..].get(length..)?;
    }
    Some(rest)
}

/// What follows `const`, `volatile`, `&` and the like. The grammar is the Itanium C++ ABI's `<nested-name>`:
/// `N [<CV-qualifiers>] [<ref-qualifier>] <prefix> <unqualified-name> E`.
fn after_qualifiers(rest: &[u8]) -> &[u8] {
    let is_other = |byte: &u8| !b"rVKRO".contains(byte);
    let end = rest.iter().position(is_other).unwrap_or(rest.len());
    &rest[end..]
}

#[cfg(test)]
mod tests;
