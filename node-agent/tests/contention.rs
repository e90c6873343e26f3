//! What containers wait for, by the accounts of this machine's kernel, as root: each waits for one thing as much as it is made to.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use ckb_probe_agent::{
    driver::engine::Engine,
    mechanism::Refusal,
    observe::{ContentionFiles, process},
    preflight::preflight,
};
use ckb_probe_core::contention::Accounts;
use ckb_probe_crds::{Assignment, Contention};
use ckb_probe_testkit::{Container, CpuLimit, Folder, PATIENCE, wait_until};
use serde_json::json;

const SPIN: [&str; 2] = ["-c", "while :; do :; done"];

/// Long enough for twenty periods of a CPU limit.
const INTERVAL: Duration = Duration::from_secs(2);

/// A process, until this is dropped.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn accounts(&self) -> ContentionFiles {
        let found = process(self.pid(), |_| true).unwrap().unwrap();
        ContentionFiles::open(found.id)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("not root: no cgroup can be made");
    }
    is_root
}

fn over(accounts: &ContentionFiles, interval: Duration) -> Contention {
    let before = accounts.read();
    thread::sleep(interval);
    accounts.read().since(&before)
}

#[test]
fn who_may_use_a_fifth_of_a_cpu_and_wants_all_is_throttled_and_who_wants_nothing_is_not() {
    if !is_root() {
        return;
    }
    let period = Duration::from_millis(100);
    let limits = [0, 1].map(|number| CpuLimit::new(number, period / 5, period));
    let [Some(of_busy), Some(of_idle)] = &limits else {
        eprintln!("nobody has the CPU controller of cgroups here: throttling cannot be made");
        return;
    };
    let busy = Running::start(Command::new("sh").args(SPIN));
    let idle = Running::start(Command::new("sleep").arg("600"));
    of_busy.adopt(busy.pid());
    of_idle.adopt(idle.pid());
    let [busy, idle] = [&busy, &idle].map(|one| {
        let accounts = one.accounts();
        let before = accounts.read();
        (accounts, before)
    });
    thread::sleep(INTERVAL);
    let [busy, idle] = [busy, idle].map(|(accounts, before)| accounts.read().since(&before));
    println!("{busy:?} {idle:?}");
    // Beside others it does not get its fifth in each period.
    let throttled = busy.throttled_millipercent.unwrap();
    assert!((50_000..=100_000).contains(&throttled), "{busy:?}");
    assert_eq!(idle.throttled_millipercent, Some(0));
}

#[test]
fn of_two_that_share_a_cpu_one_always_waits_and_who_sleeps_does_not() {
    if !is_root() {
        return;
    }
    let [busy, idle] = [1, 2].map(Container::new);
    let spins = || {
        let taskset = ["-c", "0", "sh"].into_iter().chain(SPIN);
        Running::start(&mut busy.command(Path::new("taskset"), taskset))
    };
    let (one, _other) = (spins(), spins());
    let sleeps = Running::start(&mut idle.command(Path::new("sleep"), ["600"]));
    for (running, name) in [(&one, "sh"), (&sleeps, "sleep")] {
        wait_until("the program", || {
            process(running.pid(), |found| found != "taskset")
                .unwrap()
                .is_some_and(|found| {
                    found.place.container.is_some()
                        && (name == "sh" || found.executable.contains("sleep"))
                })
        });
    }
    let told = over(&one.accounts(), INTERVAL);
    let of_idle = over(&sleeps.accounts(), INTERVAL);
    println!("{told:?} {of_idle:?}");
    let Some(waited) = told.cpu_wait_millipercent else {
        eprintln!("this kernel does not account for pressure: it is not known, and said so");
        assert_eq!(told.disk_wait_millipercent, None);
        return;
    };
    assert!((80_000..=100_000).contains(&waited), "{told:?}");
    assert!(told.disk_wait_millipercent.unwrap() < 20_000, "{told:?}");
    assert!(
        of_idle.cpu_wait_millipercent.unwrap() < 20_000,
        "{of_idle:?}"
    );
}

#[test]
fn segments_that_nobody_answers_are_sent_again_in_the_network_of_who_sends_them() {
    if !is_root() {
        return;
    }
    let sends = "ip link set lo up && iptables -A INPUT -i lo -p tcp -j DROP && exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/9'";
    let sends = Running::start(Command::new("unshare").args(["--net", "sh", "-c", sends]));
    let end = Instant::now() + Duration::from_secs(10);
    let is_called = |name: &str| {
        process(sends.pid(), |found| found == name)
            .unwrap()
            .is_some()
    };
    while !is_called("bash") && Instant::now() < end {
        thread::sleep(Duration::from_millis(5));
    }
    if !is_called("bash") {
        eprintln!("there is no iptables, or it drops nothing here: nothing is lost");
        return;
    }
    let accounts = sends.accounts();
    let mut again = accounts.read();
    wait_until("that it is sent again", || {
        again = accounts.read();
        again.segments.unwrap().again > 0
    });
    let segments = again.segments.unwrap();
    println!("{segments:?}");
    assert!(segments.sent >= 1 && segments.again <= 8, "{segments:?}");
    // It waits longer and longer, and sends nothing else.
    let mut later = again;
    wait_until("that it is sent once more", || {
        later = accounts.read();
        later.segments != again.segments
    });
    let told = later.since(&again);
    assert_eq!(told.retransmitted_millipercent, Some(100_000), "{told:?}");
}

#[test]
fn to_read_what_a_container_of_500_threads_waits_for_takes_no_longer_than_of_one() {
    if !is_root() {
        return;
    }
    let many = "for one in $(seq 499); do sleep 600 & done; echo runs; wait";
    let containers = [(3, many), (4, "echo runs; exec sleep 600")].map(|(number, script)| {
        Container::run_with(number, Path::new("/bin/sh"), &["-c", script], None)
    });
    let [many, one] = containers.each_ref().map(|container| {
        let found = process(container.pid(), |_| true).unwrap().unwrap();
        let accounts = ContentionFiles::open(found.id);
        // The shortest of several: the machine has other things to do.
        let times = (0..20).map(|_| {
            let began = Instant::now();
            for _ in 0..50 {
                accounts.read();
            }
            began.elapsed() / 50
        });
        times.min().unwrap()
    });
    println!("{many:?} of 500 threads, {one:?} of one");
    assert!(
        many < 2 * one + Duration::from_micros(50),
        "{many:?} {one:?}"
    );
}

/// Where cgroups of version 2 are mounted here, if they are.
fn hierarchy() -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mut mounts = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let found = mounts.find(|fields| fields[2] == "cgroup2");
    if found.is_none() {
        eprintln!("there are no cgroups of version 2 here");
    }
    found.map(|fields| fields[1].to_owned())
}

/// A container that does nothing.
fn asleep(number: u32) -> Container {
    let script = ["-c", "echo runs; exec sleep 600"];
    Container::run_with(number, Path::new("/bin/sh"), &script, None)
}

/// What is read of a container.
fn told(container: &Container) -> Accounts {
    let found = process(container.pid(), |_| true).unwrap().unwrap();
    ContentionFiles::open(found.id).read()
}

/// What a container makes of its own file system is not believed: of one that mounts something else over its cgroups nothing is known.
#[test]
fn accounts_that_are_not_the_kernels_are_not_read() {
    if !is_root() {
        return;
    }
    let Some(hierarchy) = hierarchy() else {
        return;
    };
    let forges = "path=$(sed -n s/^0:://p /proc/self/cgroup) && mount -t tmpfs none $0 && mkdir -p $0$path \
                  && for one in cpu io; do echo some total=7 > $0$path/$one.pressure; done && echo runs && exec sleep 600";
    let honest = asleep(6);
    let arguments = ["--mount", "sh", "-c", forges, &hierarchy];
    let hostile = Container::run_with(7, Path::new("/usr/bin/unshare"), &arguments, None);
    let [honest, hostile] = [&honest, &hostile].map(told);
    if honest.cpu_wait.is_none() {
        eprintln!("this kernel does not account for pressure");
    }
    assert_eq!((hostile.cpu_wait, hostile.disk_wait), (None, None));
    assert!(hostile.segments.is_some());
}

/// As a container's runtime has it: in a namespace of cgroups of its own, where that of the container is the root of all that is mounted.
#[test]
fn what_a_container_waits_for_is_found_where_it_sees_its_own_cgroup_alone() {
    if !is_root() {
        return;
    }
    let Some(hierarchy) = hierarchy() else {
        return;
    };
    let enters = "umount -l $0 && mount -t cgroup2 none $0 && echo runs && exec sleep 600";
    let arguments = ["--cgroup", "--mount", "sh", "-c", enters, &hierarchy];
    let inner = Container::run_with(8, Path::new("/usr/bin/unshare"), &arguments, None);
    let outer = asleep(9);
    let [inner, outer] = [&inner, &outer].map(told);
    if outer.cpu_wait.is_none() {
        eprintln!("this kernel does not account for pressure");
    }
    assert_eq!(inner.cpu_wait.is_some(), outer.cpu_wait.is_some());
    assert_eq!(inner.disk_wait.is_some(), outer.disk_wait.is_some());
    // It is the container's: at the root of all others have waited for hours.
    assert!(inner.cpu_wait < Some(Duration::from_secs(60)), "{inner:?}");
}

/// What agents report, from the order to the report.
#[tokio::test]
async fn a_report_has_what_the_container_waited_for_in_its_interval() {
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    let program = folder.compile("cc", "busy.c", "contended", &["-pthread"]);
    let container = Container::run(5, &program);
    let order = json!({
        "probe": { "namespace": "ckb", "name": "contended", "uid": "1" },
        "pod": { "namespace": "ckb", "name": "ckb-0", "uid": "pod" },
        "containers": [{ "name": "ckb", "id": container.id }],
        "executable": container.executable,
        "reportInterval": "1s",
        "overhead": { "maxPercent": 50.0, "onBreach": "Report" },
        "probes": [{ "name": "calls", "syscalls": {} }],
    });
    let order: Assignment = serde_json::from_value(order).unwrap();
    let mut engine = Engine::new(preflight(None).means.map_err(Refusal::from));
    engine.assign(vec![order]);
    let end = Instant::now() + PATIENCE;
    let told = loop {
        engine.receive();
        engine.step();
        if engine.close_windows()
            && let Some(told) = engine.reports().iter().find_map(|one| one.contention)
        {
            break told;
        }
        assert!(Instant::now() < end, "{:?}", engine.reports());
        thread::sleep(Duration::from_millis(20));
    };
    println!("{told:?}");
    let found = process(container.pid(), |_| true).unwrap().unwrap();
    let there = ContentionFiles::open(found.id).read();
    assert_eq!(
        told.cpu_wait_millipercent.is_some(),
        there.cpu_wait.is_some()
    );
    assert_eq!(
        told.throttled_millipercent.is_some(),
        there.throttling.is_some()
    );
    assert!(there.segments.is_some());
    engine.end();
}
