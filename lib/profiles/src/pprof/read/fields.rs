//! The fields of a message, one by one, without copies.

use super::ReadError;

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number.
    Number(u64),
    /// A text, a message, or many numbers.
    Bytes(&'a [u8]),
    /// What no field of a profile has.
    Other,
}

/// The fields of a message, with their numbers. After an error there are no more.
pub fn fields(bytes: &[u8]) -> impl Iterator<Item = Result<(u64, Value<'_>), ReadError>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let at = bytes.len() - rest.len();
        let found = next(&mut rest);
        if found.is_none() {
            rest = &[];
        }
        Some(found.ok_or(ReadError::NoField { at }))
    })
}

fn next<'a>(rest: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
    let key = number(rest)?;
    let value = match key & 7 {
        0 => Value::Number(number(rest)?),
        1 => taken(rest, 8).map(|_| Value::Other)?,
        2 => {
            let length = usize::try_from(number(rest)?).ok()?;
            Value::Bytes(taken(rest, length)?)
        }
        5 => taken(rest, 4).map(|_| Value::Other)?,
        // Groups were given up before there was pprof.
        _ => return None,
    };
    (key >> 3 != 0).then_some((key >> 3, value))
}

/// Seven bits in each byte, the least first, and a bit for whether there are more.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for (place, byte) in rest.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            *rest = &rest[place + 1..];
            return Some(number);
        }
    }
    None
}

fn taken<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}
