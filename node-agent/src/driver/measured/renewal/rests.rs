//! For how long files that are written to again and again are left alone: what is mapped to be run may be a cache of code, or where a compiler notes
//! what it made, and be written to all of the time. To measure the process anew each time would cost it, and see little of it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// After it was written to for the first time.
const FIRST: Duration = Duration::from_secs(1);

/// However often it is.
const LONGEST: Duration = Duration::from_secs(60);

/// So many are remembered.
const FILES: usize = 1024;

/// By path.
#[derive(Default)]
pub(super) struct Rests(BTreeMap<PathBuf, Rest>);

/// That of one.
struct Rest {
    lasts: Duration,
    until: Instant,
}

impl Rests {
    /// The first of these, all of which were written to, that is not left alone as of now. For it the process is measured anew, with what is in all
    /// of them by then: each is left alone from now on, for twice as long as the last time, if that was not long ago.
    pub(super) fn over<'a>(&mut self, written: &[&'a Path], now: Instant) -> Option<&'a Path> {
        let rests = |path: &Path| self.0.get(path).is_some_and(|rest| now < rest.until);
        let due = *written.iter().find(|path| !rests(path))?;
        self.0.retain(|_, rest| now < rest.until + LONGEST);
        if self.0.len() > FILES {
            self.0.clear();
        }
        for path in written {
            let last = self.0.get(*path).map(|rest| rest.lasts);
            let lasts = last.map_or(FIRST, |last| LONGEST.min(2 * last));
            let until = now + lasts;
            self.0.insert(path.to_path_buf(), Rest { lasts, until });
        }
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_to_all_of_the_time_rests_for_a_minute_at_last_and_holds_nothing_else_up() {
        let (mut rests, start) = (Rests::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let (library, cache) = (Path::new("/lib/own.so"), Path::new("/tmp/jit.dump"));
        let mut renewed: Vec<u64> = (0..=240).collect();
        renewed.retain(|second| rests.over(&[cache], at(*second)).is_some());
        assert_eq!(renewed, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
        assert_eq!(rests.over(&[cache], at(241)), None);
        assert_eq!(rests.over(&[library, cache], at(241)), Some(library));
        // With what was in the other, too.
        assert_eq!(rests.over(&[library, cache], at(241)), None);
        assert_eq!(rests.over(&[cache], at(300)), None);
        assert_eq!(rests.over(&[], at(300)), None);
        // It was not for a minute, and begins anew.
        assert_eq!(rests.over(&[cache], at(361)), Some(cache));
        assert_eq!(rests.over(&[cache], at(361)), None);
        assert_eq!(rests.over(&[cache], at(362)), Some(cache));
    }

    #[test]
    fn files_without_end_are_not_remembered() {
        let (mut rests, now) = (Rests::default(), Instant::now());
        let files: Vec<PathBuf> = (0..=FILES).map(|file| file.to_string().into()).collect();
        let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
        assert_eq!(rests.over(&files, now), Some(files[0]));
        assert_eq!(rests.0.len(), FILES + 1);
        let more = Path::new("one more");
        assert_eq!(rests.over(&[more], now), Some(more));
        assert_eq!(rests.0.len(), 1);
    }
}
