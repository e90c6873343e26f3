use ckb_probe_crds::{Probe, kinds};

use super::*;

fn probe() -> CkbProbe {
    let spec = serde_json::json!({ "target": { "selector": {} }, "probes": [] });
    let mut probe = CkbProbe::new("ckb", serde_json::from_value(spec).unwrap());
    let storage = kinds::rocksdb::RocksDbProbe {
        stacks: true,
        ..Default::default()
    };
    let flames = kinds::profile::ProfileProbe {
        every: Some(Duration::from_secs(600).into()),
        ..Default::default()
    };
    probe.spec.probes = vec![
        Probe::new("chain", KindSpec::Chain(Default::default())),
        Probe::new("storage", KindSpec::Rocksdb(storage)),
        Probe::new("flames", KindSpec::Profile(flames)),
    ];
    probe
}

#[test]
fn a_target_and_a_mode_are_told_apart() {
    let wanted = |text: &str| Wanted::from_str(text).unwrap();
    let of = |target: Option<&str>, mode| Wanted {
        target: target.map(str::to_owned),
        mode,
    };
    assert_eq!(wanted("cpu"), of(None, Some(ProfileMode::Cpu)));
    assert_eq!(
        wanted("ckb-0/off-cpu"),
        of(Some("ckb-0"), Some(ProfileMode::OffCpu))
    );
    assert_eq!(wanted("ckb-0/ckb"), of(Some("ckb-0/ckb"), None));
    assert!(Wanted::from_str("/cpu").is_ok_and(|one| one.target.is_none()));
    assert!(Wanted::from_str("ckb-0//").is_err());
    for (text, has) in [
        ("ckb-0/cpu", true),
        ("default/ckb-0/cpu", true),
        ("ckb-0/ckb/cpu", true),
        ("ckb/cpu", false),
        ("ckb-/cpu", false),
        ("cpu", true),
    ] {
        assert_eq!(wanted(text).has("default/ckb-0/ckb"), has, "{text}");
    }
}

#[test]
fn the_probe_that_makes_a_mode_is_found() {
    let probe = probe();
    let found = |name, mode| maker(&probe, name, mode).map(|one| (one.probe, one.mode));
    let of = |name: &str, mode| Some((name.to_owned(), mode));
    assert_eq!(found(None, None), of("storage", ProfileMode::SlowCalls));
    assert_eq!(
        found(None, Some(ProfileMode::Cpu)),
        of("flames", ProfileMode::Cpu)
    );
    assert_eq!(found(Some("flames"), None), of("flames", ProfileMode::Cpu));
    assert_eq!(found(Some("chain"), None), None);
    assert_eq!(found(None, Some(ProfileMode::Memory)), None);
}

#[test]
fn the_next_window_is_of_the_clock_and_its_bar_fills() {
    let maker = maker(&probe(), Some("flames"), None).unwrap();
    let at = |seconds| Timestamp::from_second(seconds).unwrap();
    // Windows are from 1,200 to 1,230 and from 1,800 to 1,830.
    let line = |since, now| maker.line("ckb/ckb", &maker.progress(at(since), at(now)));
    assert_eq!(
        line(1_229, 1_229),
        "ckb/ckb Cpu: [#######################.] 29 of 30 s"
    );
    assert_eq!(
        line(1_230, 1_231),
        "ckb/ckb Cpu: [........................] the next window begins in 569 s"
    );
    assert_eq!(
        line(1_230, 1_845),
        "ckb/ckb Cpu: [########################] the window is over, and merged"
    );
    assert_eq!(
        maker.progress(at(1_230), at(1_950)),
        Progress::Ended(Duration::from_secs(120))
    );
    let once = Maker {
        every: None,
        ..maker
    };
    assert_eq!(
        once.progress(at(1_230), at(1_240)),
        Progress::Lasts(Duration::from_secs(10))
    );
}
