//! Frames whose place is told by an expression that reads the stack: those of functions that align it for vectors, of which
//! RocksDB has hundreds.

use gimli::{
    CfaRule, EhFrame, Encoding, EndianSlice, Evaluation, EvaluationResult, Expression,
    LittleEndian, Location, Register, RegisterRule, UnwindContext, UnwindSection as _, Value,
};

use super::{Registers, Stack, Tables, convention::Convention};

/// No expression takes more steps. Real ones take two.
const STEPS: u32 = 64;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The caller of who stands in a function that the tables tell of at this offset. None where they do not say, or the stack was
/// not copied there.
pub(super) fn caller<C: Convention>(
    tables: &Tables,
    function: usize,
    address: u64,
    at: Registers,
    stack: Stack<'_>,
) -> Option<Registers> {
    let bases = tables.bases();
    let mut frames = EhFrame::new(&tables.sections().eh_frame.bytes, LittleEndian);
    frames.set_address_size(8);
    let function = frames
        .fde_from_offset(bases, function.into(), EhFrame::cie_from_offset)
        .ok()?;
    let encoding = function.cie().encoding();
    let mut context = UnwindContext::new();
    let row = function
        .unwind_info_for_address(&frames, bases, &mut context, address)
        .ok()?;
    let evaluate =
        |expression: Expression<Slice<'_>>| evaluate::<C>(expression, encoding, at, stack);
    let frame = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            of_register::<C>(at, *register)?.checked_add_signed(*offset)?
        }
        CfaRule::Expression(expression) => evaluate(expression.get(&frames).ok()?)?,
    };
    let restored = |register: Register| match row.register(register)? {
        RegisterRule::Offset(offset) => stack.word(frame.checked_add_signed(offset)?),
        RegisterRule::Expression(expression) => {
            stack.word(evaluate(expression.get(&frames).ok()?)?)
        }
        _ => None,
    };
    Some(Registers {
        ip: C::address(restored(C::RETURN_ADDRESS)?),
        sp: frame,
        bp: restored(C::FRAME_POINTER).unwrap_or(at.bp),
        lr: 0,
    })
}

fn of_register<C: Convention>(at: Registers, register: Register) -> Option<u64> {
    match register {
        _ if register == C::STACK_POINTER => Some(at.sp),
        _ if register == C::FRAME_POINTER => Some(at.bp),
        _ if register == C::RETURN_ADDRESS => Some(at.ip),
        _ => None,
    }
}

fn evaluate<C: Convention>(
    expression: Expression<Slice<'_>>,
    encoding: Encoding,
    at: Registers,
    stack: Stack<'_>,
) -> Option<u64> {
    let mut evaluation = Evaluation::new(expression.0, encoding);
    evaluation.set_max_iterations(STEPS);
    let mut result = evaluation.evaluate().ok()?;
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = Value::Generic(of_register::<C>(at, register)?);
                evaluation.resume_with_register(value).ok()?
            }
            EvaluationResult::RequiresMemory {
                address, size: 8, ..
            } => {
                let value = Value::Generic(stack.word(address)?);
                evaluation.resume_with_memory(value).ok()?
            }
            _ => return None,
        };
    }
    match evaluation.as_result().last()?.location {
        Location::Address { address } => Some(address),
        _ => None,
    }
}
