//! `tcp` on this machine's kernel, as root: exact counts of connections with known bytes, between processes of these tests.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "where it panics, a test fails"
)]

mod actor;
#[path = "../begun/mod.rs"]
mod begun;
mod watched;

use std::{
    io::{BufRead as _, BufReader},
    net::Ipv4Addr,
    process::{Command, Stdio},
    time::Duration,
};

use actor::Actor;
use ckb_probe_agent::{kernel::SocketWatch, mechanism::Node};
use ckb_probe_crds::kinds::tcp::{GroupBy, TcpProbe};
use ckb_probe_testkit::{Folder, run};
use watched::{Count, Watched};

/// Bytes that say how many are to come and to go.
const HEADER: u64 = 16;

fn by(group_by: GroupBy) -> TcpProbe {
    TcpProbe {
        group_by,
        ..TcpProbe::default()
    }
}

/// After this, the next reading looks at the sockets again.
fn wait_for_a_pass() {
    std::thread::sleep(Duration::from_millis(1100));
}

#[test]
fn a_thousand_short_connections_are_all_counted_without_a_look_between() {
    let (mut client, mut server) = (Actor::start(), Actor::start());
    let port = server.listen("127.0.0.1");
    let mut of_client = Watched::of(&client, &by(GroupBy::LocalPort));
    let mut of_server = Watched::of(&server, &by(GroupBy::LocalPort));
    client.talk(&format!("127.0.0.1:{port}"), 1000, 10, 20);
    server.settle(1000);
    for (watched, row, listening) in [
        (&mut of_client, "outgoing".to_string(), 0),
        (&mut of_server, port.to_string(), 1),
    ] {
        let counts = watched.counts();
        let [(seen, part, count)] = &counts.iter().collect::<Vec<_>>()[..] else {
            panic!("{counts:?}");
        };
        assert_eq!((seen, part.as_str()), (&row, ""));
        assert_eq!((count.opened, count.closed), (1000, 1000));
        assert_eq!((count.lifetimes, count.failed, count.lost), (1000, 0, 0));
        assert_eq!(count.sent + count.received, 1000 * (HEADER + 10 + 20));
        assert_eq!((count.connections, count.listening), (0, listening));
    }
}

#[test]
fn who_connects_without_end_takes_nothing_from_others() {
    const MANY: u32 = 12_000;
    const FEW: u32 = 200;
    let (mut hostile, mut other, mut server) = (Actor::start(), Actor::start(), Actor::start());
    let peer = format!("127.0.0.1:{}", server.listen("127.0.0.1"));
    let node = Node::default();
    let probe = by(GroupBy::LocalPort);
    let mut of_hostile = Watched::on(&node, "hostile", hostile.pid(), &probe);
    let mut of_other = Watched::on(&node, "other", other.pid(), &probe);
    // Nobody takes anything out of the ring meanwhile.
    hostile.talk(&peer, MANY, 1, 1);
    other.talk(&peer, FEW, 1, 1);
    server.settle((MANY + FEW).into());
    let count = |watched: &mut Watched| {
        let counts = watched.counts();
        let only = counts.iter().next().unwrap().2;
        (only.opened, only.closed, only.lost)
    };
    assert_eq!(count(&mut of_other), (FEW.into(), FEW.into(), 0));
    let (opened, closed, lost) = count(&mut of_hostile);
    assert_eq!(opened + closed + lost, 2 * u64::from(MANY));
    assert!(lost > 0);
    // Its room is there again.
    hostile.talk(&peer, FEW, 1, 1);
    server.settle((MANY + 2 * FEW).into());
    let more = u64::from(FEW);
    assert_eq!(count(&mut of_hostile), (opened + more, closed + more, lost));
}

#[test]
fn open_connections_are_told_and_count_from_where_they_stand() {
    let (mut client, mut server) = (Actor::start(), Actor::start());
    let port = server.listen("127.0.0.1");
    let peer = format!("127.0.0.1:{port}");
    client.open(&peer, 3, 5000);
    let mut watched = Watched::of(&client, &by(GroupBy::RemoteAddress));
    client.open(&peer, 4, 100);
    wait_for_a_pass();
    let expected = Count {
        connections: 7,
        established: 7,
        opened: 4,
        sent: 4 * (HEADER + 100),
        ..Count::default()
    };
    let told = |counts: &std::collections::BTreeSet<(String, String, Count)>| {
        let mut told = counts
            .iter()
            .map(|(_, _, count)| *count)
            .collect::<Vec<_>>();
        assert_eq!(told.len(), 1);
        told.remove(0)
    };
    assert_eq!(told(&watched.counts()), expected);
    // Seven now, and three at the first look.
    assert_eq!(watched.round_trips(), 10);
    client.close();
    server.settle(7);
    let expected = Count {
        opened: 4,
        closed: 7,
        sent: 4 * (HEADER + 100),
        lifetimes: 7,
        ..Count::default()
    };
    wait_for_a_pass();
    assert_eq!(told(&watched.counts()), expected);
}

#[test]
fn a_connect_that_a_listening_socket_drops_failed_at_the_other_end() {
    let (mut client, mut server) = (Actor::start(), Actor::start());
    // The kernel holds some 130 for it.
    let port = server.idle("127.0.0.1");
    let mut of_client = Watched::of(&client, &by(GroupBy::LocalPort));
    let mut of_server = Watched::of(&server, &by(GroupBy::LocalPort));
    let failed = client.rush(&format!("127.0.0.1:{port}"), 140);
    assert!((5..20).contains(&failed), "{failed}");
    wait_for_a_pass();
    let counts = of_client.counts();
    let (_, _, count) = counts.first().unwrap();
    let told = (count.failed, count.dropped, count.opened);
    assert_eq!(told, (failed, 0, 140 - failed));
    let counts = of_server.counts();
    let (row, _, count) = counts.first().unwrap();
    assert_eq!(row, &port.to_string());
    // None of them has been accepted: no file of the process is one of them.
    let told = (count.failed, count.dropped, count.opened);
    assert_eq!(told, (0, failed, 140 - failed));
    assert_eq!((count.connections, count.listening), (0, 1));
}

#[test]
fn what_a_scanner_sends_to_a_listening_socket_is_no_connect_that_failed() {
    let folder = Folder::new();
    let scanner = folder.compile("cc", "resets.c", "resets", &[]);
    let mut server = Actor::start();
    let port = server.listen("127.0.0.1");
    let mut watched = Watched::of(&server, &by(GroupBy::LocalPort));
    run(Command::new(scanner).args([&port.to_string(), "1000"]));
    wait_for_a_pass();
    let counts = watched.counts();
    let (_, _, count) = counts.first().unwrap();
    assert_eq!((count.failed, count.dropped, count.opened), (0, 1000, 0));
}

#[test]
fn only_the_ports_that_are_asked_for_are_told() {
    let (mut client, mut server) = (Actor::start(), Actor::start());
    let (first, second) = (server.listen("127.0.0.1"), server.listen("127.0.0.1"));
    let only = TcpProbe {
        group_by: GroupBy::LocalPort,
        local_ports: vec![second],
    };
    let mut watched = Watched::of(&server, &only);
    client.talk(&format!("127.0.0.1:{first}"), 3, 1, 1);
    client.talk(&format!("127.0.0.1:{second}"), 2, 1, 1);
    server.settle(5);
    let counts = watched.counts();
    let rows: Vec<_> = counts
        .iter()
        .map(|(row, _, count)| (row, count.closed))
        .collect();
    assert_eq!(rows, [(&second.to_string(), 2)]);
}

#[test]
fn rows_are_bounded_and_the_rest_is_in_other() {
    let (mut client, mut server) = (Actor::start(), Actor::start());
    let port = server.listen("0.0.0.0");
    let mut watched = Watched::of(&client, &by(GroupBy::RemoteAddress));
    for number in 0..300_u32 {
        let address = Ipv4Addr::from(0x7f00_0101 + number);
        client.talk(&format!("{address}:{port}"), 1, 1, 1);
    }
    let counts = watched.counts();
    assert_eq!(counts.len(), 128);
    let other = counts.iter().find(|(row, ..)| row == "other").unwrap();
    assert_eq!(other.2.closed, 300 - 127);
    assert_eq!(
        counts.iter().map(|(_, _, count)| count.closed).sum::<u64>(),
        300
    );
}

#[test]
fn a_process_of_another_network_is_measured_from_here_as_ss_does_there() {
    let network = Network::make("ckb-probe-tcp");
    let mut server = Actor::start_in(network.name);
    let mut client = Actor::start();
    for (address, row) in [("10.98.7.2", "10.98.7.0/24"), ("fd98:7::2", "fd98:7::/56")] {
        let port = server.listen(address);
        let mut watched = Watched::of(&server, &by(GroupBy::RemoteNetwork));
        client.talk(
            &format!("{}:{port}", bracketed(address)),
            20,
            40_000,
            50_000,
        );
        server.settle(20);
        let counts = watched.counts();
        let own = counts.iter().find(|(seen, ..)| seen == row).unwrap();
        let expected = Count {
            opened: 20,
            closed: 20,
            sent: 20 * 50_000,
            received: 20 * (HEADER + 40_000),
            lifetimes: 20,
            ..Count::default()
        };
        assert_eq!(own, &(row.to_string(), port.to_string(), expected));
        client.open(&format!("{}:{port}", bracketed(address)), 2, 123_456);
    }
    // At rest: the same as ss.
    server.settle_bytes(4);
    std::thread::sleep(Duration::from_millis(300));
    let watch = SocketWatch::load().unwrap();
    let ours = watch.over(server.pid()).unwrap().pass().unwrap().sockets;
    // The clock is read once for all of them.
    assert!(ours.iter().all(|one| one.time_ns == ours[0].time_ns));
    assert!(ours[0].time_ns > 0);
    let mut ours: Vec<String> = ours
        .iter()
        .filter(|one| one.state == 1)
        .map(|one| {
            format!(
                "{} {} {} {:.3} {}",
                one.remote_port,
                one.bytes_sent,
                one.bytes_received,
                f64::from(one.rtt >> 3) / 1000.0,
                one.retransmits
            )
        })
        .collect();
    let mut theirs = network.ss();
    ours.sort();
    theirs.sort();
    assert_eq!(ours.len(), 4);
    assert_eq!(ours, theirs);
}

#[test]
fn ten_thousand_sockets_are_told_one_by_one() {
    let mut target = Actor::start();
    let port = target.hold("127.0.0.1");
    target.open(&format!("127.0.0.1:{port}"), 5000, 0);
    target.settle(0);
    let mut watched = Watched::of(&target, &by(GroupBy::LocalPort));
    wait_for_a_pass();
    let counts = watched.counts();
    let all: u64 = counts.iter().map(|(_, _, count)| count.connections).sum();
    assert_eq!(all, 10_000);
}

/// Of each row.
fn listening_and_lost(watched: &mut Watched) -> Vec<(u64, u64)> {
    let counts = watched.counts();
    let both = counts
        .iter()
        .map(|(_, _, count)| (count.listening, count.lost));
    both.collect()
}

#[test]
fn a_socket_is_told_once_however_many_descriptors_there_are_of_it() {
    let (target, descriptors) = Descriptors::of_tables(1);
    assert!(descriptors > 1000);
    let watch = SocketWatch::load().unwrap();
    let passes = watch.over(target.pid()).unwrap();
    for _ in 0..2 {
        let pass = passes.pass().unwrap();
        assert_eq!((pass.sockets.len(), pass.left_out), (1, 0));
    }
    let mut watched = Watched::of_process(target.pid(), &by(GroupBy::LocalPort));
    wait_for_a_pass();
    assert_eq!(listening_and_lost(&mut watched), [(1, 0)]);
}

#[test]
fn a_pass_ends_after_so_many_descriptors_and_says_that_there_are_more() {
    // More than containerd lets a container have in one table.
    let tables = 1_100_000_u64.div_ceil(Descriptors::of_tables(1).1);
    let (target, descriptors) = Descriptors::of_tables(tables);
    assert!(descriptors > 1 << 20);
    let watch = SocketWatch::load().unwrap();
    let passes = watch.over(target.pid()).unwrap();
    let before = resident();
    for _ in 0..2 {
        let begun = std::time::Instant::now();
        let pass = passes.pass().unwrap();
        println!("of {descriptors} descriptors: {:?}", begun.elapsed());
        assert_eq!((pass.sockets.len(), pass.left_out), (1, 1));
    }
    let mut watched = Watched::of_process(target.pid(), &by(GroupBy::LocalPort));
    for _ in 0..2 {
        wait_for_a_pass();
        assert_eq!(listening_and_lost(&mut watched), [(1, 1)]);
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes");
}

#[test]
fn sockets_beyond_what_there_is_memory_for_are_told_as_lost() {
    const TOLD: u64 = 16_384;
    let mut target = Actor::start();
    target.listen_often(17_000);
    let mut watched = Watched::of(&target, &by(GroupBy::RemoteAddress));
    for _ in 0..2 {
        wait_for_a_pass();
        let counts = watched.counts();
        let listening: u64 = counts.iter().map(|(_, _, count)| count.listening).sum();
        assert_eq!(listening, TOLD);
        // The same ones each time.
        assert!(
            counts
                .iter()
                .all(|(_, _, count)| count.lost == 17_000 - TOLD)
        );
    }
}

/// A process with as many descriptors of one socket as its limit allows.
struct Descriptors {
    process: std::process::Child,
    _folder: Folder,
}

impl Descriptors {
    /// That many in each of so many tables; how many they are in all.
    fn of_tables(tables: u64) -> (Self, u64) {
        let folder = Folder::new();
        let program = folder.compile("cc", "descriptors.c", "descriptors", &["-pthread"]);
        let process = Command::new(program)
            .arg(tables.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut own = Self {
            process: process.unwrap(),
            _folder: folder,
        };
        let mut all = String::new();
        let told = own.process.stdout.take().unwrap();
        BufReader::new(told).read_line(&mut all).unwrap();
        let all = all.trim().parse().unwrap();
        (own, all)
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Bytes that this process has in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<u64>().unwrap() << 10
}

fn bracketed(address: &str) -> String {
    if address.contains(':') {
        format!("[{address}]")
    } else {
        address.to_string()
    }
}

/// A network namespace with a cable to this one.
struct Network {
    name: &'static str,
}

impl Network {
    fn make(name: &'static str) -> Self {
        // One of an earlier run that was cut off.
        let _ = Command::new("ip").args(["netns", "del", name]).output();
        let _ = Command::new("ip")
            .args(["link", "del", "ckbp-tcp0"])
            .output();
        for line in [
            &format!("ip netns add {name}"),
            &format!("ip link add ckbp-tcp0 type veth peer name ckbp-tcp1 netns {name}"),
            "ip addr add 10.98.7.1/24 dev ckbp-tcp0",
            "ip addr add fd98:7::1/64 dev ckbp-tcp0 nodad",
            "ip link set ckbp-tcp0 up",
            &format!("ip -n {name} addr add 10.98.7.2/24 dev ckbp-tcp1"),
            &format!("ip -n {name} addr add fd98:7::2/64 dev ckbp-tcp1 nodad"),
            &format!("ip -n {name} link set ckbp-tcp1 up"),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            assert!(
                Command::new(words[0])
                    .args(&words[1..])
                    .status()
                    .unwrap()
                    .success(),
                "{line}"
            );
        }
        Self { name }
    }

    /// Of each established connection: the peer's port, bytes sent and received, round trip, segments sent again.
    fn ss(&self) -> Vec<String> {
        let ss = Command::new("ip")
            .args([
                "netns",
                "exec",
                self.name,
                "ss",
                "-tinHO",
                "state",
                "established",
            ])
            .output()
            .unwrap();
        let text = String::from_utf8(ss.stdout).unwrap();
        let line = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let port = words[3].rsplit_once(':').unwrap().1.to_string();
            let value = |name: &str| {
                let found = words.iter().find_map(|word| word.strip_prefix(name));
                found.unwrap_or("0").to_string()
            };
            let round_trip: f64 = value("rtt:").split('/').next().unwrap().parse().unwrap();
            let again = value("retrans:");
            let again = again.rsplit('/').next().unwrap();
            format!(
                "{port} {} {} {round_trip:.3} {again}",
                value("bytes_sent:"),
                value("bytes_received:"),
            )
        };
        text.lines().map(line).collect()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "del", self.name])
            .output();
    }
}
