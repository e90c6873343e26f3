//! The functions that probes are put on, found without the help of who is measured.

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};

use super::prelude::*;

/// Where each of these functions begins in a file; of those only that the file has.
pub fn offsets(path: &Path, functions: &[&str]) -> Result<BTreeMap<String, u64>> {
    let what = path.display().to_string();
    let bytes = fs::read(path).map_err(Failure::system(what.clone()))?;
    let file = object::File::parse(&bytes[..]).map_err(Failure::format(what))?;
    let place = |address: u64| {
        file.segments().find_map(|segment| {
            let within = address.checked_sub(segment.address())?;
            let (start, size) = segment.file_range();
            (within < size).then_some(start + within)
        })
    };
    let found = file
        .symbols()
        .chain(file.dynamic_symbols())
        .filter(|symbol| symbol.is_definition())
        .filter_map(|symbol| Some((symbol.name().ok()?, symbol.address())))
        .filter(|(name, _)| functions.contains(name))
        .filter_map(|(name, address)| Some((name.to_string(), place(address)?)));
    Ok(found.collect())
}
