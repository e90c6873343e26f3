use super::{
    super::{
        Chain, Code, Replaced, Section, Sections, Tables,
        tests::{CODE, followed},
    },
    *,
};

const STACK: u64 = 0xffff_f000;
/// A signature, in the bits above the address.
const SIGNED: u64 = 0x005a << 48;

/// Code that is nothing but calls.
struct Calls;

impl Code for Calls {
    fn before(&self, address: u64) -> Option<[u8; CALL_BYTES]> {
        CODE.contains(&address)
            .then(|| after_three_bytes(0x9400_0001))
    }
}

fn after_three_bytes(word: u32) -> [u8; CALL_BYTES] {
    let mut bytes = [0; CALL_BYTES];
    bytes[3..].copy_from_slice(&word.to_le_bytes());
    bytes
}

/// As a compiler writes them: the frame is where the stack pointer was, and the return address in x30.
fn tables(functions: &[(u64, &[u8])]) -> Tables {
    let mut eh_frame = Vec::new();
    let mut push = |mut body: Vec<u8>| {
        body.resize((body.len() + 4).next_multiple_of(8) - 4, 0);
        eh_frame.extend((body.len() as u32).to_le_bytes());
        eh_frame.extend(body);
        eh_frame.len() as u32
    };
    // Version 1, no augmentation, factors 4 and -8, return address in 30, and DW_CFA_def_cfa of 31.
    let mut length = push(vec![0, 0, 0, 0, 1, 0, 4, 0x78, 30, 0x0c, 31, 0]);
    for (begin, program) in functions {
        let mut body = (length + 4).to_le_bytes().to_vec();
        body.extend(begin.to_le_bytes());
        body.extend(0x100_u64.to_le_bytes());
        body.extend_from_slice(program);
        length = push(body);
    }
    Tables::checked(Sections {
        eh_frame: Section {
            address: 0x50_0000,
            bytes: eh_frame.into(),
        },
        ..Sections::default()
    })
    .unwrap()
}

/// `stp x29, x30, [sp, #-32]!`, and done: DW_CFA_def_cfa_offset 32, x29 and x30 at its lower end.
const FRAME: &[u8] = &[0x0e, 32, 0x9d, 4, 0x9e, 3];
/// DW_CFA_undefined of x30.
const OUTERMOST: &[u8] = &[0x07, 30];

fn chain(tables: Option<Tables>, registers: Registers, words: &[u64]) -> Chain {
    followed::<Aarch64>(tables, registers, words, &Replaced::default(), &Calls)
}

#[test]
fn a_leafs_caller_is_in_its_register_and_callers_are_on_the_stack_with_their_signature() {
    let tables = tables(&[(0x40_1000, &[]), (0x40_2000, FRAME), (0x40_3000, OUTERMOST)]);
    let registers = Registers {
        ip: 0x40_1050,
        sp: STACK,
        bp: STACK,
        lr: SIGNED | 0x40_2010,
    };
    let words = [STACK + 64, SIGNED | 0x40_3020, 0, 0, 0, 0];
    let found = chain(Some(tables), registers, &words);
    assert_eq!(found.frames, [0x40_1050, 0x40_200f, 0x40_301f]);
    assert!(found.complete && !found.guessed);
}

#[test]
fn return_addresses_that_the_kernel_has_replaced_are_put_back_signed_ones_too() {
    // Kernels whose processes have 52 bits for addresses map it at their end.
    const TRAMPOLINE: u64 = 0x000f_ffff_ffff_f000;
    let known = || tables(&[(0x40_1000, &[]), (0x40_2000, FRAME), (0x40_3000, OUTERMOST)]);
    let originals = Replaced {
        trampoline: Some(TRAMPOLINE..TRAMPOLINE + 0x1000),
        addresses: &[0x40_2010, 0x40_3020],
    };
    // The one is in the register yet, and the other where a function put it, signed.
    let words = [STACK + 64, SIGNED | TRAMPOLINE, 0, 0, 0, 0];
    let registers = Registers {
        ip: 0x40_1050,
        sp: STACK,
        bp: STACK,
        lr: TRAMPOLINE,
    };
    let found = followed::<Aarch64>(Some(known()), registers, &words, &originals, &Calls);
    assert_eq!(found.frames, [0x40_1050, 0x40_200f, 0x40_301f]);
    assert!(found.complete);
    // On the trampoline itself, which is a breakpoint, and has pushed nothing.
    let returned = Registers {
        ip: TRAMPOLINE,
        ..registers
    };
    let found = followed::<Aarch64>(Some(known()), returned, &words, &originals, &Calls);
    assert_eq!(found.frames, [0x40_2010, 0x40_301f]);
    assert!(found.complete);
}

#[test]
fn without_tables_the_register_has_the_caller_and_further_ones_are_looked_for() {
    let registers = Registers {
        ip: 0x40_1050,
        sp: STACK,
        bp: 0,
        lr: 0x40_2010,
    };
    let found = chain(None, registers, &[1, SIGNED | 0x40_3020, 0]);
    assert_eq!(found.frames, [0x40_1050, 0x40_200f, 0x40_301f]);
    assert!(found.guessed && !found.complete);
}

#[test]
fn calls_are_told_from_what_is_none() {
    // bl, blr x3, blraaz x3, blraa x3, x4
    for call in [
        0x9400_0001,
        0x97ff_ffff,
        0xd63f_0060,
        0xd63f_087f,
        0xd73f_0864,
    ] {
        assert!(Aarch64::ends_in_call(&after_three_bytes(call)), "{call:x}");
    }
    // b, br x3, ret, nop
    for other in [0x1400_0001, 0xd61f_0060, 0xd65f_03c0, 0xd503_201f] {
        assert!(
            !Aarch64::ends_in_call(&after_three_bytes(other)),
            "{other:x}"
        );
    }
}
