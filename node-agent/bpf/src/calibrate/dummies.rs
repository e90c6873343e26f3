//! Functions of the agent's own, on which each way to attach is tried.

use std::{arch::global_asm, hint::black_box, io, sync::Arc};

use super::super::{Binary, DEFAULT_RING_BYTES, Plan, Site, own};

// The first instruction is one that functions usually begin with: on x86-64 it is what CKB's hot functions do, and the kernel emulates it; on
// arm64 it puts the return address on the stack, and the kernel single-steps that. That of the last is single-stepped on either.
#[cfg(target_arch = "x86_64")]
macro_rules! usual {
    () => {
        "push rbp; pop rbp; ret"
    };
}
#[cfg(target_arch = "x86_64")]
macro_rules! stepped {
    () => {
        "mov eax, edi; ret"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! usual {
    () => {
        "stp x29, x30, [sp, #-16]!; ldp x29, x30, [sp], #16; ret"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! stepped {
    () => {
        "mov x0, x1; ret"
    };
}

global_asm!(
    ".pushsection .text.ckb_probe_calibration_call,\"ax\",@progbits",
    ".global ckb_probe_calibration_call; .type ckb_probe_calibration_call,@function",
    "ckb_probe_calibration_call:",
    usual!(),
    ".size ckb_probe_calibration_call, . - ckb_probe_calibration_call",
    ".global ckb_probe_calibration_inner; .type ckb_probe_calibration_inner,@function",
    "ckb_probe_calibration_inner:",
    usual!(),
    ".size ckb_probe_calibration_inner, . - ckb_probe_calibration_inner",
    ".global ckb_probe_calibration_work; .type ckb_probe_calibration_work,@function",
    "ckb_probe_calibration_work:",
    usual!(),
    ".size ckb_probe_calibration_work, . - ckb_probe_calibration_work",
    ".global ckb_probe_calibration_twice; .type ckb_probe_calibration_twice,@function",
    "ckb_probe_calibration_twice:",
    usual!(),
    ".size ckb_probe_calibration_twice, . - ckb_probe_calibration_twice",
    ".global ckb_probe_calibration_counted; .type ckb_probe_calibration_counted,@function",
    "ckb_probe_calibration_counted:",
    usual!(),
    ".size ckb_probe_calibration_counted, . - ckb_probe_calibration_counted",
    ".global ckb_probe_calibration_stepped; .type ckb_probe_calibration_stepped,@function",
    "ckb_probe_calibration_stepped:",
    stepped!(),
    ".size ckb_probe_calibration_stepped, . - ckb_probe_calibration_stepped",
    ".popsection",
);

unsafe extern "C" {
    fn ckb_probe_calibration_call();
    fn ckb_probe_calibration_inner();
    fn ckb_probe_calibration_work();
    fn ckb_probe_calibration_twice();
    fn ckb_probe_calibration_counted();
    fn ckb_probe_calibration_stepped();
}

const ROUNDS: u64 = 5;

/// A function of the agent's own, and how often a round calls it.
#[derive(Clone, Copy)]
pub(crate) struct Dummy {
    pub(super) function: unsafe extern "C" fn(),
    pub(super) calls: u64,
    /// How many rounds there are.
    pub(super) rounds: u64,
    /// How many short loops its caller goes through before each call.
    pub(super) loops: u32,
    /// How many bytes its caller goes through before each call.
    pub(super) works_on: usize,
}

pub(super) const CACHE_LINE: usize = 64;

pub(crate) const USUAL: Dummy = Dummy {
    function: ckb_probe_calibration_call,
    calls: 10_000,
    rounds: ROUNDS,
    loops: 0,
    works_on: 0,
};

/// Called by a program that does something of its own between two calls, for half a microsecond or so. A probe costs a tenth more there
/// than in a loop of nothing but calls: what the processor has learnt of the program's branches is gone when the kernel returns to it. In many
/// short rounds: the fastest is what counts, and on a busy node few long ones are undisturbed.
pub(super) const INNER: Dummy = Dummy {
    function: ckb_probe_calibration_inner,
    calls: 250,
    rounds: 8 * ROUNDS,
    loops: 10,
    works_on: 0,
};

/// Called by a program that between two calls goes through more data of its own than a core's first-level cache holds, and
/// than most hold of translations. In a loop of nothing but calls a probe finds all that it needs there, which no node
/// leaves it: an import of blocks pays about what is measured here. A target that calls now and then may leave
/// nothing in any cache, and pay many times as much: for a call of which there are few.
pub(super) const AT_WORK: Dummy = Dummy {
    function: ckb_probe_calibration_work,
    calls: 300,
    rounds: ROUNDS,
    loops: 0,
    works_on: 256 << 10,
};

/// The same under two pairs of programs: the kernel traps once for both.
pub(super) const TWICE: Dummy = Dummy {
    function: ckb_probe_calibration_twice,
    ..AT_WORK
};

/// Counted at its entry, and not timed.
pub(super) const COUNTED: Dummy = Dummy {
    function: ckb_probe_calibration_counted,
    ..AT_WORK
};

pub(super) const STEPPED: Dummy = Dummy {
    function: ckb_probe_calibration_stepped,
    calls: 500,
    rounds: ROUNDS,
    loops: 0,
    works_on: 0,
};

impl Dummy {
    /// How often it is called in all rounds.
    pub(super) fn all_calls(self) -> u64 {
        self.calls * self.rounds
    }

    /// Calls the function.
    pub(crate) fn call(self, times: u64) {
        for _ in 0..times {
            for _ in 0..self.loops {
                for step in 0..14 {
                    black_box(step);
                }
            }
            // SAFETY: the functions take nothing, return nothing that matters and touch nothing.
            unsafe { (self.function)() };
        }
    }
}

/// What to load for a process that runs this very program, to see it call the functions: a slot for each.
pub(crate) fn plan(dummies: &[Dummy], pid: u32, entry_only: bool) -> io::Result<Plan> {
    let site = |(slot, dummy): (u8, &Dummy)| {
        let (path, offset) = own::file_offset(dummy.function as *const () as u64)?;
        let binary = Arc::new(Binary::open(&path)?);
        Ok(Site {
            entry_only,
            ..Site::plain("a function of the agent's own", binary, offset, slot)
        })
    };
    let sites: Vec<Site> = (0..).zip(dummies).map(site).collect::<io::Result<_>>()?;
    let count = sites.len();
    Ok(Plan {
        pid,
        slots: count as u32,
        sites,
        families: 0,
        ring_bytes: DEFAULT_RING_BYTES,
        trap_ns: 0,
        // Next to nothing: what it takes to keep account of it is part of what a call costs.
        inner_ns: vec![1; count],
    })
}
