//! The USDT probes of a process: those of its executable and of the libraries that it has mapped, in its own mount namespace.

use std::{path::Path, sync::Arc};

use ckb_probe_bpf::Binary;
use ckb_probe_symbols::elf::{Budget, UsdtProbes, usdt_probes};

use super::{
    ProcessId,
    cache::UsdtCache,
    symbols::{LIBRARY_LIMIT, SymbolsError, cached, libraries, open_executable, open_library},
};

/// A file that has USDT probes.
#[derive(Clone, Debug)]
pub struct UsdtFile {
    /// The file.
    pub binary: Arc<Binary>,
    /// Its probes.
    pub probes: Arc<UsdtProbes>,
}

/// Looks for all USDT probes of a process. Files that are as they were at an earlier search are not read again. A library that
/// cannot be searched is skipped.
pub fn find_usdt(process: ProcessId, cache: &UsdtCache) -> Result<Vec<UsdtFile>, SymbolsError> {
    let mut budget = Budget::default();
    let mut search = |binary: Binary| {
        let (state, probes) = cached(&binary, &(), cache, |file| {
            usdt_probes(file, &mut budget).map(Arc::new)
        })?;
        let binary = Arc::new(binary);
        Ok::<_, SymbolsError>((state, UsdtFile { binary, probes }))
    };
    let (state, executable) = search(open_executable(process)?)?;
    // The executable is mapped too.
    let mut searched = vec![state];
    let mut files = vec![executable];
    for path in libraries(process, LIBRARY_LIMIT) {
        match open_library(process, &path).and_then(&mut search) {
            Ok((state, _)) if searched.contains(&state) => {}
            Ok((state, library)) => {
                searched.push(state);
                files.push(library);
            }
            Err(error) => tracing::debug!(%error, "a mapped file is not searched"),
        }
    }
    files.retain(|file| *file.probes != UsdtProbes::default());
    Ok(files)
}

/// Those of a file that nobody need run.
pub fn usdt_of_file(path: &Path) -> Result<UsdtFile, SymbolsError> {
    let binary = Binary::open(path).map_err(|error| SymbolsError::new(path, error))?;
    let (_, probes) = cached(&binary, &(), &UsdtCache::default(), |file| {
        usdt_probes(file, &mut Budget::default()).map(Arc::new)
    })?;
    let binary = Arc::new(binary);
    Ok(UsdtFile { binary, probes })
}
