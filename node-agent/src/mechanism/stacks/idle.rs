//! Folds what only waits for work into one frame.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ckb_probe_profiles::idle::idle;

use super::{
    Call, CodeOrigin, Profile, Sample, TRUNCATED,
    wait::{FOR_A_CPU, FOR_A_PAGE, FROZEN, STOPPED, TRACED},
};

/// What a thread waits for that waits for no work.
const NO_WAITS: [&str; 5] = [FOR_A_CPU, FOR_A_PAGE, STOPPED, TRACED, FROZEN];

impl Profile {
    /// The same with the calls of threads in idle pools folded into one that says which pool. For what is waited for: on a CPU
    /// nobody is idle.
    pub fn with_idle_folded(self) -> Self {
        let mut samples: BTreeMap<(String, Vec<Call>), (u64, Duration, u64)> = BTreeMap::new();
        for sample in self.samples {
            let Sample {
                thread,
                calls,
                count,
                time,
                memory,
                // Of what is allocated nothing is folded.
                freed: _,
            } = sample;
            let calls = folded(&thread, &calls).unwrap_or(calls);
            let (counts, times, bytes) = samples.entry((thread, calls)).or_default();
            *counts += count;
            *times += time;
            *bytes += memory;
        }
        let samples = samples
            .into_iter()
            .map(|((thread, calls), (count, time, memory))| Sample {
                thread,
                calls,
                count,
                time,
                memory,
                freed: 0,
            })
            .collect();
        Self { samples, ..self }
    }
}

fn folded(thread: &str, calls: &[Call]) -> Option<Vec<Call>> {
    // What is not whole stays known as such.
    if calls
        .first()
        .is_some_and(|call| call.place == CodeOrigin::Said && &*call.name == TRUNCATED)
    {
        return None;
    }
    let wait = calls.last().filter(|call| call.place == CodeOrigin::Said)?;
    if NO_WAITS.contains(&&*wait.name) {
        return None;
    }
    let own = calls.iter().filter(|call| call.place == CodeOrigin::User);
    let names: Vec<&str> = own.map(|call| &*call.name).collect();
    let pool = idle(thread, &names)?;
    Some(vec![Call {
        name: Arc::from(pool),
        file: Arc::from(""),
        place: CodeOrigin::Said,
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(calls: &[(&str, CodeOrigin)], count: u64) -> Sample {
        let call = |(name, place): &(&str, CodeOrigin)| Call {
            name: Arc::from(*name),
            file: Arc::from(""),
            place: *place,
        };
        Sample {
            thread: "rocksdb:low".to_string(),
            calls: calls.iter().map(call).collect(),
            count,
            time: Duration::from_secs(count),
            memory: 0,
            freed: 0,
        }
    }

    #[test]
    fn idle_stacks_become_one_and_keep_their_weight() {
        use CodeOrigin::{Kernel, Said, User};
        let pool = ("rocksdb::ThreadPoolImpl::Impl::BGThread", User);
        let profile = Profile {
            samples: vec![
                sample(
                    &[
                        pool,
                        ("pthread_cond_wait", User),
                        ("futex_do_wait", Kernel),
                        ("[futex]", Said),
                    ],
                    2,
                ),
                sample(&[pool, ("syscall", User), ("[futex]", Said)], 3),
                // What is not whole is not taken for whole.
                sample(&[(TRUNCATED, Said), pool, ("[futex]", Said)], 4),
                // It has work, and others have the CPU.
                sample(&[pool, ("syscall", User), ("[a CPU]", Said)], 1),
                sample(
                    &[
                        pool,
                        ("rocksdb::CompactionJob::Run", User),
                        ("[read]", Said),
                    ],
                    1,
                ),
            ],
            frequency: 19.0,
            took: Duration::from_secs(7),
            taken: 11,
            complete: 7,
            ..Profile::default()
        };
        let folded = profile.clone().with_idle_folded();
        let shown: Vec<(String, u64)> = folded
            .samples
            .iter()
            .map(|sample| {
                let names: Vec<&str> = sample.calls.iter().map(|call| &*call.name).collect();
                (names.join(";"), sample.time.as_secs())
            })
            .collect();
        assert_eq!(shown.len(), 4);
        assert!(
            shown.contains(&("[idle rocksdb]".to_string(), 5)),
            "{shown:?}"
        );
        assert_eq!(
            folded
                .samples
                .iter()
                .map(|sample| sample.count)
                .sum::<u64>(),
            11
        );
        assert_eq!(
            (folded.taken, folded.complete),
            (profile.taken, profile.complete)
        );
    }
}
