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
