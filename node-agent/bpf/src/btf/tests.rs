use super::*;

#[test]
fn fields_are_found_by_their_way() {
    let types = Types::read().unwrap();
    let field = |structure, path| types.field(structure, path);
    let at = |offset, size| Some(Field { offset, size });
    // What user space sees too, and never changes.
    assert_eq!(field("tcphdr", "dest"), at(2, 2));
    assert_eq!(field("pt_regs", "orig_ax"), at(120, 8));
    assert_eq!(field("sockaddr_in6", "sin6_addr"), at(8, 16));
    // In structures without a name.
    assert_eq!(field("sock_common", "skc_daddr"), at(0, 4));
    assert_eq!(field("sock_common", "skc_rcv_saddr"), at(4, 4));
    // Through a member, which is the first.
    let inner = field("sock_common", "skc_num").unwrap();
    assert_eq!(field("sock", "__sk_common.skc_num"), Some(inner));
    assert_eq!(
        field("tcp_sock", "inet_conn.icsk_inet.sk.__sk_common.skc_num"),
        Some(inner)
    );
    // An array, and a pointer.
    assert_eq!(field("task_struct", "comm").unwrap().size, 16);
    assert_eq!(field("task_struct", "real_parent").unwrap().size, 8);
}

#[test]
fn what_is_not_there_is_said() {
    let types = Types::read().unwrap();
    let error = types.fields(&[("task_struct", "tgid"), ("task_struct", "no_such.thing")]);
    assert_eq!(
        error.unwrap_err().to_string(),
        "this kernel's struct task_struct has no field no_such.thing"
    );
    // A bit field.
    assert_eq!(types.field("task_struct", "in_execve"), None);
    assert_eq!(types.field("no_such_structure", "field"), None);
    assert_eq!(types.function("bpf_iter_no_such"), None);
    assert_ne!(types.function("bpf_iter_task"), None);
    assert_eq!(types.function("btf_trace_sys_enter"), None);
    assert_ne!(types.typedef("btf_trace_sys_enter"), None);
    assert_eq!(types.enumerator("BPF_PROG_TYPE_NO_SUCH"), None);
    assert_eq!(types.enumerator("BPF_PROG_TYPE_TRACING"), Some(26));
}

#[test]
fn what_is_no_type_information_is_refused() {
    let whole = fs::read(PATH).unwrap();
    assert!(Types::parse(whole[..100].to_vec()).is_err());
    assert!(Types::parse(vec![0; 100]).is_err());
    assert!(Types::parse(Vec::new()).is_err());
}
