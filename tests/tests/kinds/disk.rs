//! A disk that nobody else uses: the one that `CKB_PROBE_DISK` names, or a loop device on a file.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::{FileExt, OpenOptionsExt},
    process::Command,
};

use rustix::fs::OFlags;
use tempfile::NamedTempFile;

const ALIGNED: usize = 4096;
const BYTES: u64 = 16 << 20;

/// Requests and bytes by direction.
pub type Requests = Vec<(&'static str, u64, u64)>;

/// The disk.
pub struct Disk {
    path: String,
    /// Of a loop device. It goes with this.
    file: Option<NamedTempFile>,
}

impl Disk {
    /// Takes it, or makes it.
    pub fn get() -> Self {
        if let Ok(path) = std::env::var("CKB_PROBE_DISK") {
            return Self { path, file: None };
        }
        let file = NamedTempFile::new().unwrap();
        file.as_file().set_len(BYTES).unwrap();
        let output = Command::new("losetup")
            .args(["-f", "--show"])
            .arg(file.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "losetup, as root: {output:?}");
        Self {
            path: String::from_utf8(output.stdout).unwrap().trim().to_string(),
            file: Some(file),
        }
    }

    /// Its name in /proc/diskstats.
    pub fn name(&self) -> &str {
        self.path.trim_start_matches("/dev/")
    }

    /// What it did since it was made, by /proc/diskstats.
    pub fn statistics(&self) -> [u64; 17] {
        let text = fs::read_to_string("/proc/diskstats").unwrap();
        let mut lines = text.lines().map(|line| line.split_whitespace().skip(2));
        let mut numbers = lines
            .find_map(|mut words| (words.next() == Some(self.name())).then_some(words))
            .unwrap();
        std::array::from_fn(|_| numbers.next().unwrap().parse().unwrap())
    }

    /// What it did since then.
    pub fn since(&self, before: [u64; 17]) -> Requests {
        let after = self.statistics();
        let since = |index: usize| after[index] - before[index];
        let all = [
            ("read", since(0), since(2) * 512),
            ("write", since(4), since(6) * 512),
            ("discard", since(11), since(13) * 512),
            ("flush", since(15), 0),
        ];
        all.into_iter().filter(|(_, count, _)| *count > 0).collect()
    }

    /// Reads so many times so much, one request after the other.
    pub fn read_direct(&self, times: u64, bytes: usize) {
        let file = self.open(OFlags::DIRECT);
        let mut room = vec![0; bytes + ALIGNED];
        let begin = room.as_ptr().align_offset(ALIGNED);
        for time in 0..times {
            let at = time * bytes as u64 % BYTES;
            let room = &mut room[begin..begin + bytes];
            file.read_exact_at(room, at).unwrap();
        }
    }

    /// The same for writing.
    pub fn write_direct(&self, times: u64, bytes: usize) {
        let file = self.open(OFlags::DIRECT);
        let room = vec![5; bytes + ALIGNED];
        let begin = room.as_ptr().align_offset(ALIGNED);
        for time in 0..times {
            let at = time * bytes as u64 % BYTES;
            file.write_all_at(&room[begin..begin + bytes], at).unwrap();
        }
    }

    /// Writes through the page cache, and has all of it and the disk's own cache written out.
    pub fn write_buffered(&self, bytes: usize) {
        let mut file = self.open(OFlags::empty());
        file.write_all(&vec![3; bytes]).unwrap();
        file.sync_all().unwrap();
    }

    fn open(&self, flags: OFlags) -> File {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true);
        let options = options.custom_flags(flags.bits() as i32);
        options.open(&self.path).unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = Command::new("losetup").args(["-d", &self.path]).status();
        }
    }
}
