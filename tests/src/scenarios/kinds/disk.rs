//! A disk of the node that nobody else uses: a loop device on a file.

use std::{fs, io::Write as _, process::Command};

use tempfile::NamedTempFile;

use crate::{
    cluster::run,
    failure::{Failure, Result},
};

const STATISTICS: &str = "/proc/diskstats";

const MEBIBYTES: usize = 8;

/// What the kernel says that disks have done, by their names and directions.
#[derive(Clone, Debug)]
pub struct Statistics(Vec<(String, Done)>);

/// What a disk has done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Done {
    /// Requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The disk. Dropping it removes it.
pub struct Disk {
    path: String,
    _file: NamedTempFile,
}

impl Disk {
    /// Makes it.
    pub async fn new() -> Result<Self> {
        let mut file = NamedTempFile::new().map_err(Failure::system("a file for a disk"))?;
        file.write_all(&vec![7; MEBIBYTES << 20])
            .map_err(Failure::system("a file for a disk"))?;
        let name = file.path().to_string_lossy().into_owned();
        let path = run("losetup", &["--find", "--show", &name], None).await?;
        Ok(Self {
            path: path.trim().to_string(),
            _file: file,
        })
    }

    /// Its name in /proc/diskstats.
    pub fn name(&self) -> &str {
        self.path.trim_start_matches("/dev/")
    }

    /// Reads so many times so much past the page cache, each time in one request.
    pub async fn read(&self, times: usize, bytes: usize) -> Result<()> {
        let from = format!("if={}", self.path);
        self.copy(&[&from, "of=/dev/null", "iflag=direct"], times, bytes)
            .await
    }

    /// The same for writing.
    pub async fn write(&self, times: usize, bytes: usize) -> Result<()> {
        let to = format!("of={}", self.path);
        self.copy(&["if=/dev/zero", &to, "oflag=direct"], times, bytes)
            .await
    }

    async fn copy(&self, what: &[&str], times: usize, bytes: usize) -> Result<()> {
        let (count, bytes) = (format!("count={times}"), format!("bs={bytes}"));
        let how = ["status=none", &count, &bytes];
        run("dd", &[what, &how].concat(), None).await?;
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A disk that stays is in nobody's way.
        let _ = Command::new("losetup")
            .args(["--detach", &self.path])
            .status();
    }
}

impl Statistics {
    /// The statistics as they are now.
    pub fn now() -> Result<Self> {
        let text = fs::read_to_string(STATISTICS).map_err(Failure::system(STATISTICS))?;
        let mut disks = Vec::new();
        for line in text.lines() {
            let mut words = line.split_whitespace().skip(2);
            let name = words.next().unwrap_or_default();
            let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            // Requests that ended, those merged into others, sectors of 512 bytes, milliseconds.
            for (direction, numbers) in ["read", "write"].iter().zip(numbers.chunks_exact(4)) {
                let done = Done {
                    requests: numbers[0],
                    bytes: numbers[2] * 512,
                };
                disks.push((format!("{name} {direction}"), done));
            }
        }
        Ok(Self(disks))
    }

    /// That of a disk and a direction, such as `vda write`.
    pub fn of(&self, row: &str) -> Option<Done> {
        let mut disks = self.0.iter();
        disks.find_map(|(name, done)| (name == row).then_some(*done))
    }

    /// What was done since an earlier time, by a disk that was there then.
    pub fn since(&self, earlier: &Self, row: &str) -> Option<Done> {
        let (now, then) = (self.of(row)?, earlier.of(row)?);
        Some(Done {
            requests: now.requests.saturating_sub(then.requests),
            bytes: now.bytes.saturating_sub(then.bytes),
        })
    }
}
