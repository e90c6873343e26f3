use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Of a container of Kubernetes 1.34 with a limit, cgroups of version 2, Linux 6.12.
const CPU_STAT: &str = "usage_usec 104118781754\nuser_usec 88134314702\nsystem_usec 15984467051\nnice_usec 0\n\
    core_sched.force_idle_usec 0\nnr_periods 4211\nnr_throttled 1600\nthrottled_usec 90210033\nnr_bursts 0\nburst_usec 0\n";

/// Of version 1.
const CPU_STAT_1: &str =
    "nr_periods 4211\nnr_throttled 1600\nthrottled_time 90210033000\nnr_bursts 0\nburst_time 0\n";

const PRESSURE: &str = "some avg10=83.64 avg60=81.45 avg300=45.50 total=32932631513\n\
    full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";

const SNMP: &str = "Ip: Forwarding DefaultTTL\nIp: 1 64\nIcmpMsg: InType3\nIcmpMsg: 7\n\
    Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors\n\
    Tcp: 1 200 120000 -1 1148632 1115804 10856 48092 0 20209189 21249026 23928 0 54285 0\n\
    Udp: InDatagrams\nUdp: 3\n";

#[test]
fn the_kernels_accounts_are_read_as_it_writes_them() {
    let (periods, throttled) = (4211, 1600);
    let throttling = Some(Throttling { periods, throttled });
    assert_eq!(Throttling::of(CPU_STAT), throttling);
    assert_eq!(Throttling::of(CPU_STAT_1), throttling);
    assert_eq!(
        waited(PRESSURE),
        Some(Duration::from_micros(32_932_631_513))
    );
    let (sent, again) = (21_249_026, 23_928);
    assert_eq!(Segments::of(SNMP), Some(Segments { sent, again }));
}

#[test]
fn what_is_not_told_is_not_known() {
    // Where another hierarchy has the controller, times are told and no periods.
    assert_eq!(Throttling::of("usage_usec 1\nuser_usec 1\n"), None);
    assert_eq!(Throttling::of("nr_periods 1\nnr_throttled x\n"), None);
    assert_eq!(waited("full avg10=0.00 total=7\n"), None);
    assert_eq!(waited(""), None);
    assert_eq!(Segments::of("Tcp: OutSegs\n"), None);
    assert_eq!(Segments::of("Tcp: OutSegs RetransSegs\nTcp: 1\n"), None);
    let (before, now) = (
        Accounts::default(),
        Accounts {
            at: SECOND,
            ..Accounts::default()
        },
    );
    assert_eq!(now.since(&before), Contention::default());
}

fn accounts(at: Duration, waited: u64, throttling: (u64, u64), segments: (u64, u64)) -> Accounts {
    Accounts {
        at,
        cpu_wait: Some(Duration::from_millis(waited)),
        throttling: Some(Throttling {
            periods: throttling.0,
            throttled: throttling.1,
        }),
        disk_wait: Some(Duration::from_millis(waited / 2)),
        segments: Some(Segments {
            sent: segments.0,
            again: segments.1,
        }),
    }
}

#[test]
fn parts_are_of_what_passed_between() {
    let before = accounts(SECOND, 100, (50, 5), (1000, 10));
    let now = accounts(3 * SECOND, 600, (70, 13), (1090, 20));
    let parts = Contention {
        cpu_wait_millipercent: Some(25_000),
        throttled_millipercent: Some(40_000),
        disk_wait_millipercent: Some(12_500),
        retransmitted_millipercent: Some(10_000),
    };
    assert_eq!(now.since(&before), parts);
    // Nothing ran, and nothing was sent: of nothing there is no part, but what did not run was not throttled.
    let idle = Contention {
        cpu_wait_millipercent: Some(0),
        throttled_millipercent: Some(0),
        disk_wait_millipercent: Some(0),
        retransmitted_millipercent: None,
    };
    let later = Accounts {
        at: 4 * SECOND,
        ..now
    };
    assert_eq!(later.since(&now), idle);
    // An account that goes back is another's.
    let earlier = Accounts {
        at: 4 * SECOND,
        ..before
    };
    assert_eq!(earlier.since(&now), Contention::default());
}

proptest! {
    #[test]
    fn no_part_is_more_than_the_whole(numbers in prop::array::uniform16(any::<u64>())) {
        let [at, cpu, periods, throttled, disk, sent, again, _, b_at, b_cpu, b_periods, b_throttled, b_disk, b_sent, b_again, _] = numbers;
        let of = |at, cpu, (periods, throttled), disk, (sent, again)| Accounts {
            at: Duration::from_micros(at),
            cpu_wait: Some(Duration::from_micros(cpu)),
            throttling: Some(Throttling { periods, throttled }),
            disk_wait: Some(Duration::from_micros(disk)),
            segments: Some(Segments { sent, again }),
        };
        let now = of(at, cpu, (periods, throttled), disk, (sent, again));
        let before = of(b_at, b_cpu, (b_periods, b_throttled), b_disk, (b_sent, b_again));
        let Contention {
            cpu_wait_millipercent: a,
            throttled_millipercent: b,
            disk_wait_millipercent: c,
            retransmitted_millipercent: d,
        } = now.since(&before);
        for part in [a, b, c, d].into_iter().flatten() {
            prop_assert!(part <= 100_000, "{}", part);
        }
    }

    #[test]
    fn whatever_a_file_says_is_read(text in "(nr_periods|nr_throttled|some|total=|Tcp:| |\n|[0-9]{1,30}|-){0,40}") {
        let _ = (Throttling::of(&text), Segments::of(&text), waited(&text));
    }
}
