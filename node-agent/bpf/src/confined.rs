//! What probing the returns of a process that is confined by seccomp does to it on this kernel: tried on a child of this
//! program's own.
//!
//! On x86-64, Linux 6.11 and later lead a probed return through a page of the kernel's, which makes the system call
//! `uretprobe` (335). A filter that does not list it answers as it answers any unknown call, and the process dies of
//! that; until the kernel was taught to ask no filter about this one (6.14, and repaired releases before it). So a
//! version tells little, and trying it tells all.

use std::{
    io::{self, Write},
    os::{fd::AsFd, unix::process::ExitStatusExt},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Resource, Rlimit, Signal, getppid, set_parent_process_death_signal, setrlimit},
};
use seccompiler::{SeccompAction, SeccompFilter};

use super::{
    Probes, Slots, Tier,
    calibrate::{CalibrationError, USUAL, plan},
};

/// What a program of this project is called with when it is to be the child.
const ARGUMENT: &str = "confined-child";

/// What the child says once it is confined.
const READY: u8 = b'r';

/// What the child is told: call the function that is probed, and end.
const CALL: u8 = b'c';

/// How often it calls it. The first call kills it where any does.
const CALLS: u64 = 16;

/// The child is killed after so long: it needs a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the child may still do. Nobody lists `uretprobe`.
const ALLOWED: [libc::c_long; 5] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_rt_sigreturn,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// What became of the child.
#[derive(Debug)]
pub enum ConfinedReturn {
    /// It lives, and each of its calls was timed.
    Harmless,
    /// A signal killed it.
    Kills {
        /// The signal that ended the child.
        signal: i32,
    },
    /// It could not be tried.
    Unknown(ConfinedError),
}

impl ConfinedReturn {
    /// Whether the returns of confined processes are to be left alone: also where nothing is known.
    pub fn may_kill(&self) -> bool {
        match self {
            Self::Harmless => false,
            Self::Kills { .. } | Self::Unknown(_) => true,
        }
    }
}

/// Nothing can be said about confined processes.
#[derive(Debug, thiserror::Error)]
pub enum ConfinedError {
    /// There is no child, or none that answers.
    #[error("cannot start or reach a child of this program: {0}")]
    Child(#[from] io::Error),
    /// It ended before it was told to: this program did not call [`run_child_if_asked`], or the kernel has no seccomp.
    #[error("a child of this program could not confine itself ({0})")]
    NotConfined(ExitStatus),
    /// It did not do what it was told.
    #[error("a confined child of this program ended without having done its work ({0})")]
    Ended(ExitStatus),
    /// The child did not end in time.
    #[error("a confined child of this program did not answer within {} s", PATIENCE.as_secs())]
    Late,
}

/// Probes the returns of a confined child. Fails where the tier cannot be used at all.
pub(super) fn try_returns(tier: Tier) -> Result<ConfinedReturn, CalibrationError> {
    let first = try_once(tier)?;
    match first {
        // A machine under load, a limit that was just reached: not to be remembered for as long as the agent lives.
        ConfinedReturn::Unknown(_) => try_once(tier),
        known => Ok(known),
    }
}

fn try_once(tier: Tier) -> Result<ConfinedReturn, CalibrationError> {
    let mut subject = match Subject::start() {
        Ok(subject) => subject,
        Err(error) => return Ok(ConfinedReturn::Unknown(error)),
    };
    let mut probes = Probes::load(tier, &plan(&[USUAL], subject.child.id(), false)?)?;
    probes.attach(&Slots::from([0]))?;
    let status = match subject.tell(CALL) {
        Ok(status) => status,
        Err(error) => return Ok(ConfinedReturn::Unknown(error)),
    };
    let reading = probes.read()?;
    let timed = reading
        .slots
        .iter()
        .map(|slot| slot.histogram.count())
        .sum();
    judge(status, timed)
}

/// What the child's end says.
fn judge(status: ExitStatus, timed: u64) -> Result<ConfinedReturn, CalibrationError> {
    match (status.signal(), status.code()) {
        (Some(signal), _) => Ok(ConfinedReturn::Kills { signal }),
        (None, Some(0)) if timed == CALLS => Ok(ConfinedReturn::Harmless),
        // The tier does not work, for confined processes or for any.
        (None, Some(0)) => Err(CalibrationError::Miscounted {
            calls: CALLS,
            counted: timed,
        }),
        _ => Ok(ConfinedReturn::Unknown(ConfinedError::Ended(status))),
    }
}

/// The child as its parent sees it. Dropping it ends it.
struct Subject {
    child: Child,
    deadline: Instant,
}

impl Subject {
    /// Starts a child and waits until it is confined.
    fn start() -> Result<Self, ConfinedError> {
        let child = Command::new("/proc/self/exe")
            .arg(ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut subject = Self {
            child,
            deadline: Instant::now() + PATIENCE,
        };
        match subject.hear()? {
            Some(READY) => Ok(subject),
            _ => Err(ConfinedError::NotConfined(subject.end()?)),
        }
    }

    /// Tells the child what to do, and waits for its end.
    fn tell(&mut self, order: u8) -> Result<ExitStatus, ConfinedError> {
        // Attaching may have taken the kernel a while, which is not the child's fault.
        self.deadline = Instant::now() + PATIENCE;
        if let Some(mut input) = self.child.stdin.take() {
            input.write_all(&[order])?;
        }
        self.end()
    }

    /// The child's next byte; None when it has closed its output, as it does when it ends.
    fn hear(&mut self) -> Result<Option<u8>, ConfinedError> {
        let Some(output) = &self.child.stdout else {
            return Ok(None);
        };
        let patience = self.deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(patience).map_err(io::Error::other)?;
        let mut ready = [PollFd::new(output, PollFlags::IN)];
        if poll(&mut ready, Some(&timeout)).map_err(io::Error::from)? == 0 {
            return Err(ConfinedError::Late);
        }
        let mut byte = [0];
        let read = rustix::io::read(output, &mut byte).map_err(io::Error::from)?;
        Ok((read > 0).then_some(byte[0]))
    }

    /// Waits for the child's end.
    fn end(&mut self) -> Result<ExitStatus, ConfinedError> {
        while self.hear()?.is_some() {}
        Ok(self.child.wait()?)
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // Both do nothing when it has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes this process the child, if it was started as such, and does not return then. To be called first of all by any
/// program that does a preflight.
pub fn run_child_if_asked() {
    if std::env::args_os().nth(1).is_some_and(|is| is == ARGUMENT) {
        let code = i32::from(be_the_child().is_err());
        // SAFETY: it has no preconditions. Unlike `std::process::exit`, it makes no other system call.
        unsafe { libc::_exit(code) }
    }
}

fn be_the_child() -> io::Result<()> {
    // The parent's end closes the pipe too; whichever comes first.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Should it be killed, it is to leave no core file behind.
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    let (input, output) = (io::stdin(), io::stdout());
    confine()?;
    rustix::io::write(output.as_fd(), &[READY])?;
    let mut order = [0];
    match rustix::io::read(input.as_fd(), &mut order)? {
        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
        _ if order == [CALL] => USUAL.call(CALLS),
        // What the filter forbids, for the test that it does.
        _ => drop(getppid()),
    }
    Ok(())
}

/// Forbids this process all but what is allowed, on pain of death.
fn confine() -> io::Result<()> {
    let architecture = std::env::consts::ARCH
        .try_into()
        .map_err(io::Error::other)?;
    let rules = ALLOWED.map(|call| (call, Vec::new())).into();
    let (otherwise, listed) = (SeccompAction::KillProcess, SeccompAction::Allow);
    let filter = SeccompFilter::new(rules, otherwise, listed, architecture);
    let program = filter.and_then(TryInto::try_into);
    let program: seccompiler::BpfProgram = program.map_err(io::Error::other)?;
    seccompiler::apply_filter(&program).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    // wait(2)'s encoding: the signal in the low bits, or the exit code above them.
    fn killed(signal: i32) -> ExitStatus {
        ExitStatus::from_raw(signal)
    }

    fn exited(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn returns_are_harmless_when_the_child_lives_and_all_of_its_calls_were_timed() {
        let verdict = judge(exited(0), CALLS);
        assert!(matches!(verdict, Ok(ConfinedReturn::Harmless)));
        assert!(!verdict.unwrap().may_kill());
    }

    #[test]
    fn a_signal_says_that_returns_kill_whatever_was_counted() {
        for counted in [0, 1, CALLS] {
            let verdict = judge(killed(libc::SIGSYS), counted);
            let signal = libc::SIGSYS;
            assert!(matches!(verdict, Ok(ConfinedReturn::Kills { signal: is }) if is == signal));
            assert!(verdict.unwrap().may_kill());
        }
    }

    #[test]
    fn a_child_that_did_not_do_its_work_proves_nothing_and_so_its_like_are_spared() {
        let verdict = judge(exited(1), CALLS);
        assert!(matches!(verdict, Ok(ConfinedReturn::Unknown(_))));
        assert!(verdict.unwrap().may_kill());
    }

    #[test]
    fn a_tier_that_misses_calls_of_a_confined_process_is_not_to_be_used() {
        let verdict = judge(exited(0), CALLS - 1);
        let Err(CalibrationError::Miscounted { calls, counted }) = verdict else {
            panic!("{verdict:?}");
        };
        assert_eq!((calls, counted), (CALLS, CALLS - 1));
    }

    #[test]
    fn a_program_that_does_not_become_the_child_when_asked_is_told_from_one_that_was_killed() {
        // The program of these tests takes the argument for the name of a test, runs none, and ends in peace.
        let Err(ConfinedError::NotConfined(status)) = Subject::start() else {
            panic!("the test program confined itself");
        };
        assert!(status.success());
    }
}
