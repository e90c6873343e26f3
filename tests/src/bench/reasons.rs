//! Why a figure is not as it must be, where that was found out with a profile. Shown only beside a figure that misses its
//! bound.

/// By how the row's name begins and ends.
const REASONS: &[(&str, &str, &str)] = &[
    (
        "call-cost: TxnCommit",
        "tier session, against empty programs",
        "The clock is read twice: see the row of programs that do only that. bpf_session_cookie, called at both ends, and \
         bpf_get_attach_cookie take 1 to 2 % each, most of it for guarding the return (SRSO) and the call (retpolines); \
         everything else, 2 %.",
    ),
    (
        "call-cost: Get",
        "tier session, against empty programs",
        "As TxnCommit, and bpf_probe_read_user for the size of the value: 60 ns and more, for 8 bytes.",
    ),
    (
        "import: budget off",
        "slower than with empty programs",
        "Nine calls in ten read the size of a value or remember one, and the clock is read twice at each: see call-cost. \
         The spread is that of single imports.",
    ),
    (
        "mining, steady",
        "overhead, calls times cost",
        "Each call is put at what it costs a program that goes through 256 KiB between two calls: a third more than in a \
         loop, or twice as much.",
    ),
    (
        "import: budget 1 %",
        "slower",
        "Compare the row \"unprobed once more\": two imports without any probe differ as much.",
    ),
    (
        "profile-cost: cpu",
        "slower",
        "Compare the row \"not profiled once more\": two imports that nobody looks at differ as much. What is known exactly is what \
         our programs take of the import's CPU time.",
    ),
];

/// The reason for a row, if one is known.
pub fn reason(row: &str) -> Option<&'static str> {
    let known = REASONS
        .iter()
        .find(|(begin, end, _)| row.starts_with(begin) && row.ends_with(end));
    known.map(|(.., why)| *why)
}
