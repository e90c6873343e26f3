//! Crafted tables, stacks and registers: the unwinder, on whatever a target says of itself.

use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use ckb_probe_symbols::unwind::{
    Aarch64, Code, Convention, FRAMES_LIMIT, Module, Registers, Replaced, Section, Sections, Stack,
    Tables, Unwinder, X86_64,
};

/// Where the tables are, and what is mapped around them.
const TABLES: u64 = 0x20_0000;
const MAPPED: Range<u64> = 0x10_0000..0x40_0000;

/// Where the copy of the stack begins.
const STACK: u64 = 0x7fff_0000_0000;

/// The interpreter without tables, and what the kernel has functions return to.
const INTERPRETER: Range<u64> = 0x11_0000..0x11_1000;
const TRAMPOLINE: Range<u64> = 0x50_0000..0x50_0080;

/// Each of its steps goes through the tables of one function, of 64 KiB at most: with what watches over it, that takes 2 ms.
const LIMIT: Duration = Duration::from_secs(5);

/// Code has a call before each address with this bit.
const AFTER_CALL: u64 = 1 << 3;

struct AnyCode;

impl Code for AnyCode {
    fn before(&self, address: u64) -> Option<[u8; 7]> {
        let is_code = MAPPED.contains(&address);
        let before = match address & AFTER_CALL {
            0 => [0x90; 7],
            // The last five bytes are one of x86-64, and the last four one of arm64.
            _ => [0x90, 0x90, 0xe8, 1, 0, 0, 0x94],
        };
        is_code.then_some(before)
    }
}

/// Unwinds a stack by tables that are both in the bytes.
///
/// Two bytes say how many are of the stack, two where in it the stack pointer is, four where the instruction is, as seen from the
/// tables, and two the frame pointer. Then come the stack and the tables.
pub fn check(bytes: &[u8]) {
    let Some((head, rest)) = bytes.split_at_checked(10) else {
        return;
    };
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let from_tables = i32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    let (stack, tables) = rest.split_at(usize::from(half(0)).min(rest.len()));
    let begun = Instant::now();
    let tables = Tables::checked(Sections {
        eh_frame: Section {
            address: TABLES,
            bytes: Arc::from(tables),
        },
        text: Some(MAPPED.start..TABLES),
        got: Some(MAPPED.end - 0x1000..MAPPED.end),
    });
    let module = Module {
        range: MAPPED,
        bias: 0,
        tables: tables.map(Arc::new),
        ckb_vm: Some(INTERPRETER),
    };
    let at = TABLES.wrapping_add_signed(from_tables.into());
    let anywhere = u64::from(half(8)) << 32 | u64::from(half(2));
    let places = [
        at,
        at.wrapping_add(1),
        INTERPRETER.start + 8,
        TRAMPOLINE.start + 3,
        anywhere,
    ];
    let threads = places.map(|ip| Registers {
        ip,
        sp: STACK + u64::from(half(2)),
        bp: STACK + u64::from(half(8)),
        lr: anywhere,
    });
    follow::<X86_64>(&module, threads, stack);
    follow::<Aarch64>(&module, threads, stack);
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
}

/// As on this machine.
fn follow<C: Convention>(module: &Module, threads: [Registers; 5], stack: &[u8]) {
    let originals = [TABLES, 0, MAPPED.start + 8, u64::MAX];
    let replaced = Replaced {
        trampoline: Some(TRAMPOLINE),
        addresses: &originals,
    };
    let copied = Stack {
        begin: STACK,
        bytes: stack,
    };
    let mut unwinder = Unwinder::<C>::new(vec![module.clone()]);
    for thread in threads {
        let chain = unwinder.chain(thread, copied, &replaced, &AnyCode);
        let frames = chain.frames.len();
        assert!((1..=FRAMES_LIMIT).contains(&frames) || TRAMPOLINE.contains(&thread.ip));
    }
}
