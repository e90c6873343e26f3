use super::*;
use crate::diagnosis::{Part, Place};

fn diagnosis() -> Diagnosis {
    let part = |name: &str| Part {
        name: name.to_owned(),
        version: "0.1.0".to_owned(),
    };
    let long = "of Deployment ckb-probe/ckb-probe-operator 0 of 1 replicas are ready: CrashLoopBackOff: back-off 40s restarting \
                failed container";
    Diagnosis::of(
        vec![part("command line"), part("operator")],
        vec![
            Finding::passed(Place::Cluster, "the API server answers: Kubernetes v1.34.4"),
            Finding::failed(Place::Operator, long)
                .next("kubectl -n ckb-probe logs deployment/ckb-probe-operator")
                .see("when-there-is-no-status-at-all"),
        ],
    )
}

#[test]
fn it_is_as_linkerd_check_has_it_at_80_columns() {
    assert_eq!(
        diagnosis().text(Detail::Full),
        "cluster\n\
         -------\n\
         √ the API server answers: Kubernetes v1.34.4\n\
         \n\
         operator\n\
         --------\n\
         × of Deployment ckb-probe/ckb-probe-operator 0 of 1 replicas are ready:\n  \
         CrashLoopBackOff: back-off 40s restarting failed container\n  \
         next: kubectl -n ckb-probe logs deployment/ckb-probe-operator\n  \
         see https://github.com/ckb-probe/ckb-probe/blob/main/docs/troubleshooting.md#when-there-is-no-status-at-all\n\
         \n\
         command line 0.1.0, operator 0.1.0\n\
         × broken first: operator\n"
    );
}

#[test]
fn short_is_a_line_for_each_that_is_not_as_it_should_be() {
    let text = diagnosis().text(Detail::Short);
    assert_eq!(text.lines().count(), 1);
    assert!(text.starts_with("× operator: of Deployment "), "{text}");
    let well = Diagnosis::of(Vec::new(), vec![Finding::passed(Place::Crd, "well")]);
    assert_eq!(well.text(Detail::Short), "");
}

#[test]
fn what_others_wrote_moves_no_cursor() {
    let finding = Finding::failed(Place::Agent, "its log: \u{1b}[2Jgone\r\nand more");
    let text = Diagnosis::of(Vec::new(), vec![finding]).text(Detail::Full);
    assert!(!text.contains('\u{1b}') && !text.contains('\r'), "{text:?}");
    assert!(text.contains("its log: [2Jgone and more"), "{text}");
}

#[test]
fn what_is_about_one_ckbprobe_stands_together() {
    let findings = vec![
        Finding::passed(Place::Rbac, "well"),
        Finding::passed(Place::Pods, "1 pod of app=ckb runs").about("ckb/ckb"),
        Finding::failed(Place::Agent, "it hangs").about("ckb/ckb"),
        Finding::warning(Place::Pods, "none").about("ckb/other"),
    ];
    let text = Diagnosis::of(Vec::new(), findings).text(Detail::Full);
    assert_eq!(
        text,
        "rbac\n----\n√ well\n\n\
         ckb/ckb\n-------\n√ pods: 1 pod of app=ckb runs\n× agent: it hangs\n\n\
         ckb/other\n---------\n‼ pods: none\n\n\
         × broken first: agent of ckb/ckb\n"
    );
}
