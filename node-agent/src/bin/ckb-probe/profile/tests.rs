use ckb_probe_agent::mechanism::stacks::OnCpu;

use super::*;

fn profile() -> Profile {
    Profile {
        frequency: 99.0,
        took: Duration::from_secs(10),
        taken: 800,
        complete: 800,
        on_cpu: Some(OnCpu {
            clock: Duration::from_secs(8),
            sampled: Duration::from_secs(2),
        }),
        ..Profile::default()
    }
}

#[test]
fn what_samples_stand_for_by_themselves_is_told_beside_the_clock() {
    let told = summary(&profile(), SamplerMode::Cpu, 99);
    let expected = " s on a CPU by its clock (25.0 % of it by the samples themselves), by innermost function:\n";
    assert!(told.contains(expected), "{told}");
}

#[test]
fn a_process_that_ran_and_was_not_met_is_not_one_that_did_nothing() {
    let mut none = Profile {
        taken: 0,
        complete: 0,
        ..profile()
    };
    let Outcome::Nothing(said) = nothing(&none) else {
        unreachable!("it ran for 8 s");
    };
    assert!(
        said.starts_with("it was on a CPU for 8.00 s of 10.0 s, and at none of the moments"),
        "{said}"
    );
    none.on_cpu = Some(OnCpu {
        clock: Duration::ZERO,
        sampled: Duration::ZERO,
    });
    assert!(matches!(nothing(&none), Outcome::NothingCalled));
    none.on_cpu = None;
    assert!(matches!(nothing(&none), Outcome::NothingCalled));
}

#[test]
fn what_is_guessed_lost_or_left_out_is_told() {
    let guessed = Profile {
        guessed: 7,
        ..profile()
    };
    let left_out = Profile {
        left_out: 90,
        ..profile()
    };
    for (found, expected) in [
        (profile(), ", 0 lost; "),
        (guessed, " (7 with a caller that is a guess), 0 lost; "),
        (
            left_out,
            ", 0 lost, 90 left out by chance, for which the others stand, since they came faster than they are read; ",
        ),
    ] {
        let told = summary(&found, SamplerMode::Cpu, 99);
        let begin = format!("800 stacks in 10.0 s, 100.0 % of them complete{expected}");
        assert!(told.starts_with(&begin), "{told}");
    }
}

#[test]
fn that_any_timer_served_is_told() {
    let found = summary(&profile(), SamplerMode::Cpu, 99);
    assert!(!found.contains("tick"), "{found}");
    let any = Profile {
        by_any_timer: true,
        ..profile()
    };
    let told = summary(&any, SamplerMode::Cpu, 99);
    assert!(
        told.contains("\nthis kernel's tick was not found: "),
        "{told}"
    );
}
