//! Several files, and frames that each leave the registers of the next.

use super::*;

/// DW_CFA_def_cfa_register: the frame is above the frame pointer.
const REGISTER: u8 = 0x0d;

fn module(range: Range<u64>, tables: Option<Tables>) -> Module {
    Module {
        range,
        bias: 0,
        tables: tables.map(Arc::new),
        ckb_vm: None,
    }
}

fn followed(modules: Vec<Module>, registers: Registers, words: &[u64], code: &Known) -> Chain {
    let bytes = bytes(words);
    let stack = Stack {
        begin: STACK,
        bytes: &bytes,
    };
    Unwinder::new(modules).chain(registers, stack, &Replaced::default(), code)
}

#[test]
fn a_chain_goes_from_file_to_file_in_whatever_order_they_are() {
    let library = || {
        let known = tables(&[entry(0x7f00_1000, 0x100, &[OFFSET, 16])]);
        module(0x7f00_1000..0x7f00_2000, known)
    };
    let executable = || module(CODE, tables(&[entry(0x40_3000, 0x100, &[UNDEFINED, 16])]));
    let nothing = || module(CODE.start..CODE.start, None);
    // What lies over another is left out, and so is what is nowhere.
    let over = || module(CODE.start + 1..CODE.end + 1, None);
    for modules in [
        vec![library(), executable()],
        vec![executable(), library()],
        vec![library(), nothing(), executable(), over()],
    ] {
        let words = [0, 0x40_3010, 0, 0];
        let found = followed(modules, at(0x7f00_1050), &words, &Known::default());
        assert_eq!(found.frames, [0x7f00_1050, 0x40_300f]);
        assert!(found.complete);
    }
}

#[test]
fn an_address_is_known_where_code_is() {
    let unwinder = Unwinder::new(vec![
        module(0x2000..0x3000, None),
        module(0x1000..0x1800, None),
        module(0x1800..0x1900, None),
    ]);
    let known = [
        0xfff, 0x1000, 0x17ff, 0x1800, 0x1900, 0x1fff, 0x2000, 0x3000,
    ];
    let known = known.map(|address| unwinder.knows(address));
    let expected = [false, true, true, true, false, false, true, false];
    assert_eq!(known, expected);
}

#[test]
fn what_ckb_vm_pushes_first_is_its_callers_frame_pointer() {
    let known = tables(&[
        entry(0x40_2000, 0x100, &[REGISTER, 6]),
        entry(0x40_3000, 0x100, &[UNDEFINED, 16]),
    ]);
    let own = Module {
        ckb_vm: Some(0x40_8000..0x40_9000),
        ..module(CODE, known)
    };
    let frame = STACK + 8 * 8;
    let words = [0, 0, 0, 0, frame, 0x40_2010, 0, 0, 0x40_3010, 0];
    let code = Known::calls(&[0x40_2010]);
    let found = followed(vec![own], at(0x40_8100), &words, &code);
    assert_eq!(found.frames, [0x40_8100, 0x40_200f, 0x40_300f]);
    assert!(found.complete);
}

#[test]
fn assembly_leaves_the_frame_pointer_and_what_is_above_the_return_address() {
    let known = tables(&[
        entry(0x40_2000, 0x100, &[OFFSET, 16]),
        entry(0x40_3000, 0x100, &[REGISTER, 6]),
        entry(0x40_4000, 0x100, &[UNDEFINED, 16]),
    ]);
    let registers = Registers {
        bp: STACK + 5 * 8,
        ..at(0x40_1050)
    };
    let words = [0x40_2010, 7, 0x40_3010, 0, 0, 0x40_4010, 0];
    let code = Known::calls(&[0x40_2010]);
    let found = followed(vec![module(CODE, known)], registers, &words, &code);
    assert_eq!(found.frames, [0x40_1050, 0x40_200f, 0x40_300f, 0x40_400f]);
    assert!(found.complete);
}

#[test]
fn a_frame_that_is_not_above_the_one_before_ends_the_chain() {
    // The frame is where the stack pointer is (DW_OP_breg7 0), and its return address that of the same function.
    let known = tables(&[entry(0x40_1000, 0x100, &[EXPRESSION, 2, 0x77, 0])]);
    let registers = Registers {
        sp: STACK + 16,
        ..at(0x40_1050)
    };
    let words = [0, 0x40_1010, 0, 0];
    let found = followed(
        vec![module(CODE, known)],
        registers,
        &words,
        &Known::default(),
    );
    assert_eq!(found.frames, [0x40_1050]);
    assert!(!found.complete);
}
