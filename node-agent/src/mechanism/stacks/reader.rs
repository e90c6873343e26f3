//! Makes names of the stacks of a process.
//!
//! What that takes (what the process has mapped, the symbols and the unwind tables of its files: some megabytes for CKB) is read
//! once for all who look at the process at a time, and given back when the last of them is done. How much it is the target says:
//! there is an end to it, and what its files take of the agent's memory is accounted for.

use std::{
    cell::OnceCell,
    collections::{HashMap, HashSet},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use super::{
    StacksError,
    gathered::{Call, Key},
    room::StackRoom,
    wait::{FOR_A_CPU, waits_for},
};
use crate::{
    kernel::{
        memory::{self, NoMemory, Reservation},
        stacks::{Copied, Head, MOVED, NO_USER, UNCHANGED},
    },
    observe::{AddressSpace, FunctionName, OpenFiles, ProcessId},
    unwind::{Chain, Registers, Replaced, Stack, Unwinder},
};

/// What a process has mapped is not read again more often.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The symbols and the tables of a process take no more memory: files that are beyond are not looked at.
const KEPT_LIMIT: u64 = 32 << 20;

/// Different addresses of code that are remembered. Whoever makes code as it runs has more, and waits longer.
const ADDRESS_LIMIT: usize = 1 << 18;

/// Names that are remembered, of functions and files, in bytes: the target says how long each is.
const NAMES_LIMIT: usize = 2 << 20;

/// Threads whose stacks are remembered while they do not run.
const THREAD_LIMIT: usize = 1 << 14;

/// The code of all processes that somebody looks at.
static ALL: Mutex<Vec<(ProcessId, Weak<Mutex<Code>>)>> = Mutex::new(Vec::new());

/// Who called a function, and who called that, from the innermost on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callers {
    /// The functions, from the innermost on.
    pub calls: Vec<Call>,
    /// Whether the last one is where the thread began.
    pub complete: bool,
    /// Whether one of them is a guess.
    pub guessed: bool,
}

/// Makes of a thread's registers and stack what is counted.
pub(in crate::mechanism) struct Reader {
    process: ProcessId,
    code: Arc<Mutex<Code>>,
    /// None where we may not look at them.
    files: OnceCell<Option<OpenFiles>>,
    /// The numbers of functions, and what they stand for.
    numbers: HashMap<FunctionName, u32>,
    names: Vec<FunctionName>,
    /// How long all of these are.
    bytes: usize,
    /// Threads that did not run when they were met, as they were then.
    waiting: HashMap<u32, Waiting>,
    /// For what these were.
    room: StackRoom,
    /// How often all threads were gone through.
    passes: u64,
    /// What threads wait for, each once.
    words: HashSet<Arc<str>>,
}

/// A thread that does not run.
struct Waiting {
    key: Key,
    /// In which pass it was met the last time.
    pass: u64,
}

/// What is known of the code of a process. Where its files do not answer, only those wait who look at the same process.
struct Code {
    process: ProcessId,
    space: AddressSpace,
    unwinder: Unwinder,
    looked: Instant,
    /// Code was met that was not there when it was looked what is mapped.
    met_unknown: bool,
    /// The functions that addresses are in.
    functions: HashMap<u64, FunctionName>,
    /// Their names, each once.
    names: HashSet<Arc<str>>,
    /// How long all of these are.
    bytes: usize,
    /// What is kept of the process's files.
    room: Reservation,
    /// What there was no room for.
    lacking: Option<NoMemory>,
}

impl Reader {
    /// Of a process, as it is now; also where there is no room for all of its files.
    pub(in crate::mechanism) fn of(process: ProcessId) -> Result<Self, StacksError> {
        let code = Code::shared(process);
        held(&code)
            .read_again()
            .map_err(|source| StacksError::AddressSpace {
                pid: process.pid,
                source,
            })?;
        Ok(Self {
            process,
            code,
            files: OnceCell::new(),
            numbers: HashMap::new(),
            names: Vec::new(),
            bytes: 0,
            waiting: HashMap::new(),
            room: StackRoom::with(0),
            passes: 0,
            words: HashSet::new(),
        })
    }

    /// Makes sure that there was room for all of its files.
    pub(super) fn complete(self) -> Result<Self, StacksError> {
        let lacking = held(&self.code).lacking;
        match lacking {
            Some(lacking) => Err(lacking.into()),
            None => Ok(self),
        }
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
        if head.flags & NO_USER != 0 {
            return Callers {
                calls: Vec::new(),
                complete: true,
                guessed: false,
            };
        }
        let mut code = held(&self.code);
        // The kernel maps where it has functions return to when the first of them is called that it is to see return.
        let is_replaced = head.replaced.iter().any(|address| *address > 0);
        if is_replaced && code.space.trampoline().is_none() {
            let _ = code.read_again();
        }
        let Chain {
            frames,
            complete,
            guessed,
        } = code.chain(head, stack);
        let functions = frames.iter().map(|address| code.function(*address));
        Callers {
            calls: functions.map(|function| Call::user(&function)).collect(),
            complete,
            guessed,
        }
    }

    /// The functions that numbers stand for.
    pub(super) fn names(&self) -> &[FunctionName] {
        &self.names
    }

    /// All threads are gone through once more from here on.
    pub(super) fn begin_pass(&mut self) {
        let last = self.passes;
        // Those that were met in no pass of late have ended.
        if self.waiting.len() >= THREAD_LIMIT {
            let room = &mut self.room;
            self.waiting.retain(|_, waiting| {
                let is_there = waiting.pass == last;
                if !is_there {
                    room.give_back(waiting.key.frames());
                }
                is_there
            });
        }
        self.passes += 1;
    }

    /// What a thread that does not run waits for, and where.
    pub(super) fn waiting(&mut self, head: &Head, stack: Copied<'_>) -> Key {
        if head.flags & UNCHANGED != 0 {
            return self.unchanged(head);
        }
        let files = self.files.get_or_init(|| OpenFiles::of(self.process).ok());
        let wait = waits_for(files.as_ref(), head);
        let wait = self.word(&wait);
        let key = self.key(head, stack, Some(wait));
        if let Some(before) = self.waiting.remove(&head.thread) {
            self.room.give_back(before.key.frames());
        }
        if self.waiting.len() < THREAD_LIMIT && self.room.take(key.frames()) {
            let (key, pass) = (key.clone(), self.passes);
            self.waiting.insert(head.thread, Waiting { key, pass });
        }
        key
    }

    /// One that has not run since it was met.
    fn unchanged(&mut self, head: &Head) -> Key {
        let known = self.waiting.get_mut(&head.thread).map(|waiting| {
            waiting.pass = self.passes;
            waiting.key.clone()
        });
        let mut key = known.unwrap_or_else(|| Key::of_thread(head.name));
        // Others may give it a name, and may have woken it.
        key.thread = head.name;
        if head.task_state == 0 {
            key.wait = Some(self.word(FOR_A_CPU));
        }
        key
    }

    /// What threads wait for, each once. Beyond the limit files are not told apart.
    fn word(&mut self, word: &str) -> Arc<str> {
        if let Some(known) = self.words.get(word) {
            return Arc::clone(known);
        }
        if let Some((kind, _)) = word.split_once(' ')
            && self.bytes + word.len() > NAMES_LIMIT
        {
            return self.word(&format!("{kind}]"));
        }
        self.bytes += word.len();
        let known: Arc<str> = Arc::from(word);
        self.words.insert(Arc::clone(&known));
        known
    }

    /// What a thread does, and where.
    pub(super) fn key(&mut self, head: &Head, stack: Copied<'_>, wait: Option<Arc<str>>) -> Key {
        let kernel = (head.kernel_frames as usize).min(head.kernel.len());
        let (user, complete, guessed) = self.user(head, stack);
        Key {
            thread: head.name,
            user,
            complete,
            guessed,
            kernel: head.kernel[..kernel].into(),
            wait,
            frees: false,
        }
    }

    /// The functions of the process that are on the stack; whether that is all of them, and whether one is a guess.
    fn user(&mut self, head: &Head, stack: Copied<'_>) -> (Arc<[u32]>, bool, bool) {
        if head.flags & NO_USER != 0 {
            return (Arc::from([]), true, false);
        }
        let mut code = held(&self.code);
        let Chain {
            frames,
            complete,
            guessed,
        } = code.chain(head, stack);
        let functions: Vec<FunctionName> = frames
            .iter()
            .map(|address| code.function(*address))
            .collect();
        drop(code);
        let functions = functions.into_iter();
        (
            functions.map(|function| self.number(function)).collect(),
            complete,
            guessed,
        )
    }

    /// A function's number. Beyond the limit it has that of its file.
    fn number(&mut self, mut name: FunctionName) -> u32 {
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        let length = name.function.as_ref().map_or(0, |function| function.len());
        if self.bytes + length > NAMES_LIMIT && length > 0 {
            name.function = None;
            return self.number(name);
        }
        self.bytes += length;
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        number
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
        let code = Arc::new(Mutex::new(Self::unread(process, memory::budget().empty())));
        all.push((process, Arc::downgrade(&code)));
        code
    }

    fn unread(process: ProcessId, room: Reservation) -> Self {
        Self {
            process,
            space: AddressSpace::default(),
            unwinder: Unwinder::new(Vec::new()),
            looked: Instant::now(),
            met_unknown: true,
            functions: HashMap::new(),
            names: HashSet::new(),
            bytes: 0,
            room,
            lacking: None,
        }
    }

    fn read_again(&mut self) -> io::Result<()> {
        self.looked = Instant::now();
        self.met_unknown = false;
        let (room, mut lacking) = (&mut self.room, None);
        let mut has_room = |bytes| {
            if bytes > KEPT_LIMIT {
                return false;
            }
            let fits = room.set(bytes);
            if !fits {
                lacking.get_or_insert(room.refusal(bytes, memory::possible_cpus()));
            }
            fits
        };
        let wanted = self.lacking.is_some();
        let is_other = self.space.read_again(self.process, wanted, &mut has_room);
        self.room.keep(self.space.kept());
        let is_other = is_other?;
        if let Some(lacking) = lacking.filter(|_| !wanted) {
            let pid = self.process.pid;
            tracing::warn!(pid, %lacking, "some stacks of this process will be cut short: there is no room for all of its files");
        }
        self.lacking = lacking;
        if is_other {
            // Not both at a time.
            self.unwinder = Unwinder::new(Vec::new());
            self.unwinder = Unwinder::new(self.space.modules());
            self.forget();
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.functions.clear();
        self.names.clear();
        self.bytes = 0;
    }

    fn chain(&mut self, head: &Head, stack: Copied<'_>) -> Chain {
        if head.flags & MOVED != 0 {
            return Chain::default();
        }
        let registers = Registers {
            ip: head.ip,
            sp: head.sp,
            bp: head.bp,
            lr: head.lr,
        };
        let stack = Stack {
            begin: stack.begin,
            bytes: stack.bytes,
        };
        let replaced = Replaced {
            trampoline: self.space.trampoline(),
            addresses: &head.replaced,
        };
        self.unwinder
            .chain(registers, stack, &replaced, &self.space)
    }

    /// The function that an address is in.
    fn function(&mut self, address: u64) -> FunctionName {
        if let Some(function) = self.functions.get(&address) {
            return function.clone();
        }
        self.met_unknown |= !self.unwinder.knows(address);
        if self.functions.len() >= ADDRESS_LIMIT || self.bytes >= NAMES_LIMIT {
            self.forget();
        }
        let mut function = self.space.name(address);
        function.function = function.function.map(|name| self.name(name));
        self.functions.insert(address, function.clone());
        function
    }

    fn name(&mut self, name: Arc<str>) -> Arc<str> {
        if let Some(known) = self.names.get(&name) {
            return Arc::clone(known);
        }
        self.bytes += name.len();
        self.names.insert(Arc::clone(&name));
        name
    }
}

fn held(code: &Mutex<Code>) -> MutexGuard<'_, Code> {
    code.lock().unwrap_or_else(|poisoned| {
        // Whoever panicked may have left it half read.
        let mut half = poisoned.into_inner();
        *half = Code::unread(half.process, memory::budget().empty());
        code.clear_poison();
        half
    })
}

#[cfg(test)]
mod tests;
