//! Numbers of traces and spans: random ones, so that they are unique whoever else makes some.

use std::fmt;

/// The number of a trace: never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId([u8; 16]);

/// The number of a span: never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId([u8; 8]);

/// Makes numbers of a seed that whoever has randomness gives: splitmix64, of which two streams never meet but by chance.
#[derive(Clone, Debug)]
pub struct Ids {
    state: [u64; 2],
}

impl Ids {
    /// From sixteen random bytes.
    pub fn from_seed(seed: u128) -> Self {
        Self {
            state: [seed as u64, (seed >> 64) as u64],
        }
    }

    /// The next number of a trace.
    pub fn trace(&mut self) -> TraceId {
        loop {
            let high = self.next(0);
            let low = self.next(1);
            let bytes = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
            if bytes != [0; 16] {
                return TraceId(bytes);
            }
        }
    }

    /// The next number of a span.
    pub fn span(&mut self) -> SpanId {
        loop {
            // Both streams: no number says what the seed was.
            let number = self.next(0) ^ self.next(1).rotate_left(32);
            if number != 0 {
                return SpanId(number.to_be_bytes());
            }
        }
    }

    /// splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
    fn next(&mut self, stream: usize) -> u64 {
        let state = &mut self.state[stream];
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

macro_rules! number {
    ($name:ident, $bytes:literal) => {
        impl $name {
            /// Of these bytes, which are not all zero.
            pub const fn from_bytes(bytes: [u8; $bytes]) -> Self {
                Self(bytes)
            }

            /// As OTLP has it.
            pub const fn bytes(&self) -> &[u8; $bytes] {
                &self.0
            }
        }

        /// As everybody writes it: in hexadecimal.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

number!(TraceId, 16);
number!(SpanId, 8);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_numbers_are_the_same_and_none_is_zero() {
        for seed in [0, 1, u128::MAX] {
            let mut ids = Ids::from_seed(seed);
            let traces: BTreeSet<_> = (0..10_000).map(|_| ids.trace()).collect();
            let spans: BTreeSet<_> = (0..10_000).map(|_| ids.span()).collect();
            assert_eq!((traces.len(), spans.len()), (10_000, 10_000));
            assert!(!traces.contains(&TraceId([0; 16])) && !spans.contains(&SpanId([0; 8])));
        }
    }

    #[test]
    fn numbers_are_written_in_hexadecimal() {
        let mut bytes = [0; 16];
        bytes[15] = 0xab;
        let expected = "000000000000000000000000000000ab";
        assert_eq!(TraceId::from_bytes(bytes).to_string(), expected);
    }
}
