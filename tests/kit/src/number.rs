//! Numbers of processes that one has after another.

use std::{
    fs,
    process::{Child, Command},
};

/// The number that was given last: who writes it says which is next.
const LAST: &str = "/proc/sys/kernel/ns_last_pid";

/// Whether this process may choose numbers, which takes CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE.
pub fn may_be_chosen() -> bool {
    let last = fs::read_to_string(LAST);
    last.and_then(|last| fs::write(LAST, last)).is_ok()
}

/// Starts a command under this number, which nobody has; for who [may](may_be_chosen).
///
/// # Panics
/// When somebody has it after all.
pub fn under(number: u32, command: &mut Command) -> Child {
    for _ in 0..10_000 {
        fs::write(LAST, (number - 1).to_string()).unwrap();
        let mut child = command.spawn().unwrap();
        if child.id() == number {
            return child;
        }
        // Somebody else was quicker.
        child.kill().unwrap();
        child.wait().unwrap();
    }
    panic!("the number is taken");
}

/// When the process of this number began, in clock ticks since boot; 0 where there is none.
pub fn start_ticks(number: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    // Its name may have spaces.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let began = fields.split_whitespace().nth(19);
    began.map_or(0, |ticks| ticks.parse().unwrap())
}
