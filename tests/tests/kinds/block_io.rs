//! Requests to a disk.

use std::time::Duration;

use ckb_probe_agent::host::Session;
use ckb_probe_crds::kinds::block_io::BlockIoProbe;
use ckb_probe_testkit::disk::{Disk, Requests};

use crate::way::{in_every_way, lost, row};

/// What was counted of the same as /proc/diskstats says.
fn counted(session: &Session, disk: &Disk) -> Requests {
    let probe = &session.instance().probes[0];
    ["read", "write", "discard", "flush"].map(|direction| {
        let name = format!("{} {direction}", disk.name());
        let mut series = probe.series.iter();
        let row = series.find_map(|series| series.rows.get(&name));
        row.map_or((direction, 0, 0), |row| {
            let total = &row.all.total;
            let requests = total.count("device").unwrap();
            (direction, requests, total.sums["bytes"])
        })
    })
}

#[test]
fn requests_and_bytes_are_those_of_diskstats() {
    let disk = Disk::get(16);
    let probe = BlockIoProbe {
        devices: vec![disk.name().to_string()],
        slow_threshold: Duration::from_nanos(1).into(),
    };
    in_every_way(probe, |way| {
        let mut session = way.attach(std::process::id());
        let before = disk.at_rest();
        disk.read_direct(200, 4096);
        disk.write_direct(50, 64 << 10);
        // Neighbours are merged, and what is written back nobody asks for.
        disk.write_buffered(4 << 20);
        disk.sync();
        let expected = disk.at_rest().since(before);
        session.read().unwrap();
        assert_eq!(counted(&session, &disk), expected);
        assert_eq!(expected[0], ("read", 200, 200 * 4096));
        assert!(expected[1].1 > 50 && expected[3].1 > 0, "{expected:?}");
        let reads = row(&session, &format!("{} read", disk.name()));
        let device = &reads.all.total.distributions["device"];
        assert_eq!((device.histogram.count(), device.unmeasured), (200, 0));
        assert_eq!(reads.all.total.sums["slow"], 200);
        // All of them are this process's.
        let parts = reads.parts.iter();
        let parts = parts.map(|(name, part)| (name.as_str(), part.total.count("device")));
        assert_eq!(parts.collect::<Vec<_>>(), [("own", Some(200))]);
        let mut events = session.events();
        events.retain(|event| event["disk"] == format!("{} read", disk.name()));
        assert_eq!(events.len(), 200);
        assert!(events.iter().all(|event| event["bytes"] == 4096));
        assert_eq!(lost(&session), 0);
    });
}
