//! Programs of one process that are attached at all of their sites, or at none, and that count where user space says so.

use ckb_probe_common::Group;

use super::{
    AttachError, Links, ReadError, Site, Tier,
    links::{Presence, Programs, wait_while},
    object::Object,
    typed::{Plain, Values},
};

/// What user space says to the programs, in their map `CONTROL`.
pub(super) trait Control: Plain {
    /// Whether anything is counted (not 0), and the number of the time since which: another one each time that counting begins.
    fn switch(&mut self) -> (&mut u32, &mut u32);
}

/// Whether they are attached, and what they are told. To be declared before the maps that the programs write to: links go first.
pub(super) struct Attachment<C: Control> {
    links: Option<Links>,
    retired: Option<Presence>,
    programs: Programs,
    pid: u32,
    sites: Vec<Site>,
    control: C,
    control_map: Values<C>,
}

impl<C: Control> Attachment<C> {
    /// Loads them, and attaches nothing yet.
    pub fn load(
        object: &mut Object,
        tier: Tier,
        pid: u32,
        sites: &[Site],
        control: C,
    ) -> Result<Self, AttachError> {
        Ok(Self {
            links: None,
            retired: None,
            programs: Programs::load(object, tier, sites)?,
            pid,
            sites: sites.to_vec(),
            control,
            control_map: Values::take(object, "CONTROL")?,
        })
    }

    /// Attaches them, once those are gone that were attached before, and has them count from then on.
    pub fn open(&mut self) -> Result<(), AttachError> {
        self.attach()?;
        self.tell(|control| {
            let (open, generation) = control.switch();
            *generation = generation.wrapping_add(1).max(1);
            *open = 1;
        })?;
        Ok(())
    }

    /// Has them count no more, and hands back the links: whoever drops them detaches.
    pub fn close(&mut self) -> Result<Option<Links>, ReadError> {
        self.stop()?;
        let links = self.links.take();
        self.retired = links.as_ref().map(Links::presence);
        Ok(links)
    }

    /// Has them count no more, whatever is attached.
    pub fn stop(&mut self) -> Result<(), ReadError> {
        self.tell(|control| *control.switch().0 = 0)
    }

    /// What they were told last.
    pub fn control(&self) -> &C {
        &self.control
    }

    /// Tells them something else.
    pub fn tell(&mut self, change: impl FnOnce(&mut C)) -> Result<(), ReadError> {
        change(&mut self.control);
        self.control_map.set(0, self.control)
    }

    fn attach(&mut self) -> Result<(), AttachError> {
        // Two links at one place would see each call twice.
        wait_while(|| self.retired.as_ref().is_some_and(Presence::lasts));
        let sites: Vec<(u16, &Site)> = (0..).zip(&self.sites).collect();
        self.links = Some(self.programs.attach(self.pid, &sites, Group::First)?);
        Ok(())
    }
}
