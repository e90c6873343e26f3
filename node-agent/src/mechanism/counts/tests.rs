use ckb_probe_common::counts::distribution_bucket;

use super::*;

const HOST: Namespaces = Namespaces {
    network: 1,
    process_ids: 2,
};

#[test]
fn a_pod_is_its_network_or_else_its_processes_or_else_a_process_and_its_descendants() {
    let key = |space, number, outside| Scope {
        target: TargetKey { space, number },
        outside,
    };
    let own = Namespaces {
        network: 3,
        process_ids: 4,
    };
    assert_eq!(pod(5, own, HOST), key(space::NETWORK, 3, 2));
    // One that sees the host's processes is among them.
    let sees_all = Namespaces {
        process_ids: 2,
        ..own
    };
    assert_eq!(pod(5, sees_all, HOST), key(space::NETWORK, 3, 0));
    let on_host_network = Namespaces { network: 1, ..own };
    assert_eq!(pod(5, on_host_network, HOST), key(space::PROCESS_IDS, 4, 0));
    assert_eq!(pod(5, HOST, HOST), key(space::DESCENT, 5, 0));
}

#[test]
fn a_row_has_its_sums_and_its_distributions() {
    let key = [1; KEY_BYTES];
    let sums = |first| {
        let mut sums = [0; SUMS];
        sums[0] = first;
        sums
    };
    let tallied = Tallied::from([
        ((key, 0), sums(7)),
        ((key, distribution_bucket(0, 5)), sums(2)),
        ((key, distribution_bucket(0, 623)), sums(3)),
        ((key, distribution_bucket(1, 0)), sums(1)),
        ((OTHER_ROW, 0), sums(0)),
    ]);
    let rows = rows(tallied);
    assert_eq!(rows.len(), 1);
    let row = &rows[&key];
    assert_eq!(row.sums, sums(7));
    let first: Vec<_> = row.distributions[&0].iter().collect();
    assert_eq!(first, [(5, 2), (623, 3)]);
    let second: Vec<_> = row.distributions[&1].iter().collect();
    assert_eq!(second, [(0, 1)]);
}
