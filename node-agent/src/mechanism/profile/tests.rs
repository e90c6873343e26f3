use super::*;

#[test]
fn modes_that_cannot_be_sampled_are_told_in_words() {
    let all = [
        ProfileMode::Cpu,
        ProfileMode::OffCpu,
        ProfileMode::Threads,
        ProfileMode::Memory,
        ProfileMode::SlowCalls,
    ];
    let told = all.map(|mode| lacking(mode).is_some());
    assert_eq!(told, [false, false, false, false, true]);
}

#[test]
fn why_there_are_no_stacks_has_the_word_by_which_a_person_finds_out_more() {
    let needed = memory::budget().refusal(1 << 40, 0, 2);
    let reason = |error: StacksError| Failure::from(&error).reason;
    assert_eq!(reason(StacksError::Memory(needed)), Reason::MemoryLimit);
    assert_eq!(reason(StacksError::NoTier), Reason::PreflightFailed);
    let gone = StacksError::AddressSpace {
        pid: 7,
        source: std::io::ErrorKind::NotFound.into(),
    };
    assert_eq!(reason(gone), Reason::AttachFailed);
}
