//! The tables of a file, looked through before they are used.
//!
//! They hold programs, and expressions with jumps: a file can be made so that evaluating one never ends. No compiler makes jumps
//! there; a file that has them is unwound without tables.

use std::{ops::Range, sync::Arc};

use gimli::{
    BaseAddresses, CallFrameInstruction, CieOrFde, EhFrame, Encoding, EndianSlice, LittleEndian,
    Operation, UnwindExpression, UnwindSection as _,
};

/// No function has a longer program. Real ones have some hundred bytes.
const PROGRAM_LIMIT: usize = 1 << 16;

/// No file has more functions.
const FUNCTION_LIMIT: usize = 1 << 20;

/// No tables tell of a function in fewer bytes.
const FUNCTION_BYTES: usize = 20;

/// What an unwinder's index takes for a function, in bytes.
const INDEX_BYTES: u64 = 8;

/// Bytes of a file, and where they are in its own terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Where they are.
    pub address: u64,
    /// The bytes of the section.
    pub bytes: Arc<[u8]>,
}

/// What is needed of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sections {
    /// The tables.
    pub eh_frame: Section,
    /// What they may refer to.
    pub text: Option<Range<u64>>,
    /// Where the section `.got` is, in the file's own addresses.
    pub got: Option<Range<u64>>,
}

/// Tables that can be used without harm.
#[derive(Debug)]
pub struct Tables {
    sections: Sections,
    bases: BaseAddresses,
    /// The functions that they tell of, in order.
    functions: Vec<Function>,
    /// How often they tell of one, also of such as have no code.
    entry_count: usize,
}

/// A function that tables tell of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    begin: u32,
    end: u32,
    /// Where they tell of it, if they say by an expression where its frame is; 0: they say it by a register. At 0 there is none.
    expressed: u32,
}

/// How the frame of a function is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameRule {
    /// Not at all.
    No,
    /// By a register.
    ByRegister,
    /// By an expression, at this offset.
    ByExpression(usize),
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;

impl Tables {
    /// Looks through them; None where they cannot be used.
    pub fn checked(sections: Sections) -> Option<Self> {
        let mut bases = BaseAddresses::default().set_eh_frame(sections.eh_frame.address);
        if let Some(text) = &sections.text {
            bases = bases.set_text(text.start);
        }
        if let Some(got) = &sections.got {
            bases = bases.set_got(got.start);
        }
        let mut frames = EhFrame::new(&sections.eh_frame.bytes, LittleEndian);
        frames.set_address_size(8);
        let most = FUNCTION_LIMIT.min(sections.eh_frame.bytes.len() / FUNCTION_BYTES);
        let mut functions = Vec::new();
        let mut entry_count = 0;
        let (mut common, mut in_common) = (None, false);
        let mut entries = frames.entries(&bases);
        while let Some(entry) = entries.next().ok()? {
            let CieOrFde::Fde(function) = entry else {
                continue;
            };
            let function = function.parse(EhFrame::cie_from_offset).ok()?;
            let cie = function.cie();
            if common != Some(cie.offset()) {
                let program = cie.instructions(&frames, &bases);
                in_common = has_expression(program, &frames, cie.encoding())?;
                common = Some(cie.offset());
            }
            let program = function.instructions(&frames, &bases);
            let expressed = has_expression(program, &frames, cie.encoding())? || in_common;
            // Executables are of less than 4 GiB.
            let begin = u32::try_from(function.initial_address()).ok()?;
            let end = u32::try_from(function.end_address()).ok()?;
            if begin < end {
                functions.push(Function {
                    begin,
                    end,
                    expressed: match expressed {
                        true => u32::try_from(function.offset()).ok()?,
                        false => 0,
                    },
                });
            }
            entry_count += 1;
            if entry_count > most || function.entry_len() > PROGRAM_LIMIT {
                return None;
            }
        }
        functions.sort_unstable();
        functions.shrink_to_fit();
        Some(Self {
            sections,
            bases,
            functions,
            entry_count,
        })
    }

    /// How they tell of the function at an address, in the file's own terms.
    pub(super) fn told(&self, address: u64) -> FrameRule {
        let Ok(address) = u32::try_from(address) else {
            return FrameRule::No;
        };
        let after = self
            .functions
            .partition_point(|function| function.begin <= address);
        let function = after.checked_sub(1).and_then(|at| self.functions.get(at));
        match function {
            Some(function) if address < function.end => match function.expressed {
                0 => FrameRule::ByRegister,
                offset => FrameRule::ByExpression(offset as usize),
            },
            _ => FrameRule::No,
        }
    }

    /// What it takes of memory, in bytes.
    pub fn bytes(&self) -> u64 {
        let functions = self.functions.capacity() * size_of::<Function>();
        (self.sections.eh_frame.bytes.len() + functions) as u64
    }

    /// What an unwinder takes besides for each module that has them.
    pub fn index_bytes(&self) -> u64 {
        self.entry_count as u64 * INDEX_BYTES
    }

    pub(super) fn bases(&self) -> &BaseAddresses {
        &self.bases
    }

    pub(super) fn sections(&self) -> &Sections {
        &self.sections
    }
}

/// Whether a program says by an expression where the frame is; None where one of its expressions may not come to an end.
fn has_expression<'a>(
    mut program: gimli::CallFrameInstructionIter<'_, Slice<'a>>,
    frames: &EhFrame<Slice<'a>>,
    encoding: Encoding,
) -> Option<bool> {
    let mut found = false;
    while let Some(instruction) = program.next().ok()? {
        match instruction {
            CallFrameInstruction::DefCfaExpression { expression } => {
                has_no_jumps(expression, frames, encoding)?;
                found = true;
            }
            CallFrameInstruction::Expression { expression, .. }
            | CallFrameInstruction::ValExpression { expression, .. } => {
                has_no_jumps(expression, frames, encoding)?;
            }
            _ => {}
        }
    }
    Some(found)
}

fn has_no_jumps(
    expression: UnwindExpression<usize>,
    frames: &EhFrame<Slice<'_>>,
    encoding: Encoding,
) -> Option<()> {
    let mut operations = expression.get(frames).ok()?.operations(encoding);
    while let Some(operation) = operations.next().ok()? {
        if matches!(operation, Operation::Bra { .. } | Operation::Skip { .. }) {
            return None;
        }
    }
    Some(())
}
