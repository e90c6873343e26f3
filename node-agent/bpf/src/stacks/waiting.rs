//! Stacks of threads that wait, copied by whoever reads. A program that copied them would do so where the kernel has all others wait who take
//! a probe or a program away, and for as long as a page takes to come, which may be of a file system that does not answer.

use std::{
    io::{self, Read},
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering, compiler_fence},
};

use ckb_probe_common::stacks::{ASKED, BEGINS_LATER, COPIED, FREE, PAGE, STACK_PAGES, Slot};

use super::{Copied, Head, Stacks, THREAD_SLOTS};
use crate::sys::{Mapped, read_memory};

impl Stacks {
    pub(super) fn go_through(&self, each: &mut impl FnMut(&Head, Copied<'_>)) -> io::Result<()> {
        let Some(threads) = &self.threads else {
            return Ok(());
        };
        let mut file = threads.begin()?;
        // No more than there are slots: the kernel goes on when these are wiped.
        let mut numbers = [0; THREAD_SLOTS as usize * size_of::<u64>()];
        // What was left where the last pass was given up.
        self.wipe(ASKED);
        self.wipe(COPIED);
        loop {
            let (bytes, is_over) = match file.read(&mut numbers) {
                Ok(bytes) => (bytes, bytes == 0),
                // Nothing is told before a stack is copied.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => (0, false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            for number in numbers[..bytes].chunks_exact(size_of::<u64>()) {
                let number = number.try_into().map_or(0, u64::from_ne_bytes);
                self.take(number as usize, false, each);
            }
            // The thread of one that was copied and is not told has ended.
            self.wipe(COPIED);
            if is_over {
                return Ok(());
            }
            for slot in self.in_state(ASKED) {
                // SAFETY: the program leaves it alone until it is copied.
                unsafe { copy(self.told.process, slot) };
            }
        }
    }

    fn wipe(&self, state: u32) {
        for slot in self.in_state(state) {
            // SAFETY: within the mapping, and the program leaves it alone while nothing is read.
            unsafe {
                (&raw mut (*slot.as_ptr()).stack).write_bytes(0, 1);
                compiler_fence(Ordering::SeqCst);
                set_state(slot, FREE);
            }
        }
    }

    fn in_state(&self, state: u32) -> impl std::iter::Iterator<Item = NonNull<Slot>> {
        in_state(&self.slots, state)
    }
}

fn in_state(slots: &Mapped, state: u32) -> impl std::iter::Iterator<Item = NonNull<Slot>> {
    let slots = (0..THREAD_SLOTS as usize).filter_map(|index| slots.element::<Slot>(index));
    slots.filter(move |slot| {
        // SAFETY: within the mapping, aligned; states are integers.
        let now = unsafe { AtomicU32::from_ptr(&raw mut (*slot.as_ptr()).head.state) };
        now.load(Ordering::Acquire) == state
    })
}

/// # Safety
/// The slot is within its mapping.
unsafe fn set_state(slot: NonNull<Slot>, state: u32) {
    // SAFETY: by the caller's word, and aligned.
    let place = unsafe { AtomicU32::from_ptr(&raw mut (*slot.as_ptr()).head.state) };
    place.store(state, Ordering::Release);
}

/// Copies the stack that is asked for, to the first page that is not there. The page in which the stack begins may be missing: the thread has not
/// touched it yet, and all of its calls are above.
///
/// # Safety
/// The slot is within its mapping, and nobody else looks at it.
unsafe fn copy(process: u32, slot: NonNull<Slot>) {
    // SAFETY: by the caller's word: the slot's own pages, of which no more are asked for than it has.
    unsafe {
        let head = &raw mut (*slot.as_ptr()).head;
        let wanted = ((*head).pages as usize).min(STACK_PAGES);
        let begin = (*head).sp & !(PAGE as u64 - 1);
        let read = |first: usize| {
            let place: *mut u8 = (&raw mut (*slot.as_ptr()).stack).cast();
            let place = NonNull::new_unchecked(place.add(first * PAGE));
            let bytes = wanted.saturating_sub(first) * PAGE;
            let from = begin.saturating_add((first * PAGE) as u64);
            // Whoever has gone, or may not be read any more, has no stack.
            read_memory(process, from, place, bytes).unwrap_or(0) / PAGE
        };
        let mut pages = read(0);
        if pages == 0 {
            (*head).flags |= BEGINS_LATER;
            pages = match read(1) {
                0 => 0,
                above => 1 + above,
            };
        }
        (*head).pages = pages as u32;
        set_state(slot, COPIED);
    }
}
