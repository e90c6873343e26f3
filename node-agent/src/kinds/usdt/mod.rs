//! `usdt`: whatever USDT probes of a provider have a name that matches.

mod arguments;

pub use arguments::Arguments;
use ckb_probe_crds::{
    Argument,
    kinds::usdt::{ByArgument, HITS, UsdtProbe},
};

use super::Instrument;
use crate::mechanism::{
    CollectorConfig,
    calls::{self, Kept, Measures, Numbered, Sought, UsdtPattern},
};

impl Instrument for UsdtProbe {
    fn config(&self) -> CollectorConfig {
        calls::CallsConfig {
            measures: Measures::Counted(HITS.key()),
            sought: Sought::Usdt(UsdtPattern {
                provider: self.provider.clone(),
                names: self.names.clone(),
                limit: self.limit as usize,
                by: self.by_argument.map(numbered),
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
