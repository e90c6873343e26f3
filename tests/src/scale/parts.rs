//! Windows of stacks, as agents write them: one object each, under one of the names that their node has.

use std::{ops::RangeInclusive, time::Duration};

use ckb_probe_crds::{
    Assignment, PART_SLOTS, PartLabels, ProfileCounts, ProfileMode, ProfilePart, ProfilePartSpec,
    ProfileWindow, part_name,
};
use ckb_probe_profiles::{Frame, Profile, Stack};
use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};
use kube::{Api, Client, api::PostParams};

use crate::{cluster::SYSTEM, failure::Result};

/// What a profile is asked for in.
pub const MODES: [ProfileMode; 4] = [
    ProfileMode::Cpu,
    ProfileMode::OffCpu,
    ProfileMode::Memory,
    ProfileMode::Threads,
];

/// The names that a node's parts have, in turn.
pub struct Slots {
    api: Api<ProfilePart>,
    node: String,
    next: u8,
}

impl Slots {
    /// Those of a node.
    pub fn of(client: &Client, node: &str) -> Self {
        Self {
            api: Api::namespaced(client.clone(), SYSTEM),
            node: node.to_string(),
            next: 0,
        }
    }

    /// Writes a part under the next name that is free; false where none is.
    pub async fn write(&mut self, spec: &ProfilePartSpec) -> Result<bool> {
        for _ in 0..PART_SLOTS {
            let name = part_name(&self.node, self.next);
            self.next = (self.next + 1) % PART_SLOTS;
            let mut part = ProfilePart::new(&name, spec.clone());
            part.metadata.labels = Some(PartLabels::of(spec).to_map());
            match self.api.create(&PostParams::default(), &part).await {
                Ok(_) => return Ok(true),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }
}

/// The numbers of the last windows that there can be by now.
pub fn windows(every: Duration, count: u64) -> RangeInclusive<u64> {
    let now = Timestamp::now().as_second().unsigned_abs();
    let last = now / every.as_secs().max(1);
    last + 1 - count..=last
}

/// What is found in a window by a probe of this order.
pub fn part(
    order: &Assignment,
    probe: &str,
    mode: ProfileMode,
    number: u64,
    pprof: &ByteString,
) -> ProfilePartSpec {
    ProfilePartSpec {
        asks: order.asks.clone(),
        probe: probe.to_string(),
        pod: order.pod.clone(),
        container: "ckb".to_string(),
        mode,
        window: ProfileWindow {
            number,
            began_at: MicroTime(Timestamp::now()),
            milliseconds: 10_000,
        },
        counts: ProfileCounts {
            samples: 1_000,
            complete: 990,
            ..ProfileCounts::default()
        },
        pprof: Some(pprof.clone()),
        failure: None,
    }
}

/// A profile of so many bytes, or a stack more, which is of stacks that have nothing in common.
pub fn pprof(mode: ProfileMode, bytes: usize) -> ByteString {
    let mut dice = fastrand::Rng::with_seed(mode as u64);
    let mut profile = Profile::of(mode);
    let (mut all, mut stacks) = (0, 1);
    loop {
        for _ in 0..stacks {
            let name = |dice: &mut fastrand::Rng| format!("ckb::{:032x}", dice.u128(..));
            let names: Vec<String> = (0..6).map(|_| name(&mut dice)).collect();
            let frames = names.iter().map(|name| Frame::user(name, "ckb")).collect();
            let weights: Vec<u64> = profile
                .stacks
                .types()
                .iter()
                .map(|_| dice.u64(1..1000))
                .collect();
            profile.stacks.add(&Stack {
                frames,
                thread: "verify_blocks",
                weights: &weights,
                ..Stack::default()
            });
        }
        let packed = profile.to_pprof();
        let Some(missing) = bytes.checked_sub(packed.len()).filter(|bytes| *bytes > 0) else {
            return ByteString(packed);
        };
        // Nine tenths of what it takes by what those took that there are.
        all += stacks;
        stacks = (missing * all * 9 / 10 / packed.len()).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_as_large_as_it_is_to_be() {
        for mode in MODES {
            let bytes = pprof(mode, 60_000).0.len();
            assert!((60_000..61_000).contains(&bytes), "{mode:?}: {bytes}");
        }
    }
}
