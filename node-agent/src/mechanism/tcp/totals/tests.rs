use ckb_probe_common::tcp::UNKNOWN;
use ckb_probe_crds::{
    Figures,
    kinds::tcp::{GroupBy, TcpProbe},
};

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::kinds::tcp::MEASURES;

const SINCE: u64 = 1_000;

fn ledger() -> SocketTotals {
    let naming = TcpProbe::default();
    let mut ledger = SocketTotals::new(Arc::new(naming), Duration::from_millis(4));
    ledger.begin(SINCE);
    ledger
}

/// An established connection to 10.0.0.1:8115, of which nothing was seen before.
fn socket(cookie: u64) -> Socket {
    let mut socket = Socket {
        cookie,
        time_ns: 2_000,
        rtt: 8_000,
        local_port: 40_000,
        remote_port: 8115,
        state: state::ESTABLISHED,
        family: family::INET,
        direction: UNKNOWN,
        ..Socket::default()
    };
    socket.remote[..4].copy_from_slice(&[10, 0, 0, 1]);
    socket
}

/// The same, opened by the process while it was watched.
fn opened(cookie: u64) -> Socket {
    Socket {
        began_ns: 1_500,
        established_ns: 1_600,
        direction: OUTGOING,
        ..socket(cookie)
    }
}

fn only(ledger: &SocketTotals) -> Figures {
    let mut rows = ledger.reading(&MEASURES);
    assert_eq!(rows.len(), 1, "{rows:#?}");
    rows.remove(0).figures
}

fn close(ledger: &mut SocketTotals, socket: &Socket) {
    ledger.changed(&Socket {
        event: CLOSED,
        ..*socket
    });
}

fn rows(ledger: &SocketTotals) -> Vec<(String, String)> {
    let rows = ledger.reading(&MEASURES).into_iter();
    rows.map(|row| {
        let part = row.part.map(|part| part.text);
        (row.row.unwrap().text, part.unwrap_or_default())
    })
    .collect()
}

fn moved(sent: u64, of: Socket) -> Socket {
    Socket {
        bytes_sent: sent,
        bytes_received: 2 * sent,
        segments: 3 * sent as u32,
        retransmits: 4 * sent as u32,
        window_limited: 5 * sent as u32,
        buffer_limited: 6 * sent as u32,
        ..of
    }
}

#[track_caller]
fn assert_moved(figures: &Figures, times: u64) {
    let sums = [
        ("sent", times),
        ("received", 2 * times),
        ("segments", 3 * times),
        ("retransmits", 4 * times),
        ("windowLimited", 5 * times * 4_000_000),
        ("bufferLimited", 6 * times * 4_000_000),
    ];
    for (name, sum) in sums {
        assert_eq!(figures.sums[name], sum, "{name}");
    }
}

#[test]
fn what_was_there_before_counts_from_where_it_stood() {
    let mut ledger = ledger();
    ledger.pass(&[moved(100, socket(1))]);
    assert_moved(&only(&ledger), 0);
    ledger.pass(&[moved(107, socket(1))]);
    assert_moved(&only(&ledger), 7);
    let closed = Socket {
        state: 9,
        ..moved(110, socket(1))
    };
    close(&mut ledger, &closed);
    let figures = only(&ledger);
    assert_moved(&figures, 10);
    assert_eq!((figures.sums["opened"], figures.sums["closed"]), (0, 1));
    assert_eq!(figures.distributions["lifetime"].unmeasured, 1);
    assert_eq!(figures.levels["connections"], 0);
    assert_eq!(figures.levels["established"], 0);
    // Two looks, 1 ms each.
    assert_eq!(figures.distributions["rtt"].count(), 2);
    assert_eq!(figures.distributions["rtt"].sum, 2_000_000);
}

#[test]
fn what_begins_while_it_is_watched_counts_from_zero_and_once() {
    let mut ledger = ledger();
    let seen = moved(5, opened(1));
    // Two descriptors of one socket.
    ledger.pass(&[seen, seen]);
    let figures = only(&ledger);
    assert_moved(&figures, 5);
    assert_eq!(figures.levels["connections"], 1);
    assert_eq!(figures.sums["opened"], 1);
    close(
        &mut ledger,
        &Socket {
            time_ns: 4_600,
            state: 5,
            ..moved(9, opened(1))
        },
    );
    // Never seen in a pass.
    close(
        &mut ledger,
        &Socket {
            time_ns: 2_600,
            state: 9,
            ..moved(11, opened(2))
        },
    );
    let figures = only(&ledger);
    assert_moved(&figures, 20);
    assert_eq!((figures.sums["opened"], figures.sums["closed"]), (2, 2));
    assert_eq!(figures.distributions["lifetime"].sum, 4_000);
    assert_eq!(figures.distributions["lifetime"].count(), 2);
}

#[test]
fn what_waits_to_be_accepted_was_opened_and_is_open_when_it_is_seen() {
    let mut ledger = ledger();
    let established = Socket {
        event: OPENED,
        ..opened(1)
    };
    ledger.changed(&established);
    ledger.pass(&[]);
    let figures = only(&ledger);
    assert_eq!(
        (figures.sums["opened"], figures.levels["connections"]),
        (1, 0)
    );
    ledger.pass(&[moved(3, opened(1))]);
    ledger.changed(&established);
    let figures = only(&ledger);
    assert_eq!(
        (figures.sums["opened"], figures.levels["connections"]),
        (1, 1)
    );
    assert_moved(&figures, 3);
    close(&mut ledger, &moved(4, opened(1)));
    assert_eq!(only(&ledger).sums["opened"], 1);
    assert_moved(&only(&ledger), 4);
}

#[test]
fn figures_that_were_read_while_they_changed_are_not_counted_twice() {
    let mut ledger = ledger();
    ledger.pass(&[moved(10, opened(1))]);
    ledger.pass(&[moved(8, opened(1))]);
    ledger.pass(&[moved(12, opened(1))]);
    assert_moved(&only(&ledger), 12);
}

#[test]
fn what_happens_while_nothing_is_recorded_is_not_counted() {
    let mut ledger = ledger();
    ledger.pass(&[moved(10, opened(1))]);
    ledger.begin(2_001);
    ledger.pass(&[moved(50, opened(1)), moved(60, opened(2))]);
    assert_moved(&only(&ledger), 10);
    assert_eq!(only(&ledger).sums["opened"], 1);
    close(&mut ledger, &moved(70, opened(3)));
    assert_eq!(only(&ledger).sums["closed"], 0);
    ledger.pass(&[moved(51, opened(1)), moved(60, opened(2))]);
    assert_moved(&only(&ledger), 11);
}

#[test]
fn a_connect_that_comes_to_nothing_is_a_failure_and_no_end() {
    let mut ledger = ledger();
    close(
        &mut ledger,
        &Socket {
            began_ns: 1_500,
            state: state::SYN_SENT,
            direction: OUTGOING,
            ..socket(1)
        },
    );
    let sums = only(&ledger).sums;
    assert_eq!((sums["failed"], sums["closed"], sums["opened"]), (1, 0, 0));
}

#[test]
fn what_a_listening_socket_drops_is_no_failure_and_of_no_other() {
    let mut ledger = ledger();
    let listening = |drops| Socket {
        state: state::LISTEN,
        local_port: 8115,
        drops,
        ..socket(1)
    };
    let dropping = |drops| Socket { drops, ..opened(2) };
    ledger.pass(&[listening(3), dropping(1)]);
    ledger.pass(&[listening(5), dropping(9)]);
    let rows = ledger.reading(&MEASURES);
    let of = |name| rows.iter().map(move |row| row.figures.sums[name]);
    assert_eq!(of("dropped").collect::<Vec<_>>(), [2, 0]);
    assert_eq!(of("failed").collect::<Vec<_>>(), [0, 0]);
    assert_eq!(rows[0].figures.levels["listening"], 1);
    assert_eq!(rows[0].figures.levels["connections"], 0);
}

#[test]
fn what_the_kernel_counts_in_32_bits_begins_anew_after_the_last() {
    let mut ledger = ledger();
    let counted = |segments, time| Socket {
        segments,
        retransmits: segments,
        window_limited: time,
        bytes_sent: 1,
        ..socket(1)
    };
    ledger.pass(&[counted(u32::MAX - 10, u32::MAX)]);
    // A figure that was read while it changed may be less: that is not nearly all of its room.
    ledger.pass(&[counted(u32::MAX - 20, u32::MAX - 1)]);
    ledger.pass(&[counted(90, 9)]);
    let sums = only(&ledger).sums;
    assert_eq!((sums["segments"], sums["retransmits"]), (101, 101));
    assert_eq!(sums["windowLimited"], 10 * 4_000_000);
    assert_eq!(sums["sent"], 0);
}

#[test]
fn a_connection_to_a_listening_port_was_accepted_if_nothing_else_is_known() {
    let mut ledger = ledger();
    let listening = Socket {
        state: state::LISTEN,
        local_port: 40_000,
        ..socket(1)
    };
    let unknown = socket(2);
    let connected = Socket {
        direction: OUTGOING,
        ..socket(3)
    };
    ledger.pass(&[listening, unknown, connected]);
    let of = |row: &str, part: &str| (row.to_string(), part.to_string());
    let expected = [
        of("listening", "40000"),
        of("10.0.0.1", "40000"),
        of("10.0.0.1:8115", "outgoing"),
    ];
    assert_eq!(rows(&ledger), expected);
}

#[test]
fn an_ipv4_address_within_ipv6_is_one_of_ipv4() {
    let mut ledger = ledger();
    let mut within = Socket {
        family: family::INET6,
        ..opened(1)
    };
    within.remote = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
    ledger.pass(&[within, opened(2)]);
    assert_eq!(only(&ledger).levels["connections"], 2);
}

#[test]
fn rows_are_for_those_that_move_most_and_the_rest_is_other() {
    let mut ledger = ledger();
    let sockets: Vec<Socket> = (0..200)
        .map(|number| {
            let mut one = moved(number, opened(number));
            one.remote[3] = number as u8;
            one
        })
        .collect();
    ledger.pass(&sockets);
    let rows = ledger.reading(&MEASURES);
    assert_eq!(rows.len(), MAX_ROWS);
    let name = |index: usize| rows[index].row.as_ref().unwrap().text.as_str();
    assert_eq!((name(0), name(127)), ("10.0.0.199:8115", "other"));
    assert_eq!(ledger.folded(), 73);
    assert_eq!(rows[127].figures.sums["sent"], (0..73).sum::<u64>());
    let all: u64 = rows
        .iter()
        .map(|row| row.figures.levels["connections"])
        .sum();
    assert_eq!(all, 200);
}

#[test]
fn what_is_folded_is_counted_once_and_costs_no_more_memory_than_is_set_aside() {
    let mut ledger = ledger();
    let peer = |number: u64| {
        let mut one = opened(number);
        one.remote[1..4].copy_from_slice(&(number as u32).to_be_bytes()[1..]);
        one
    };
    let meet = |ledger: &mut SocketTotals, from, to| {
        let sockets: Vec<Socket> = (from..to).map(peer).collect();
        ledger.pass(&sockets);
        for socket in &sockets {
            close(ledger, socket);
        }
    };
    meet(&mut ledger, 0, 127);
    assert_eq!(ledger.folded(), 0, "all have room");
    for _ in 0..3 {
        meet(&mut ledger, 0, 130);
    }
    assert_eq!(
        ledger.folded(),
        3,
        "each counts once, however often it comes"
    );
    meet(&mut ledger, 130, 10_000);
    assert_eq!(ledger.folded(), folded::MOST as u64);
    let rows = ledger.reading(&MEASURES);
    assert!(
        rows.iter().all(|row| row.folded == 0),
        "none has parts that are"
    );
}

#[test]
fn parts_beyond_the_limit_are_counted_with_their_row() {
    let mut ledger = ledger();
    let sockets: Vec<Socket> = (0..20)
        .map(|port| Socket {
            state: state::LISTEN,
            local_port: 8_000 + port as u16,
            ..socket(port)
        })
        .collect();
    ledger.pass(&sockets);
    ledger.pass(&sockets);
    let rows = ledger.reading(&MEASURES);
    assert_eq!(rows.len(), MAX_PARTS);
    let folded: Vec<u64> = rows.iter().map(|row| row.folded).collect();
    assert_eq!((folded[15], folded.iter().sum::<u64>()), (5, 5));
    assert_eq!(ledger.folded(), 0);
}

#[test]
fn a_connection_of_whose_end_nobody_tells_is_forgotten() {
    let mut ledger = ledger();
    ledger.pass(&[opened(1)]);
    let later = |after: u64| Socket {
        time_ns: 2_000 + after,
        ..opened(2)
    };
    ledger.pass(&[later(FORGOTTEN_NS - 1)]);
    assert_eq!(ledger.known.len(), 2);
    ledger.pass(&[later(FORGOTTEN_NS)]);
    assert_eq!(ledger.known.len(), 1);
}

#[test]
fn what_is_not_asked_for_has_no_row() {
    let naming = TcpProbe {
        group_by: GroupBy::LocalPort,
        local_ports: vec![8114],
    };
    let mut ledger = SocketTotals::new(Arc::new(naming), Duration::from_millis(4));
    ledger.begin(SINCE);
    ledger.pass(&[opened(1)]);
    close(&mut ledger, &opened(1));
    close(&mut ledger, &opened(2));
    assert_eq!(rows(&ledger), []);
    assert!(ledger.known.is_empty());
}

#[test]
fn the_known_are_in_the_order_of_the_last_pass_whatever_came_between() {
    let mut ledger = ledger();
    ledger.pass(&[1, 2, 3, 4].map(opened));
    close(&mut ledger, &opened(1));
    ledger.pass(&[2, 3, 3, 4, 5].map(opened));
    let known: Vec<u64> = ledger.known.keys().copied().collect();
    assert_eq!(known, [2, 3, 4, 5]);
}

proptest! {
    #[test]
    fn it_does_not_matter_in_which_order_and_how_often_sockets_come_by(
        passes in vec(vec((1u64..20, 0u64..100), 0..40), 1..8),
        closed in vec(1u64..20, 8),
    ) {
        let mut ledger = ledger();
        let mut sent = BTreeMap::<u64, u64>::new();
        let mut gone = 0;
        for (pass, closed) in passes.iter().zip(closed) {
            // A descriptor more of the same socket shows the same.
            let more: BTreeMap<u64, u64> = pass.iter().copied().collect();
            for (cookie, more) in &more {
                *sent.entry(*cookie).or_default() += more;
            }
            let sockets: Vec<Socket> = pass
                .iter()
                .map(|(cookie, _)| moved(sent[cookie], opened(*cookie)))
                .collect();
            ledger.pass(&sockets);
            let rows = ledger.reading(&MEASURES);
            let connections: u64 = rows.iter().map(|row| row.figures.levels["connections"]).sum();
            prop_assert_eq!(connections, more.len() as u64);
            if let Some(last) = sent.remove(&closed) {
                close(&mut ledger, &moved(last, opened(closed)));
                gone += last;
            }
        }
        let rows = ledger.reading(&MEASURES);
        let total: u64 = rows.iter().map(|row| row.figures.sums["sent"]).sum();
        prop_assert_eq!(total, gone + sent.values().sum::<u64>());
    }
}

#[test]
fn sockets_that_there_is_no_memory_for_are_lost_once_however_often_they_are_passed() {
    let mut ledger = ledger();
    ledger.bound(2);
    let sockets: Vec<Socket> = (1..=5).map(socket).collect();
    for _ in 0..3 {
        ledger.leave_out(10);
        ledger.pass(&sockets);
        assert_eq!((ledger.known(), ledger.lost()), (2, 13));
    }
    close(&mut ledger, &socket(6));
    ledger.bound(usize::MAX);
    ledger.pass(&sockets);
    assert_eq!((ledger.known(), ledger.lost()), (5, 14));
}
