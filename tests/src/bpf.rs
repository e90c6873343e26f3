//! What of BPF is in the kernel, and in a process's code. Seen from outside, and never by the agent's own word.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};
use procfs::process::{self as proc, MMPermissions, MMapPath, MemoryMap};

use crate::{
    cluster::run,
    failure::{Failure, Result, expect},
    operations,
    process::Process,
};

/// The first instruction of a function of a process: a probe replaces its first byte.
#[derive(Clone, Debug)]
struct Entry {
    function: &'static str,
    symbol: String,
    address: u64,
    original: u8,
}

/// The functions of a process that a CkbProbe may ask to measure.
#[derive(Clone, Debug)]
pub struct Code {
    pid: i32,
    entries: Vec<Entry>,
    /// The file that they are in, by a path that is valid here.
    pub file: PathBuf,
}

impl Code {
    /// Finds them: in the first of the mapped files that has any.
    pub fn of(process: Process) -> Result<Self> {
        let what = format!("/proc/{}/maps", process.pid);
        let maps = proc::Process::new(process.pid)
            .and_then(|process| process.maps())
            .map_err(Failure::format(what))?;
        let code: Vec<&MemoryMap> = maps
            .iter()
            .filter(|map| map.perms.contains(MMPermissions::EXECUTE))
            .collect();
        let mut searched = BTreeSet::new();
        for map in &code {
            let MMapPath::Path(path) = &map.pathname else {
                continue;
            };
            if !searched.insert(path) {
                continue;
            }
            let file = process.path(&path.to_string_lossy());
            let bytes = fs::read(&file).map_err(Failure::at(&file))?;
            let offsets = offsets(&bytes, &file)?;
            if offsets.is_empty() {
                continue;
            }
            let entries = offsets
                .into_iter()
                .map(|((function, symbol), offset)| {
                    Ok(Entry {
                        function,
                        symbol,
                        address: address(&code, path, offset)?,
                        original: bytes[offset as usize],
                    })
                })
                .collect::<Result<_>>()?;
            return Ok(Self {
                pid: process.pid,
                entries,
                file,
            });
        }
        Err(Failure::unexpected(
            "functions of RocksDB",
            format!("none in the process {}", process.pid),
        ))
    }

    /// The functions that serve these operations.
    pub fn serving(&self, operations: &[&str]) -> Vec<&'static str> {
        let symbols = self.symbols(operations);
        symbols.into_iter().map(|(function, _)| function).collect()
    }

    /// The same, each with its symbol in the file.
    pub fn symbols(&self, operations: &[&str]) -> Vec<(&'static str, &str)> {
        let wanted = operations::functions_of(operations);
        let entries = self.entries.iter();
        entries
            .filter(|entry| wanted.contains(&entry.function))
            .map(|entry| (entry.function, entry.symbol.as_str()))
            .collect()
    }

    /// Every function of the file, by its symbol, with its address in it.
    pub fn functions(&self) -> Result<BTreeMap<String, u64>> {
        let what = || self.file.display().to_string();
        let bytes = fs::read(&self.file).map_err(Failure::system(what()))?;
        let file = object::File::parse(&*bytes).map_err(Failure::format(what()))?;
        let symbols = file.symbols().chain(file.dynamic_symbols());
        let functions =
            symbols.filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text);
        Ok(functions
            .filter_map(|symbol| Some((symbol.name().ok()?.to_string(), symbol.address())))
            .collect())
    }

    /// The functions that have a probe right now: those that do not begin in memory as they do in their file.
    pub fn probed(&self) -> Result<Vec<&'static str>> {
        let path = format!("/proc/{}/mem", self.pid);
        let memory = File::open(&path).map_err(Failure::system(path.clone()))?;
        let mut probed = Vec::new();
        for entry in &self.entries {
            let mut now = [0];
            memory
                .read_exact_at(&mut now, entry.address)
                .map_err(Failure::system(path.clone()))?;
            if now[0] != entry.original {
                probed.push(entry.function);
            }
        }
        Ok(probed)
    }

    /// Succeeds when no function has a probe.
    pub fn expect_untouched(&self) -> Result<()> {
        let probed = self.probed()?;
        expect(
            probed.is_empty(),
            format!("no probe in the process {}", self.pid),
            || format!("probes at {}", probed.join(", ")),
        )
    }
}

/// The functions of [`operations`] that a file has, with their symbols, and where each begins in it.
fn offsets(bytes: &[u8], path: &Path) -> Result<BTreeMap<(&'static str, String), u64>> {
    let file = object::File::parse(bytes).map_err(Failure::format(path.display().to_string()))?;
    let place = |address: u64| {
        file.segments().find_map(|segment| {
            let within = address.checked_sub(segment.address())?;
            let (start, size) = segment.file_range();
            (within < size).then_some(start + within)
        })
    };
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let found = symbols
        .filter(|symbol| symbol.is_definition())
        .filter_map(|symbol| Some((symbol.name().ok()?, symbol.address())))
        // Of the hundred thousands of symbols of a node, a few thousand.
        .filter(|(name, _)| name.starts_with("rocksdb_") || name.starts_with("_ZN7rocksdb"))
        .filter_map(|(name, address)| {
            let is_named = |function: &&str| operations::is_symbol_of(function, name);
            let function = operations::functions().find(is_named)?;
            Some(((function, name.to_string()), place(address)?))
        })
        .filter(|(_, offset)| (*offset as usize) < bytes.len());
    Ok(found.collect())
}

/// Where a process has a byte of a file mapped as code.
fn address(maps: &[&MemoryMap], file: &Path, offset: u64) -> Result<u64> {
    maps.iter()
        .filter(|map| matches!(&map.pathname, MMapPath::Path(path) if path == file))
        .find_map(|map| {
            let address = map.address.0 + offset.checked_sub(map.offset)?;
            (address < map.address.1).then_some(address)
        })
        .ok_or_else(|| {
            Failure::unexpected(
                format!("{}+{offset:#x} mapped as code", file.display()),
                "no mapping of it",
            )
        })
}

/// BPF programs and links that a process holds, by their ids, which the kernel does not use again soon.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// Programs.
    pub programs: BTreeSet<u64>,
    /// Links.
    pub links: BTreeSet<u64>,
    /// Maps.
    pub maps: BTreeSet<u64>,
}

impl Held {
    /// What a process holds now.
    pub fn by(process: Process) -> Result<Self> {
        let folder = format!("/proc/{}/fdinfo", process.pid);
        let descriptors = fs::read_dir(&folder).map_err(Failure::system(folder))?;
        let mut held = Self::default();
        for descriptor in descriptors.flatten() {
            // It may have been closed meanwhile.
            let text = fs::read_to_string(descriptor.path()).unwrap_or_default();
            for line in text.lines() {
                let mut words = line.split_whitespace();
                let (key, id) = (words.next(), words.next().and_then(|id| id.parse().ok()));
                match (key, id) {
                    (Some("prog_id:"), Some(id)) => held.programs.insert(id),
                    (Some("link_id:"), Some(id)) => held.links.insert(id),
                    (Some("map_id:"), Some(id)) => held.maps.insert(id),
                    _ => false,
                };
            }
        }
        Ok(held)
    }

    /// Succeeds when bpftool lists none of them any more.
    pub async fn expect_gone(&self) -> Result<()> {
        let programs = listed("prog").await?;
        let links = listed("link").await?;
        let programs: Vec<_> = self.programs.intersection(&programs).collect();
        let links: Vec<_> = self.links.intersection(&links).collect();
        expect(
            programs.is_empty() && links.is_empty(),
            "bpftool to list none of the agent's programs and links",
            || format!("programs {programs:?}, links {links:?}"),
        )
    }
}

/// The ids that `bpftool prog` or `bpftool link` lists.
async fn listed(what: &str) -> Result<BTreeSet<u64>> {
    let text = run("bpftool", &["--json", what, "show"], None).await?;
    let list: serde_json::Value =
        serde_json::from_str(&text).map_err(Failure::format(format!("bpftool {what}")))?;
    let ids = list.as_array().into_iter().flatten();
    Ok(ids.filter_map(|item| item["id"].as_u64()).collect())
}
