//! A mechanism that is begun by itself.

use ckb_probe_agent::{
    mechanism::{Accepted, BeginContext, Config, GroupId, Mechanism, Node},
    observe::ProcessId,
};
use ckb_probe_testkit::number::start_ticks;

/// Asks one thing of a process on behalf of a namespace; groups are numbered from `first` on. Or why it is refused.
pub fn begin<C: Config>(
    node: &mut Node,
    first: GroupId,
    config: C,
    pid: u32,
    namespace: &str,
) -> Result<(Accepted, Box<dyn Mechanism>), String> {
    let context = BeginContext {
        process: ProcessId {
            pid,
            start_ticks: start_ticks(pid),
        },
        namespace,
        first,
        ratio: None,
        node,
    };
    let mut begun = C::begin(&[config], context);
    let accepted = begun.answers.remove(0).map_err(|refusal| refusal.message)?;
    Ok((accepted, begun.mechanisms.remove(0)))
}
