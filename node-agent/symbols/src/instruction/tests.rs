use FirstInstruction::{Emulated, SingleStepped};

use super::*;

#[track_caller]
fn assert_verdict(code: &[u8], verdict: FirstInstruction) {
    let mut padded = code.to_vec();
    padded.resize(INSTRUCTION_BYTES, 0xcc);
    assert_eq!(FirstInstruction::of_x86_64(&padded), verdict, "{code:02x?}");
}

#[test]
fn what_push_setup_xol_ops_takes_is_emulated() {
    for register in 0x50..=0x57 {
        assert_verdict(&[register], Emulated);
        assert_verdict(&[0x41, register], Emulated);
        // Prefixes that the kernel does not take: REX.W, REX.R, operand size, two at once.
        assert_verdict(&[0x48, register], SingleStepped);
        assert_verdict(&[0x44, register], SingleStepped);
        assert_verdict(&[0x66, register], SingleStepped);
        assert_verdict(&[0x66, 0x41, register], SingleStepped);
    }
    // pop %rax, push $imm, push memory
    assert_verdict(&[0x58], SingleStepped);
    assert_verdict(&[0x68, 1, 0, 0, 0], SingleStepped);
    assert_verdict(&[0xff, 0x35, 1, 0, 0, 0], SingleStepped);
}

#[test]
fn what_branch_setup_xol_ops_takes_is_emulated() {
    assert_verdict(&[0x90], Emulated);
    assert_verdict(&[0xe8, 1, 0, 0, 0], Emulated);
    assert_verdict(&[0xe9, 1, 0, 0, 0], Emulated);
    assert_verdict(&[0xeb, 1], Emulated);
    for condition in 0..16 {
        assert_verdict(&[0x70 + condition, 1], Emulated);
        assert_verdict(&[0x0f, 0x80 + condition, 1, 0, 0, 0], Emulated);
    }
}

#[test]
fn what_only_newer_kernels_emulate_or_none_does_is_single_stepped() {
    // ret; endbr64; nopl 0(%rax,%rax,1); xchg %ax,%ax; pause; xchg %r8,%rax; loop; setne
    assert_verdict(&[0xc3], SingleStepped);
    assert_verdict(&[0xf3, 0x0f, 0x1e, 0xfa], SingleStepped);
    assert_verdict(&[0x0f, 0x1f, 0x44, 0, 0], SingleStepped);
    assert_verdict(&[0x66, 0x90], SingleStepped);
    assert_verdict(&[0xf3, 0x90], SingleStepped);
    assert_verdict(&[0x41, 0x90], SingleStepped);
    assert_verdict(&[0xe2, 1], SingleStepped);
    assert_verdict(&[0x0f, 0x95, 0xc0], SingleStepped);
    // As rocksdb_iter_seek (sub $0x18,%rsp) and rocksdb_iter_next (mov (%rdi),%rdi) begin; lea 8(%rdi),%rax.
    assert_verdict(&[0x48, 0x83, 0xec, 0x18], SingleStepped);
    assert_verdict(&[0x48, 0x8b, 0x3f], SingleStepped);
    assert_verdict(&[0x48, 0x8d, 0x47, 0x08], SingleStepped);
}

#[test]
fn an_instruction_that_the_file_cuts_short_is_single_stepped() {
    for code in [
        &[][..],
        &[0x41],
        &[0xe8, 1, 0, 0],
        &[0xeb],
        &[0x0f, 0x84, 1, 0, 0],
    ] {
        assert_eq!(FirstInstruction::of_x86_64(code), SingleStepped);
    }
}

/// Code of arm64 as its assembler writes it.
#[track_caller]
fn assert_word(word: u32, verdict: FirstInstruction) {
    let code = word.to_le_bytes();
    assert_eq!(
        FirstInstruction::of(Machine::Aarch64, &code),
        verdict,
        "{word:08x}"
    );
}

#[test]
fn what_arm64_kernels_simulate_is_emulated() {
    // b; bl; b.eq; cbz w0; cbnz x1; tbz w2,#3; tbnz x3,#33; adr x0; adrp x16; br x17; blr x8; ret; ret x1
    for word in [
        0x1400_0001,
        0x97ff_ffff,
        0x5400_0020,
        0x3400_0040,
        0xb500_0041,
        0x3618_0042,
        0xb708_0043,
        0x1000_0000,
        0x9000_0010,
        0xd61f_0220,
        0xd63f_0100,
        0xd65f_03c0,
        0xd65f_0020,
    ] {
        assert_word(word, Emulated);
    }
}

#[test]
fn what_arm64_functions_begin_with_is_single_stepped() {
    // stp x29,x30,[sp,#-32]!; sub sp,sp,#16; paciasp; bti c; nop; mov x0,x1; ldr x0,[x0]; ldr x0,literal; mov w8,#172; svc #0;
    // ldxr w0,[x1]; b.cond with the bit that makes it bc.cond; braa; retaa
    for word in [
        0xa9be_7bfd,
        0xd100_43ff,
        0xd503_233f,
        0xd503_245f,
        0xd503_201f,
        0xaa01_03e0,
        0xf940_0000,
        0x5800_0040,
        0x5280_1588,
        0xd400_0001,
        0x885f_7c20,
        0x5400_0030,
        0xd71f_0801,
        0xd65f_0bff,
    ] {
        assert_word(word, SingleStepped);
    }
    for short in [&[][..], &[0x01], &[0x01, 0x00, 0x00]] {
        let verdict = FirstInstruction::of(Machine::Aarch64, short);
        assert_eq!(verdict, SingleStepped);
    }
    assert_eq!(FirstInstruction::of_nop(Machine::Aarch64), SingleStepped);
}

#[test]
fn a_nop_is_what_its_machine_makes_of_it() {
    for (machine, nop) in [
        (Machine::X86_64, &[0x90][..]),
        (Machine::Aarch64, &[0x1f, 0x20, 0x03, 0xd5]),
    ] {
        let verdict = FirstInstruction::of(machine, nop);
        assert_eq!(verdict, FirstInstruction::of_nop(machine));
    }
}
