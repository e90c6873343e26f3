//! What programs have on their stacks, which kernels of different age reckon differently.

use std::{cmp::max, fs, ops::Range, path::Path};

use super::super::programs::named;
use super::*;

/// What all functions that call each other may have on the stack together.
const STACK: usize = 512;

// include/uapi/linux/bpf.h
const BPF_PSEUDO_CALL: u8 = 1;
const BPF_REG_FRAME: u8 = 10;
const BPF_ALU64_MOV_REGISTER: u8 = 0xbf;
const BPF_ALU64_ADD: u8 = 0x07;
const BPF_CLASS: u8 = 0x07;
const BPF_LDX: u8 = 0x01;
const BPF_ST: u8 = 0x02;
const BPF_STX: u8 = 0x03;

/// A program, with the functions that it calls behind it.
struct Program<'a>(&'a [bpf_insn]);

impl Program<'_> {
    /// Where each function begins, in order.
    fn functions(&self) -> Vec<usize> {
        let called = (0..self.0.len()).filter_map(|index| self.called_at(index));
        let mut begins: Vec<usize> = called.chain([0]).collect();
        begins.sort_unstable();
        begins.dedup();
        begins
    }

    /// Where a function begins that is called here.
    fn called_at(&self, index: usize) -> Option<usize> {
        let instruction = &self.0[index];
        let is_call = instruction.code == BPF_JMP_CALL && instruction.src_reg() == BPF_PSEUDO_CALL;
        is_call.then(|| (index as i64 + 1 + i64::from(instruction.imm)) as usize)
    }

    /// How far below its frame pointer a function goes.
    fn frame(&self, function: Range<usize>) -> usize {
        let below = function.map(|index| {
            let instruction = &self.0[index];
            let base = match instruction.code & BPF_CLASS {
                BPF_LDX => instruction.src_reg(),
                BPF_ST | BPF_STX => instruction.dst_reg(),
                _ => 0,
            };
            if base == BPF_REG_FRAME {
                return -i64::from(instruction.off);
            }
            let before = &self.0[index.saturating_sub(1)];
            let is_address = instruction.code == BPF_ALU64_ADD
                && before.code == BPF_ALU64_MOV_REGISTER
                && before.src_reg() == BPF_REG_FRAME
                && before.dst_reg() == instruction.dst_reg();
            if is_address {
                -i64::from(instruction.imm)
            } else {
                0
            }
        });
        below.max().map_or(0, |bytes| max(bytes, 0) as usize)
    }

    /// What a function and those that it calls have on the stack at most, as Linux 6.1 reckons it, which rounds up each; later ones do not
    /// where they compile programs.
    fn depth(&self, begin: usize) -> usize {
        let all = self.functions();
        let end = all.iter().find(|other| **other > begin);
        let function = begin..end.copied().unwrap_or(self.0.len());
        let called = function.clone().filter_map(|index| self.called_at(index));
        let deepest = called.map(|callee| self.depth(callee)).max().unwrap_or(0);
        max(self.frame(function), 1).next_multiple_of(32) + deepest
    }
}

#[test]
fn no_program_has_more_on_its_stack_than_the_oldest_kernel_allows() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ebpf/programs/src/bin");
    let mut programs = 0;
    for object in fs::read_dir(folder).unwrap() {
        let name = object.unwrap().file_name().into_string().unwrap();
        let bytes = named(name.clone().leak()).unwrap();
        let mut parsed = Parsed::parse(bytes).unwrap();
        let own: HashSet<usize> = parsed
            .programs
            .values()
            .map(|one| one.section_index)
            .collect();
        let all = parsed.functions.keys().map(|(section, _)| *section);
        let text: HashSet<usize> = all.filter(|section| !own.contains(section)).collect();
        parsed.relocate_calls(&text).unwrap();
        for (program, of) in &parsed.programs {
            let function = &parsed.functions[&of.function_key()];
            let depth = Program(&function.instructions).depth(0);
            assert!(
                depth <= STACK,
                "{name}: {program} has {depth} bytes on the stack"
            );
            programs += 1;
        }
    }
    assert!(programs > 30, "{programs} programs were looked at");
}
