use super::*;

fn disk(name: &str, partitions: &[&str]) -> BlockDevice {
    BlockDevice {
        name: name.to_string(),
        partitions: owned(partitions),
        has_requests: true,
        ..BlockDevice::default()
    }
}

fn volume(name: &str, below: &[&str]) -> BlockDevice {
    BlockDevice {
        name: name.to_string(),
        below: owned(below),
        ..BlockDevice::default()
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn there() -> [BlockDevice; 9] {
    [
        volume("dm-0", &["md0"]),
        volume("dm-1", &["sda2"]),
        volume("md0", &["sdb", "sdc1"]),
        disk("nvme0c0n1", &[]),
        disk("nvme0c1n1", &[]),
        disk("sda", &["sda1", "sda2"]),
        disk("sdb", &[]),
        disk("sdc", &["sdc1"]),
        volume("zram0", &[]),
    ]
}

fn with_head() -> Vec<BlockDevice> {
    let head = BlockDevice {
        has_requests: false,
        ..disk("nvme0n1", &["nvme0n1p1"])
    };
    [&there()[..], &[head]].concat()
}

fn resolved(asked: &[&str]) -> (Vec<String>, Coverage) {
    let Resolved { disks, coverage } = resolve(&owned(asked), &with_head()).unwrap();
    (disks, coverage)
}

fn of(disks: &[&str], sentence: &str) -> (Vec<String>, Coverage) {
    let coverage = Coverage {
        sentence: sentence.to_string(),
        ..Coverage::default()
    };
    (owned(disks), coverage)
}

#[test]
fn a_disk_is_what_it_is_called() {
    assert_eq!(resolved(&["sdb", "sda"]), of(&["sda", "sdb"], ""));
}

#[test]
fn a_name_with_a_slash_is_asked_for_as_in_sys() {
    let there = [disk("cciss/c0d0", &[])];
    let resolved = resolve(&owned(&["cciss!c0d0"]), &there).unwrap();
    assert_eq!(resolved.disks, ["cciss/c0d0"]);
}

#[test]
fn a_partition_counts_with_its_disk() {
    let sentence = "; sda2 is a partition: all requests of sda are counted";
    assert_eq!(resolved(&["sda2"]), of(&["sda"], sentence));
}

#[test]
fn a_volume_counts_by_the_disks_below_it_however_deep() {
    let sentence = "; dm-0 has no requests of its own: those of sdb, sdc below it are counted, whoever they are for; dm-1 has \
                    no requests of its own: those of sda below it are counted, whoever they are for";
    assert_eq!(
        resolved(&["dm-0", "dm-1"]),
        of(&["sda", "sdb", "sdc"], sentence)
    );
    let one_in_the_other = [volume("dm-0", &["dm-1"]), volume("dm-1", &["dm-0"])];
    assert!(resolve(&owned(&["dm-0"]), &one_in_the_other).is_err());
}

#[test]
fn the_paths_to_a_disk_count_as_it() {
    assert_eq!(resolved(&["nvme0n1"]), of(&["nvme0n1"], ""));
    let sentence = "; nvme0n1p1 is a partition: all requests of nvme0n1 are counted";
    assert_eq!(resolved(&["nvme0n1p1"]), of(&["nvme0n1"], sentence));
    let wanted = |disk| is_wanted(&owned(&["nvme0n1"]), disk);
    assert!(wanted("nvme0n1") && wanted("nvme0c0n1") && wanted("nvme0c17n1"));
    assert!(!wanted("nvme1c0n1") && !wanted("nvme0c0n2") && !wanted("nvme1n1"));
    assert!(is_wanted(&[], "sda"));
}

#[test]
fn names_of_paths_are_told_from_others() {
    let head = Head::of("nvme2c13n4").unwrap();
    assert_eq!(head.name(), "nvme2n4");
    assert_ne!(Some(head.place()), Head::of("nvme2c13n5").map(Head::place));
    assert_ne!(Some(head.place()), Head::of("nvme3c13n4").map(Head::place));
    // A disk's own place is its device number.
    assert!(head.place() > u64::from(u32::MAX));
    for other in [
        "nvme2n4",
        "nvme2c1n",
        "nvmec1n1",
        "nvme2cn1",
        "sda",
        "nvme2c1n1p1",
    ] {
        assert_eq!(Head::of(other), None, "{other}");
    }
}

#[test]
fn what_is_not_there_is_lacking_and_what_has_no_requests_too() {
    let (disks, coverage) = resolved(&["sdb", "sdz", "zram0"]);
    assert_eq!(disks, ["sdb", "sdz", "zram0"]);
    let lack = Lack {
        reason: Reason::SymbolNotFound,
        items: owned(&["sdz", "zram0"]),
    };
    let expected = Coverage {
        lacks: vec![lack],
        sentence: "; there is no disk sdz; zram0 has no requests to tell of".to_string(),
        may_grow: true,
    };
    assert_eq!(coverage, expected);
}

#[test]
fn where_none_is_there_it_is_refused_and_those_are_named_that_are() {
    let refusal = resolve(&owned(&["sdz"]), &there()).unwrap_err();
    assert_eq!(refusal.reason, Reason::SymbolNotFound);
    assert_eq!(
        refusal.message,
        "there is no disk sdz: this node has nvme0c0n1, nvme0c1n1, sda, sdb, sdc"
    );
    let refusal = resolve(&owned(&["zram0"]), &[volume("zram0", &[])]).unwrap_err();
    assert_eq!(
        refusal.message,
        "zram0 has no requests to tell of: this node has none"
    );
}
