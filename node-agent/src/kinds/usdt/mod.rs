//! `usdt`: whatever USDT probes of a provider have a name that matches.

mod arguments;

pub use arguments::Arguments;
use ckb_probe_crds::kinds::usdt::{HITS, UsdtProbe};

use super::Instrument;
use crate::mechanism::{
    CollectorConfig,
    calls::{self, Measures, Sought, UsdtPattern},
};

impl Instrument for UsdtProbe {
    fn config(&self) -> CollectorConfig {
        calls::CallsConfig {
            measures: Measures::Counted(HITS.key()),
            sought: Sought::Usdt(UsdtPattern {
                provider: self.provider.clone(),
                names: self.names.clone(),
                limit: self.limit as usize,
            }),
        }
        .into()
    }
}
