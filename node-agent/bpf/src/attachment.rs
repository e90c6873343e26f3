//! Programs of one process that are attached at all of their sites, or at none.

use std::{
    thread,
    time::{Duration, Instant},
};

use ckb_probe_common::Group;

use super::{
    AttachError, Links, Site, Tier,
    links::{Presence, Programs},
    object::Object,
};

/// How long links are waited for that would see once more what new ones are to see.
const OLD_LINKS: Duration = Duration::from_secs(2);

/// Between two looks whether they are gone.
const LOOK: Duration = Duration::from_millis(1);

/// Whether they are attached. To be declared before the maps that the programs write to: links go first.
pub struct Attachment {
    links: Option<Links>,
    retired: Option<Presence>,
    programs: Programs,
    pid: u32,
    sites: Vec<Site>,
}

impl Attachment {
    /// Loads them, and attaches nothing yet.
    pub fn load(
        object: &Object,
        tier: Tier,
        pid: u32,
        sites: &[Site],
    ) -> Result<Self, AttachError> {
        Ok(Self {
            links: None,
            retired: None,
            programs: Programs::load(object, tier, sites)?,
            pid,
            sites: sites.to_vec(),
        })
    }

    /// Attaches them, once those are gone that were attached before.
    pub fn begin(&mut self) -> Result<(), AttachError> {
        // Two links at one place would see each call twice.
        let begun = Instant::now();
        let lasts = |links: &Option<Presence>| links.as_ref().is_some_and(Presence::lasts);
        while begun.elapsed() < OLD_LINKS && lasts(&self.retired) {
            thread::sleep(LOOK);
        }
        let sites: Vec<(u16, &Site)> = (0..).zip(&self.sites).collect();
        self.links = Some(self.programs.attach(self.pid, &sites, Group::First)?);
        Ok(())
    }

    /// Hands back the links: whoever drops them detaches.
    pub fn end(&mut self) -> Option<Links> {
        let links = self.links.take();
        self.retired = links.as_ref().map(Links::presence);
        links
    }
}
