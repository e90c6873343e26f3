//! The program `trial_counts`, which counts system calls that there are not.

use std::collections::BTreeMap;

use ckb_probe_agent::mechanism::counts::{CountProgram, Counted};
use ckb_probe_crds::Figures;

pub static PROGRAM: CountProgram = CountProgram {
    name: "trial_counts",
    tracepoints: &[("enter", "sys_enter")],
    fields: &[("task_struct", "tgid")],
};

/// The first system call that is counted; there is none such.
const FIRST: i64 = 100_000;

/// Makes calls that are counted in the row of this number.
pub fn call(number: i64, times: u32) {
    for _ in 0..times {
        #[expect(unsafe_code, reason = "nothing safe calls what there is not")]
        // SAFETY: the kernel says ENOSYS.
        unsafe {
            libc::syscall(FIRST + number);
        }
    }
}

/// The calls that were counted, and those of them that are in a distribution.
pub fn figures(counted: &Counted) -> Figures {
    let measured = counted.distributions.get(&0).map(|one| one.count());
    Figures {
        sums: BTreeMap::from([
            ("calls".into(), counted.sums[0]),
            ("measured".into(), measured.unwrap_or_default()),
        ]),
        ..Figures::default()
    }
}
