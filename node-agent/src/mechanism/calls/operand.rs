//! Arguments of USDT probes, from what a note says to what the program in the kernel reads.

use ckb_probe_crds::Reason;
use ckb_probe_symbols::{
    Machine,
    elf::UsdtSite,
    usdt_argument::{Argument, Base, Operand as Place},
};

use super::{Kept, Numbered};
use crate::{
    kernel::{Operand, SITE, TEXT_BYTES, Value, ValueKind, ZERO},
    mechanism::Refusal,
};

/// How many bytes a pointer has.
const POINTER: u8 = 8;

/// The argument of a probe at one of its places; refused where there is none, or it cannot be read.
pub(in crate::mechanism) fn operand(site: &UsdtSite, asked: Numbered) -> Result<Operand, Refusal> {
    let UsdtSite {
        provider,
        name,
        arguments,
        ..
    } = site;
    let Numbered { number, kind } = asked;
    let refused = |sentence: String| Err(Refusal::new(Reason::SymbolNotFound, sentence));
    let index = usize::from(number).wrapping_sub(1);
    let argument = match arguments.get(index) {
        Some(Ok(argument)) => argument,
        Some(Err(error)) => {
            return refused(format!(
                "argument {number} of {provider}:{name} cannot be read: {error}"
            ));
        }
        None => {
            let known = match arguments.len() {
                0 => "no arguments".to_string(),
                1 => "one".to_string(),
                more => more.to_string(),
            };
            return refused(format!(
                "{provider}:{name} has no argument {number}: it has {known}"
            ));
        }
    };
    if kind == Kept::String && argument.bytes != POINTER {
        return refused(format!(
            "argument {number} of {provider}:{name} is no pointer to a text: it has {} bytes ({})",
            argument.bytes,
            argument.told(Machine::NATIVE)
        ));
    }
    let read = read(argument).ok_or_else(|| {
        Refusal::new(
            Reason::SymbolNotFound,
            format!(
                "argument {number} of {provider}:{name} is at an address that is not known ({})",
                argument.told(Machine::NATIVE)
            ),
        )
    })?;
    let kind = match kind {
        Kept::String => ValueKind::Text,
        Kept::Integer if argument.is_signed => ValueKind::Signed,
        Kept::Integer => ValueKind::Unsigned,
    };
    Ok(Operand {
        kind: kind as u8,
        ..read
    })
}

/// None of an address that begins with a symbol: those are found as the file is read.
fn read(argument: &Argument) -> Option<Operand> {
    let nothing = Operand {
        base: ZERO,
        index: ZERO,
        bytes: argument.bytes,
        ..Operand::default()
    };
    Some(match &argument.operand {
        Place::Constant(value) => Operand {
            displacement: *value,
            ..nothing
        },
        Place::Register(register) => Operand {
            base: register.number,
            below: if register.is_second_byte { 8 } else { 0 },
            // What is above a part of a register is not the argument's.
            bytes: argument.bytes.min(register.bytes),
            ..nothing
        },
        Place::Memory {
            base,
            index,
            displacement,
        } => {
            let (base, base_bytes) = match base {
                Base::Zero => (ZERO, POINTER),
                Base::Site => (SITE, POINTER),
                Base::Register(register) => (register.number, register.bytes),
                Base::Symbol(_) => return None,
            };
            let (index, index_bytes, scale) = match index {
                Some((register, times)) => (register.number, register.bytes, times.ilog2() as u8),
                None => (ZERO, POINTER, 0),
            };
            Operand {
                displacement: *displacement,
                base,
                index,
                scale,
                is_short: u8::from(base_bytes.min(index_bytes) < POINTER),
                is_in_memory: 1,
                ..nothing
            }
        }
    })
}

/// A value of an argument, for people: a text in quotes, so that none is taken for a word of ours.
pub(super) fn told(value: &Value) -> String {
    let Value { kind, bytes, .. } = value;
    let (number, _) = bytes.split_at(size_of::<u64>());
    let number = number.try_into().map_or(0, u64::from_le_bytes);
    match *kind {
        kind if kind == ValueKind::Text as u32 => Kept::String.told(1, bytes),
        kind if kind == ValueKind::Null as u32 => Kept::String.told(0, bytes),
        kind if kind == ValueKind::Signed as u32 => number.cast_signed().to_string(),
        _ => number.to_string(),
    }
}

const _: () = assert!(TEXT_BYTES >= size_of::<u64>());

#[cfg(test)]
mod tests;
