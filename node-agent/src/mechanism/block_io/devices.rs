//! Which disks have the requests of what was asked for by name.

use std::collections::BTreeSet;

use ckb_probe_crds::{Lack, Reason};

use crate::{
    mechanism::{Coverage, Refusal},
    observe::BlockDevice,
};

/// Volumes stand on volumes: the kernel lets no more than so many.
const MAX_DEPTH: usize = 16;

/// Disks that are named to whoever asks for one that is not there.
const NAMED: usize = 12;

/// What was asked for, as far as it is there.
#[derive(Debug, Default, PartialEq)]
pub struct Resolved {
    /// The disks that have the requests; and those that are not there, which may come yet.
    pub disks: Vec<String>,
    /// What is lacking, and what counts under another name.
    pub coverage: Coverage,
}

/// Holds names against what there is. None that is asked for is there, or has requests: refused.
pub fn resolve(asked: &[String], there: &[BlockDevice]) -> Result<Resolved, Refusal> {
    let mut disks = BTreeSet::new();
    let (mut missing, mut sentences) = (Vec::new(), Vec::new());
    for name in asked {
        // As the kernel's files have it. The disk's own name has a slash, which nobody may ask for.
        let name = &name.replace('!', "/");
        let Some(found) = find(name, there) else {
            sentences.push(format!("there is no disk {name}"));
            missing.push(name.clone());
            continue;
        };
        let own = requests_of(name, there, 0);
        sentences.extend(sentence(name, found, &own));
        if own.is_empty() {
            missing.push(name.clone());
        }
        disks.extend(own);
    }
    if disks.is_empty() {
        let with_requests = there.iter().filter(|device| device.has_requests);
        let names: Vec<&str> = with_requests.map(|device| device.name.as_str()).collect();
        let message = format!("{}: this node has {}", sentences.join("; "), listed(&names));
        return Err(Refusal::new(Reason::SymbolNotFound, message));
    }
    let lack = Lack {
        reason: Reason::SymbolNotFound,
        items: missing.clone(),
    };
    let told = sentences
        .iter()
        .map(|sentence| format!("; {sentence}"))
        .collect();
    let coverage = Coverage {
        may_grow: !missing.is_empty(),
        lacks: if missing.is_empty() {
            Vec::new()
        } else {
            vec![lack]
        },
        sentence: told,
    };
    disks.extend(missing);
    Ok(Resolved {
        disks: disks.into_iter().collect(),
        coverage,
    })
}

/// A disk, or the one that a partition is on.
#[derive(Clone, Copy)]
enum There<'a> {
    Disk(&'a BlockDevice),
    PartitionOf(&'a BlockDevice),
}

fn find<'a>(name: &str, there: &'a [BlockDevice]) -> Option<There<'a>> {
    let is_it = |device: &&BlockDevice| device.name == name;
    let has_it = |device: &&BlockDevice| device.partitions.iter().any(|one| one == name);
    let disk = there.iter().find(is_it).map(There::Disk);
    disk.or_else(|| there.iter().find(has_it).map(There::PartitionOf))
}

/// The disks whose requests are those of what has this name.
fn requests_of(name: &str, there: &[BlockDevice], depth: usize) -> BTreeSet<String> {
    let below = |names: &[String]| {
        let names = names.iter();
        names
            .flat_map(|name| requests_of(name, there, depth + 1))
            .collect()
    };
    match find(name, there) {
        _ if depth > MAX_DEPTH => BTreeSet::new(),
        None => BTreeSet::new(),
        Some(There::PartitionOf(disk)) => requests_of(&disk.name, there, depth + 1),
        Some(There::Disk(disk)) if disk.has_requests || has_paths(disk, there) => {
            [disk.name.clone()].into()
        }
        Some(There::Disk(disk)) => below(&disk.below),
    }
}

fn sentence(name: &str, found: There<'_>, disks: &BTreeSet<String>) -> Option<String> {
    let disks: Vec<&str> = disks.iter().map(String::as_str).collect();
    match found {
        _ if disks.is_empty() => Some(format!("{name} has no requests to tell of")),
        There::Disk(_) if disks == [name] => None,
        There::Disk(_) => Some(format!(
            "{name} has no requests of its own: those of {} below it are counted, whoever they are for",
            disks.join(", ")
        )),
        There::PartitionOf(_) => Some(format!(
            "{name} is a partition: all requests of {} are counted",
            disks.join(", ")
        )),
    }
}

fn listed(names: &[&str]) -> String {
    let named = names.len().min(NAMED);
    match names.len() - named {
        0 if named == 0 => "none".to_string(),
        0 => names.join(", "),
        more => format!("{} and {more} more", names[..named].join(", ")),
    }
}

/// Whether another disk has the requests of this one: a disk of several paths.
fn has_paths(disk: &BlockDevice, there: &[BlockDevice]) -> bool {
    let mut heads = there.iter().filter_map(|path| Head::of(&path.name));
    heads.any(|head| head.name() == disk.name)
}

/// A disk of NVMe that can be reached by several paths, each of which is a hidden disk that has the requests of its own.
///
/// The kernel's names say which are which: see `nvme_mpath_set_disk_name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    subsystem: u16,
    namespace: u32,
}

impl Head {
    /// That of a path: `nvme0n1` is what `nvme0c3n1` leads to.
    pub fn of(path: &str) -> Option<Self> {
        let (subsystem, rest) = path.strip_prefix("nvme")?.split_once('c')?;
        let (controller, namespace) = rest.split_once('n')?;
        controller.parse::<u16>().ok()?;
        Some(Self {
            subsystem: subsystem.parse().ok()?,
            namespace: namespace.parse().ok()?,
        })
    }

    /// Its name.
    pub fn name(self) -> String {
        format!("nvme{}n{}", self.subsystem, self.namespace)
    }

    /// A number that no other has, nor any disk's own.
    pub fn place(self) -> u64 {
        1 << 48 | u64::from(self.subsystem) << 32 | u64::from(self.namespace)
    }
}

/// Whether a disk is among those that are asked for; all are, where none is.
pub fn is_wanted(disks: &[String], disk: &str) -> bool {
    let head = Head::of(disk).map(Head::name);
    let is_it = |wanted: &String| wanted == disk || Some(wanted) == head.as_ref();
    disks.is_empty() || disks.iter().any(is_it)
}

#[cfg(test)]
mod tests;
