//! Log-linear histograms of nanoseconds that merge exactly.
//!
//! Every power of two is split into [`SUBBUCKETS`] equal buckets, so a bucket is at most 1/16 of its lower
//! bound wide, and its midpoint is off by at most 1/32 (3.125 %) from any value in it. Values below 16 have a
//! bucket each. The kernel side fills the same buckets (`ckb_probe_common::bucket`); a property test in the
//! agent holds the two together.

use std::{borrow::Cow, fmt::Write as _, ops::Range};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Buckets in each power of two.
pub const SUBBUCKETS: u64 = 16;
const SUBBUCKET_BITS: u32 = SUBBUCKETS.ilog2();

/// Buckets in all. The last one ends at 2^42 ns (73 minutes) and takes whatever is longer besides.
pub const BUCKETS: u32 = 624;

/// The bucket that a duration falls into.
pub fn bucket(nanos: u64) -> u32 {
    let Some(shift) = nanos.max(1).ilog2().checked_sub(SUBBUCKET_BITS) else {
        return nanos as u32;
    };
    let index = (shift + 1) * SUBBUCKETS as u32 + ((nanos >> shift) - SUBBUCKETS) as u32;
    index.min(BUCKETS - 1)
}

/// The durations, in nanoseconds, that fall into a bucket (the last one also takes longer ones).
pub fn bounds(bucket: u32) -> Range<u64> {
    let bucket = u64::from(bucket);
    if bucket < SUBBUCKETS {
        return bucket..bucket + 1;
    }
    let shift = bucket / SUBBUCKETS - 1;
    let lower = (SUBBUCKETS + bucket % SUBBUCKETS) << shift;
    lower..lower + (1 << shift)
}

/// How often each bucket was hit. Sparse: empty buckets are not there.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Histogram {
    /// In ascending order, none of them empty: what is copied and merged thousands of times for a report lies in one piece.
    buckets: Vec<(u32, u64)>,
}

impl Histogram {
    /// The number of values in all, at most `u64::MAX`.
    pub fn count(&self) -> u64 {
        saturating_sum(self.buckets.iter())
    }

    /// The non-empty buckets in ascending order, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.buckets.iter().copied()
    }

    /// Counts `count` more values in `bucket`; one past the last counts as the last.
    pub fn add(&mut self, bucket: u32, count: u64) {
        if count == 0 {
            return;
        }
        let bucket = bucket.min(BUCKETS - 1);
        // Whoever reads or merges adds in ascending order.
        if self.buckets.last().is_none_or(|(last, _)| *last < bucket) {
            self.buckets.push((bucket, count));
            return;
        }
        match self
            .buckets
            .binary_search_by_key(&bucket, |(held, _)| *held)
        {
            Ok(place) => {
                let total = &mut self.buckets[place].1;
                *total = total.saturating_add(count);
            }
            Err(place) => self.buckets.insert(place, (bucket, count)),
        }
    }

    /// Adds all of `other`'s values: exact, associative and commutative.
    pub fn merge(&mut self, other: &Self) {
        if self.buckets.is_empty() {
            self.buckets.clone_from(&other.buckets);
            return;
        }
        // What is new is most often nothing, or little: it is looked for from where the one before was found.
        let mut from = 0;
        for &(bucket, count) in &other.buckets {
            from += self.buckets[from..].partition_point(|(held, _)| *held < bucket);
            match self.buckets.get_mut(from) {
                Some((held, total)) if *held == bucket => *total = total.saturating_add(count),
                _ => self.buckets.insert(from, (bucket, count)),
            }
        }
    }

    /// What was added since `earlier` was taken of the same histogram.
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |bucket| {
            let place = earlier
                .buckets
                .binary_search_by_key(&bucket, |(held, _)| *held);
            place.map_or(0, |place| earlier.buckets[place].1)
        };
        let mut delta = Self::default();
        for (bucket, count) in self.iter() {
            delta.add(bucket, count.saturating_sub(before(bucket)));
        }
        delta
    }

    /// The smallest recorded duration that at least `quantile` (0 to 1) of all durations do not exceed, in
    /// nanoseconds, as its bucket's midpoint: off by at most 3.125 %. `None` when nothing was recorded.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        let count = self.count();
        let rank = (quantile.clamp(0.0, 1.0) * count as f64).ceil() as u64;
        let rank = rank.min(count).max(1);
        let mut seen = 0_u64;
        self.iter().find_map(|(bucket, count)| {
            seen = seen.saturating_add(count);
            let Range { start, end } = bounds(bucket);
            (seen >= rank).then_some(start + (end - 1 - start) / 2)
        })
    }

    /// How many durations are below `nanos`, which must be a bucket's lower bound for the answer to be exact.
    pub fn count_below(&self, nanos: u64) -> u64 {
        let below = self
            .buckets
            .iter()
            .take_while(|(bucket, _)| bounds(*bucket).end <= nanos);
        saturating_sum(below)
    }
}

/// Counts come from statuses, which anyone with the right to may have written: too many are as many as there can be.
fn saturating_sum<'a>(buckets: impl Iterator<Item = &'a (u32, u64)>) -> u64 {
    buckets.fold(0, |sum, (_, count)| sum.saturating_add(*count))
}

impl FromIterator<(u32, u64)> for Histogram {
    fn from_iter<I: IntoIterator<Item = (u32, u64)>>(buckets: I) -> Self {
        let mut histogram = Self::default();
        for (bucket, count) in buckets {
            histogram.add(bucket, count);
        }
        histogram
    }
}

/// Runs of consecutive buckets, `first:count,count,…`, with a space between runs: a tenth of the size of a JSON map.
impl std::fmt::Display for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut previous = None;
        for (bucket, count) in self.iter() {
            match previous {
                Some(last) if last + 1 == bucket => f.write_char(',')?,
                Some(_) => write!(f, " {bucket}:")?,
                None => write!(f, "{bucket}:")?,
            }
            write!(f, "{count}")?;
            previous = Some(bucket);
        }
        Ok(())
    }
}

/// A text that is no histogram.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is no run of buckets such as 104:5,7")]
pub struct ParseError(String);

impl std::str::FromStr for Histogram {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let counts = text.bytes().filter(|byte| matches!(byte, b' ' | b','));
        let mut histogram = Self {
            buckets: Vec::with_capacity((counts.count() + 1).min(BUCKETS as usize)),
        };
        for run in text.split_ascii_whitespace() {
            let error = || ParseError(run.chars().take(32).collect());
            let (first, counts) = run.split_once(':').ok_or_else(error)?;
            let first: u32 = first.parse().map_err(|_| error())?;
            for (offset, count) in (0..).zip(counts.split(',')) {
                let bucket = first
                    .checked_add(offset)
                    .filter(|bucket| *bucket < BUCKETS)
                    .ok_or_else(error)?;
                histogram.add(bucket, count.parse().map_err(|_| error())?);
            }
        }
        Ok(histogram)
    }
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Histogram {
    fn schema_name() -> Cow<'static, str> {
        "Histogram".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Log-linear histogram of nanoseconds (16 buckets to each power of two): runs of consecutive buckets, first:count,count,…",
        })
    }
}

#[cfg(test)]
mod tests;
