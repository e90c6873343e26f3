//! `usdt`: whatever USDT probes of a provider have a name that matches, or the time from one to another.

mod arguments;

pub use arguments::Arguments;
use ckb_probe_crds::{
    Argument,
    kinds::usdt::{ByArgument, DURATION, HITS, LONGEST, SLOW, UNBEGUN, UNENDED, UsdtProbe},
};

use super::Instrument;
use crate::mechanism::{
    CollectorConfig,
    calls::{self, Kept, Measures, Numbered, Sought, Span, UsdtPattern},
};

impl Instrument for UsdtProbe {
    fn config(&self) -> CollectorConfig {
        calls::CallsConfig {
            measures: match self.between {
                None => Measures::Counted(HITS.key()),
                Some(_) => Measures::Spanned {
                    hits: Some(HITS.key()),
                    duration: DURATION.key(),
                    longest: LONGEST.key(),
                    slow: SLOW.key(),
                    unended: UNENDED.key(),
                    unbegun: UNBEGUN.key(),
                },
            },
            sought: Sought::Usdt(UsdtPattern {
                provider: self.provider.clone(),
                names: self.names.clone(),
                limit: self.limit as usize,
                by: self.by_argument.map(numbered),
                span: self.between.as_ref().map(|between| Span {
                    from: between.from.clone(),
                    to: between.to.clone(),
                    to_return: Vec::new(),
                    key: between.key_argument,
                    key_name: between.key_name.as_deref().map(Into::into),
                    parent: between.traceparent_argument,
                    slow_threshold_ns: between
                        .threshold
                        .map_or(u64::MAX, |threshold| threshold.as_nanos()),
                }),
                // There is one format.
                payload: self.payload.map(|payload| payload.argument),
            }),
        }
        .into()
    }
}

fn numbered(argument: ByArgument) -> Numbered {
    Numbered {
        number: argument.number,
        kind: match argument.r#type {
            Argument::Integer => Kept::Integer,
            Argument::String => Kept::String,
        },
    }
}
