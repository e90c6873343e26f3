//! What share of an import goes into the scripts of its blocks: by us, by perf, and by the node itself, which can be told not
//! to run them.

use super::{
    Profiling, Stack, Stacks,
    names::plain,
    peer::{FREQUENCY, Perf, perf_stacks},
    vm::{ROWS, by_heading, seen},
};
use crate::bench::prelude::*;

/// What the names of rows begin with.
const WHAT: &str = "profile-vm: import of blocks that run scripts: ";

/// What the names of functions begin with that run scripts, and do nothing else. perf takes labels within the interpreter for
/// functions (`.CKB_VM_ASM_LABEL_OP_ADD`, `.divu_branch1`): nothing else in the node has such names.
const RUN_SCRIPTS: [&str; 3] = ["ckb_script::", "ckb_vm", "."];

/// Where a script that loads something leaves them.
const OTHERS: &str = "rocksdb";

const AGAINST: [Row; 4] = table! {
    "scripts by perf" = "perf" in "%";
    "under scripts, off from that by perf" = "scripts - perf" in "points", Within(3.0);
    "scripts by the CPU time of an import that leaves them out" = "node" in "%";
    "under scripts, off from that by the CPU time of an import that leaves them out" = "scripts - node" in "points", Within(3.0);
};

pub async fn run(bench: &mut Bench) -> Result<()> {
    let mut series = Series::default();
    for _ in 0..bench.settings.rounds {
        let (own, perf) = sampled(&bench.settings).await?;
        series.extend("", seen(&own));
        series.push("perf", perf.share(runs_scripts));
        let all = cpu_seconds(&bench.settings, &[]).await?;
        let without = cpu_seconds(&bench.settings, &["--skip-script-verify"]).await?;
        series.push("node", 100.0 * (1.0 - without / all));
    }
    bench.tell(WHAT, &series, &ROWS);
    bench.tell(WHAT, &series, &AGAINST);
    Ok(())
}

/// An import that both look at.
async fn sampled(settings: &Settings) -> Result<(Stacks, Stacks)> {
    let container = Container::new(1);
    let import = Import::of(settings, &settings.scripts, &container, &[])?;
    let process = import.process().await?;
    let options = ["--mode", "cpu", "--frequency", FREQUENCY];
    let profiling = Profiling::start(settings, 2, process, "vm.pb.gz", &options).await?;
    let perf = Perf::start(settings, &["--call-graph", "dwarf,32768"]).await?;
    import.finish().await?;
    let file = perf.stop().await?;
    let ours = by_heading(settings, &profiling.stop().await?).await?;
    let perfs = perf_stacks(&file, process).await?;
    fs::remove_file(&file).map_err(Failure::system("perf.data"))?;
    Ok((ours, perfs))
}

/// What an import takes that nobody looks at.
async fn cpu_seconds(settings: &Settings, options: &[&str]) -> Result<f64> {
    let container = Container::new(1);
    let import = Import::of(settings, &settings.scripts, &container, options)?;
    Ok(import.finish().await?.cpu.as_secs_f64())
}

/// Whether a stack of perf's runs a script: perf has no callers of the interpreter, but the interpreter itself.
fn runs_scripts(stack: &Stack) -> bool {
    let calls = stack.calls.iter().rev().map(|call| plain(call));
    let nearest = calls
        .map(|call| call.trim_start_matches('<').to_string())
        .find_map(|call| {
            let is_of = |part: &&str| call.starts_with(*part);
            let runs = RUN_SCRIPTS.iter().any(is_of);
            (runs || is_of(&OTHERS)).then_some(runs)
        });
    nearest == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_script_has_loaded_is_not_the_script() {
        let stack = |calls: &[&str]| Stack {
            thread: String::new(),
            calls: calls.iter().map(ToString::to_string).collect(),
            weight: 1.0,
        };
        let run = "<ckb_vm::machine::asm::AsmMachine as ckb_vm::DefaultMachineRunner>::run";
        assert!(runs_scripts(&stack(&["main", run, "ckb_vm_x64_execute"])));
        assert!(runs_scripts(&stack(&["ckb_vm_x64_execute"])));
        assert!(runs_scripts(&stack(&[".CKB_VM_ASM_LABEL_OP_ADD"])));
        assert!(runs_scripts(&stack(&[
            "ckb_script::scheduler::run",
            "memcpy"
        ])));
        assert!(!runs_scripts(&stack(&[run, "rocksdb_get_pinned_cf"])));
        assert!(!runs_scripts(&stack(&["main", "ckb_verification::verify"])));
    }
}
