use super::*;

#[test]
fn what_kubectl_takes_is_read_and_written_the_same() {
    for (text, written_as) in [
        ("app=ckb", "app=ckb"),
        ("app==ckb", "app=ckb"),
        ("app = ckb , tier = a", "app=ckb,tier=a"),
        ("app=", "app="),
        ("app!=miner", "app notin (miner)"),
        ("tier in (a, b),app=ckb", "app=ckb,tier in (a,b)"),
        ("tier notin (a,b)", "tier notin (a,b)"),
        ("app", "app"),
        ("!app", "!app"),
        ("ckb.io/role=full", "ckb.io/role=full"),
    ] {
        let selector = parse(text).unwrap();
        assert_eq!(written(&selector), written_as, "{text}");
        assert_eq!(parse(written_as).unwrap(), selector, "{written_as}");
    }
}

#[test]
fn what_is_no_selector_is_refused_with_what_is_one() {
    for text in [
        "",
        "app=ckb,",
        "=ckb",
        "tier in a",
        "tier in ()",
        "a b",
        "app=ckb,app=other",
        "app=a b",
    ] {
        let error = parse(text).unwrap_err();
        assert!(
            error.to_string().contains("is no selector such as app=ckb"),
            "{text}"
        );
    }
}
