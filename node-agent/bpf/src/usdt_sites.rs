//! What a hit costs at each sort of site that a USDT probe may have, and what it does to the thread that meets it.

use std::{
    arch::global_asm,
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{
    AttachError, Binary, DEFAULT_RING_BYTES, LookedAt, Operand, PAYLOAD_BYTES, PayloadsLost, Plan,
    Probes, Role, Site, Slots, Tier, ZERO, calibrate::calibrate, own,
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

const NOP: Place = Place::at_nop("nop", ckb_probe_usdt_one, ckb_probe_usdt_one_nop);
const FIVE: Place = Place::at_nop(
    "nop,nop5 at its nop",
    ckb_probe_usdt_five,
    ckb_probe_usdt_five_nop,
);
const TEN: Place = Place::at_nop(
    "nop,nop10 at its nop",
    ckb_probe_usdt_ten,
    ckb_probe_usdt_ten_nop,
);
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
    const fn at_nop(
        name: &'static str,
        function: unsafe extern "C" fn(u64) -> u64,
        nop: unsafe extern "C" fn(),
    ) -> Self {
        Self {
            name,
            function,
            nop,
            beyond: 0,
        }
    }

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

/// Each tier that works here, the best first.
fn tiers() -> Vec<Tier> {
    let works = |tier: &Tier| calibrate(*tier).is_ok();
    let tiers: Vec<Tier> = Tier::ALL.iter().copied().filter(works).collect();
    assert!(!tiers.is_empty(), "as root, on Linux 5.15 or later");
    tiers
}

/// What the agent does: it attaches to the first nop, whatever comes after it.
#[test]
fn every_hit_is_counted_at_each_sort_of_site_and_the_thread_keeps_what_it_has() {
    let _alone = ALONE.lock();
    for tier in tiers() {
        for place in [NOP, FIVE, TEN] {
            let met = place.met(tier, None).unwrap();
            let told = (met.counted, met.broken);
            assert_eq!(told, (HITS, 0), "{} by {}", place.name, tier.as_str());
        }
    }
}

/// The address of a text, or any other.
fn emits(address: usize) -> Option<LookedAt> {
    let payload = Operand {
        displacement: address as i64,
        base: ZERO,
        index: ZERO,
        bytes: 8,
        ..Operand::default()
    };
    Some(LookedAt {
        payload: Some(payload),
        ..LookedAt::default()
    })
}

/// A text of so many bytes, none of which is like the one before, and its NUL.
fn text(bytes: usize) -> Vec<u8> {
    let letters = (0..bytes).map(|place| b'a' + (place % 23) as u8);
    letters.chain([0]).collect()
}

/// So many texts find room in the ring.
const ROOM: u64 = (1 << 20) / (2096 + 8);

#[test]
fn a_text_is_told_whole_or_it_is_counted_why_not() {
    let _alone = ALONE.lock();
    for tier in tiers() {
        let texts = [0, 1, 10, 495, 2047, 2048, 2049, 5000].map(text);
        for text in &texts {
            let hit = emits(text.as_ptr() as usize);
            let mut probes = Probes::load(tier, &plan(vec![NOP.site(hit)])).unwrap();
            drop(probes.attach(&Slots::from([0])).unwrap());
            for word in 0..7 {
                // SAFETY: the function takes a number and gives it back.
                unsafe { (NOP.function)(word) };
            }
            let length = text.len() - 1;
            let (told, long) = if length <= PAYLOAD_BYTES {
                (7, 0)
            } else {
                (0, 7)
            };
            let seen = probes.payloads();
            assert_eq!(seen.len(), told, "{length} bytes by {}", tier.as_str());
            for one in seen {
                assert_eq!(one.text, text[..length]);
                assert_eq!((one.head.slot, one.head.thread != 0), (0, true));
            }
            let reading = probes.read().unwrap();
            let lost = PayloadsLost {
                long,
                ..PayloadsLost::default()
            };
            assert_eq!(
                (reading.slots[0].untimed, reading.payloads_lost[0]),
                (7, lost)
            );
        }
        // What is nowhere, and what finds no room until somebody reads.
        for (address, expected) in [
            (0, 0),
            (8, 0),
            (usize::MAX, 0),
            (texts[3].as_ptr() as usize, ROOM),
        ] {
            let mut probes = Probes::load(tier, &plan(vec![NOP.site(emits(address))])).unwrap();
            drop(probes.attach(&Slots::from([0])).unwrap());
            let mut told = 0;
            for _ in 0..2 {
                for word in 0..1000 {
                    // SAFETY: as above.
                    unsafe { (NOP.function)(word) };
                }
                told += probes.payloads().len() as u64;
            }
            assert_eq!(told, 2 * expected);
            let lost = match expected {
                0 => PayloadsLost {
                    unread: 2000,
                    ..PayloadsLost::default()
                },
                _ => PayloadsLost {
                    full: 2000 - told,
                    ..PayloadsLost::default()
                },
            };
            let reading = probes.read().unwrap();
            assert_eq!(
                (reading.slots[0].untimed, reading.payloads_lost[0]),
                (2000, lost)
            );
        }
    }
}

/// Emits a text of its own number.
fn emit_numbered(text: &mut [u8], number: u64) {
    text[..8].copy_from_slice(format!("{number:08}").as_bytes());
    // SAFETY: the function takes a number and gives it back.
    unsafe { (NOP.function)(number) };
}

#[test]
fn texts_of_a_slice_are_told_and_counted_and_those_between_slices_are_neither() {
    let _alone = ALONE.lock();
    for tier in tiers() {
        let mut text = text(64);
        let hit = emits(text.as_ptr() as usize);
        let mut probes = Probes::load(tier, &plan(vec![NOP.site(hit)])).unwrap();
        let slot = Slots::from([0]);
        let mut number = 0;
        let mut emit = |times: u64| {
            let first = number;
            (0..times).for_each(|_| {
                emit_numbered(&mut text, number);
                number += 1;
            });
            first..number
        };
        let (mut told, mut expected) = (Vec::new(), Vec::new());
        emit(5);
        for _ in 0..3 {
            probes.open_slice(&slot).unwrap();
            expected.extend(emit(7));
            told.extend(probes.payloads());
            // These wait in the ring as the slice closes, and for as long as there is none.
            expected.extend(emit(4));
            let links = probes.close_slice().unwrap();
            // The links may be there still, and nothing is taken up by them.
            emit(5);
            super::tests::let_go(links);
            emit(6);
        }
        // From then on all are, and from slices to all of the time none is told twice.
        drop(probes.attach(&slot).unwrap());
        expected.extend(emit(9));
        super::tests::let_go(probes.attach(&Slots::new()).unwrap());
        emit(3);
        told.extend(probes.payloads());
        let told: Vec<u64> = told
            .iter()
            .map(|one| {
                assert_eq!((one.head.slot, one.head.length), (0, 64));
                std::str::from_utf8(&one.text[..8])
                    .unwrap()
                    .parse()
                    .unwrap()
            })
            .collect();
        assert_eq!(told, expected, "by {}", tier.as_str());
        let reading = probes.read().unwrap();
        assert_eq!(
            (reading.slots[0].untimed, reading.slots[0].cut),
            (42, 0),
            "by {}",
            tier.as_str()
        );
        assert_eq!(reading.payloads_lost[0], PayloadsLost::default());
        // What the budget is reckoned by: each that was looked at, and no other.
        assert_eq!(probes.hits().unwrap(), [42]);
    }
}

/// What it might do, on kernels that make a call of a nop of five bytes: prints what that would cost, and what it would break. See
/// docs/usdt.md.
#[test]
#[ignore = "it tells what a kernel does, which is nobody's promise"]
fn what_a_hit_costs_at_each_sort_of_site() {
    let _alone = ALONE.lock();
    let tier = tiers()[0];
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
    let tier = tiers()[0];
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
        for (name, bytes) in [
            ("emits 10 bytes", 10),
            ("emits 495 bytes", 495),
            ("emits 2,048 bytes", 2048),
        ] {
            told.push((name, emit_nanos(tier, bytes)));
        }
        let counted = told[0].1.max(1) as f64;
        for (name, nanos) in told {
            let ratio = nanos as f64 / counted;
            println!("round {round}: {name:<24} {nanos:>6} ns a hit, {ratio:.2}");
        }
    }
}

/// What a hit costs that tells a text of so many bytes, each of which finds room.
fn emit_nanos(tier: Tier, bytes: usize) -> u64 {
    let unprobed = NOP.call().0;
    let text = text(bytes);
    let hit = emits(text.as_ptr() as usize);
    let mut probes = Probes::load(tier, &plan(vec![NOP.site(hit)])).unwrap();
    drop(probes.attach(&Slots::from([0])).unwrap());
    let time = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::try_from(time).unwrap()
    };
    let (mut spent, rounds, each) = (Duration::ZERO, HITS / 400, 400);
    for _ in 0..rounds {
        let start = time();
        for word in 0..each {
            // SAFETY: the function takes a number and gives it back.
            unsafe { (NOP.function)(word) };
        }
        spent += time() - start;
        assert_eq!(probes.payloads().len() as u64, each);
    }
    (spent.as_nanos() as u64 / (rounds * each)).saturating_sub(unprobed)
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
