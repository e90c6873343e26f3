//! How a program stops at Ctrl-Z that has taken the signal to do something else before.

use std::{io, thread, time::Duration};

use nix::unistd::{Pid, getpgid, getpgrp, getppid, getsid};
use rustix::process::{Signal, getpid, kill_process};
use tokio::{runtime::Builder, time::timeout};

use crate::{interrupts::Interrupts, terminal::is_in_background};

/// Why who draws and has nothing attached is not suspended.
pub(crate) const NOBODY: &str = "not suspended: it has no shell that would have it go on";

/// What came while it was stopped comes as it goes on, and is known so soon after that.
const TOLD: Duration = Duration::from_millis(50);

/// The first process of all, or of a PID namespace.
const INIT: Pid = Pid::from_raw(1);

/// What has no number here, as it is from outside of the PID namespace.
const OUTSIDE: Pid = Pid::from_raw(0);

/// Whether anybody would have it go on: a shell of its session, outside of its process group. The kernel, too, spares orphaned groups at Ctrl-Z,
/// of which no process has a parent in another group of the session: who stops itself in one does so for good.
///
/// Without procfs only the parent of this process is known. Where that is of the same group (`sudo`, a script), the shell behind it is taken to be
/// there as long as the first process of the session is: that a shell within another one has left such a job is not seen. Where it is of another
/// session, that another process of the group has a shell is not seen: this one is not suspended then, and keeps within its budget.
pub fn is_resumable() -> bool {
    // Groups and sessions from outside of a PID namespace have the number 0 within it: a shell in a container often is of such a session.
    // rustix has no number for them.
    let Ok(session) = getsid(None) else {
        return false;
    };
    let (parent, group) = (getppid(), getpgrp());
    // Whoever is left behind has the first process of all for a parent, whose session may be from outside of the namespace, and has no number then.
    let is_left = parent == INIT && session != INIT;
    let is_outside = parent == OUTSIDE;
    if is_outside || group == session || is_left || getsid(Some(parent)) != Ok(session) {
        return false;
    }
    match getpgid(Some(parent)) {
        Ok(of_parent) if of_parent == group => session == OUTSIDE || getpgid(Some(session)).is_ok(),
        of_parent => of_parent.is_ok(),
    }
}

/// Stops all of this program until somebody has it go on, if anybody would. Whether it was stopped.
pub fn stop() -> bool {
    // One's own process can always be told so.
    is_resumable() && kill_process(getpid(), Signal::STOP).is_ok()
}

/// The same for who draws. In the background (`bg`) the kernel would stop it as soon as it takes the terminal, with all that it has attached again by
/// then: it goes on once the terminal is its own, or to end.
pub fn stop_until_it_may_draw() -> bool {
    let is_stopped = stop();
    while is_stopped && is_in_background() && !is_told_to_end() && stop() {}
    is_stopped
}

/// Whether somebody has just told it to end. By a thread of its own: the one that waits here is the one that hears of signals else.
fn is_told_to_end() -> bool {
    let told = thread::spawn(|| -> io::Result<bool> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut interrupts = Interrupts::new()?;
            Ok::<_, io::Error>(timeout(TOLD, interrupts.next()).await.is_ok())
        })
    });
    matches!(told.join(), Ok(Ok(true)))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::is_resumable;

    /// What is expected of the process that is asked, which is of these tests.
    const EXPECTED: &str = "CKB_PROBE_TEST_IS_RESUMABLE";
    const ASKED: &str = "suspension::tests::who_is_asked_answers_as_expected";

    #[test]
    fn who_is_asked_answers_as_expected() {
        if let Ok(expected) = std::env::var(EXPECTED) {
            assert_eq!(is_resumable().to_string(), expected);
        }
    }

    /// As by `unshare`, or with a shell that the first process of a machine began: rustix has no number for such a session.
    #[test]
    fn a_session_from_outside_of_the_pid_namespace_is_one_all_the_same() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let asked = std::env::current_exe().unwrap();
        let answers = |script: &str, expected: &str| {
            let mut first = Command::new("unshare");
            first.args(["--mount", "--pid", "--fork", "--mount-proc"]);
            // What follows keeps it from becoming the program itself.
            first.args(["bash", "-c", &format!("{script}; exit $?"), "bash"]);
            first.arg(&asked).args(["--exact", ASKED]);
            let output = first.env(EXPECTED, expected).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{script}: {said}");
            assert!(said.contains("1 passed"), "{said}");
        };
        // A job of a shell that goes on, one that is left to the first process, and one of the group that the session began.
        let shell = r#"bash -c 'set -m; "$@" & wait $!; exit $?' bash "$@""#;
        answers(shell, "true");
        answers(r#"set -m; "$@" & wait $!"#, "false");
        answers(r#"bash -c '"$@"; exit $?' bash "$@""#, "false");
    }
}
