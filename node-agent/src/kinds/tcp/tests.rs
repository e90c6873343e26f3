use std::net::IpAddr;

use super::*;

fn place(group_by: GroupBy, role: Role, remote: &str) -> (String, Option<String>) {
    let probe = TcpProbe {
        group_by,
        ..TcpProbe::default()
    };
    let end = Endpoint {
        role,
        remote: remote.parse::<IpAddr>().unwrap(),
        remote_port: 8115,
        local_port: 8114,
    };
    let (row, part) = probe.place(&end).unwrap();
    assert_eq!(part.is_some(), probe.parted());
    (row, part)
}

fn parted(row: &str, part: &str) -> (String, Option<String>) {
    (row.to_string(), Some(part.to_string()))
}

#[test]
fn a_peers_port_says_something_only_where_the_process_connected_to_it() {
    use GroupBy::RemoteAddress;
    use Role::{Incoming, Outgoing};
    let v6 = "2001:db8::7";
    let of = |role, remote| place(RemoteAddress, role, remote);
    assert_eq!(of(Outgoing, "10.1.2.3"), parted("10.1.2.3:8115", "outgoing"));
    assert_eq!(of(Incoming, "10.1.2.3"), parted("10.1.2.3", "8114"));
    assert_eq!(of(Outgoing, v6), parted("[2001:db8::7]:8115", "outgoing"));
    assert_eq!(of(Incoming, v6), parted("2001:db8::7", "8114"));
    assert_eq!(of(Role::Listening, "0.0.0.0"), parted("listening", "8114"));
}

#[test]
fn networks_are_of_24_and_56_bits() {
    let of = |remote| place(GroupBy::RemoteNetwork, Role::Incoming, remote).0;
    assert_eq!(of("10.1.2.3"), "10.1.2.0/24");
    assert_eq!(of("2001:db8:1:ff7f:8:9:a:b"), "2001:db8:1:ff00::/56");
    let outgoing = place(GroupBy::RemoteNetwork, Role::Outgoing, "10.1.2.3");
    assert_eq!(outgoing, parted("10.1.2.0/24", "outgoing"));
}

#[test]
fn ports_are_rows_without_parts() {
    let of = |role| place(GroupBy::LocalPort, role, "10.1.2.3");
    assert_eq!(of(Role::Incoming), ("8114".to_string(), None));
    assert_eq!(of(Role::Listening), ("8114".to_string(), None));
    assert_eq!(of(Role::Outgoing), ("outgoing".to_string(), None));
}

#[test]
fn every_measure_of_the_descriptor_is_measured() {
    use ckb_probe_crds::{Kind, descriptor::Merge};
    let names = |merge| {
        let all = Kind::Tcp.descriptor().measures.iter();
        let some = all.filter(move |measure| measure.merge == merge);
        some.map(|measure| measure.key())
            .collect::<std::collections::BTreeSet<_>>()
    };
    let blank = tcp::blank(&MEASURES);
    assert_eq!(names(Merge::Sum), blank.sums.into_keys().collect());
    assert_eq!(names(Merge::Level), blank.levels.into_keys().collect());
    let distributions = blank.distributions.into_keys().collect();
    assert_eq!(names(Merge::Distribution), distributions);
}
