//! A terminal, by tmux: what a program draws on it is read as a person would.

use std::{
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::PATIENCE;

/// One with a shell in it. It is closed as it is dropped.
pub struct Terminal(String);

impl Terminal {
    /// Opens one of this size.
    pub fn open(width: u16, height: u16) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let terminal = Self(format!("ckb-probe-{}-{count}", std::process::id()));
        let [width, height] = [width, height].map(|cells| cells.to_string());
        terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &width,
            "-y",
            &height,
            "env PS1='$ ' LC_ALL=C.UTF-8 sh",
        ]);
        terminal.until("a prompt", |seen| seen.starts_with('$'));
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.args(["-u", "-L", &self.0]).args(arguments);
        let output = command.env("LC_ALL", "C.UTF-8").output();
        let output =
            output.unwrap_or_else(|error| panic!("tmux: {error}: run scripts/setup.sh unit"));
        assert!(output.status.success(), "tmux {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap_or_default()
    }

    /// What is seen.
    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Types this, as a person would.
    pub fn write(&self, text: &str) {
        self.tmux(&["send-keys", "-l", "--", text]);
    }

    /// Presses a key, by the name that tmux has for it, such as `Enter` or `C-c`.
    pub fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// Types a command, and Enter.
    pub fn run(&self, command: &str) {
        // At once: what is typed while another command ends stands before the next prompt.
        self.tmux(&["send-keys", "-l", "--", command, ";", "send-keys", "Enter"]);
    }

    /// Gives it another size.
    pub fn resize(&self, width: u16, height: u16) {
        let [width, height] = [width, height].map(|cells| cells.to_string());
        self.tmux(&["resize-window", "-x", &width, "-y", &height]);
    }

    /// Whether a program has the whole screen, and what was there before comes back when it ends.
    pub fn is_taken(&self) -> bool {
        self.tmux(&["display-message", "-p", "#{alternate_on}"])
            .trim()
            == "1"
    }

    /// Waits until what is seen is like this; returns it.
    ///
    /// # Panics
    /// When it never is.
    pub fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let seen = self.screen();
            if is_so(&seen) {
                return seen;
            }
            assert!(Instant::now() < end, "{what}:\n{seen}");
            sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(
            Command::new("tmux")
                .args(["-L", &self.0, "kill-server"])
                .output(),
        );
    }
}
