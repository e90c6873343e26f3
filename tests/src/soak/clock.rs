//! The wall clock of this machine, set and put right again.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

use crate::failure::{Failure, Result, expect};

/// Sets the wall clock so many seconds apart from the right time, for each line that it reads, and puts it right when there are
/// no more of them. A process of its own, which no Ctrl-C ends: it does so too where the test is killed.
const KEEPER: &str = "
import signal, sys, time
for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(one, signal.SIG_IGN)
def set(apart):
    time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_BOOTTIME) + right + apart)
right = time.clock_gettime(time.CLOCK_REALTIME) - time.clock_gettime(time.CLOCK_BOOTTIME)
for line in sys.stdin:
    set(float(line))
    print('set', flush=True)
set(0)
";

/// Off by less than this, it is the right time: what passes between two looks at a clock.
const EXACT: f64 = 1.0;

/// Who puts it right.
pub struct Clock {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    right: (SystemTime, Instant),
}

impl Clock {
    /// Notes what the time is.
    pub fn keep() -> Result<Self> {
        let mut child = Command::new("python3")
            .args(["-c", KEEPER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Failure::system("python3"))?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::format("the keeper of the clock")("no pipes"));
        };
        Ok(Self {
            child,
            orders: Some(orders),
            answers: BufReader::new(answers),
            right: (SystemTime::now(), Instant::now()),
        })
    }

    /// Sets it so far ahead, or behind, of the right time.
    pub fn set(&mut self, ahead: Duration, behind: Duration) -> Result<()> {
        let apart = ahead.as_secs_f64() - behind.as_secs_f64();
        let mut answer = String::new();
        if let Some(orders) = &mut self.orders {
            let what = "the keeper of the clock";
            writeln!(orders, "{apart}").map_err(Failure::system(what))?;
            let read = self.answers.read_line(&mut answer);
            read.map_err(Failure::system(what))?;
        }
        expect(answer == "set\n", "that the clock was set", || answer)?;
        self.expect(apart)
    }

    /// Puts it right.
    pub fn restore(mut self) -> Result<()> {
        self.end()?;
        self.expect(0.0)
    }

    fn end(&mut self) -> Result<()> {
        drop(self.orders.take());
        let ended = self.child.wait();
        let ended = ended.map_err(Failure::system("the keeper of the clock"))?;
        expect(ended.success(), "a clock put right", || ended)
    }

    fn expect(&self, apart: f64) -> Result<()> {
        let (then, since) = self.right;
        let right = then + since.elapsed();
        let now = SystemTime::now();
        let is = match now.duration_since(right) {
            Ok(ahead) => ahead.as_secs_f64(),
            Err(behind) => -behind.duration().as_secs_f64(),
        };
        expect(
            (is - apart).abs() < EXACT,
            format!("a clock {apart} s off"),
            || format!("{is} s"),
        )
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        // Where a fault broke off; it says why itself.
        let _ = self.end();
    }
}
