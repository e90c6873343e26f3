//! `script-elf`: writes the script as the file that a chain's specification names, to the standard output.
//!
//! Made by scripts/build-chain.sh without Cargo, since it needs no virtual machine.

mod program;

use std::io::{self, Write as _};

fn main() -> io::Result<()> {
    io::stdout().write_all(&program::elf(1))
}
