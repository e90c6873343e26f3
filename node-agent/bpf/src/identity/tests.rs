//! Of each program that goes by the number of a process: what a later one of that number does is not counted as what the earlier one did,
//! though nobody in user space has noticed that that one has ended.

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use ckb_probe_common::is_since;
use ckb_probe_testkit::{disk::Disk, number::under};

use super::*;
use crate::{
    Disks, SocketWatch,
    stacks::{Sampled, Stacks, Taken},
    syscalls::{SyscallOptions, SyscallSizes, SyscallTracer},
};

#[test]
fn a_time_namespace_says_how_far_its_clock_is_ahead() {
    let offsets = "monotonic           0         0\nboottime         -2 500000000\n";
    assert_eq!(offset_in(offsets), Some(-1_500_000_000));
    assert_eq!(offset_in(""), None);
    assert_eq!(offset_in("boottime 1"), None);
}

#[test]
fn who_began_in_another_tick_is_another() {
    let Identity { since_ns, .. } = Identity::new(7, 100);
    assert_ne!(Identity::new(7, 100), Identity::new(7, 101));
    assert!(is_since(since_ns, since_ns) && is_since(since_ns + TICK_NS - 1, since_ns));
    assert!(!is_since(since_ns + TICK_NS, since_ns) && !is_since(since_ns - 1, since_ns));
}

/// A process that ends, and another that has its number then.
struct Numbered {
    child: Child,
    identity: Identity,
    _turn: MutexGuard<'static, ()>,
}

fn shell(commands: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", commands]).stdin(Stdio::null());
    command
}

impl Numbered {
    fn run(commands: &str) -> Self {
        /// One at a time, so that none gets what is another's next.
        static TURNS: Mutex<()> = Mutex::new(());
        let turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        let child = shell(commands).spawn().unwrap();
        let identity = Identity::of_now(child.id()).unwrap();
        Self {
            child,
            identity,
            _turn: turn,
        }
    }

    fn end(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        // A tick is what tells it from the next one.
        thread::sleep(Duration::from_millis(20));
    }

    /// Another runs this, to its end.
    fn replace(&mut self, commands: &str) {
        self.child = under(self.identity.number, &mut shell(commands));
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until(mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end);
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn system_calls() {
    let sizes = SyscallSizes {
        rows: 8,
        errors: 8,
        ring_bytes: 4096,
    };
    let mut tracer = SyscallTracer::load(&sizes).unwrap();
    let mut process = Numbered::run("while :; do echo >/dev/null; done");
    let options = SyscallOptions::default();
    let target = tracer.add_target(process.identity, &options).unwrap();
    tracer.attach().unwrap();
    tracer.set_gate(target, true).unwrap();
    until(|| tracer.hits(target).unwrap().taken > 100);
    process.end();
    let before = tracer.hits(target).unwrap();
    process.replace("for i in {1..500}; do echo >/dev/null; done");
    assert_eq!(tracer.hits(target).unwrap(), before);
}

/// How often it was met by now.
fn met(stacks: &Stacks) -> u64 {
    let Taken { met, written, .. } = stacks.taken().unwrap();
    met + written
}

#[test]
fn stacks_of_who_runs_and_of_who_touches_pages() {
    const SPIN: &str = "for i in {1..200000}; do :; done";
    let period = Duration::from_millis(4);
    for sampled in [Sampled::Running { period }, Sampled::Faults { one_in: 1 }] {
        let mut process = Numbered::run("while :; do for i in {1..1000}; do :; done; (:); done");
        let stacks = Stacks::begin(process.identity, sampled).unwrap();
        until(|| met(&stacks) > 3);
        process.end();
        let before = met(&stacks);
        process.replace(SPIN);
        assert_eq!(met(&stacks), before, "{sampled:?}");
    }
}

#[test]
fn stacks_of_who_waits() {
    let mut process = Numbered::run("exec sleep 1000");
    let skip_unchanged = false;
    let mut stacks = Stacks::begin(process.identity, Sampled::All { skip_unchanged }).unwrap();
    let mut threads = || {
        let mut seen = 0;
        stacks.pass(|_, _| seen += 1).unwrap();
        seen
    };
    assert_eq!(threads(), 1);
    process.end();
    process.child = under(process.identity.number, &mut shell("exec sleep 1000"));
    assert_eq!(threads(), 0);
    process.identity = Identity::of_now(process.identity.number).unwrap();
    let mut stacks = Stacks::begin(process.identity, Sampled::All { skip_unchanged }).unwrap();
    let mut seen = 0;
    stacks.pass(|_, _| seen += 1).unwrap();
    assert_eq!(seen, 1);
}

#[test]
fn sockets() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut watch = SocketWatch::load().unwrap();
    watch.attach().unwrap();
    let mut process = Numbered::run("exec sleep 1000");
    watch.enroll(process.identity, 0).unwrap();
    watch.add(process.identity).unwrap();
    let passes = watch.over(process.identity.number).unwrap();
    process.end();
    // It says so when it is connected, and then waits.
    let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; echo; read -u 3");
    let mut connecting = shell(&connect);
    connecting.stdout(Stdio::piped());
    process.child = under(process.identity.number, &mut connecting);
    let mut told = String::new();
    let output = process.child.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut told).unwrap();
    let found = passes.pass().unwrap();
    assert_eq!((found.sockets, found.left_out), (vec![], 0));
    assert_eq!(watch.changed(), []);
    // As its own they are known.
    watch
        .add(Identity::of_now(process.identity.number).unwrap())
        .unwrap();
    assert_eq!(passes.pass().unwrap().sockets.len(), 1);
}

#[test]
fn requests_to_disks() {
    const NUMBER: u16 = 7;
    let disk = Disk::new(8);
    let mut disks = Disks::load().unwrap();
    disks.attach().unwrap();
    let mut process = Numbered::run("exec sleep 1000");
    disks.own(process.identity, NUMBER, 1).unwrap();
    process.end();
    let read = format!(
        "exec dd if={} of=/dev/null bs=4096 count=20 iflag=direct status=none",
        disk.path()
    );
    process.replace(&read);
    disk.at_rest();
    let counts = |disks: &mut Disks| {
        let slots = disks.read().unwrap().into_iter();
        let slots = slots.filter(|slot| slot.disk == disk.name() && slot.queue.count() > 0);
        slots
            .map(|slot| (slot.owner, slot.queue.count()))
            .collect::<Vec<_>>()
    };
    assert_eq!(counts(&mut disks), [(0, 20)]);
    process.child = under(
        process.identity.number,
        shell(&format!("read; {read}")).stdin(Stdio::piped()),
    );
    disks
        .own(
            Identity::of_now(process.identity.number).unwrap(),
            NUMBER,
            1,
        )
        .unwrap();
    drop(process.child.stdin.take());
    process.child.wait().unwrap();
    disk.at_rest();
    assert_eq!(counts(&mut disks), [(0, 20), (NUMBER, 20)]);
}
