//! Stacks of slow calls: the program that times calls copies them as a call returns, into slots as those of the samplers.

use std::sync::atomic::{AtomicU32, Ordering};

use ckb_probe_common::{
    Field,
    stacks::{FREE, HELD, SLOW_SLOTS, Slot},
};

use super::{
    super::{
        AttachError,
        btf::{self, Types},
        object::Object,
        sys::Mapped,
    },
    CONTROL_BLOCK, Copied, Head, RETURNS, take,
};

/// Where on the stack it is what the kernel has replaced.
const STACK: (&str, &str) = ("return_instance", "stack");

/// What the program is told as it is loaded, so that it copies stacks: that it does, and where the kernel keeps what it replaced. A
/// kernel that does not say has stacks end where another function above is probed.
pub(crate) fn constants() -> [(&'static str, Vec<u8>); 2] {
    let types = Types::read().ok();
    let [probed, instances, original, chained, next] = RETURNS;
    let field = |(structure, field): (&str, &str)| {
        let types = types.as_ref();
        types.and_then(|types| types.field(structure, field))
    };
    let fields = [probed, instances, original, chained, STACK, next].map(field);
    let mut known: Vec<Field> = match fields.iter().all(Option::is_some) {
        true => fields.into_iter().flatten().collect(),
        false => vec![Field::default(); fields.len()],
    };
    known.push(field(CONTROL_BLOCK).unwrap_or_default());
    [
        ("COPIES_STACKS", vec![1]),
        ("FIELDS", btf::as_bytes(&known)),
    ]
}

/// The slots of one process.
pub struct SlowStacks {
    slots: Mapped,
    /// The slot that is given back first.
    next: u32,
}

impl SlowStacks {
    pub(crate) fn of(object: &Object) -> Result<Self, AttachError> {
        let bytes = SLOW_SLOTS as usize * size_of::<Slot>();
        let slots = object.map_memory("SLOTS", bytes)?;
        Ok(Self { slots, next: 0 })
    }

    /// How many there are: so many slow calls may wait for whoever unwinds.
    pub const fn room() -> u32 {
        SLOW_SLOTS
    }

    /// Hands over those that wait, each with its stack, which is wiped then. `Head::stands_for` is the number that the call has.
    /// Their slots are not given out again before [`Self::give_back`].
    pub fn take(&mut self, mut each: impl FnMut(&Head, Copied<'_>)) {
        for index in 0..SLOW_SLOTS as usize {
            take(&self.slots, index, Some(HELD), &mut each);
        }
    }

    /// Gives back so many slots that were taken, or as many as there are, in turns; how many that were.
    pub fn give_back(&mut self, most: u32) -> u32 {
        let mut given = 0;
        for _ in 0..SLOW_SLOTS {
            if given == most {
                break;
            }
            let index = self.next % SLOW_SLOTS;
            self.next = index + 1;
            let Some(slot) = self.slots.element::<Slot>(index as usize) else {
                break;
            };
            // SAFETY: within the mapping, aligned; the state is changed by atomics only, also by the programs.
            let state = unsafe { AtomicU32::from_ptr(&raw mut (*slot.as_ptr()).head.state) };
            let (from, to) = (Ordering::AcqRel, Ordering::Relaxed);
            given += u32::from(state.compare_exchange(HELD, FREE, from, to).is_ok());
        }
        given
    }
}
