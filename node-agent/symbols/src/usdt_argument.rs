//! Where a USDT probe's arguments are: what the note of `sys/sdt.h` says of each in the words of the assembler, such as `-4@%eax`,
//! `8@-16(%rbp)`, `4@$1` or `-4@40+CheckpointStats(%rip)`; and of arm64: see [`aarch64`].
//!
//! The words are the target's, and may be anything: whatever is not understood is refused with a sentence, and leaves the probe's
//! other arguments, and the probe, as they are.

mod aarch64;

use std::fmt;

use crate::Machine;

/// No probe has more: `sys/sdt.h` knows macros for twelve.
pub const ARGUMENT_LIMIT: usize = 12;

/// No symbol in an argument is longer.
const SYMBOL_LIMIT: usize = 256;

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// How many bytes it has: 1, 2, 4 or 8.
    pub bytes: u8,
    /// Whether it is a signed number.
    pub is_signed: bool,
    /// Where it is.
    pub operand: Operand,
}

/// Where an argument is as the probe is met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// Nowhere: it is always this.
    Constant(i64),
    /// In a register.
    Register(Register),
    /// At an address in memory, which is the sum of all of these.
    Memory {
        /// What the address begins with.
        base: Base,
        /// What is added to it so many times (1, 2, 4 or 8).
        index: Option<(Register, u8)>,
        /// What else is added.
        displacement: i64,
    },
}

/// What an address begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// Nothing: the address is what is added.
    Zero,
    /// What a register has.
    Register(Register),
    /// The address of a symbol of the file.
    Symbol(String),
    /// The address of the probe's own instruction, wherever the file is mapped.
    Site,
}

/// A register, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// Its number as instructions have it: `rax` is 0, `r15` is 15, `x30` is 30. The stack pointer of arm64 is 31.
    pub number: u8,
    /// How many bytes of it are meant: 1, 2, 4 or 8.
    pub bytes: u8,
    /// They are its second byte, and not its first ones: `%ah`.
    pub is_second_byte: bool,
}

/// Why an argument is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// No form of the assembler's.
    #[error("{0:?} is no argument of a probe")]
    Form(String),
    /// A size that no number has.
    #[error("{0:?} has a size that is not 1, 2, 4 or 8 bytes")]
    Size(String),
    /// In a register for numbers with a point.
    #[error("{0:?} is a floating-point number, which is not read")]
    FloatingPoint(String),
    /// Its address is another one for each thread.
    #[error("{0:?} is a thread-local variable, whose address is not known")]
    ThreadLocal(String),
    /// By way of a table that the loader fills.
    #[error("{0:?} is found by way of the global offset table, which is not read")]
    GlobalOffsetTable(String),
    /// Its address is made of a part of a register, with its sign or without.
    #[error("{0:?} is at an address that is made of half a register, which is not read")]
    Extended(String),
    /// An address that only the loader knows.
    #[error("{0:?} is an address that is not known before the program is loaded")]
    Address(String),
    /// No symbol table has it.
    #[error("no symbol table of the file has {0:?}, of which the argument is")]
    NoSymbol(String),
}

/// The names of the whole registers, of their lower halves, quarters, and first bytes, by number.
const REGISTERS: [[&str; 4]; 16] = [
    ["rax", "eax", "ax", "al"],
    ["rcx", "ecx", "cx", "cl"],
    ["rdx", "edx", "dx", "dl"],
    ["rbx", "ebx", "bx", "bl"],
    ["rsp", "esp", "sp", "spl"],
    ["rbp", "ebp", "bp", "bpl"],
    ["rsi", "esi", "si", "sil"],
    ["rdi", "edi", "di", "dil"],
    ["r8", "r8d", "r8w", "r8b"],
    ["r9", "r9d", "r9w", "r9b"],
    ["r10", "r10d", "r10w", "r10b"],
    ["r11", "r11d", "r11w", "r11b"],
    ["r12", "r12d", "r12w", "r12b"],
    ["r13", "r13d", "r13w", "r13b"],
    ["r14", "r14d", "r14w", "r14b"],
    ["r15", "r15d", "r15w", "r15b"],
];

/// How many bytes each of these names is of.
const WIDTHS: [u8; 4] = [8, 4, 2, 1];

/// The names of second bytes, by number.
const SECOND_BYTES: [&str; 4] = ["ah", "ch", "dh", "bh"];

impl Register {
    /// By its name, without `%`.
    fn named(name: &str) -> Option<Self> {
        let whole = REGISTERS.iter().enumerate().find_map(|(number, names)| {
            let width = names.iter().position(|known| *known == name)?;
            Some(Self {
                number: number as u8,
                bytes: WIDTHS[width],
                is_second_byte: false,
            })
        });
        whole.or_else(|| {
            let number = SECOND_BYTES.iter().position(|known| *known == name)?;
            Some(Self {
                number: number as u8,
                bytes: 1,
                is_second_byte: true,
            })
        })
    }

    /// One that has an address.
    fn of_address(name: &str) -> Option<Self> {
        Self::named(name).filter(|register| register.bytes >= 4)
    }
}

/// Reads what a note says of all the arguments of a probe, each by itself; None where there are more than any probe has.
pub fn parse_arguments(
    machine: Machine,
    text: &str,
) -> Option<Vec<Result<Argument, ArgumentError>>> {
    let words = words(text);
    let parse = |word| Argument::parse(machine, word);
    (words.len() <= ARGUMENT_LIMIT).then(|| words.into_iter().map(parse).collect())
}

/// The arguments are separated by spaces, some of which an assembler may also put between parentheses, or brackets.
fn words(text: &str) -> Vec<&str> {
    let (mut words, mut start, mut depth) = (Vec::new(), None, 0_usize);
    for (at, character) in text.char_indices() {
        match character {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if character.is_ascii_whitespace() && depth == 0 {
            words.extend(start.take().map(|start: usize| &text[start..at]));
        } else {
            start.get_or_insert(at);
        }
        if words.len() > ARGUMENT_LIMIT {
            return words;
        }
    }
    words.extend(start.map(|start| &text[start..]));
    words
}

impl Argument {
    /// Reads what a note says of one argument. One without a size has eight bytes, as the assembler's default is.
    pub fn parse(machine: Machine, text: &str) -> Result<Self, ArgumentError> {
        let (size, operand) = match text.split_once('@') {
            Some((size, operand)) if is_size(size) => (size, operand),
            _ => ("8", text),
        };
        if size.contains('f') || operand.starts_with("%xmm") || operand.starts_with("%st") {
            return Err(ArgumentError::FloatingPoint(text.to_string()));
        }
        let (is_signed, bytes) = match size.strip_prefix('-') {
            Some(bytes) => (true, bytes),
            None => (false, size),
        };
        let bytes = match bytes {
            "1" => 1,
            "2" => 2,
            "4" => 4,
            "8" => 8,
            _ => return Err(ArgumentError::Size(text.to_string())),
        };
        Ok(Self {
            bytes,
            is_signed,
            operand: match machine {
                Machine::X86_64 => Operand::parse(operand, text)?,
                Machine::Aarch64 => aarch64::parse(operand, text)?,
            },
        })
    }

    /// As the note has it, or would have it.
    pub fn told(&self, machine: Machine) -> String {
        match machine {
            Machine::X86_64 => self.to_string(),
            Machine::Aarch64 => aarch64::told(self),
        }
    }

    /// The symbol that its address begins with, if it does.
    pub fn symbol(&self) -> Option<&str> {
        match &self.operand {
            Operand::Memory {
                base: Base::Symbol(name),
                ..
            } => Some(name),
            _ => None,
        }
    }

    /// The same with the address of its symbol, as seen from the probe at this address.
    pub fn resolved(
        mut self,
        site: u64,
        address: impl Fn(&str) -> Result<u64, ArgumentError>,
    ) -> Result<Self, ArgumentError> {
        if let Operand::Memory {
            base, displacement, ..
        } = &mut self.operand
            && let Base::Symbol(name) = base
        {
            let from_site = address(name)?.wrapping_sub(site).cast_signed();
            *displacement = displacement.wrapping_add(from_site);
            *base = Base::Site;
        }
        Ok(self)
    }
}

/// Whether this stands for a size, and not for a part of a symbol with a version.
fn is_size(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let digits = digits.strip_suffix('f').unwrap_or(digits);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

impl Operand {
    fn parse(text: &str, whole: &str) -> Result<Self, ArgumentError> {
        let form = || ArgumentError::Form(whole.to_string());
        let text = text.trim_ascii();
        if let Some(constant) = text.strip_prefix('$') {
            return match number(constant) {
                Some(constant) => Ok(Self::Constant(constant)),
                None if is_symbolic(constant) => Err(ArgumentError::Address(whole.to_string())),
                None => Err(form()),
            };
        }
        if ["fs:", "%fs:", "gs:", "%gs:"]
            .iter()
            .any(|segment| text.starts_with(segment))
        {
            return Err(ArgumentError::ThreadLocal(whole.to_string()));
        }
        if let Some(register) = text.strip_prefix('%') {
            return Register::named(register)
                .map(Self::Register)
                .ok_or_else(form);
        }
        if let Some((_, table)) = text.split_once('@') {
            return Err(match table {
                _ if table.starts_with("GOT") => {
                    ArgumentError::GlobalOffsetTable(whole.to_string())
                }
                _ if table.contains("TP") || table.starts_with("TLS") => {
                    ArgumentError::ThreadLocal(whole.to_string())
                }
                _ => form(),
            });
        }
        let (before, registers) = match text.split_once('(') {
            Some((before, rest)) => (before, Some(rest.strip_suffix(')').ok_or_else(form)?)),
            None => (text, None),
        };
        let (symbol, displacement) = sum(before.trim_ascii()).ok_or_else(form)?;
        let (base, index) = match registers {
            // An address in the program, as code that stands at a known place has it.
            None => (None, None),
            Some(registers) => of_registers(registers).ok_or_else(form)?,
        };
        let base = match (base, symbol) {
            (Some(Named::InstructionPointer), Some(symbol)) | (None, Some(symbol)) => {
                Base::Symbol(symbol.to_string())
            }
            (Some(Named::Register(register)), None) => Base::Register(register),
            (None, None) if index.is_some() => Base::Zero,
            _ => return Err(form()),
        };
        Ok(Self::Memory {
            base,
            index,
            displacement,
        })
    }
}

/// An index and its scale.
type Index = (Register, u8);

/// What stands first between parentheses.
#[derive(Clone, Copy)]
enum Named {
    Register(Register),
    InstructionPointer,
}

/// `%rax`, `%rip`, `%rax,%rbx`, `%rax,%rbx,8` or `,%rbx,8`: the base, and the index with its scale.
fn of_registers(text: &str) -> Option<(Option<Named>, Option<Index>)> {
    let mut parts = text.split(',').map(str::trim_ascii);
    let register = |text: &str| Register::of_address(text.strip_prefix('%')?);
    let base = match parts.next()? {
        "" => None,
        "%rip" => Some(Named::InstructionPointer),
        name => Some(Named::Register(register(name)?)),
    };
    let Some(index) = parts.next() else {
        return base.map(|base| (Some(base), None));
    };
    // The stack pointer cannot be one; its number says that there is none.
    let index = register(index).filter(|index| index.number != 4)?;
    let scale = match parts.next() {
        None | Some("1" | "") => 1,
        Some("2") => 2,
        Some("4") => 4,
        Some("8") => 8,
        Some(_) => return None,
    };
    let relative = matches!(base, Some(Named::InstructionPointer));
    (parts.next().is_none() && !relative).then_some((base, Some((index, scale))))
}

/// What stands before parentheses: nothing, or numbers and at most one symbol with signs between them (`40+CheckpointStats`,
/// `NBuffers-4`).
fn sum(text: &str) -> Option<(Option<&str>, i64)> {
    let (mut symbol, mut total, mut rest) = (None, 0_i64, text);
    while !rest.is_empty() {
        let (is_negative, term) = match rest.as_bytes()[0] {
            b'-' => (true, &rest[1..]),
            b'+' => (false, &rest[1..]),
            _ => (false, rest),
        };
        let end = term.find(['+', '-']).unwrap_or(term.len());
        let (term, after) = term.split_at(end);
        match number(term) {
            Some(value) if is_negative => total = total.checked_sub(value)?,
            Some(value) => total = total.checked_add(value)?,
            None if !is_negative && symbol.is_none() && is_symbol(term) => symbol = Some(term),
            None => return None,
        }
        rest = after;
    }
    Some((symbol, total))
}

/// A number of the assembler's: decimal, hexadecimal after `0x`, signed. What is beyond the signed ones is an unsigned one.
fn number(text: &str) -> Option<i64> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let hexadecimal = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = hexadecimal.map_or((digits, 10), |digits| (digits, 16));
    if !digits.starts_with(|first: char| first.is_digit(radix)) {
        return None;
    }
    let value = u64::from_str_radix(digits, radix).ok()?;
    match is_negative {
        false => Some(value.cast_signed()),
        true => 0_i64.checked_sub_unsigned(value),
    }
}

/// Whether an assembler would take it for the name of something. What begins with a `$` it takes for a constant.
fn is_symbol(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$');
    text.len() <= SYMBOL_LIMIT
        && text.bytes().all(is_part)
        && text.starts_with(|first: char| !first.is_ascii_digit() && first != '$')
}

fn is_symbolic(text: &str) -> bool {
    matches!(sum(text), Some((Some(_), _)))
}

impl fmt::Display for Register {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = usize::from(self.number);
        let width = WIDTHS.iter().position(|bytes| *bytes == self.bytes);
        let name = match self.is_second_byte {
            true => SECOND_BYTES.get(number),
            false => width.and_then(|width| REGISTERS.get(number)?.get(width)),
        };
        write!(formatter, "%{}", name.unwrap_or(&"?"))
    }
}

impl fmt::Display for Argument {
    /// As a note of x86-64 has it, or would have it: what is at an address that was found is `site+…`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.is_signed { "-" } else { "" };
        write!(formatter, "{sign}{}@", self.bytes)?;
        match &self.operand {
            Operand::Constant(value) => write!(formatter, "${value}"),
            Operand::Register(register) => write!(formatter, "{register}"),
            Operand::Memory {
                base,
                index,
                displacement,
            } => {
                let symbolic = matches!(base, Base::Symbol(_) | Base::Site);
                if *displacement != 0 || matches!(base, Base::Zero) {
                    write!(formatter, "{displacement}")?;
                    if symbolic {
                        write!(formatter, "+")?;
                    }
                }
                let base = match base {
                    Base::Zero => String::new(),
                    Base::Register(register) => register.to_string(),
                    Base::Symbol(name) => {
                        write!(formatter, "{name}")?;
                        if index.is_some() {
                            String::new()
                        } else {
                            "%rip".to_string()
                        }
                    }
                    Base::Site => {
                        write!(formatter, "site")?;
                        String::new()
                    }
                };
                match index {
                    Some((index, scale)) => write!(formatter, "({base},{index},{scale})"),
                    None if base.is_empty() => Ok(()),
                    None => write!(formatter, "({base})"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
