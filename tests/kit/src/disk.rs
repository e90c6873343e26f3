//! A disk that nobody else uses: the one that `CKB_PROBE_DISK` names, or a loop device on a file.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::fs::OFlags;

use crate::run;

const ALIGNED: usize = 4096;
const DIRECT: i32 = OFlags::DIRECT.bits() as i32;

/// Until the kernel has its last words on what was asked of a disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// The numbers of a line of /proc/diskstats, after the name.
#[derive(Clone, Copy, Debug)]
pub struct Statistics(pub [u64; 17]);

/// Requests and bytes by direction, in the order of the kernel's numbers for these.
pub type Requests = [(&'static str, u64, u64); 4];

/// The disk.
pub struct Disk {
    path: String,
    bytes: u64,
    /// Whether it is a loop device of its own, which goes with this.
    is_loop: bool,
    /// The file that was made for it. It goes with this.
    file: Option<PathBuf>,
}

impl Statistics {
    /// What was done since then.
    pub fn since(self, before: Self) -> Requests {
        let since = |index: usize| self.0[index] - before.0[index];
        [
            ("read", since(0), since(2) * 512),
            ("write", since(4), since(6) * 512),
            ("discard", since(11), since(13) * 512),
            ("flush", since(15), 0),
        ]
    }

    fn in_progress(self) -> u64 {
        self.0[8]
    }
}

impl Disk {
    /// One of so many MiB, with something on it.
    pub fn new(mebibytes: usize) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("ckb-probe-disk-{}-{number}", std::process::id());
        let file = std::env::temp_dir().join(name);
        fs::write(&file, vec![7; mebibytes << 20]).unwrap();
        let mut disk = Self::on(&file);
        disk.file = Some(file);
        disk
    }

    /// One on a file that is there: it is as fast as that.
    pub fn on(file: &Path) -> Self {
        let output = run(Command::new("losetup").args(["-f", "--show"]).arg(file));
        let path = String::from_utf8(output.stdout).unwrap();
        Self {
            path: path.trim().to_string(),
            bytes: fs::metadata(file).unwrap().len(),
            is_loop: true,
            file: None,
        }
    }

    /// The one that is named, of at least so many MiB; or one of so many.
    pub fn get(mebibytes: usize) -> Self {
        match std::env::var("CKB_PROBE_DISK") {
            Ok(path) => Self {
                path,
                bytes: (mebibytes << 20) as u64,
                is_loop: false,
                file: None,
            },
            Err(_) => Self::new(mebibytes),
        }
    }

    /// The device file in /dev.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its name in /proc/diskstats.
    pub fn name(&self) -> &str {
        self.path.trim_start_matches("/dev/")
    }

    /// The row of this disk for a direction.
    pub fn row(&self, direction: &str) -> String {
        format!("{} {direction}", self.name())
    }

    /// Its number, as the kernel has it.
    pub fn device(&self) -> u64 {
        let path = format!("/sys/block/{}/dev", self.name());
        let text = fs::read_to_string(path).unwrap();
        let (major, minor) = text.trim().split_once(':').unwrap();
        major.parse::<u64>().unwrap() << 20 | minor.parse::<u64>().unwrap()
    }

    /// Has its requests sorted by this.
    pub fn schedule_by(&self, scheduler: &str) {
        let path = format!("/sys/block/{}/queue/scheduler", self.name());
        fs::write(path, scheduler).unwrap();
    }

    /// What it did since it was made.
    pub fn statistics(&self) -> Statistics {
        let text = fs::read_to_string("/proc/diskstats").unwrap();
        let mut lines = text.lines().map(|line| line.split_whitespace().skip(2));
        let mut numbers = lines
            .find_map(|mut words| (words.next() == Some(self.name())).then_some(words))
            .unwrap();
        Statistics(std::array::from_fn(|_| {
            numbers.next().unwrap().parse().unwrap()
        }))
    }

    /// The same, once nothing is in progress: whoever waits for a request goes on before the kernel has its last words on it.
    pub fn at_rest(&self) -> Statistics {
        let begun = Instant::now();
        loop {
            let statistics = self.statistics();
            if statistics.in_progress() == 0 {
                return statistics;
            }
            assert!(begun.elapsed() < PATIENCE, "{statistics:?}");
            sleep(Duration::from_millis(1));
        }
    }

    /// Reads so many times so much, one request after the other where the disk takes so large ones.
    pub fn read_direct(&self, times: usize, bytes: usize) {
        let file = self.open(DIRECT);
        let mut room = vec![0; bytes + ALIGNED];
        let begin = room.as_ptr().align_offset(ALIGNED);
        for time in 0..times {
            let at = self.place(time, bytes);
            file.read_exact_at(&mut room[begin..begin + bytes], at)
                .unwrap();
        }
    }

    /// Reads so much from there on, in one request where the disk takes so large ones.
    pub fn read_at(&self, at: u64, bytes: usize) {
        let mut room = vec![0; bytes + ALIGNED];
        let begin = room.as_ptr().align_offset(ALIGNED);
        let room = &mut room[begin..begin + bytes];
        self.open(DIRECT).read_exact_at(room, at).unwrap();
    }

    /// Writes so many times so much.
    pub fn write_direct(&self, times: usize, bytes: usize) {
        let file = self.open(DIRECT);
        let room = vec![5; bytes + ALIGNED];
        let begin = room.as_ptr().align_offset(ALIGNED);
        for time in 0..times {
            let at = self.place(time, bytes);
            file.write_all_at(&room[begin..begin + bytes], at).unwrap();
        }
    }

    /// Writes from its beginning on, through the page cache.
    pub fn write_buffered(&self, bytes: usize) {
        self.open(0).write_all(&vec![3; bytes]).unwrap();
    }

    /// Has all of it written, and its cache written out.
    pub fn sync(&self) {
        self.open(0).sync_all().unwrap();
    }

    /// Says of its first bytes that nothing is there.
    pub fn discard(&self, bytes: usize) {
        let length = bytes.to_string();
        run(Command::new("blkdiscard").args(["--length", &length, &self.path]));
    }

    /// Does something of every sort.
    pub fn of_all_sorts(&self) {
        self.read_direct(1000, 4096);
        self.write_direct(300, 64 << 10);
        self.sync();
        self.discard(1 << 20);
        // Large ones are split, neighbours are merged, and what is written back nobody asks for.
        self.read_direct(3, 4 << 20);
        self.write_buffered(16 << 20);
        self.sync();
    }

    /// Reads in requests of all sizes, so that it is not one duration.
    pub fn read_all_sizes(&self) {
        for size in [4 << 10, 64 << 10, 256 << 10, 1 << 20] {
            self.read_direct(700, size);
        }
    }

    /// A script that has bpftrace print how long the device had each request.
    pub fn durations_by_bpftrace(&self) -> String {
        let device = self.device();
        format!(
            "tracepoint:block:block_rq_issue /args->dev == {device}/ {{ @s[args->sector] = nsecs; }} \
             tracepoint:block:block_io_done /args->dev == {device} && @s[args->sector]/ {{ \
             printf(\"%lu\\n\", nsecs - @s[args->sector]); delete(@s[args->sector]); }} END {{ clear(@s); }}"
        )
    }

    fn open(&self, flags: i32) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags);
        options.open(&self.path).unwrap()
    }

    fn place(&self, time: usize, bytes: usize) -> u64 {
        (time * bytes) as u64 % (self.bytes - bytes as u64 + 1) / bytes as u64 * bytes as u64
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_loop {
            let _ = Command::new("losetup").args(["-d", &self.path]).status();
        }
        if let Some(file) = &self.file {
            let _ = fs::remove_file(file);
        }
    }
}

/// How far a quantile is off that of durations in their order, in percent.
pub fn percent_off(ours: u64, sorted: &[u64], quantile: f64) -> f64 {
    // The nearest of the ranks around it: in a tail of few, one duration may be twice the next.
    let rank = (sorted.len() as f64 * quantile).ceil() as usize - 1;
    let near = sorted[rank - 2..=rank + 2].iter();
    let off = near.map(|theirs| (ours as f64 / *theirs as f64 - 1.0) * 100.0);
    off.min_by(|one, other| one.abs().total_cmp(&other.abs()))
        .unwrap_or(f64::INFINITY)
}
