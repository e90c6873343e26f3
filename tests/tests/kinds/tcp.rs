//! Connections of this process with itself, each end of which is told apart.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use ckb_probe_agent::host::Session;
use ckb_probe_crds::{Figures, Name, kinds::tcp::TcpProbe};

use crate::way::{in_every_way, lost, row};

const CONNECTIONS: u64 = 5;

/// Until the sockets were looked at again, on a machine that is busy or emulated.
const PATIENCE: Duration = Duration::from_secs(60);

const SENT: usize = 3000;
const ANSWERED: usize = 70_000;

/// That of the loopback's, which takes packets of 64 KiB.
const LARGEST_SEGMENT: u64 = 1 << 16;

/// Takes as many connections as there are, and answers each.
fn serve(listener: &TcpListener) {
    for _ in 0..CONNECTIONS {
        let (mut peer, _) = listener.accept().unwrap();
        peer.read_exact(&mut [0; SENT]).unwrap();
        peer.write_all(&[b'y'; ANSWERED]).unwrap();
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    }
}

/// Opens them one after the other, and is answered.
fn talk(server: SocketAddr) {
    for _ in 0..CONNECTIONS {
        let mut peer = TcpStream::connect(server).unwrap();
        peer.write_all(&[b'x'; SENT]).unwrap();
        peer.read_exact(&mut vec![0; ANSWERED]).unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    }
}

/// Opened, closed, failed, bytes received, and how many lifetimes were noted.
fn counts(figures: &Figures) -> [u64; 5] {
    let [opened, closed, failed, received] =
        ["opened", "closed", "failed", "received"].map(|name| sum(figures, name));
    let lifetimes = figures.distributions["lifetime"].count();
    [opened, closed, failed, received, lifetimes]
}

fn sum(figures: &Figures, name: &'static str) -> u64 {
    figures.sums[&Name::Borrowed(name)]
}

/// Where nothing was sent again, it is equal: a machine that has no time for an answer makes the kernel send once more what was
/// not lost.
fn expect_sent(figures: &Figures, bytes: u64) {
    let again = sum(figures, "retransmits");
    let most = bytes + again * LARGEST_SEGMENT;
    let sent = sum(figures, "sent");
    assert!(
        (bytes..=most).contains(&sent),
        "{sent} bytes sent of {bytes}, with {again} segments sent again"
    );
}

#[test]
fn connections_and_their_bytes_are_counted_at_both_ends_over_both_families() {
    in_every_way(TcpProbe::default(), |way| {
        for address in ["127.0.0.1", "::1"] {
            let listener = TcpListener::bind((address, 0)).unwrap();
            let server = listener.local_addr().unwrap();
            let port = server.port().to_string();
            let mut session = way.attach(std::process::id());
            thread::scope(|scope| {
                scope.spawn(|| serve(&listener));
                talk(server);
            });
            wait_for_a_pass();
            session.read().unwrap();
            let part = |name: &str, part: &str| &row(&session, name).parts[part].total;
            let (sent, received) = (SENT as u64, ANSWERED as u64);
            let all = CONNECTIONS;
            let outgoing = part(&server.to_string(), "outgoing");
            assert_eq!(counts(outgoing), [all, all, 0, all * received, all]);
            expect_sent(outgoing, all * sent);
            let incoming = part(address, &port);
            assert_eq!(counts(incoming), [all, all, 0, all * sent, all]);
            expect_sent(incoming, all * received);
            assert_eq!(part("listening", &port).levels["listening"], 1);
            assert_eq!(lost(&session), 0);
        }
    });
}

#[test]
fn open_connections_are_told_and_connects_that_come_to_nothing_are_failures() {
    in_every_way(TcpProbe::default(), |way| {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let server = listener.local_addr().unwrap();
        let nobody = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let nobodys = nobody.local_addr().unwrap();
        drop(nobody);
        let connect = || {
            (
                TcpStream::connect(server).unwrap(),
                listener.accept().unwrap(),
            )
        };
        let before = [connect(), connect()];
        let mut session = way.attach(std::process::id());
        let after = [connect(), connect(), connect()];
        for _ in 0..7 {
            TcpStream::connect(nobodys).unwrap_err();
        }
        let levels = |session: &Session| {
            let open = &row(session, &server.to_string()).parts["outgoing"];
            open.total.levels["connections"]
        };
        // Where looking at the sockets takes long, they are looked at less often.
        wait_for_a_pass();
        session.read().unwrap();
        let end = Instant::now() + PATIENCE;
        while levels(&session) != 5 && Instant::now() < end {
            thread::sleep(Duration::from_millis(100));
            session.read().unwrap();
        }
        let part = |name: &str| &row(&session, name).parts["outgoing"].total;
        let open = part(&server.to_string());
        assert_eq!(counts(open), [3, 0, 0, 0, 0]);
        assert_eq!(open.levels["connections"], 5);
        assert_eq!(open.levels["established"], 5);
        assert_eq!(counts(part(&nobodys.to_string())), [0, 0, 7, 0, 0]);
        drop((before, after));
    });
}

/// After this, the next reading looks at the sockets again.
fn wait_for_a_pass() {
    thread::sleep(Duration::from_millis(1500));
}
