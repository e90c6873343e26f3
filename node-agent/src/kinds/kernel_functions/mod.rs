//! `kernelFunctions`: whatever functions of the kernel have a name that matches.

mod arguments;

pub use arguments::Arguments;
use ckb_probe_crds::{
    Name,
    kinds::kernel_functions::{DURATION, KernelFunctionsProbe, LONGEST, SLOW},
};

use super::Instrument;
use crate::mechanism::{CollectorConfig, calls::Measures, kernel_functions};

impl Instrument for KernelFunctionsProbe {
    fn config(&self) -> CollectorConfig {
        let threshold = self.threshold.map(|threshold| threshold.as_nanos());
        kernel_functions::KernelFunctionsConfig {
            measures: Measures::Timed {
                duration: DURATION.key(),
                longest: LONGEST.key(),
                // What a function of the kernel's payload is, nobody says.
                bytes: Name::Borrowed("bytes"),
                slow: SLOW.key(),
            },
            glob: self.r#match.clone(),
            limit: self.limit as usize,
            slow_threshold_ns: threshold.unwrap_or(u64::MAX),
        }
        .into()
    }
}
