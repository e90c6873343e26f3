//! Call chains, from the registers of a thread and a copy of its stack, without frame pointers: by the tables that compilers
//! make for exceptions (`.eh_frame`).
//!
//! Pure: whoever calls has read the tables and the stack. Both are the target's, and may say anything: whatever they say, a chain
//! comes out, or a part of one, after so many steps and no more.

mod aarch64;
mod convention;
mod expression;
mod tables;
mod x86_64;

use std::{ops::Range, sync::Arc};

pub use aarch64::Aarch64;
use convention::Cache;
pub use convention::Convention;
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Unwinder as _};
use tables::FrameRule;
pub use tables::{Section, Sections, Tables};
pub use x86_64::X86_64;

/// The machine that this program was built for.
#[cfg(target_arch = "aarch64")]
type Native = Aarch64;
#[cfg(not(target_arch = "aarch64"))]
type Native = X86_64;

/// No chain is followed further. The deepest of CKB's that was seen has 80.
pub const FRAMES_LIMIT: usize = 512;

/// As much code as is looked at for a call: the longest one of x86-64.
const CALL_BYTES: usize = 7;

/// How far above the stack pointer a return address is looked for where nothing says where it is, in words.
const SEARCHED_WORDS: u64 = 64;

/// Where a thread stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The instruction.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer, which holds anything else as well.
    pub bp: u64,
    /// The register that a call leaves its return address in, which holds anything else as well; 0 on a machine that has none.
    pub lr: u64,
}

/// A copy of a part of a stack.
#[derive(Clone, Copy)]
pub struct Stack<'a> {
    /// Where in the process it begins.
    pub begin: u64,
    /// What is there.
    pub bytes: &'a [u8],
}

impl Stack<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.begin)?).ok()?;
        let bytes = self.bytes.get(offset..offset.checked_add(8)?)?;
        bytes.try_into().ok().map(u64::from_le_bytes)
    }
}

/// Return addresses that the kernel has replaced, so that it sees functions end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replaced<'a> {
    /// Where they lead instead; None where nobody knows.
    pub trampoline: Option<Range<u64>>,
    /// What they were, from the innermost on; zeros are none.
    pub addresses: &'a [u64],
}

/// The code of the process.
pub trait Code {
    /// The bytes before an address that code is mapped at; None where none is, or where it cannot be read.
    fn before(&self, address: u64) -> Option<[u8; CALL_BYTES]>;
}

/// Code of one file, as it is mapped.
#[derive(Clone, Debug)]
pub struct Module {
    /// Where it is mapped executable.
    pub range: Range<u64>,
    /// What has to be added to an address in the file's own terms.
    pub bias: u64,
    /// How to unwind in it; None where that cannot be told.
    pub tables: Option<Arc<Tables>>,
    /// Where ckb-vm's interpreter in assembly is, in the process: it has no tables.
    pub ckb_vm: Option<Range<u64>>,
}

/// How a thread came to where it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// Addresses in functions, from the innermost on. Those of callers are of the last byte of the call.
    pub frames: Vec<u64>,
    /// Whether the last one is where the thread began.
    pub complete: bool,
    /// Whether one of them was looked for on the stack, and not found where it had to be if there was nothing else: it may be left over
    /// from a call that is long done.
    pub guessed: bool,
}

/// What unwinds in one process.
pub struct Unwinder<C: Convention = Native> {
    unwinder: C::ByTables,
    cache: Cache<C>,
    /// In order of address.
    modules: Vec<Module>,
}

impl<C: Convention> Unwinder<C> {
    /// In these modules. Those that overlap others before them in the list are left out.
    pub fn new(mut modules: Vec<Module>) -> Self {
        modules.retain(|module| !module.range.is_empty());
        modules.sort_by_key(|module| module.range.start);
        modules.dedup_by(|next, before| next.range.start < before.range.end);
        let mut unwinder = C::ByTables::default();
        for module in &modules {
            if let Some(tables) = &module.tables {
                let sections = tables.sections();
                let range = |section: &Section| {
                    section.address..section.address.saturating_add(section.bytes.len() as u64)
                };
                let information = ExplicitModuleSectionInfo {
                    base_svma: 0,
                    text_svma: sections.text.clone(),
                    got_svma: sections.got.clone(),
                    eh_frame_svma: Some(range(&sections.eh_frame)),
                    eh_frame: Some(Arc::clone(&sections.eh_frame.bytes)),
                    ..ExplicitModuleSectionInfo::default()
                };
                unwinder.add_module(framehop::Module::new(
                    String::new(),
                    module.range.clone(),
                    module.bias,
                    information,
                ));
            }
        }
        Self {
            unwinder,
            cache: Cache::<C>::default(),
            modules,
        }
    }

    /// Whether code that it knows is at an address.
    pub fn knows(&self, address: u64) -> bool {
        self.module(address).is_some()
    }

    fn module(&self, address: u64) -> Option<&Module> {
        let after = self
            .modules
            .partition_point(|module| module.range.start <= address);
        let module = self.modules.get(after.checked_sub(1)?)?;
        module.range.contains(&address).then_some(module)
    }

    /// Follows the calls from where a thread stands, as far as its stack was copied.
    pub fn chain(
        &mut self,
        registers: Registers,
        stack: Stack<'_>,
        replaced: &Replaced<'_>,
        code: &dyn Code,
    ) -> Chain {
        let mut chain = Chain::default();
        let mut at = registers;
        let mut originals = replaced.addresses.iter().filter(|address| **address > 0);
        let trampoline = comparable::<C>(&replaced.trampoline.clone().unwrap_or_default());
        if trampoline.contains(&C::address(at.ip)) {
            // The function is over, and its caller not there yet.
            let Some(original) = originals.next() else {
                return chain;
            };
            let pushed = C::pushed_by_trampoline(C::address(at.ip) - trampoline.start);
            at.sp = at.sp.saturating_add(pushed);
            at.ip = *original;
        }
        while chain.frames.len() < FRAMES_LIMIT {
            let is_first = chain.frames.is_empty();
            let address = at.ip.saturating_sub(u64::from(!is_first));
            chain.frames.push(address);
            let mut step = self.caller(at, address, is_first, stack, code);
            if let Step::Caller(caller) = &step
                && is_first
                && !self.knows(caller.ip)
                && !trampoline.contains(&caller.ip)
                && let Some(ip) = at.ip.checked_sub(1)
            {
                // A breakpoint of the kernel's is over, and what is there instead not done yet.
                let before = Registers { ip, ..at };
                step = self.caller(before, ip, is_first, stack, code);
            }
            let (step, is_guess) = match step {
                Step::Guess(caller) => (Step::Caller(caller), true),
                step => (step, false),
            };
            chain.guessed |= is_guess;
            match step {
                Step::Caller(caller) if trampoline.contains(&caller.ip) => {
                    let Some(original) = originals.next() else {
                        break;
                    };
                    at = Registers {
                        ip: *original,
                        ..caller
                    };
                }
                Step::Caller(caller) => at = caller,
                Step::End => {
                    chain.complete = true;
                    break;
                }
                Step::Lost | Step::Guess(_) => break,
            }
        }
        chain
    }

    fn caller(
        &mut self,
        at: Registers,
        address: u64,
        is_first: bool,
        stack: Stack<'_>,
        code: &dyn Code,
    ) -> Step {
        let Some(module) = self.module(address) else {
            // Code that was made meanwhile, or nothing of the sort: nobody knows how to go on.
            return Step::Lost;
        };
        if module
            .ckb_vm
            .as_ref()
            .is_some_and(|own| own.contains(&address))
        {
            return search::<C>(at, C::PUSHED_BY_CKB_VM, false, stack, code);
        }
        let within = address.wrapping_sub(module.bias);
        let told = match &module.tables {
            Some(tables) => (tables.told(within), Some(tables)),
            None => (FrameRule::No, None),
        };
        match told {
            // Jumps to libraries, and assembly.
            (FrameRule::No, _) | (_, None) => return search::<C>(at, 0, is_first, stack, code),
            (FrameRule::ByExpression(function), Some(tables)) => {
                let caller = expression::caller::<C>(tables, function, within, at, stack);
                return caller.map_or(Step::Lost, |caller| at.step::<C>(caller, is_first));
            }
            (FrameRule::ByRegister, Some(_)) => {}
        }
        let mut registers = C::begin(at);
        let address = match FrameAddress::from_return_address(at.ip) {
            Some(address) if !is_first => address,
            _ => FrameAddress::from_instruction_pointer(at.ip),
        };
        let mut read = |address| stack.word(address).ok_or(());
        let found = self
            .unwinder
            .unwind_frame(address, &mut registers, &mut self.cache, &mut read);
        match found {
            Ok(None) => Step::End,
            Ok(Some(ip)) => at.step::<C>(C::end(ip, &registers), is_first),
            Err(_) => Step::Lost,
        }
    }
}

/// Where the kernel's trampoline is, as a return address says it: the kernel may map it where addresses have bits in which others have a
/// signature.
fn comparable<C: Convention>(trampoline: &Range<u64>) -> Range<u64> {
    let start = C::address(trampoline.start);
    start..start.saturating_add(trampoline.end.saturating_sub(trampoline.start))
}

impl Registers {
    /// To a caller: stacks grow down, so its frame is above. Whoever has called nobody may have none of its own, where a register has
    /// the return address.
    fn step<C: Convention>(self, caller: Self, is_first: bool) -> Step {
        let is_leaf = is_first && C::linked(self).is_some();
        match caller {
            Self { ip: 0, .. } => Step::End,
            _ if caller.sp > self.sp || (is_leaf && caller.sp == self.sp) => Step::Caller(caller),
            _ => Step::Lost,
        }
    }
}

enum Step {
    Caller(Registers),
    /// Perhaps.
    Guess(Registers),
    End,
    Lost,
}

/// Looks for a return address where nothing says where it is: after so many words, the first that is one of code with a call
/// before it. Where others lie between it is a guess. Before that, of who may be a leaf, in the register that has it on some machines.
fn search<C: Convention>(
    at: Registers,
    after: u64,
    may_be_leaf: bool,
    stack: Stack<'_>,
    code: &dyn Code,
) -> Step {
    let is_called = |ip| code.before(ip).is_some_and(|bytes| C::ends_in_call(&bytes));
    if may_be_leaf
        && let Some(caller) = C::linked(at)
        && is_called(caller.ip)
    {
        return Step::Caller(caller);
    }
    for index in after..after + SEARCHED_WORDS {
        let Some(place) = at.sp.checked_add(index * 8) else {
            break;
        };
        let Some(ip) = stack.word(place).map(C::address) else {
            break;
        };
        if is_called(ip) {
            // The first that it pushes is the frame pointer.
            let pushed = (after > 0).then(|| stack.word(place - 8)).flatten();
            let caller = Registers {
                ip,
                sp: place + 8,
                bp: pushed.unwrap_or(at.bp),
                lr: 0,
            };
            return match index == after {
                true => Step::Caller(caller),
                false => Step::Guess(caller),
            };
        }
    }
    Step::Lost
}

#[cfg(test)]
mod tests;
