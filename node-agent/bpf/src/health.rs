//! The health of an embedded database: the program `health`, loaded for one process.

use ckb_probe_common::health::HealthControl;
pub use ckb_probe_common::health::{
    FamilyState, HealthEvent, HealthKey, HealthLosses, HealthSums, Judgement, LastError, SLOTS,
    StatusHead, held, role,
};

use super::{
    AttachError, Links, ReadError, Site, Tier,
    attachment::{Attachment, Control},
    block_io::monotonic_ns,
    memory::Reservation,
    object::Object,
    programs,
    typed::{Counts, PerCpu, Ring, Table, Values},
};

/// The program.
const HEALTH: &str = "health";

/// The ring for what is told: some hundred events between two readings.
const RING_BYTES: u32 = 64 << 10;

/// What to load for one process.
#[derive(Clone, Debug)]
pub struct HealthPlan {
    /// The process, in the host's pid namespace.
    pub pid: u32,
    /// The functions, each in a slot.
    pub sites: Vec<Site>,
    /// By slot: one of [`role`].
    pub roles: [u8; SLOTS],
}

/// What was counted, since the load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthReading {
    /// The sums of each row, by its key.
    pub rows: Vec<(HealthKey, HealthSums)>,
    /// Column families, as they were judged last; of those that are gone, too.
    pub families: Vec<FamilyState>,
    /// The gravest error that was taken down and is not over, if there is any.
    pub lasting: Option<HealthKey>,
    /// What could not be recorded.
    pub losses: HealthLosses,
    /// When that was: `CLOCK_MONOTONIC`.
    pub now_ns: u64,
}

/// The program, loaded for one process. Dropping it detaches it.
pub struct Health {
    // Declared first: links go before the maps that their programs write to.
    attachment: Attachment<HealthControl>,
    rows: Table<HealthKey, HealthSums>,
    families: Table<u64, FamilyState>,
    last_error: Values<LastError>,
    losses: PerCpu<HealthLosses>,
    hits: PerCpu<u64>,
    events: Ring<HealthEvent>,
    room: Option<Reservation>,
}

impl Counts for HealthLosses {}

impl Control for HealthControl {
    fn switch(&mut self) -> (&mut u32, &mut u32) {
        (&mut self.open, &mut self.generation)
    }
}

impl Health {
    /// Loads it, and attaches nothing yet.
    pub fn load(tier: Tier, plan: &HealthPlan) -> Result<Self, AttachError> {
        let mut object = Object::load(programs::named(HEALTH)?, &[("EVENTS", RING_BYTES)])?;
        let control = HealthControl {
            roles: plan.roles,
            ..HealthControl::default()
        };
        Ok(Self {
            attachment: Attachment::load(&mut object, tier, plan.pid, &plan.sites, control)?,
            rows: Table::take(&mut object, "ROWS")?,
            families: Table::take(&mut object, "FAMILIES")?,
            last_error: Values::take(&mut object, "LAST_ERROR")?,
            losses: PerCpu::take(&mut object, "LOSSES")?,
            hits: PerCpu::take_for_batches(&mut object, "HITS")?,
            events: Ring::take(&mut object, "EVENTS")?,
            room: object.take_room(),
        })
    }

    /// Attaches, and counts from then on: what is under way by then is not known.
    pub fn open(&mut self) -> Result<(), AttachError> {
        self.attachment.open()
    }

    /// Counts no more, and hands back the links. How families are judged meanwhile nobody sees, so it is forgotten.
    pub fn close(&mut self) -> Result<Option<Links>, ReadError> {
        self.attachment.stop()?;
        for family in self.families.keys()? {
            self.families.remove(family)?;
        }
        self.attachment.close()
    }

    /// Counts no more, whatever is attached.
    pub fn stop(&mut self) -> Result<(), ReadError> {
        self.attachment.stop()
    }

    /// By slot: how often a program was run.
    pub fn hits(&self) -> Result<Vec<u64>, ReadError> {
        let all = self.hits.first(SLOTS as u32)?;
        Ok(all.into_iter().map(|cpus| cpus.iter().sum()).collect())
    }

    /// What was counted.
    pub fn read(&self) -> Result<HealthReading, ReadError> {
        // Rows first: what a family is judged as meanwhile is in none of both for once, and never in both.
        let rows = self.rows.entries()?;
        let families = self.families.entries()?;
        let now_ns = monotonic_ns();
        let last = self.last_error.get(0)?;
        Ok(HealthReading {
            rows,
            families: families.into_iter().map(|(_, state)| state).collect(),
            lasting: (last.lasts != 0).then_some(last.key),
            losses: self.losses.sum(0)?,
            now_ns,
        })
    }

    /// Takes the events that wait.
    pub fn told(&mut self) -> Vec<HealthEvent> {
        self.events.drain()
    }

    /// Its maps are about to be gone: what takes their place may have their memory.
    pub fn leave(&mut self) {
        if let Some(room) = &mut self.room {
            room.leave();
        }
    }
}
