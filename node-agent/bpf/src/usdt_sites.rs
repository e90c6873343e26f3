//! What a hit costs at each sort of site that a USDT probe may have, and what it does to the thread that meets it.

use std::{
    arch::global_asm,
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{
    AttachError, Binary, DEFAULT_RING_BYTES, LookedAt, Operand, Plan, Probes, Role, Site, Slots,
    Tier, ZERO, calibrate::calibrate, own,
};

// Each keeps a word where a function that calls no other may: below the stack pointer.
global_asm!(
    ".macro ckb_probe_usdt_site name:req, nops:vararg",
    ".pushsection .text.\\name,\"ax\",@progbits",
    ".global \\name; .type \\name,@function",
    "\\name:",
    "mov [rsp - 8], rdi",
    "\\name\\()_nop:",
    ".byte \\nops",
    "mov rax, [rsp - 8]",
    "ret",
    ".size \\name, . - \\name",
    ".global \\name\\()_nop",
    ".popsection",
    ".endm",
    "ckb_probe_usdt_site ckb_probe_usdt_one, 0x90",
    "ckb_probe_usdt_site ckb_probe_usdt_five, 0x90, 0x0f, 0x1f, 0x44, 0, 0",
    "ckb_probe_usdt_site ckb_probe_usdt_ten, 0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0",
);

unsafe extern "C" {
    fn ckb_probe_usdt_one(kept: u64) -> u64;
    fn ckb_probe_usdt_one_nop();
    fn ckb_probe_usdt_five(kept: u64) -> u64;
    fn ckb_probe_usdt_five_nop();
    fn ckb_probe_usdt_ten(kept: u64) -> u64;
    fn ckb_probe_usdt_ten_nop();
}

/// A function with a site, and where that is.
#[derive(Clone, Copy)]
struct Place {
    name: &'static str,
    function: unsafe extern "C" fn(u64) -> u64,
    nop: unsafe extern "C" fn(),
    /// Bytes beyond the first nop.
    beyond: u64,
}

const NOP: Place = Place {
    name: "nop",
    function: ckb_probe_usdt_one,
    nop: ckb_probe_usdt_one_nop,
    beyond: 0,
};
const FIVE: Place = Place {
    name: "nop,nop5 at its nop",
    function: ckb_probe_usdt_five,
    nop: ckb_probe_usdt_five_nop,
    beyond: 0,
};
const TEN: Place = Place {
    name: "nop,nop10 at its nop",
    function: ckb_probe_usdt_ten,
    nop: ckb_probe_usdt_ten_nop,
    beyond: 0,
};
const AT_FIVE: Place = Place {
    name: "nop,nop5 at its nop5",
    beyond: 1,
    ..FIVE
};
const AT_TEN: Place = Place {
    name: "nop,nop10 at its nop10",
    beyond: 1,
    ..TEN
};

const HITS: u64 = 20_000;

/// Two at a time would count each other's hits.
static ALONE: Mutex<()> = Mutex::new(());

/// What became of the hits at a place.
struct Met {
    counted: u64,
    nanos: u64,
    /// How many of them lost the word below the stack pointer.
    broken: u64,
}

impl Place {
    /// Nanoseconds that a call takes, and how many came back with another word than they were given.
    fn call(self) -> (u64, u64) {
        let time = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            Duration::try_from(time).unwrap()
        };
        let mut broken = 0;
        let start = time();
        for word in 0..HITS {
            // SAFETY: the function takes a number and gives it back.
            broken += u64::from(unsafe { (self.function)(word) } != word);
        }
        let nanos = (time() - start).as_nanos() as u64;
        (nanos / HITS, broken)
    }

    /// The place, and what is looked at there.
    fn site(self, hit: Option<LookedAt>) -> Site {
        let (path, offset) = own::file_offset(self.nop as *const () as u64).unwrap();
        let binary = Arc::new(Binary::open(&path).unwrap());
        Site {
            entry_only: true,
            hit,
            ..Site::plain(self.name, binary, offset + self.beyond, 0)
        }
    }

    /// Has the kernel count hits here, if it will.
    fn met(self, tier: Tier, hit: Option<LookedAt>) -> Result<Met, AttachError> {
        let (unprobed, _) = self.call();
        let mut probes = Probes::load(tier, &plan(vec![self.site(hit)])).unwrap();
        probes.attach(&Slots::from([0]))?;
        let (probed, broken) = self.call();
        let reading = probes.read().unwrap();
        let values = reading.values.iter().map(|value| value.reading.untimed);
        let counted = reading.slots[0].untimed + values.sum::<u64>();
        Ok(Met {
            counted,
            nanos: probed.saturating_sub(unprobed),
            broken,
        })
    }
}

fn plan(sites: Vec<Site>) -> Plan {
    Plan {
        pid: std::process::id(),
        slots: 1,
        sites,
        families: 0,
        ring_bytes: DEFAULT_RING_BYTES,
        trap_ns: 0,
        inner_ns: Vec::new(),
    }
}

/// What the stack pointer points to, or the stack pointer itself.
fn operand(is_in_memory: bool) -> Operand {
    Operand {
        base: 4,
        index: ZERO,
        bytes: 8,
        is_in_memory: is_in_memory.into(),
        ..Operand::default()
    }
}

/// What the agent does: it attaches to the first nop, whatever comes after it.
#[test]
fn every_hit_is_counted_at_each_sort_of_site_and_the_thread_keeps_what_it_has() {
    let _alone = ALONE.lock();
    let mut tiers = 0;
    for &tier in Tier::ALL {
        if calibrate(tier).is_err() {
            continue;
        }
        tiers += 1;
        for place in [NOP, FIVE, TEN] {
            let met = place.met(tier, None).unwrap();
            let told = (met.counted, met.broken);
            assert_eq!(told, (HITS, 0), "{} by {}", place.name, tier.as_str());
        }
    }
    assert!(tiers > 0, "as root, on Linux 5.15 or later");
}

/// What it might do, on kernels that make a call of a nop of five bytes: prints what that would cost, and what it would break. See
/// docs/usdt.md.
#[test]
#[ignore = "it tells what a kernel does, which is nobody's promise"]
fn what_a_hit_costs_at_each_sort_of_site() {
    let _alone = ALONE.lock();
    let works = |tier: &Tier| calibrate(*tier).is_ok();
    let tier = Tier::ALL.iter().copied().find(works).unwrap();
    for round in 0..3 {
        for place in [NOP, FIVE, TEN, AT_FIVE, AT_TEN] {
            let name = place.name;
            match place.met(tier, None) {
                Ok(Met {
                    counted,
                    nanos,
                    broken,
                }) => println!(
                    "round {round}: {name:<24} {nanos:>6} ns, counted {counted} of {HITS}, broken {broken}"
                ),
                Err(error) => println!("round {round}: {name:<24} {error}"),
            }
        }
    }
}

/// Prints what a hit costs with what is looked at, in proportion to one that is only counted. See docs/usdt.md.
#[test]
#[ignore = "it tells what a machine does, which is nobody's promise"]
fn what_a_hit_costs_with_what_is_looked_at() {
    let _alone = ALONE.lock();
    let works = |tier: &Tier| calibrate(*tier).is_ok();
    let tier = Tier::ALL.iter().copied().find(works).unwrap();
    let by = |is_in_memory| {
        Some(LookedAt {
            by: Some(operand(is_in_memory)),
            ..LookedAt::default()
        })
    };
    for round in 0..5 {
        let asked = [
            ("counted", None),
            ("by a register", by(false)),
            ("by what is in memory", by(true)),
        ];
        let mut told = asked
            .map(|(name, hit)| (name, NOP.met(tier, hit).unwrap().nanos))
            .to_vec();
        told.push(("from one to another", span_nanos(tier)));
        let counted = told[0].1.max(1) as f64;
        for (name, nanos) in told {
            let ratio = nanos as f64 / counted;
            println!("round {round}: {name:<24} {nanos:>6} ns a hit, {ratio:.2}");
        }
    }
}

/// What each of two hits costs, of what begins at one place and ends at another.
fn span_nanos(tier: Tier) -> u64 {
    let hit = |role| {
        Some(LookedAt {
            role,
            ..LookedAt::default()
        })
    };
    let unprobed = NOP.call().0 + FIVE.call().0;
    let sites = vec![NOP.site(hit(Role::Begins)), FIVE.site(hit(Role::Ends))];
    let mut probes = Probes::load(tier, &plan(sites)).unwrap();
    drop(probes.attach(&Slots::from([0])).unwrap());
    let time = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::try_from(time).unwrap()
    };
    let start = time();
    for word in 0..HITS {
        // SAFETY: the functions take a number and give it back.
        unsafe {
            (NOP.function)(word);
            (FIVE.function)(word);
        }
    }
    let nanos = (time() - start).as_nanos() as u64 / HITS;
    let slot = &probes.read().unwrap().slots[0];
    assert_eq!(slot.histogram.count(), HITS);
    println!("median {:?} ns of nothing", slot.histogram.quantile(0.5));
    nanos.saturating_sub(unprobed) / 2
}
