//! What kinds of calls have in common: how many there were, how long they took, and how many were slow.

use super::{Column, Descriptor, Measure, Merge, Phrase, Unit, Value};

/// How long calls took. Those that were counted and not timed are in it too.
pub const DURATION: Measure = Measure::new("duration", Unit::Nanoseconds, Merge::Distribution);
/// The longest of them.
pub const LONGEST: Measure = Measure::new("duration", Unit::Nanoseconds, Merge::Maximum);
/// Calls as slow as the threshold, or slower.
pub const SLOW: Measure = Measure::new("slow", Unit::Count, Merge::Sum);
/// Of what is timed from one place to another: how often something began once more that had not been seen to end.
pub const UNENDED: Measure = Measure::new("unended", Unit::Count, Merge::Sum);
/// How often something ended that had not been seen to begin.
pub const UNBEGUN: Measure = Measure::new("unbegun", Unit::Count, Merge::Sum);

// The columns of calls, for kinds that have others between them.
/// How many there were.
pub const PER_SECOND: Column = Column::new("perSecond", "PER SECOND", Value::Rate("duration"));
/// Half of them took no longer.
pub const P50: Column = Column::new("p50", "P50", Value::Quantile("duration", 0.5));
/// Nine of ten took no longer.
pub const P90: Column = Column::new("p90", "P90", Value::Quantile("duration", 0.9));
/// All but one of a hundred took no longer.
pub const P99: Column = Column::new("p99", "P99", Value::Quantile("duration", 0.99));
/// None took longer.
pub const MAX: Column = Column::new("max", "MAX", Value::Maximum("duration"));
/// How many were slow since the agent attached.
pub const SLOW_ONES: Column = Column::new("slow", "SLOW", Value::Total("slow"));
/// How many began once more before they were seen to end.
pub const UNENDED_ONES: Column =
    Column::new("unended", "UNENDED", Value::Total("unended")).of_rows();
/// How many ended that were not seen to begin.
pub const UNBEGUN_ONES: Column =
    Column::new("unbegun", "UNBEGUN", Value::Total("unbegun")).of_rows();
/// How many there were since the agent attached.
pub const COUNT: Column = Column::new("count", "COUNT", Value::Total("duration"));

/// How many there were, in a headline.
pub const SAY_RATE: Phrase = Phrase::new("", Value::Rate("duration"), "/s");
/// How long the slowest of a hundred took, in a headline.
pub const SAY_P99: Phrase = Phrase::new("p99 ", Value::Quantile("duration", 0.99), "");
/// How many were slow, in a headline.
pub const SAY_SLOW: Phrase = Phrase::new("", Value::Total("slow"), " slow").unless_zero();

/// What is said of all calls in a line.
pub const HEADLINE: &[Phrase] = &[SAY_RATE, SAY_P99, SAY_SLOW];

/// What a kind of functions gives, but for its metrics.
pub const FUNCTIONS: Descriptor = Descriptor {
    row: "function",
    measures: &[DURATION, LONGEST, SLOW],
    columns: &[PER_SECOND, P50, P90, P99, MAX, SLOW_ONES, COUNT],
    headline: HEADLINE,
    ..Descriptor::EMPTY
};
