use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

mod modules;

/// What differs between machines has tests of its own: here it is that of x86-64, wherever they run.
type Unwinder = super::Unwinder<X86_64>;

/// Where code is, in these tests.
pub(super) const CODE: Range<u64> = 0x40_1000..0x40_9000;
/// Where the stack is.
const STACK: u64 = 0x7ffd_0000;

/// Code that is nothing but these, before these addresses.
#[derive(Default)]
struct Known(BTreeMap<u64, [u8; 7]>);

const CALL: [u8; 7] = [0x90, 0x90, 0xe8, 1, 2, 3, 4];
const NO_CALL: [u8; 7] = [0x90; 7];

impl Known {
    fn calls(addresses: &[u64]) -> Self {
        Self(addresses.iter().map(|address| (*address, CALL)).collect())
    }
}

impl Code for Known {
    fn before(&self, address: u64) -> Option<[u8; 7]> {
        let known = self.0.get(&address).copied();
        known.or_else(|| CODE.contains(&address).then_some(NO_CALL))
    }
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn at(ip: u64) -> Registers {
    Registers {
        ip,
        sp: STACK,
        bp: 0xb0b,
        lr: 0,
    }
}

fn chain(tables: Option<Tables>, ip: u64, words: &[u64], code: &Known) -> Chain {
    followed::<X86_64>(tables, at(ip), words, &Replaced::default(), code)
}

/// Follows a chain through [`CODE`] that has these tables, from these registers, which stand at the first of these words.
pub(super) fn followed<C: Convention>(
    tables: Option<Tables>,
    registers: Registers,
    words: &[u64],
    replaced: &Replaced<'_>,
    code: &dyn Code,
) -> Chain {
    let module = Module {
        range: CODE,
        bias: 0,
        tables: tables.map(Arc::new),
        ckb_vm: Some(0x40_8000..0x40_9000),
    };
    let bytes = bytes(words);
    let stack = Stack {
        begin: registers.sp,
        bytes: &bytes,
    };
    super::Unwinder::<C>::new(vec![module]).chain(registers, stack, replaced, code)
}

/// What tells of a function, and the program that says where its frame is.
fn entry(begin: u64, length: u64, program: &[u8]) -> (u64, u64, Vec<u8>) {
    (begin, length, program.to_vec())
}

/// As a compiler writes them: the frame is 8 above the stack pointer, and the return address the word below.
fn eh_frame(functions: &[(u64, u64, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut push = |mut body: Vec<u8>| {
        body.resize((body.len() + 4).next_multiple_of(8) - 4, 0);
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(body);
        bytes.len() as u32
    };
    // Version 1, no augmentation, factors 1 and -8, return address in 16.
    let mut length = push(vec![0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1]);
    for (begin, size, program) in functions {
        let mut body = (length + 4).to_le_bytes().to_vec();
        body.extend(begin.to_le_bytes());
        body.extend(size.to_le_bytes());
        body.extend(program);
        length = push(body);
    }
    bytes
}

fn sections(eh_frame: Vec<u8>) -> Sections {
    Sections {
        eh_frame: Section {
            address: 0x50_0000,
            bytes: eh_frame.into(),
        },
        ..Sections::default()
    }
}

fn tables(functions: &[(u64, u64, Vec<u8>)]) -> Option<Tables> {
    Tables::checked(sections(eh_frame(functions)))
}

/// DW_CFA_def_cfa_offset, DW_CFA_undefined, DW_CFA_def_cfa_expression.
const OFFSET: u8 = 0x0e;
const UNDEFINED: u8 = 0x07;
const EXPRESSION: u8 = 0x0f;

#[test]
fn a_chain_is_followed_by_the_tables_to_where_the_thread_began() {
    let known = tables(&[
        entry(0x40_1000, 0x100, &[OFFSET, 24]),
        entry(0x40_2000, 0x100, &[]),
        entry(0x40_3000, 0x100, &[UNDEFINED, 16]),
    ]);
    assert!(known.is_some());
    let words = [1, 2, 0x40_2010, 0x40_3020, 0, 0];
    let found = chain(known, 0x40_1050, &words, &Known::default());
    assert_eq!(found.frames, [0x40_1050, 0x40_200f, 0x40_301f]);
    assert!(found.complete && !found.guessed);
}

#[test]
fn a_chain_ends_early_where_the_stack_was_not_copied_and_says_so() {
    let known = tables(&[
        entry(0x40_1000, 0x100, &[OFFSET, 24]),
        entry(0x40_2000, 0x100, &[OFFSET, 64]),
    ]);
    let found = chain(known, 0x40_1050, &[1, 2, 0x40_2010, 4], &Known::default());
    assert_eq!(found.frames, [0x40_1050, 0x40_200f]);
    assert!(!found.complete && !found.guessed);
}

#[test]
fn a_frame_is_found_by_an_expression_that_reads_the_stack() {
    // As where a stack is aligned: DW_OP_breg6 -8, DW_OP_deref; and the frame pointer is where it points to.
    let aligned = [EXPRESSION, 3, 0x76, 0x78, 0x06, 0x10, 6, 2, 0x76, 0];
    let known = tables(&[
        entry(0x40_1000, 0x100, &aligned),
        entry(0x40_2000, 0x100, &[OFFSET, 16]),
        entry(0x40_3000, 0x100, &[UNDEFINED, 16]),
    ]);
    let frame = STACK + 9 * 8;
    let words = [
        0, 0, 0, frame, 0xcafe, 0x40_2010, 0, 0, 0x40_2010, 7, 0x40_3010, 0,
    ];
    let registers = Registers {
        bp: STACK + 4 * 8,
        ..at(0x40_1050)
    };
    let (nothing, code) = (Replaced::default(), Known::default());
    let found = followed::<X86_64>(known, registers, &words, &nothing, &code);
    assert_eq!(found.frames, [0x40_1050, 0x40_200f, 0x40_300f]);
    assert!(found.complete);
}

#[test]
fn where_nothing_is_told_the_first_address_after_a_call_is_the_callers() {
    let known = tables(&[entry(0x40_3000, 0x100, &[UNDEFINED, 16])]);
    // An address of code that no call is before, a number, and the caller's.
    let words = [0x40_3008, 12, 0x40_3010, 0x40_3020];
    let code = Known::calls(&[0x40_3010, 0x40_3020]);
    let found = chain(known, 0x40_1050, &words, &code);
    assert_eq!(found.frames, [0x40_1050, 0x40_300f]);
    assert!(found.complete && found.guessed);
    // Where it has to be, as in a jump to a library.
    let known = tables(&[entry(0x40_3000, 0x100, &[UNDEFINED, 16])]);
    let found = chain(known, 0x40_1050, &[0x40_3010], &code);
    assert!(found.complete && !found.guessed);
}

#[test]
fn what_ckb_vm_pushes_is_not_taken_for_its_caller() {
    let known = || tables(&[entry(0x40_3000, 0x100, &[UNDEFINED, 16])]);
    let code = Known::calls(&[0x40_3010, 0x40_3020]);
    // One of the registers that it pushes may look like a return address.
    let words = [0x40_3020, 0x40_3020, 0, 0, 0xb0b, 0x40_3010];
    let found = chain(known(), 0x40_8100, &words, &code);
    assert_eq!(found.frames, [0x40_8100, 0x40_300f]);
    assert!(found.complete && !found.guessed);
    // Two more within a macro.
    let words = [1, 2, 3, 4, 5, 6, 7, 0x40_3010];
    let found = chain(known(), 0x40_8100, &words, &code);
    assert_eq!(found.frames, [0x40_8100, 0x40_300f]);
    assert!(found.complete && found.guessed);
}

#[test]
fn return_addresses_that_the_kernel_has_replaced_are_put_back() {
    let known = || {
        tables(&[
            entry(0x40_1000, 0x100, &[]),
            entry(0x40_2000, 0x100, &[OFFSET, 16]),
            entry(0x40_3000, 0x100, &[UNDEFINED, 16]),
        ])
    };
    let put_back = |registers: Registers, words: &[u64], addresses: &[u64]| {
        let replaced = Replaced {
            trampoline: Some(0x7f00_0000..0x7f00_1000),
            addresses,
        };
        followed::<X86_64>(known(), registers, words, &replaced, &Known::default())
    };
    let words = [0x7f00_0000, 9, 0x7f00_0000, 0];
    let found = put_back(at(0x40_1050), &words, &[0x40_2010, 0, 0x40_3020]);
    assert_eq!(found.frames, [0x40_1050, 0x40_200f, 0x40_301f]);
    assert!(found.complete);
    let fewer = put_back(at(0x40_1050), &words, &[0x40_2010]);
    assert_eq!((fewer.frames.len(), fewer.complete), (2, false));
    // On the trampoline itself, which has pushed three registers.
    let words = [1, 2, 3, 9, 0x7f00_0000, 0];
    let found = put_back(at(0x7f00_000b), &words, &[0x40_2010, 0x40_3020]);
    assert_eq!(found.frames, [0x40_2010, 0x40_301f]);
    assert!(found.complete);
}

#[test]
fn who_stands_behind_a_breakpoint_has_not_done_what_is_there_yet() {
    // Its first instruction, of one byte, pushes a word.
    let known = tables(&[
        entry(0x40_1000, 0x100, &[0x41, OFFSET, 16]),
        entry(0x40_2000, 0x100, &[UNDEFINED, 16]),
    ]);
    let found = chain(known, 0x40_1001, &[0x40_2010, 77, 0, 0], &Known::default());
    assert_eq!(found.frames, [0x40_1001, 0x40_200f]);
    assert!(found.complete);
}

#[test]
fn calls_are_told_from_what_only_looks_like_them() {
    let ends = |bytes: &[u8]| {
        let mut code = [0x90; 7];
        code[7 - bytes.len()..].copy_from_slice(bytes);
        X86_64::ends_in_call(&code)
    };
    assert!(ends(&[0xe8, 0, 0, 0, 0]));
    assert!(ends(&[0xff, 0xd0]), "call *%rax");
    assert!(ends(&[0x41, 0xff, 0xd4]), "call *%r12");
    assert!(ends(&[0xff, 0x50, 0x18]), "call *0x18(%rax)");
    assert!(ends(&[0xff, 0x15, 1, 2, 3, 4]), "call *x(%rip)");
    assert!(ends(&[0xff, 0x90, 1, 2, 3, 4]), "call *x(%rax)");
    assert!(ends(&[0xff, 0x14, 0xc8]), "call *(%rax,%rcx,8)");
    assert!(
        ends(&[0xff, 0x94, 0xc8, 1, 2, 3, 4]),
        "call *x(%rax,%rcx,8)"
    );
    assert!(!ends(&[0xff, 0xe0]), "jmp *%rax");
    assert!(!ends(&[0xff, 0x30]), "push (%rax)");
    assert!(ends(&[0xff, 0x14, 0xc5, 1, 2, 3, 4]), "call *x(,%rax,8)");
    assert!(!ends(&[0xff, 0x14, 0xc5]));
    assert!(!ends(&[0xe9, 0, 0, 0, 0]), "jmp");
    assert!(!ends(&[0xff, 0x50]));
}

#[test]
fn tables_with_expressions_that_jump_are_refused() {
    // DW_OP_skip -3: for ever.
    let forever = [EXPRESSION, 3, 0x2f, 0xfd, 0xff];
    assert!(tables(&[entry(0x40_1000, 0x100, &forever)]).is_none());
    // DW_OP_lit1, DW_OP_bra -4.
    let forever = [EXPRESSION, 4, 0x31, 0x28, 0xfc, 0xff];
    assert!(tables(&[entry(0x40_1000, 0x100, &forever)]).is_none());
    // Where a register is, and what it is (DW_CFA_expression, DW_CFA_val_expression).
    for rule in [0x10, 0x16] {
        let forever = [rule, 6, 3, 0x2f, 0xfd, 0xff];
        assert!(tables(&[entry(0x40_1000, 0x100, &forever)]).is_none());
    }
}

#[test]
fn a_loop_of_frames_comes_to_an_end() {
    let known = tables(&[entry(0x40_1000, 0x100, &[])]);
    let words = [0x40_1010; 4096];
    let found = chain(known, 0x40_1050, &words, &Known::default());
    assert_eq!(found.frames.len(), FRAMES_LIMIT);
    assert!(!found.complete);
}

fn programs() -> impl Strategy<Value = Vec<(u64, u64, Vec<u8>)>> {
    let program = prop::collection::vec(any::<u8>(), 0..40);
    let function = (0x40_1000_u64..0x40_9000, 0_u64..0x2000, program);
    prop::collection::vec(
        function.prop_map(|(begin, length, program)| entry(begin, length, &program)),
        0..6,
    )
}

/// Small numbers, addresses of code and of the stack, and anything.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..64, CODE, STACK..STACK + 0x400, any::<u64>()]
}

proptest! {
    #[test]
    fn whatever_tables_and_stacks_say_a_chain_comes_out(
        functions in programs(),
        words in prop::collection::vec(word(), 0..128),
        (ip, sp, bp, lr) in (word(), word(), word(), word()),
        bias in prop_oneof![Just(0_u64), word()],
    ) {
        let module = Module {
            range: CODE,
            bias,
            tables: tables(&functions).map(Arc::new),
            ckb_vm: None,
        };
        let bytes = bytes(&words);
        let stack = Stack { begin: STACK, bytes: &bytes };
        let code = Known::calls(&words);
        let replaced = Replaced { trampoline: Some(STACK..STACK + 0x20), addresses: &words };
        let registers = Registers { ip, sp, bp, lr };
        let modules = || vec![module.clone()];
        let of_x86_64 = Unwinder::new(modules()).chain(registers, stack, &replaced, &code);
        prop_assert!(of_x86_64.frames.len() <= FRAMES_LIMIT);
        let mut unwinder = super::Unwinder::<Aarch64>::new(modules());
        let of_arm64 = unwinder.chain(registers, stack, &replaced, &code);
        prop_assert!(of_arm64.frames.len() <= FRAMES_LIMIT);
    }

    #[test]
    fn any_bytes_are_tables_or_none(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        drop(Tables::checked(sections(bytes)));
    }
}
