//! Which processes of the node are those that orders are about: nothing is read of others but what they execute and where they are.
//!
//! Any pod of the node can run as many processes of any name as it likes, each with as many mounts. So a mount table is read only of
//! processes in the pods of orders, as far as its bound, and once for each process; and of so many a pod and search.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    path::Path,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use ckb_probe_core::process::pod_and_container_in;
use procfs::ProcError;

use super::{
    ObserveError, Place, Process, ProcessId,
    process::{self, Found},
    survivor::directory_in,
};

/// So many bytes of a mount table are read. The kubelet's mounts are among the first hundred.
const TABLE_BYTES: u64 = 1 << 20;

/// So many tables are read of a pod's processes in one search: those that are left wait for the next.
const TABLES: usize = 32;

/// What is looked for.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// Base names of executables.
    pub executables: BTreeSet<String>,
    /// The pods that they run in.
    pub pods: BTreeSet<String>,
    /// Containers by their ids, whatever pod they are of.
    pub containers: BTreeSet<String>,
}

/// The names of containers that were found out, by process: whoever looks for them again has them.
#[derive(Debug, Default)]
pub struct ContainerNames {
    known: Mutex<BTreeMap<ProcessId, Option<String>>>,
    tables: AtomicU64,
}

impl Search {
    /// All processes of the node that are meant.
    pub fn processes(&self, names: &ContainerNames) -> Result<Found, ObserveError> {
        self.processes_in(Path::new("/proc"), names)
    }

    fn processes_in(&self, root: &Path, names: &ContainerNames) -> Result<Found, ObserveError> {
        let mut read = BTreeMap::new();
        let found = process::all_in(root, |directory, pid| {
            self.process_in(directory, pid, names, &mut read)
        })?;
        names.keep(&found);
        Ok(found)
    }

    /// One of them; None where it is not meant, or gone.
    pub fn process(
        &self,
        pid: u32,
        names: &ContainerNames,
    ) -> Result<Option<Process>, ObserveError> {
        let directory = Path::new("/proc").join(pid.to_string());
        self.process_in(&directory, pid, names, &mut BTreeMap::new())
    }

    fn process_in(
        &self,
        directory: &Path,
        pid: u32,
        names: &ContainerNames,
        read: &mut BTreeMap<String, usize>,
    ) -> Result<Option<Process>, ObserveError> {
        let wanted = |executable: &str| self.executables.contains(executable);
        let Some(mut process) = process::at(directory, pid, wanted)? else {
            return Ok(None);
        };
        let Place { pod, container } = &process.place;
        let pod = pod.as_ref().filter(|pod| self.pods.contains(*pod));
        let by_id = container
            .as_ref()
            .is_some_and(|id| self.containers.contains(id));
        match pod {
            // Without its pod, what its mounts say is its pod's author's word.
            Some(pod) => {
                let read = read.entry(pod.clone()).or_default();
                process.name = names.of(directory, process.id, pod, read)?;
            }
            None if by_id => {}
            None => return Ok(None),
        }
        Ok(Some(process))
    }
}

impl ContainerNames {
    /// How many mount tables were read for them.
    pub fn tables_read(&self) -> u64 {
        self.tables.load(Ordering::Relaxed)
    }

    /// The name of the container that a process of this pod is in. None where its mounts do not tell, or there is no time to read them now.
    fn of(
        &self,
        directory: &Path,
        id: ProcessId,
        pod: &str,
        read: &mut usize,
    ) -> Result<Option<String>, ObserveError> {
        if let Some(name) = self.known().get(&id) {
            return Ok(name.clone());
        }
        if *read == TABLES {
            return Ok(None);
        }
        *read += 1;
        self.tables.fetch_add(1, Ordering::Relaxed);
        let table = directory_in(directory.to_path_buf()).join("mountinfo");
        let name = container_in(&table, pod).map_err(|source| ObserveError::Process {
            pid: id.pid,
            source: ProcError::Io(source, Some(table)),
        })?;
        self.known().insert(id, name.clone());
        Ok(name)
    }

    /// Forgets all processes but these.
    fn keep(&self, found: &Found) {
        let ids: BTreeSet<ProcessId> = found.processes.iter().map(|process| process.id).collect();
        let is_there = |id: &ProcessId| ids.contains(id) || found.unreadable.contains(&id.pid);
        self.known().retain(|id, _| is_there(id));
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<ProcessId, Option<String>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The container that the kubelet's mounts in a process's table name, where they name this pod.
fn container_in(table: &Path, pod: &str) -> io::Result<Option<String>> {
    let mut table = BufReader::new(File::open(table)?.take(TABLE_BYTES));
    let mut line = Vec::new();
    while table.read_until(b'\n', &mut line)? > 0 {
        if let Some((of, name)) = pod_and_container_in(&line)
            && of == pod
        {
            return Ok(Some(name));
        }
        line.clear();
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
