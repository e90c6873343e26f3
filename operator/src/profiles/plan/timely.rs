//! Which windows there can be by now. An agent names the window of a part itself, and one that is another's could name any: each number is a
//! profile to be published, and a turn that others wait for.

use std::time::Duration;

use ckb_probe_crds::{CkbProbeSpec, PartLabels, ProfileMode, SLOW_CALLS_WINDOW, WINDOWS_KEPT};
use k8s_openapi::jiff::Timestamp;

/// So far the clocks of a node and of the API server may be apart, and so late a window may be done.
const APART: Duration = Duration::from_secs(600);

/// Whether a window of this number can have been written when the API server says that its part was.
pub fn is_timely(spec: &CkbProbeSpec, about: &PartLabels, written: Timestamp) -> bool {
    let Some(every) = every(spec, about) else {
        return about.window == 0;
    };
    let written = u64::try_from(written.as_second()).unwrap_or_default();
    let (apart, every) = (APART.as_secs(), every.as_secs().max(1));
    let latest = (written + apart) / every + 1;
    let earliest = (written.saturating_sub(apart) / every).saturating_sub(WINDOWS_KEPT as u64 + 1);
    (earliest..=latest).contains(&about.window)
}

/// How often windows of this mode begin; None where there is one alone.
fn every(spec: &CkbProbeSpec, about: &PartLabels) -> Option<Duration> {
    if about.mode == ProfileMode::SlowCalls {
        return Some(SLOW_CALLS_WINDOW);
    }
    let mut named = spec.probes.iter().filter(|one| one.name == about.probe);
    let profile = named.next()?.profile.as_ref()?;
    let one = profile.capture_on_anomaly.then_some(profile.window);
    Some(profile.every.or(one)?.get())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn spec(profile: serde_json::Value) -> CkbProbeSpec {
        let spec = json!({
            "target": { "selector": { "matchLabels": { "app": "ckb" } } },
            "probes": [{ "name": "flames", "profile": profile }, { "name": "storage", "rocksdb": {} }],
        });
        serde_json::from_value(spec).unwrap()
    }

    fn about(probe: &str, mode: ProfileMode, window: u64) -> PartLabels {
        PartLabels {
            asks: "asks".to_owned(),
            probe: probe.to_owned(),
            mode,
            window,
            pod: "pod".to_owned(),
        }
    }

    fn at(second: u64) -> Timestamp {
        Timestamp::from_second(second as i64).unwrap()
    }

    const NOW: u64 = 1_795_832_382;

    #[test]
    fn of_a_mode_that_is_looked_at_once_there_is_one_window() {
        let once = spec(json!({ "window": "30s" }));
        let windows = [0, 1, NOW / 30, u64::MAX];
        let timely = windows
            .map(|window| is_timely(&once, &about("flames", ProfileMode::Cpu, window), at(NOW)));
        assert_eq!(timely, [true, false, false, false]);
    }

    #[test]
    fn slow_calls_have_windows_of_their_own_whatever_else_is_asked() {
        let once = spec(json!({}));
        let is_timely = |window| {
            is_timely(
                &once,
                &about("storage", ProfileMode::SlowCalls, window),
                at(NOW),
            )
        };
        assert!(is_timely(NOW / 600) && is_timely(NOW / 600 - 1));
        assert!(!is_timely(0) && !is_timely(NOW / 600 + 3) && !is_timely(NOW / 600 - 67));
    }

    proptest! {
        /// Whatever is asked, and whenever: what an agent with a clock of its own writes late is taken, and of all numbers so many.
        #[test]
        fn what_an_agent_writes_is_timely_and_few_other_numbers_are(
            every in 10_u64..86_400,
            occasional in any::<bool>(),
            began in 1_000_000_000_u64..4_000_000_000,
            apart in -500_i64..500,
            waits in 0_u64..64,
            other in any::<u64>(),
        ) {
            let spec = spec(match occasional {
                true => json!({ "window": format!("{}s", every.min(600)), "captureOnAnomaly": true }),
                false => json!({ "every": format!("{every}s"), "window": "10s" }),
            });
            let every = if occasional { every.min(600) } else { every };
            let number = began / every;
            // Until it is over, and as many as the queue holds after it.
            let written = (began + every.min(600) + waits * every).saturating_add_signed(apart);
            let takes = |window| is_timely(&spec, &about("flames", ProfileMode::Cpu, window), at(written));
            prop_assert!(takes(number));
            let most = 64 + 4 + 2 * 600 / every;
            prop_assert_eq!(takes(other), other.abs_diff(written / every) <= most && takes(other));
            prop_assert!(!takes(written / every + most + 1));
            prop_assert!(!takes((written / every).saturating_sub(most + 1)));
        }
    }
}
