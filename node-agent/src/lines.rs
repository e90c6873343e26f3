//! Lines for somebody who may read them slowly, or not at all.
//!
//! What a container prints goes into a pipe, and that is full as soon as the runtime reads no more of it, such as where the disk is full or
//! slow that it writes the log to. Whoever waited for room would neither keep targets within their budgets nor report on them meanwhile. So
//! a thread of its own writes, what there is no room for is left out, and how much that was is said as soon as somebody reads again.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

/// So many bytes of lines wait at the most: those of some targets at once, each of which may write a thousand.
const WAITING: usize = 4 << 20;

/// So long a program waits at its end for whoever reads them.
pub const LAST_LINES: Duration = Duration::from_secs(1);

/// Where lines go. Each handle leads to the same thread.
#[derive(Clone, Debug)]
pub struct Lines {
    jobs: Sender<Job>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Bytes.
    waiting: AtomicUsize,
    /// Lines, since that was last said.
    left_out: AtomicU64,
}

#[derive(Debug)]
enum Job {
    /// With its end.
    Write(Vec<u8>),
    /// Says that all that came before is written.
    Tell(Sender<()>),
}

impl Lines {
    /// They go there; `notice` makes a line of how many were left out.
    pub fn to(
        out: impl Write + Send + 'static,
        notice: impl Fn(u64) -> String + Send + 'static,
    ) -> io::Result<Self> {
        let (jobs, waiting) = channel();
        let shared = Arc::<Shared>::default();
        let lines = Self {
            jobs,
            shared: shared.clone(),
        };
        thread::Builder::new()
            .name("lines".to_owned())
            .spawn(move || write_all(&waiting, out, &shared, &notice))?;
        Ok(lines)
    }

    /// Whether there is room for it. If not, it is left out.
    pub fn offer(&self, line: Vec<u8>) -> bool {
        let bytes = line.len();
        let before = self.shared.waiting.fetch_add(bytes, Ordering::Relaxed);
        let is_taken = before + bytes <= WAITING && self.jobs.send(Job::Write(line)).is_ok();
        if !is_taken {
            self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
            self.shared.left_out.fetch_add(1, Ordering::Relaxed);
        }
        is_taken
    }

    /// Waits until all of them are written, for so long at the most.
    pub fn flush(&self, patience: Duration) {
        let (tell, told) = channel();
        if self.jobs.send(Job::Tell(tell)).is_ok() {
            let _ = told.recv_timeout(patience);
        }
    }
}

/// For what writes a whole line at a time.
impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.offer(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Until no handle is left. Where nobody can read any more, there is nobody to tell.
fn write_all(
    jobs: &Receiver<Job>,
    mut out: impl Write,
    shared: &Shared,
    notice: &impl Fn(u64) -> String,
) {
    for job in jobs {
        match job {
            Job::Write(line) => {
                drop(out.write_all(&line));
                shared.waiting.fetch_sub(line.len(), Ordering::Relaxed);
            }
            Job::Tell(told) => drop(told.send(())),
        }
        let missing = shared.left_out.swap(0, Ordering::Relaxed);
        if missing > 0 {
            drop(writeln!(out, "{}", notice(missing)));
        }
        drop(out.flush());
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, pipe},
        time::Instant,
    };

    use super::*;

    #[test]
    fn whoever_reads_nothing_holds_nobody_up_and_learns_of_what_was_left_out() {
        const ALL: usize = 10_000;
        let (reader, writer) = pipe().unwrap();
        let lines = Lines::to(writer, |count| format!("{count} left out")).unwrap();
        let began = Instant::now();
        let taken = (0..ALL)
            .filter(|number| lines.offer(format!("{number:0999}\n").into_bytes()))
            .count();
        lines.flush(Duration::from_millis(10));
        assert!(began.elapsed() < Duration::from_secs(5), "nobody waits");
        // What waits, and what a pipe has room for.
        let most = (WAITING + (1 << 20)) / 1000;
        assert!((WAITING / 1000..most).contains(&taken), "{taken}");
        // It goes on as soon as somebody reads.
        let reader = thread::spawn(move || {
            let read = BufReader::new(reader).lines().map_while(Result::ok);
            let read = read.map(|line| match line.strip_suffix(" left out") {
                Some(count) => Err(count.parse::<usize>().unwrap()),
                None => Ok(line.parse::<usize>().unwrap()),
            });
            read.collect::<Vec<_>>()
        });
        while !lines.offer(format!("{ALL}\n").into_bytes()) {
            thread::sleep(Duration::from_millis(1));
        }
        drop(lines);
        let read = reader.join().unwrap();
        let written: Vec<usize> = read.iter().filter_map(|line| line.ok()).collect();
        assert!(written.is_sorted());
        assert_eq!((written.len(), written.last()), (taken + 1, Some(&ALL)));
        let left_out: usize = read.iter().filter_map(|line| line.err()).sum();
        assert!(left_out >= ALL - taken, "{left_out} of {}", ALL - taken);
    }

    #[test]
    fn what_was_offered_is_written_before_it_is_over() {
        let (mut reader, writer) = pipe().unwrap();
        let lines = Lines::to(writer, |_| String::new()).unwrap();
        assert!(lines.offer(b"a line\n".to_vec()));
        lines.flush(Duration::from_secs(60));
        let mut text = [0; 7];
        io::Read::read_exact(&mut reader, &mut text).unwrap();
        assert_eq!(&text, b"a line\n");
    }
}
