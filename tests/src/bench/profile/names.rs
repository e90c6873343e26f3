//! One name for a function, whoever demangled it: perf tells parameters and generics in other ways than we do.

/// What is written for types that have no name, put where no bracket is looked for.
const ANONYMOUS: (&str, &str) = ("(anonymous namespace)", "{anonymous}");

/// A name without parameters, generic arguments, and what compilers and linkers add to symbols.
pub fn plain(name: &str) -> String {
    let name = name.strip_suffix("_[k]").unwrap_or(name);
    if name.starts_with('[') {
        return name.to_string();
    }
    let name = name.split_once("@@").map_or(name, |(name, _)| name);
    let name = name.replace(ANONYMOUS.0, ANONYMOUS.1);
    let name = name.strip_prefix("non-virtual thunk to ").unwrap_or(&name);
    let name = unbracketed(name);
    let name = name.split('(').next().unwrap_or_default();
    let parts = [".isra.", ".part.", ".constprop.", ".cold", ".llvm."];
    let end = parts.iter().filter_map(|part| name.find(part)).min();
    name[..end.unwrap_or(name.len())].trim().to_string()
}

/// Without what is in angle brackets; but of `<A as B>::f` and `<A>::f` that is whose function it is.
fn unbracketed(name: &str) -> String {
    let mut depth = 0_u32;
    let mut plain = String::new();
    let mut rest = name;
    if let Some(inner) = name.strip_prefix('<') {
        let end = inner.char_indices().find(|(_, letter)| {
            match letter {
                '<' => depth += 1,
                '>' => depth = depth.wrapping_sub(1),
                _ => {}
            }
            depth == u32::MAX
        });
        if let Some((end, _)) = end {
            let own = unbracketed(&inner[..end]);
            plain = match own.contains(" as ") {
                true => format!("<{own}>"),
                false => own,
            };
            rest = &inner[end + 1..];
        }
    }
    let mut depth = 0_u32;
    let mut before = ' ';
    for letter in rest.chars() {
        // `->` and `operator<` end and begin nothing.
        let is_operator = plain.ends_with("operator") || plain.ends_with("operator<");
        match letter {
            '<' if depth > 0 || !is_operator => depth += 1,
            '>' if depth > 0 && before != '-' => depth -= 1,
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
        before = letter;
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perf_and_we_come_to_the_same_name() {
        for (perf, ours) in [
            (
                "rocksdb::InlineSkipList<rocksdb::MemTableRep::KeyComparator const&>::FindGreaterOrEqual(char const*) const",
                "rocksdb::InlineSkipList<rocksdb::MemTableRep::KeyComparator const&>::FindGreaterOrEqual",
            ),
            (
                "non-virtual thunk to rocksdb::(anonymous namespace)::BytewiseComparatorImpl::Compare(rocksdb::Slice const&) const",
                "rocksdb::(anonymous namespace)::BytewiseComparatorImpl::Compare",
            ),
            (
                "<std::sys::sync::mutex::futex::Mutex>::lock_contended",
                "std::sys::sync::mutex::futex::Mutex::lock_contended",
            ),
            (
                "<alloc::vec::Vec<T> as alloc::vec::SpecFromIter<T,I>>::from_iter",
                "<alloc::vec::Vec<T> as alloc::vec::SpecFromIter<T, I>>::from_iter",
            ),
            ("finish_task_switch.isra.0", "finish_task_switch_[k]"),
            ("pthread_mutex_lock@@GLIBC_2.2.5", "pthread_mutex_lock"),
            ("operator delete(void*)", "operator delete"),
        ] {
            assert_eq!(plain(perf), plain(ours));
        }
        assert_eq!(plain("[libc.so.6]"), "[libc.so.6]");
        assert_eq!(
            plain("rocksdb::Slice::operator<(int)"),
            "rocksdb::Slice::operator<"
        );
    }
}
