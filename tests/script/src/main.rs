//! `runs-scripts`: runs a script of RISC-V code by CKB-VM's interpreter in assembly, over and over, until it is ended.

mod program;

use ckb_vm::{
    Bytes, DefaultMachineBuilder, DefaultMachineRunner as _, Error, ISA_A, ISA_B, ISA_IMC, ISA_MOP,
    SupportMachine,
    cost_model::estimate_cycles,
    machine::{
        VERSION2,
        asm::{AsmCoreMachine, AsmMachine},
    },
};

/// How often the script goes through its loop: to make a machine for it, which is no part of CKB-VM that could be told apart where the
/// compiler has it inlined, takes a hundredth of the time that one takes.
const TIMES: i32 = 16;

fn main() -> Result<(), Error> {
    let code = Bytes::from(program::elf(TIMES));
    loop {
        let exit = run(&code)?;
        assert_eq!(exit, 0, "the script's exit code");
    }
}

/// Runs it once, and returns with what it exited.
fn run(code: &Bytes) -> Result<i8, Error> {
    let core = <Box<AsmCoreMachine> as SupportMachine>::new(
        ISA_IMC | ISA_A | ISA_B | ISA_MOP,
        VERSION2,
        u64::MAX,
    );
    let machine = DefaultMachineBuilder::new(core)
        .instruction_cycle_func(Box::new(estimate_cycles))
        .build();
    let mut machine = AsmMachine::new(machine);
    machine.load_program(code, std::iter::empty())?;
    machine.run()
}
