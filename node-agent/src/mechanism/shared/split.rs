//! Who pays for what a program costs. Pure.

/// Divides a total that grows among those who pay for it at the time: in whole units, of which none is left over.
#[derive(Clone, Debug, Default)]
pub struct CostSplit {
    /// The total up to which it is paid for; None before the first time.
    settled: Option<u64>,
    /// Whose turn it is to pay a unit that cannot be divided.
    turn: usize,
}

impl CostSplit {
    /// Charges what was added since the last time. What there was before the first time, and what is added while nobody pays, nobody
    /// is charged with.
    pub fn settle(&mut self, total: u64, mut payers: Vec<&mut u64>) {
        let before = self.settled.replace(total).unwrap_or(total);
        let many = payers.len();
        if many == 0 {
            return;
        }
        let new = total.saturating_sub(before);
        let (share, left) = (new / many as u64, (new % many as u64) as usize);
        for charged in &mut payers {
            **charged += share;
        }
        for turn in self.turn..self.turn + left {
            *payers[turn % many] += 1;
        }
        self.turn = (self.turn + left) % many;
    }
}
