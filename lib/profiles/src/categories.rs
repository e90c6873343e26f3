//! Which part of CKB a stack belongs to.

pub(crate) mod rules;
#[cfg(test)]
mod tests;

pub use rules::{RULES, Rule, Where};
use strum::{IntoStaticStr, VariantArray};

use crate::{PRUNED, ProfileMode, Stack, Stacks, idle::idle};

/// A part of CKB.
#[derive(
    Clone,
    Copy,
    Debug,
    Eq,
    Hash,
    Ord,
    PartialEq,
    PartialOrd,
    IntoStaticStr,
    VariantArray,
    strum::Display,
)]
#[strum(serialize_all = "lowercase")]
pub enum Category {
    /// Blocks and transactions are checked, but for their scripts.
    Verification,
    /// Scripts run in CKB-VM.
    Scripts,
    /// RocksDB looks something up.
    #[strum(serialize = "rocksdb read")]
    RocksDbRead,
    /// RocksDB writes, and writes out what was written to memory.
    #[strum(serialize = "rocksdb write")]
    RocksDbWrite,
    /// RocksDB tidies up.
    Compaction,
    /// The node talks to its peers.
    Network,
    /// Somebody asks the node.
    Rpc,
    /// Blocks are sought, and made for miners.
    Miner,
    /// The pool of threads for what is asynchronous has nothing to do.
    #[strum(serialize = "tokio idle")]
    TokioIdle,
    /// Another pool, or a loop that takes orders, has nothing to do, whatever its threads are called.
    #[strum(serialize = "waiting for work")]
    Idle,
    /// Everything else.
    Other,
}

impl Category {
    /// Every part, in the order of the table.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// What it is called where it is shown.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The category of a stack, by [`RULES`].
pub fn category(stack: &Stack) -> Category {
    if let [first, rest @ ..] = stack.frames.as_slice()
        && first.name == PRUNED
    {
        // Stacks that were folded keep the category that they had.
        let named = |frame: &crate::Frame| {
            let mut all = Category::ALL.iter().copied();
            all.find(|one| one.as_str() == frame.name)
        };
        return rest.first().and_then(named).unwrap_or(Category::Other);
    }
    let names: Vec<&str> = stack
        .frames
        .iter()
        .filter(|frame| !frame.is_kernel())
        .map(|frame| path(frame.name))
        .collect();
    rules::anywhere(&names)
        .or_else(|| rules::nearest(&names))
        // What a thread is called does not tell what it does where it waits for something to do.
        .or_else(|| idle(stack.thread, &names).map(|_| Category::Idle))
        .or_else(|| rules::of_thread(stack.thread))
        .unwrap_or(Category::Other)
}

/// Where a name's path begins: `ckb_script::verify::TxVerifier` of `<&ckb_script::verify::TxVerifier as …`.
fn path(name: &str) -> &str {
    let name = name.trim_start_matches(['<', '&', '(', '[', '*']);
    let name = name.strip_prefix("mut ").unwrap_or(name);
    name.strip_prefix("dyn ").unwrap_or(name)
}

/// How much of a sample type belongs to each category, the greatest first. What has none is not there.
pub fn split(stacks: &Stacks, place: usize) -> Vec<(Category, u64)> {
    let all = Category::ALL.iter();
    let mut sums: Vec<_> = all.map(|category| (*category, 0_u64)).collect();
    for stack in stacks.iter() {
        let of = category(&stack);
        for (_, sum) in sums.iter_mut().filter(|(category, _)| *category == of) {
            *sum = sum.saturating_add(stack.weights.get(place).copied().unwrap_or_default());
        }
    }
    let mut split: Vec<(Category, u64)> = sums.into_iter().filter(|(_, sum)| *sum > 0).collect();
    split.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
    split
}

/// The split as a status shows it: `Cpu: scripts 41 %, rocksdb read 22 %`. Shares below half a percent are left out.
pub fn summary(stacks: &Stacks) -> String {
    let split = split(stacks, stacks.shown());
    let total: u128 = split.iter().map(|(_, sum)| u128::from(*sum)).sum();
    let shares = split.into_iter().filter_map(|(category, sum)| {
        let percent = (u128::from(sum) * 200 + total) / (2 * total);
        (percent > 0).then(|| format!("{category} {percent} %"))
    });
    let shares: Vec<String> = shares.collect();
    let name = stacks.mode().map(ProfileMode::as_str);
    let types = stacks.types().get(stacks.shown());
    let name = name
        .or(types.map(|of| of.name.as_str()))
        .unwrap_or_default();
    let shares = if shares.is_empty() {
        "nothing was seen".to_owned()
    } else {
        shares.join(", ")
    };
    format!("{name}: {shares}")
}
