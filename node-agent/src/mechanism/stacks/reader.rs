//! Makes names of the stacks of a process.
//!
//! What that takes (what the process has mapped, the symbols and the unwind tables of its files: some megabytes for CKB) is read
//! once for all who look at the process at a time, and given back when the last of them is done. How much it is the target says:
//! there is an end to it, and what is taken of the agent's memory is accounted for.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use super::{
    StacksError,
    gathered::{Call, Key},
    wait::waits_for,
};
use crate::{
    kernel::{
        memory::{self, Room},
        stacks::{Copied, Head, MOVED, NO_USER, ON_CPU, UNCHANGED},
    },
    observe::{FunctionName, ProcessId, Space},
    unwind::{Chain, Registers, Replaced, Stack, Unwinder},
};

/// What a process has mapped is not read again more often.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The symbols and the tables of a process take no more memory: files that are beyond are not looked at.
const KEPT_LIMIT: u64 = 32 << 20;

/// Different addresses of code that are remembered. Whoever makes code as it runs has more, and waits longer.
const ADDRESS_LIMIT: usize = 1 << 18;

/// Different functions that are told apart. CKB has 84,000, of which some thousands are ever met.
const NAME_LIMIT: usize = 1 << 15;

/// Threads whose stacks are remembered while they do not run.
const THREAD_LIMIT: usize = 1 << 14;

/// The code of all processes that somebody looks at.
static ALL: Mutex<Vec<(ProcessId, Weak<Mutex<Code>>)>> = Mutex::new(Vec::new());

/// Who called a function, and who called that, from the innermost on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callers {
    /// They.
    pub calls: Vec<Call>,
    /// Whether the last one is where the thread began.
    pub complete: bool,
}

/// Makes of a thread's registers and stack what is counted.
pub(in crate::mechanism) struct Reader {
    process: ProcessId,
    code: Arc<Mutex<Code>>,
    /// Of threads that have not run since.
    last: HashMap<u32, (Arc<[u32]>, bool)>,
    waits: HashMap<String, Arc<str>>,
}

/// What is known of the code of a process. Where its files do not answer, only those wait who look at the same process.
struct Code {
    process: ProcessId,
    space: Space,
    unwinder: Unwinder,
    looked: Instant,
    /// Code was met that was not there when it was looked what is mapped.
    met_unknown: bool,
    /// The numbers of functions, by addresses in them.
    addresses: HashMap<u64, u32>,
    numbers: HashMap<FunctionName, u32>,
    /// The first one is none: it stands for those that are not told apart any more.
    names: Vec<FunctionName>,
    /// What is kept of the process's files.
    room: Room,
    /// What a file takes that the agent had no room for, in bytes.
    refused: Option<u64>,
}

impl Reader {
    /// Of a process, as it is now.
    pub(in crate::mechanism) fn of(process: ProcessId) -> Result<Self, StacksError> {
        let code = Code::shared(process);
        held(&code).read_again()?;
        Ok(Self {
            process,
            code,
            last: HashMap::new(),
            waits: HashMap::new(),
        })
    }

    /// Looks again what is mapped, if there is more than there was.
    pub(in crate::mechanism) fn look_again(&mut self) {
        let mut code = held(&self.code);
        if code.met_unknown && code.looked.elapsed() >= LOOK_AGAIN {
            // Of a process that has ended what was known remains.
            let _ = code.read_again();
        }
    }

    /// The functions of the process that are on the stack.
    pub(in crate::mechanism) fn callers(&mut self, head: &Head, stack: Copied<'_>) -> Callers {
        // The kernel maps where it has functions return to when the first of them is called that it is to see return.
        if head.replaced.iter().any(|address| *address > 0) {
            let mut code = held(&self.code);
            if code.space.trampoline().is_none() {
                let _ = code.read_again();
            }
        }
        let (user, complete) = self.user(head, stack);
        let code = held(&self.code);
        let names = user.iter();
        let names = names.filter_map(|number| code.names.get(*number as usize));
        Callers {
            calls: names.map(Call::user).collect(),
            complete,
        }
    }

    /// The functions that numbers stand for.
    pub(super) fn names(&self) -> Vec<FunctionName> {
        held(&self.code).names.clone()
    }

    pub(super) fn wait(&mut self, head: &Head) -> Arc<str> {
        let wait = waits_for(self.process.pid, head);
        Arc::clone(
            self.waits
                .entry(wait)
                .or_insert_with_key(|wait| Arc::from(wait.as_str())),
        )
    }

    pub(super) fn key(&mut self, head: &Head, stack: Copied<'_>, wait: Option<Arc<str>>) -> Key {
        let kernel = (head.kernel_frames as usize).min(head.kernel.len());
        let (user, complete) = self.user(head, stack);
        Key {
            thread: head.name,
            user,
            complete,
            kernel: head.kernel[..kernel].into(),
            wait,
        }
    }

    fn user(&mut self, head: &Head, stack: Copied<'_>) -> (Arc<[u32]>, bool) {
        if head.flags & NO_USER != 0 {
            return (Arc::from([]), true);
        }
        if head.flags & UNCHANGED != 0
            && let Some((frames, complete)) = self.last.get(&head.thread)
        {
            return (Arc::clone(frames), *complete);
        }
        let (user, complete) = held(&self.code).functions(head, stack);
        if head.flags & ON_CPU == 0 {
            if self.last.len() >= THREAD_LIMIT {
                self.last.clear();
            }
            self.last.insert(head.thread, (Arc::clone(&user), complete));
        }
        (user, complete)
    }
}

impl Code {
    /// That of a process, which whoever looks at it has; of one that nobody looks at, nothing that was read yet.
    fn shared(process: ProcessId) -> Arc<Mutex<Self>> {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, code)| code.strong_count() > 0);
        let mut known = all.iter().filter(|(of, _)| *of == process);
        if let Some(code) = known.find_map(|(_, code)| code.upgrade()) {
            return code;
        }
        let code = Arc::new(Mutex::new(Self::unread(process, memory::account().empty())));
        all.push((process, Arc::downgrade(&code)));
        code
    }

    fn unread(process: ProcessId, room: Room) -> Self {
        Self {
            process,
            space: Space::default(),
            unwinder: Unwinder::new(Vec::new()),
            looked: Instant::now(),
            met_unknown: false,
            addresses: HashMap::new(),
            numbers: HashMap::new(),
            names: vec![FunctionName::default()],
            room,
            refused: None,
        }
    }

    fn read_again(&mut self) -> Result<(), StacksError> {
        self.looked = Instant::now();
        self.met_unknown = false;
        let Self {
            space,
            room,
            refused,
            ..
        } = self;
        let wanted = std::mem::take(refused).is_some();
        let mut takes = |bytes| {
            let fits = room.bytes().saturating_add(bytes) <= KEPT_LIMIT;
            let takes = fits && room.grow(bytes);
            if fits && !takes {
                refused.get_or_insert(bytes);
            }
            takes
        };
        let read = space.read_again(self.process, wanted, &mut takes);
        room.keep(space.kept());
        let is_other = read.map_err(|source| StacksError::Space {
            pid: self.process.pid,
            source,
        })?;
        if is_other {
            self.unwinder = Unwinder::new(self.space.modules());
            self.addresses.clear();
        }
        match self.refused {
            Some(needed) => Err(self.room.refusal(needed, memory::possible_cpus()))?,
            None => Ok(()),
        }
    }

    /// The numbers of the functions that are on the stack, and whether these are all.
    fn functions(&mut self, head: &Head, stack: Copied<'_>) -> (Arc<[u32]>, bool) {
        let registers = Registers {
            ip: head.ip,
            sp: head.sp,
            bp: head.bp,
        };
        let stack = Stack {
            begin: stack.begin,
            bytes: stack.bytes,
        };
        let Chain { frames, complete } = match head.flags & MOVED != 0 {
            true => Chain::default(),
            false => {
                let replaced = Replaced {
                    trampoline: self.space.trampoline(),
                    addresses: &head.replaced,
                };
                self.unwinder
                    .chain(registers, stack, &replaced, &self.space)
            }
        };
        let user = frames.iter().map(|address| self.number(*address)).collect();
        (user, complete)
    }

    fn number(&mut self, address: u64) -> u32 {
        if let Some(number) = self.addresses.get(&address) {
            return *number;
        }
        self.met_unknown |= !self.unwinder.knows(address);
        let number = self.number_of(self.space.name(address));
        if self.addresses.len() >= ADDRESS_LIMIT {
            self.addresses.clear();
        }
        self.addresses.insert(address, number);
        number
    }

    fn number_of(&mut self, name: FunctionName) -> u32 {
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        if self.names.len() >= NAME_LIMIT {
            return 0;
        }
        let number = u32::try_from(self.names.len()).unwrap_or_default();
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }
}

fn held(code: &Mutex<Code>) -> MutexGuard<'_, Code> {
    // What it holds is right at any time.
    code.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
