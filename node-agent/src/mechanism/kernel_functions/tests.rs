use std::collections::BTreeMap;

use super::*;

fn ask(limit: usize) -> KernelFunctionsConfig {
    KernelFunctionsConfig {
        measures: Measures::Timed {
            duration: Name::Borrowed("duration"),
            longest: Name::Borrowed("longest"),
            bytes: Name::Borrowed("bytes"),
            slow: Name::Borrowed("slow"),
        },
        glob: "vfs_*".to_string(),
        limit,
        slow_threshold_ns: u64::MAX,
    }
}

fn found(names: &[(&str, u32)]) -> KernelFunctions {
    let found: BTreeMap<String, u32> = names
        .iter()
        .map(|(name, count)| (name.to_string(), *count))
        .collect();
    KernelFunctions {
        total: found.values().map(|count| *count as usize).sum(),
        found,
    }
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn what_probes_run_through_and_what_has_no_name_of_its_own_is_left_out() {
    let found = found(&[
        ("bpf_prog_run", 1),
        ("init_once", 3),
        ("ktime_get_ns", 1),
        ("vfs_read", 1),
    ]);
    let chosen = ask(1).choose_of(found, None).unwrap();
    assert_eq!(chosen.functions, names(&["vfs_read"]));
    assert_eq!(chosen.ambiguous, names(&["init_once"]));
    let coverage = coverage(chosen, names(&["vfs_odd"]));
    assert_eq!(
        coverage.sentence,
        "; left out: ktime_get_ns, since probes read their time by it; left out: bpf_prog_run, since probes run through it \
         themselves; left out: init_once, since several functions of the kernel have that name, and no more than one of them \
         would be measured; left out: vfs_odd, since this kernel does not let it be probed"
    );
    let [lack] = &coverage.lacks[..] else {
        panic!("{:?}", coverage.lacks);
    };
    assert_eq!(lack.reason, Reason::UnsupportedByKernel);
    assert_eq!(
        lack.items,
        ["bpf_prog_run", "init_once", "ktime_get_ns", "vfs_odd"]
    );
}

#[test]
fn nothing_lacks_where_all_is_measured() {
    let coverage = coverage(Chosen::default(), BTreeSet::new());
    assert_eq!(coverage, Coverage::default());
}

#[test]
fn more_than_the_limit_is_refused_with_some_of_them() {
    let refusal = ask(1)
        .choose_of(
            found(&[("vfs_read", 1), ("vfs_write", 1), ("trace_vfs", 1)]),
            None,
        )
        .unwrap_err();
    assert_eq!(
        refusal,
        Refusal::new(
            Reason::TooManyMatches,
            "vfs_* matches 2 functions of the kernel, besides 1 that are left out, more than the limit of 1: for example \
             vfs_read, vfs_write; name fewer, or raise limit"
        )
    );
    assert!(refusal.is_lasting());
    // A name that is not listed any more counts all the same.
    let mut many = found(&[("vfs_read", 1)]);
    many.total += 1;
    let refusal = ask(1).choose_of(many, None).unwrap_err();
    assert_eq!(refusal.reason, Reason::TooManyMatches);
}

#[test]
fn no_match_is_refused_and_may_pass() {
    let refusal = ask(1).choose_of(found(&[]), None).unwrap_err();
    assert_eq!(refusal.reason, Reason::SymbolNotFound);
    assert!(!refusal.is_lasting(), "a module may bring it");
}

#[test]
fn names_are_left_alone_by_their_beginning_or_a_part() {
    let reason = |name| Untouchable::find(name).map(|found| found.reason);
    assert_eq!(
        reason("__rcu_read_lock"),
        Some("probes rely on it while they run")
    );
    assert_eq!(
        reason("sysvec_apic_timer_interrupt"),
        Some("the kernel is entered by it, before a probe may run")
    );
    assert_eq!(
        reason("_raw_spin_lock"),
        Some("locks and preemption are made of it, in probes too")
    );
    assert_eq!(
        reason("security_bpf_map"),
        Some("probes run through it themselves")
    );
    for fine in [
        "vfs_read",
        "ext4_sync_file",
        "__x64_sys_getppid",
        "tcp_sendmsg",
        "futex_wait",
    ] {
        assert_eq!(reason(fine), None, "{fine}");
    }
}

#[test]
fn many_names_are_cut_short() {
    let names: Vec<String> = (0..12).map(|index| format!("f{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(some(&names[..2]), "f0, f1");
    assert!(some(&names).ends_with("f9 and 2 more"));
}

#[test]
fn only_what_the_installation_admits_is_chosen_and_the_rest_is_named() {
    let admitted: Vec<String> = ADMITTED.iter().map(ToString::to_string).collect();
    let found = found(&[
        ("kmem_cache_alloc", 1),
        ("ktime_get", 1),
        ("try_to_wake_up", 1),
        ("vfs_read", 1),
    ]);
    let chosen = ask(9)
        .choose_of(found.clone(), Some(&admitted[..]))
        .unwrap();
    assert_eq!(chosen.functions, names(&["vfs_read"]));
    assert_eq!(
        chosen.unadmitted,
        names(&["kmem_cache_alloc", "try_to_wake_up"])
    );
    let coverage = coverage(chosen, BTreeSet::new());
    let [kernel, admission] = &coverage.lacks[..] else {
        panic!("{:?}", coverage.lacks);
    };
    assert_eq!(kernel.items, ["ktime_get"]);
    assert_eq!(admission.reason, Reason::KindNotAdmitted);
    assert_eq!(admission.items, ["kmem_cache_alloc", "try_to_wake_up"]);
    // On one's own machine.
    let chosen = ask(9).choose_of(found, None).unwrap();
    assert_eq!((chosen.functions.len(), chosen.unadmitted.len()), (3, 0));
}

#[test]
fn what_is_not_known_of_a_function_is_not_foreseen_and_shifts_no_other() {
    let tried = |calls, milliseconds| Tried {
        admitted: true,
        calls,
        lasted: Duration::from_millis(milliseconds),
        edge: Duration::from_millis(milliseconds / 10),
    };
    let known = BTreeMap::from([
        ("unasked".to_string(), tried(7, 1_000)),
        ("vfs_read".to_string(), tried(50, 250)),
        ("vfs_write".to_string(), tried(3, 500)),
    ]);
    let asked = names(&["vfs_open", "vfs_read", "vfs_write"]);
    // Where the kernel waits after each of them, it waits for as long as it does for all.
    for (one_by_one, milliseconds) in [(false, 50), (true, 75)] {
        let expected = Foreseen {
            rates: vec![None, Some(200.0), Some(6.0)],
            edge: Duration::from_millis(milliseconds),
        };
        assert_eq!(foreseen(&asked, &known, one_by_one), expected);
    }
    // The same as where nothing is foreseen of anything.
    let seen = foreseen(&names(&["vfs_open"]), &known, false);
    assert_eq!((&seen.rates[..], seen.edge), (&[None][..], Duration::ZERO));
}
