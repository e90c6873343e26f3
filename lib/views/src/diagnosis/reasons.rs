//! Each reason that a status can give: at which place it stands, and what to type next. Both lists are complete, by the compiler.

use ckb_probe_crds::Reason;

use super::Place;

/// Whom a command is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Where<'a> {
    /// The CkbProbe.
    pub namespace: &'a str,
    pub name: &'a str,
    /// The namespace of the installation.
    pub system: &'a str,
    /// A pod that it is about, where there is one.
    pub pod: &'a str,
    pub node: &'a str,
}

/// Where it gets stuck; None where nothing is wrong.
pub(super) fn place(reason: Reason) -> Option<Place> {
    Some(match reason {
        Reason::Firing | Reason::UnderBudget | Reason::Done => return None,
        Reason::Paused
        | Reason::Expired
        | Reason::InvalidSpec
        | Reason::KindNotAdmitted
        | Reason::ExporterNotAdmitted
        | Reason::LimitExceeded => Place::CkbProbe,
        Reason::NoMatchingPods | Reason::PodNotRunning => Place::Pods,
        Reason::AgentStarting
        | Reason::AgentUnavailable
        | Reason::AgentSilent
        | Reason::ReportRefused
        | Reason::ReportTruncated
        | Reason::MemoryLimit => Place::Agent,
        Reason::PreflightFailed => Place::Node,
        Reason::ExecutableNotFound | Reason::TargetDied => Place::Process,
        Reason::SymbolNotFound | Reason::TooManyMatches | Reason::SingleStepped => Place::Symbols,
        Reason::AttachFailed | Reason::UnsupportedByKernel | Reason::EntryOnly => Place::Kernel,
        Reason::Silent
        | Reason::Attaching
        | Reason::TooManyRows
        | Reason::OverBudget
        | Reason::NothingAttached
        | Reason::BackgroundErrors
        | Reason::WritesHeldBack
        | Reason::ReadAmplification
        | Reason::WriteAmplification
        | Reason::Unusual => Place::Figures,
    })
}

/// Whether it passes by itself, or is as somebody wants it: nothing to repair.
pub(super) fn passes(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Attaching | Reason::AgentStarting | Reason::Paused | Reason::Expired
    )
}

/// What to type next.
pub(super) fn next(reason: Reason, at: &Where<'_>) -> String {
    let Where {
        namespace,
        name,
        system,
        pod,
        node,
    } = at;
    let agent =
        format!("-l app.kubernetes.io/component=agent --field-selector spec.nodeName={node}");
    match reason {
        Reason::Paused => format!(
            "kubectl -n {namespace} patch ckbprobe {name} --type merge -p '{{\"spec\":{{\"paused\":false}}}}'"
        ),
        Reason::Expired
        | Reason::InvalidSpec
        | Reason::KindNotAdmitted
        | Reason::ExporterNotAdmitted
        | Reason::LimitExceeded
        | Reason::SymbolNotFound
        | Reason::TooManyMatches
        | Reason::SingleStepped
        | Reason::OverBudget => format!("kubectl -n {namespace} edit ckbprobe {name}"),
        Reason::NoMatchingPods => format!("kubectl -n {namespace} get pods --show-labels"),
        Reason::PodNotRunning => format!("kubectl -n {namespace} describe pod {pod}"),
        Reason::ExecutableNotFound => {
            format!("kubectl -n {namespace} exec {pod} -- sh -c 'readlink /proc/[0-9]*/exe'")
        }
        Reason::TargetDied => format!("kubectl -n {namespace} logs {pod} --previous"),
        Reason::AgentStarting | Reason::AgentUnavailable => {
            format!("kubectl -n {system} describe pods -l app.kubernetes.io/component=agent")
        }
        Reason::AgentSilent
        | Reason::ReportRefused
        | Reason::ReportTruncated
        | Reason::MemoryLimit
        | Reason::AttachFailed
            if !node.is_empty() =>
        {
            format!("kubectl -n {system} logs $(kubectl -n {system} get pods -o name {agent})")
        }
        Reason::AgentSilent
        | Reason::ReportRefused
        | Reason::ReportTruncated
        | Reason::MemoryLimit
        | Reason::AttachFailed => {
            format!("kubectl -n {system} logs -l app.kubernetes.io/component=agent --prefix")
        }
        Reason::PreflightFailed | Reason::UnsupportedByKernel | Reason::EntryOnly => {
            format!("kubectl -n {system} describe nodeprobe {node}")
        }
        Reason::Silent
        | Reason::Attaching
        | Reason::TooManyRows
        | Reason::NothingAttached
        | Reason::BackgroundErrors
        | Reason::WritesHeldBack
        | Reason::ReadAmplification
        | Reason::WriteAmplification
        | Reason::Unusual
        | Reason::Firing
        | Reason::UnderBudget
        | Reason::Done => format!("kubectl -n {namespace} describe ckbprobe {name}"),
    }
}

/// Where docs/troubleshooting.md says more.
pub(super) fn anchor(reason: Reason) -> String {
    reason.as_str().to_ascii_lowercase()
}
