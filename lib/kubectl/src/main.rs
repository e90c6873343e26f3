//! The plugin by itself: what it takes to build has no BPF. `ckb-probe`, under this program's name, is the same.

use std::process::ExitCode;

fn main() -> ExitCode {
    ckb_probe_kubectl::main()
}
