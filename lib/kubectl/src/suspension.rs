//! How a program stops at Ctrl-Z that has taken the signal to do something else before.

use rustix::process::{Signal, getpgrp, getpid, getsid, kill_process};

/// Whether anybody would have it go on: in a process group of its own it has a shell that does. The kernel stops nobody else at Ctrl-Z either.
pub fn is_resumable() -> bool {
    getsid(None).is_ok_and(|session| session != getpgrp())
}

/// Stops all of this program until somebody has it go on, if anybody would.
pub fn stop() {
    if is_resumable() {
        // One's own process can always be told so.
        kill_process(getpid(), Signal::STOP).unwrap_or_default();
    }
}
