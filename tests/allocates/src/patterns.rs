//! Who allocates when, and how much at a time.

use std::{
    collections::VecDeque,
    thread,
    time::{Duration, Instant},
};

use crate::callers::{Block, CALLERS, Told};

/// Sizes of many blocks, of few, and of those between them.
const SMALL: [usize; 10] = [16, 24, 48, 64, 100, 128, 200, 256, 384, 512];
const MIDDLE: [usize; 8] = [1_024, 2_000, 4_096, 6_000, 8_192, 12_000, 14_336, 20_000];
const LARGE: [usize; 10] = [
    33_000, 40_960, 49_152, 65_536, 80_000, 131_072, 200_000, 262_144, 1_048_576, 3_000_000,
];

/// In what order callers allocate.
#[derive(Clone, Copy)]
pub enum Pattern {
    /// Small blocks by all of them at random, the one twice as often as the next, and freed at once.
    Churn,
    /// Blocks of one class, held for a while.
    OneClass,
    /// Few large ones by some, many small by others.
    LargeAndSmall,
    /// Nothing but large ones.
    Large,
    /// All sizes by each.
    Mixed,
    /// Each for a while of its own.
    Bursts,
    /// As mixed, and one caller only at the end.
    Late,
    /// What is grown is allocated anew by who grows it.
    Middle,
    /// By turns, and all turns together divide 64 KiB: there is nothing by which they could be told apart.
    InStep,
}

impl Pattern {
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "churn" => Self::Churn,
            "one-class" => Self::OneClass,
            "large-and-small" => Self::LargeAndSmall,
            "large" => Self::Large,
            "mixed" => Self::Mixed,
            "bursts" => Self::Bursts,
            "late" => Self::Late,
            "middle" => Self::Middle,
            "in-step" => Self::InStep,
            _ => return None,
        })
    }

    /// Allocates so many bytes in so many seconds at the least, and frees all of them.
    pub fn run(self, number: u64, bytes: u64, seconds: f64) -> [Told; CALLERS] {
        let began = Instant::now();
        let mut random =
            Random(0x9e37_79b9_7f4a_7c15 ^ (number + 1).wrapping_mul(0xd1b5_4a32_d192_ed03));
        let mut told = [Told::default(); CALLERS];
        let mut held: VecDeque<Block> = VecDeque::new();
        let (mut sum, mut round, mut burst) = (0, 0_usize, (0, 0));
        while sum < bytes {
            round += 1;
            let (caller, size, hold) = match self {
                Self::Churn => (random.halving(), random.of(&SMALL), 0),
                Self::OneClass => (random.halving(), 64, 1_000),
                Self::LargeAndSmall => match random.below(400) {
                    0 => (8 + random.below(4), random.of(&LARGE), 20),
                    _ => (random.below(8), random.of(&SMALL), 20),
                },
                Self::Large => (random.halving(), random.of(&LARGE), 30),
                Self::Mixed => match random.below(100) {
                    0 => (random.halving(), random.of(&LARGE), 30),
                    1..=10 => (random.halving(), random.of(&MIDDLE), 30),
                    _ => (CALLERS - 1 - random.halving(), random.of(&SMALL), 30),
                },
                Self::Bursts => {
                    if burst.1 == 0 {
                        burst = (random.halving(), 1 + random.below(5_000));
                    }
                    burst.1 -= 1;
                    (burst.0, SMALL[burst.0 % SMALL.len()], 5_000)
                }
                Self::Late if sum > bytes - bytes / 5 && random.below(2) == 0 => {
                    (11, random.of(&MIDDLE), 10)
                }
                Self::Late => (random.halving() % 11, random.of(&SMALL), 10),
                Self::Middle => match random.below(30) {
                    0 => (
                        random.below(3),
                        random.of(&[16_384, 20_480, 28_672, 32_768]),
                        5,
                    ),
                    _ => (3 + random.below(5), 512 << random.below(4), 5),
                },
                Self::InStep => (round % 4, 1_024, 0),
            };
            let block = Block::by(caller, size, &mut told);
            sum += size as u64;
            if round % 1_024 == 0 || size > 1 << 18 {
                let due = Duration::from_secs_f64(seconds * sum as f64 / bytes as f64);
                thread::sleep(due.saturating_sub(began.elapsed()));
            }
            held.push_back(block);
            while held.len() > hold {
                // Not in the order in which they came.
                let at = random.below(held.len());
                if let Some(block) = held.swap_remove_back(at) {
                    block.free(&mut told);
                }
            }
        }
        for block in held {
            block.free(&mut told);
        }
        told
    }
}

/// Numbers that keep no step with anything.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        ((self.next() >> 33) as usize) % limit
    }

    fn of(&mut self, sizes: &[usize]) -> usize {
        sizes[self.below(sizes.len())]
    }

    /// A caller: the first as often as all others, the second as often as all after it.
    fn halving(&mut self) -> usize {
        ((self.next() >> 20).trailing_zeros() as usize) % CALLERS
    }
}
