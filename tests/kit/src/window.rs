//! What an operator publishes of a window.

use ckb_probe_crds::{CkbProfileSpec, ProfileCounts, ProfileMode, ProfileWindow};
use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};

/// A window of 30 s of the probe `flames` of a CkbProbe, which began so many seconds after 1970, with these stacks and nothing else.
///
/// # Panics
/// When there is no such time.
pub fn window_of(
    ckb_probe: &str,
    mode: ProfileMode,
    number: u64,
    began: i64,
    pprof: Vec<u8>,
) -> CkbProfileSpec {
    CkbProfileSpec {
        ckb_probe: ckb_probe.to_owned(),
        probe: "flames".to_owned(),
        mode,
        window: ProfileWindow {
            number,
            began_at: MicroTime(Timestamp::from_second(began).unwrap()),
            milliseconds: 30_000,
        },
        targets: Vec::new(),
        targets_omitted: 0,
        counts: ProfileCounts::default(),
        complete_percent: "100.0".to_owned(),
        sampled_percent: None,
        headline: String::new(),
        headings: Vec::new(),
        functions: Vec::new(),
        pruned_percent: None,
        bytes: pprof.len() as u64,
        pprof: ByteString(pprof),
    }
}
