//! Whether what was measured one after the other before and after differs, or is noise.
//!
//! What happens to a node one moment happens to the next: a compaction makes a hundred blocks slow, not one. So values that follow
//! each other are no independent draws, and a test that takes them for such calls noise an effect. Here each side is cut into
//! [`BATCHES`] stretches of as many values that followed each other, and the statistic of each stretch is one draw: *batch means*
//! (Schmeiser, Batch size effects in the analysis of simulation output, 1982). The interval of the difference is Welch's of two
//! such samples, or Student's of the differences where both sides measured the same things in the same order.

/// Into how many stretches each side is cut.
pub const BATCHES: usize = 20;

/// Fewer values on a side are too few to be told from noise.
pub const LEAST: usize = 2 * BATCHES;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// The mean.
    Mean,
    /// The median: not moved by a few extremes.
    Median,
}

impl Statistic {
    /// What it is called.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Median => "median",
        }
    }
}

/// What a statistic was before and after, and between which bounds the difference of what it is of lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// What the statistic was before.
    pub before: f64,
    /// What it is after.
    pub after: f64,
    /// The least that the difference is, with the confidence that was asked for.
    pub low: f64,
    /// The most that the difference is, with the same confidence.
    pub high: f64,
}

impl Comparison {
    /// After, less before.
    pub fn change(&self) -> f64 {
        self.after - self.before
    }

    /// Whether there may be no difference at all.
    pub fn is_noise(&self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }

    /// As a share of what was before; None where that was nothing.
    pub fn of_before(&self, change: f64) -> Option<f64> {
        (self.before > 0.0).then(|| change / self.before)
    }

    /// Of shares: so much of so many samples was of one sort before, and after. By the two-proportion test with the variance of both
    /// together, which takes samples to be independent of each other. None where a side has no sample.
    pub fn of_shares(before: (f64, u64), after: (f64, u64), confidence: f64) -> Option<Self> {
        let ((before, many), (after, more)) = (before, after);
        if many == 0 || more == 0 {
            return None;
        }
        let (many, more) = (many as f64, more as f64);
        let share = ((before * many + after * more) / (many + more)).clamp(0.0, 1.0);
        let error = (share * (1.0 - share) * (1.0 / many + 1.0 / more)).sqrt();
        let most = normal(0.5 + confidence / 2.0) * error;
        let change = after - before;
        Some(Self {
            before,
            after,
            low: change - most,
            high: change + most,
        })
    }

    fn around(before: f64, after: f64, error: f64, freedom: f64, confidence: f64) -> Self {
        let most = student(confidence, freedom) * error;
        let change = after - before;
        Self {
            before,
            after,
            low: change - most,
            high: change + most,
        }
    }
}

/// Compares values of different things, each side in the order in which they were measured. None where either side has fewer than
/// [`LEAST`]. `confidence`: how likely the difference is to be within the bounds, between 0 and 1.
pub fn compare(
    before: &[f64],
    after: &[f64],
    statistic: Statistic,
    confidence: f64,
) -> Option<Comparison> {
    let spread = |values: &[f64]| {
        let batches = batches(values)?.map(|batch| statistic.of(batch));
        Some(variance(&batches.collect::<Vec<_>>()) / BATCHES as f64)
    };
    let (one, other) = (spread(before)?, spread(after)?);
    let (before, after) = (statistic.of(before), statistic.of(after));
    let error = (one + other).sqrt();
    // Welch and Satterthwaite: between the degrees of freedom of one side and those of both.
    let each = BATCHES as f64 - 1.0;
    let freedom = match one * one + other * other {
        0.0 => each,
        squares => each * (one + other).powi(2) / squares,
    };
    Some(Comparison::around(
        before, after, error, freedom, confidence,
    ))
}

/// Compares values of the same things, before and after, in their order. None where there are fewer than [`LEAST`].
pub fn compare_pairs(
    pairs: &[(f64, f64)],
    statistic: Statistic,
    confidence: f64,
) -> Option<Comparison> {
    let sides = |pairs: &[(f64, f64)]| -> (f64, f64) {
        let (before, after): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        (statistic.of(&before), statistic.of(&after))
    };
    let differences = batches(pairs)?.map(|batch| {
        let (before, after) = sides(batch);
        after - before
    });
    let spread = variance(&differences.collect::<Vec<_>>()) / BATCHES as f64;
    let (before, after) = sides(pairs);
    let freedom = BATCHES as f64 - 1.0;
    Some(Comparison::around(
        before,
        after,
        spread.sqrt(),
        freedom,
        confidence,
    ))
}

/// Stretches of one length. What does not come out even is left out of them, at the beginning: that is when caches are cold.
fn batches<T>(values: &[T]) -> Option<impl Iterator<Item = &[T]>> {
    if values.len() < LEAST {
        return None;
    }
    let size = values.len() / BATCHES;
    Some(values[values.len() - size * BATCHES..].chunks_exact(size))
}

impl Statistic {
    /// Of these; 0 of none.
    pub fn of(self, values: &[f64]) -> f64 {
        if values.is_empty() {
            return 0.0;
        }
        match self {
            Self::Mean => values.iter().sum::<f64>() / values.len() as f64,
            Self::Median => {
                let mut sorted = values.to_vec();
                sorted.sort_by(f64::total_cmp);
                let middle = sorted.len() / 2;
                match sorted.len() % 2 {
                    0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
                    _ => sorted[middle],
                }
            }
        }
    }
}

fn variance(values: &[f64]) -> f64 {
    let mean = Statistic::Mean.of(values);
    let squares = values.iter().map(|value| (value - mean).powi(2));
    squares.sum::<f64>() / (values.len() as f64 - 1.0)
}

/// How many standard errors on each side of an estimate have what it estimates between them so likely, by Student's distribution.
/// Cornish and Fisher's expansion (Abramowitz and Stegun, 26.7.5): within a hundredth from 9 degrees of freedom on.
fn student(confidence: f64, freedom: f64) -> f64 {
    let z = normal(f64::midpoint(1.0, confidence));
    let power = |exponent| z.powi(exponent);
    let terms = [
        (power(3) + z) / 4.0,
        (5.0 * power(5) + 16.0 * power(3) + 3.0 * z) / 96.0,
        (3.0 * power(7) + 19.0 * power(5) + 17.0 * power(3) - 15.0 * z) / 384.0,
    ];
    let terms = terms.iter().zip(1..);
    z + terms
        .map(|(term, order)| term / freedom.powi(order))
        .sum::<f64>()
}

/// The quantile of the normal distribution, of more than a half:
/// Abramowitz and Stegun, 26.2.23, within 0.00045.
fn normal(probability: f64) -> f64 {
    let tail = (1.0 - probability).max(f64::MIN_POSITIVE);
    let t = (-2.0 * tail.ln()).sqrt();
    let above = 2.515_517 + 0.802_853 * t + 0.010_328 * t * t;
    let below = 1.0 + 1.432_788 * t + 0.189_269 * t * t + 0.001_308 * t * t * t;
    t - above / below
}

#[cfg(test)]
mod tests;
