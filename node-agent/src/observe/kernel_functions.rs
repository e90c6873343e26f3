//! The names of the kernel's functions, as /proc/kallsyms has them. Everybody may read those, though not their addresses.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader},
};

use ckb_probe_symbols::Glob;

use super::functions::LISTED_LIMIT;

const PATH: &str = "/proc/kallsyms";

/// What a pattern finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelFunctions {
    /// The names that match, each with how many functions have it; [`LISTED_LIMIT`] of them at most.
    pub found: BTreeMap<String, u32>,
    /// How many functions match.
    pub total: usize,
}

/// Looks for functions of the kernel and its modules.
pub fn find_kernel_functions(glob: &Glob) -> io::Result<KernelFunctions> {
    matching(BufReader::with_capacity(1 << 18, File::open(PATH)?), glob)
}

/// A line has an address, a type, a name and for what is of a module `[module]`, which comes after a tab.
fn matching(mut lines: impl BufRead, glob: &Glob) -> io::Result<KernelFunctions> {
    let mut matching = KernelFunctions::default();
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        if let Some(name) = std::str::from_utf8(&line).ok().and_then(function)
            && glob.matches(name)
        {
            matching.total += 1;
            if let Some(count) = matching.found.get_mut(name) {
                *count += 1;
            } else if matching.found.len() < LISTED_LIMIT {
                matching.found.insert(name.to_string(), 1);
            }
        }
        line.clear();
    }
    Ok(matching)
}

/// The function of a line, where it is one: without the parts that compilers split off, whose calls are none, and without what
/// the kernel makes at run time.
fn function(line: &str) -> Option<&str> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (kind, name) = (words.next()?, words.next()?);
    let made = words
        .next()
        .is_some_and(|module| module == "[bpf]" || module.starts_with("[__builtin__"));
    let split = name.starts_with("__pfx_") || name.starts_with("__cfi_") || name.contains(".cold");
    (matches!(kind, "t" | "T" | "w" | "W") && !made && !split).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &str = "\
0000000000000000 T startup_64\n\
0000000000000000 t __pfx_ext4_sync_file\n\
0000000000000000 t ext4_sync_file\n\
0000000000000000 d ext4_sync_data\n\
0000000000000000 t ext4_sync_file.cold\n\
0000000000000000 t ext4_sync_fs\t[ext4]\n\
0000000000000000 t init_once\n\
0000000000000000 t init_once\t[fuse]\n\
0000000000000000 t bpf_prog_6deef7357e7b4530_ext4_sync\t[bpf]\n\
0000000000000000 t ext4_sync_trampoline\t[__builtin__ftrace]\n\
broken\n";

    fn found(pattern: &str) -> KernelFunctions {
        matching(SYMBOLS.as_bytes(), &Glob::new(pattern).unwrap()).unwrap()
    }

    fn named(names: &[(&str, u32)]) -> BTreeMap<String, u32> {
        let names = names.iter();
        names
            .map(|(name, count)| (name.to_string(), *count))
            .collect()
    }

    #[test]
    fn what_matches_are_functions_and_not_their_parts_or_data() {
        let sync = found("*ext4_sync*");
        assert_eq!(
            sync.found,
            named(&[("ext4_sync_file", 1), ("ext4_sync_fs", 1)])
        );
        assert_eq!(sync.total, 2);
    }

    #[test]
    fn several_functions_of_one_name_are_told() {
        let init = found("init_*");
        assert_eq!(init.found, named(&[("init_once", 2)]));
        assert_eq!(init.total, 2);
    }

    #[test]
    fn this_kernel_has_its_system_calls() {
        let glob = Glob::new("__x64_sys_getppid").unwrap();
        let found = find_kernel_functions(&glob).unwrap();
        assert_eq!(found.found, named(&[("__x64_sys_getppid", 1)]));
    }
}
