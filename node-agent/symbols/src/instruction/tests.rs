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
