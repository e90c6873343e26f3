//! How the fuzzer changes JSON.

use crate::json::changed;

/// A change in place, as the fuzzer wants it: of the JSON, or one time in eight of its bytes, by `bytewise`. Returns the new size.
pub fn mutate(
    data: &mut [u8],
    size: usize,
    most: usize,
    seed: u32,
    bytewise: fn(&mut [u8], usize, usize) -> usize,
) -> usize {
    let known = data.get(..size).unwrap_or_default();
    let other = changed(known, u64::from(seed)).filter(|other| other.len() <= most && seed % 8 > 0);
    match other
        .as_deref()
        .and_then(|other| Some((other, data.get_mut(..other.len())?)))
    {
        Some((other, place)) => {
            place.copy_from_slice(other);
            other.len()
        }
        None => bytewise(data, size, most),
    }
}
