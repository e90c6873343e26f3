use std::{collections::HashMap, net::Ipv4Addr};

use proptest::prelude::*;

use super::*;

const PLACES: ConnectionLimits = ConnectionLimits { all: 8, each: 3 };

fn peer(number: u8) -> IpAddr {
    IpAddr::from(Ipv4Addr::new(10, 0, 0, number))
}

#[test]
fn who_opens_many_loses_its_own_oldest() {
    let mut guests = Connections::new(PLACES);
    assert_eq!(guests.admit(peer(1), "scraper"), None);
    for name in ["a", "b", "c"] {
        assert_eq!(guests.admit(peer(2), name), None);
    }
    assert_eq!(guests.admit(peer(2), "d"), Some("a"));
    assert_eq!(guests.admit(peer(2), "e"), Some("b"));
}

#[test]
fn where_all_places_are_taken_who_has_the_most_makes_room() {
    let mut guests = Connections::new(PLACES);
    for (number, name) in [
        (1, "p"),
        (2, "a"),
        (2, "b"),
        (3, "x"),
        (3, "y"),
        (3, "z"),
        (4, "m"),
        (4, "n"),
    ] {
        assert_eq!(guests.admit(peer(number), name), None);
    }
    assert_eq!(guests.admit(peer(5), "kubelet"), Some("x"));
    // 2, 3 and 4 have two each; the oldest of them is a.
    assert_eq!(guests.admit(peer(6), "another"), Some("a"));
    // With its third, 4 has the most.
    assert_eq!(guests.admit(peer(4), "o"), Some("m"));
}

#[test]
fn who_has_gone_takes_no_place() {
    let mut guests = Connections::new(PLACES);
    for name in ["a", "b", "c"] {
        guests.admit(peer(1), name);
    }
    guests.retain(|name| *name == "b");
    assert_eq!(guests.admit(peer(1), "d"), None);
    assert_eq!(guests.admit(peer(1), "e"), None);
    assert_eq!(guests.admit(peer(1), "f"), Some("b"));
}

#[test]
fn an_address_is_the_same_in_both_notations() {
    let mut guests = Connections::new(ConnectionLimits { all: 8, each: 1 });
    guests.admit(peer(1), "four");
    let mapped = IpAddr::from(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped());
    assert_eq!(guests.admit(mapped, "six"), Some("four"));
}

proptest! {
    /// Whoever comes: the newest is there, the bounds hold, and nobody goes who has fewer than its even share.
    #[test]
    fn nobody_is_kept_out(arrivals in proptest::collection::vec(1..20_u8, 1..200)) {
        let mut guests = Connections::new(PLACES);
        let mut present: Vec<(u8, usize)> = Vec::new();
        for (index, number) in arrivals.into_iter().enumerate() {
            let gone = guests.admit(peer(number), (number, index));
            present.push((number, index));
            let mut held = HashMap::<u8, usize>::new();
            for (number, _) in &present {
                *held.entry(*number).or_default() += 1;
            }
            if let Some((loser, age)) = gone {
                prop_assert_ne!((loser, age), (number, index));
                let most = held.values().max().copied().unwrap_or_default();
                prop_assert!(held[&loser] == most || held[&loser] > PLACES.each);
                present.retain(|guest| *guest != (loser, age));
            }
            let now: Vec<_> = guests.present.iter().map(|(_, guest)| *guest).collect();
            prop_assert_eq!(&now, &present);
            prop_assert!(now.len() <= PLACES.all);
            prop_assert!(now.iter().filter(|(other, _)| *other == number).count() <= PLACES.each);
        }
    }
}
