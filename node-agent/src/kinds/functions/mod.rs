//! `functions`: whatever functions of the process have a name that matches, or the time from one to another.

mod arguments;

pub use arguments::Arguments;
use ckb_probe_crds::{
    Name,
    kinds::functions::{Argument, DURATION, FunctionsProbe, LONGEST, SLOW, UNBEGUN, UNENDED},
};

use super::Instrument;
use crate::mechanism::CollectorConfig;
use crate::{
    mechanism::calls::{self, Kept, Matching, Measures, Sought, Span},
    observe::Pattern,
};

impl Instrument for FunctionsProbe {
    fn config(&self) -> CollectorConfig {
        let threshold = self.threshold.map(|threshold| threshold.as_nanos());
        calls::CallsConfig {
            measures: match self.is_between() {
                false => Measures::Timed {
                    duration: DURATION.key(),
                    longest: LONGEST.key(),
                    // What a function's payload is, nobody says.
                    bytes: Name::Borrowed("bytes"),
                    slow: SLOW.key(),
                },
                true => Measures::Spanned {
                    // As many as there are durations.
                    hits: None,
                    duration: DURATION.key(),
                    longest: LONGEST.key(),
                    slow: SLOW.key(),
                    unended: UNENDED.key(),
                    unbegun: UNBEGUN.key(),
                },
            },
            sought: Sought::Matching(Matching {
                pattern: Pattern {
                    glob: self.r#match.clone(),
                    library: self.library.clone(),
                    limit: self.limit as usize,
                },
                slow_threshold_ns: threshold.unwrap_or(u64::MAX),
                include_single_stepped: self.include_single_stepped,
                arguments: self
                    .arguments
                    .iter()
                    .map(|argument| match argument {
                        Argument::Integer => Kept::Integer,
                        Argument::String => Kept::String,
                    })
                    .collect(),
                stacks: self.stacks && self.threshold.is_some(),
                span: self.is_between().then(|| Span {
                    from: self.r#match.clone(),
                    to: self.to.clone(),
                    to_return: self.to_return.clone(),
                    key: self.key_argument,
                    key_name: self.key_name.as_deref().map(Into::into),
                    parent: self.traceparent_argument,
                    slow_threshold_ns: threshold.unwrap_or(u64::MAX),
                }),
            }),
        }
        .into()
    }
}

#[cfg(test)]
mod tests;
