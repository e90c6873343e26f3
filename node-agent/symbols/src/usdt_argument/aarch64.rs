//! Arguments as arm64's assembler writes them: `-4@x0`, `8@[sp, 16]`, `8@[x1, x2, lsl 3]` or `-4@5`.

use super::{Argument, ArgumentError, Base, Operand, Register, number};

/// The stack pointer, behind `x30`.
const STACK_POINTER: u8 = 31;

/// What an operand is, in the note's words.
pub(super) fn parse(text: &str, whole: &str) -> Result<Operand, ArgumentError> {
    let form = || ArgumentError::Form(whole.to_string());
    let text = text.trim_ascii();
    if let Some(address) = text.strip_prefix('[') {
        return memory(address.strip_suffix(']').ok_or_else(form)?, whole);
    }
    if is_vector(text) {
        return Err(ArgumentError::FloatingPoint(whole.to_string()));
    }
    if let Some(constant) = number(text.strip_prefix('#').unwrap_or(text)) {
        return Ok(Operand::Constant(constant));
    }
    match text {
        "xzr" | "wzr" => Ok(Operand::Constant(0)),
        _ => named(text).map(Operand::Register).ok_or_else(form),
    }
}

/// What stands between brackets: a register, and what is added to it.
fn memory(text: &str, whole: &str) -> Result<Operand, ArgumentError> {
    let form = || ArgumentError::Form(whole.to_string());
    let mut parts = text.split(',').map(str::trim_ascii);
    let base = parts.next().and_then(named).filter(|base| base.bytes == 8);
    let base = Base::Register(base.ok_or_else(form)?);
    let at = |index, displacement| {
        Ok(Operand::Memory {
            base: base.clone(),
            index,
            displacement,
        })
    };
    let (added, shift) = (parts.next(), parts.next());
    if parts.next().is_some() {
        return Err(form());
    }
    let Some(added) = added else {
        return at(None, 0);
    };
    let immediate = added.strip_prefix('#').unwrap_or(added);
    if immediate.starts_with(':') {
        return Err(ArgumentError::Address(whole.to_string()));
    }
    if let Some(displacement) = number(immediate) {
        return match shift {
            None => at(None, displacement),
            Some(_) => Err(form()),
        };
    }
    let index = named(added).filter(|index| index.number != STACK_POINTER);
    let index = index.ok_or_else(form)?;
    if index.bytes != 8 {
        return Err(ArgumentError::Extended(whole.to_string()));
    }
    let scale = match shift {
        None => 1,
        Some(shift) => {
            let by = shift.strip_prefix("lsl").map(str::trim_ascii);
            let by = by.map(|by| by.strip_prefix('#').unwrap_or(by));
            match by {
                Some("0") => 1,
                Some("1") => 2,
                Some("2") => 4,
                Some("3") => 8,
                _ => return Err(form()),
            }
        }
    };
    at(Some((index, scale)), 0)
}

/// A register for numbers, by its name.
fn named(name: &str) -> Option<Register> {
    let register = |number, bytes| {
        Some(Register {
            number,
            bytes,
            is_second_byte: false,
        })
    };
    match name {
        "sp" => return register(STACK_POINTER, 8),
        "wsp" => return register(STACK_POINTER, 4),
        _ => {}
    }
    let (kind, digits) = name.split_at_checked(1)?;
    let number = numbered(digits).filter(|number| *number < STACK_POINTER)?;
    match kind {
        "x" => register(number, 8),
        "w" => register(number, 4),
        _ => None,
    }
}

/// Whether a register for numbers with a point, or for several numbers, has this name.
fn is_vector(name: &str) -> bool {
    name.split_at_checked(1)
        .is_some_and(|(kind, digits)| "bhsdqv".contains(kind) && numbered(digits).is_some())
}

/// A register's number, as it is written: without zeros before it.
fn numbered(digits: &str) -> Option<u8> {
    let number = digits.parse::<u8>().ok().filter(|number| *number < 32)?;
    (number.to_string() == digits).then_some(number)
}

/// An argument as a note has it, or would have it: what is at an address that was found is `[site, …]`.
pub(super) fn told(argument: &Argument) -> String {
    let sign = if argument.is_signed { "-" } else { "" };
    let operand = match &argument.operand {
        Operand::Constant(value) => value.to_string(),
        Operand::Register(register) => name(*register),
        Operand::Memory {
            base,
            index,
            displacement,
        } => {
            let mut parts = vec![match base {
                Base::Zero => "0".to_string(),
                Base::Register(register) => name(*register),
                Base::Symbol(name) => name.clone(),
                Base::Site => "site".to_string(),
            }];
            parts.extend(index.map(|(index, _)| name(index)));
            parts.extend(index.map(|(_, scale)| format!("lsl {}", scale.ilog2())));
            parts.extend((*displacement != 0).then(|| displacement.to_string()));
            format!("[{}]", parts.join(", "))
        }
    };
    format!("{sign}{}@{operand}", argument.bytes)
}

fn name(register: Register) -> String {
    match (register.number, register.bytes) {
        (STACK_POINTER, 8) => "sp".to_string(),
        (STACK_POINTER, _) => "wsp".to_string(),
        (number, 8) => format!("x{number}"),
        (number, _) => format!("w{number}"),
    }
}
