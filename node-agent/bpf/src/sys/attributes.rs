//! What bpf(2) and perf_event_open(2) read, laid out as the kernel has it.

// include/uapi/linux/perf_event.h
pub(super) const PERF_ATTRIBUTES_SIZE: u32 = 128;

/// The part of `union bpf_attr` that BPF_PROG_LOAD reads.
#[repr(C)]
#[derive(Default)]
pub(super) struct ProgramAttributes {
    pub(super) program_type: u32,
    pub(super) instruction_count: u32,
    pub(super) instructions: u64,
    pub(super) license: u64,
    pub(super) log_level: u32,
    pub(super) log_size: u32,
    pub(super) log_buffer: u64,
    pub(super) kernel_version: u32,
    pub(super) flags: u32,
    pub(super) name: [u8; 16],
    pub(super) interface_index: u32,
    pub(super) expected_attach_type: u32,
    pub(super) type_descriptor: u32,
    pub(super) function_size: u32,
    pub(super) functions: u64,
    pub(super) function_count: u32,
    pub(super) line_size: u32,
    pub(super) lines: u64,
    pub(super) line_count: u32,
    pub(super) attach_type_id: u32,
    pub(super) attach_program: u32,
    pub(super) padding: u32,
}

/// The part of `union bpf_attr` that BPF_LINK_CREATE reads for an iterator.
#[repr(C)]
#[derive(Default)]
pub(super) struct IteratorLinkAttributes {
    pub(super) program: u32,
    pub(super) target: u32,
    pub(super) attach_type: u32,
    pub(super) flags: u32,
    pub(super) information: u64,
    pub(super) information_length: u32,
    pub(super) padding: u32,
}

/// `union bpf_iter_link_info`, for an iterator over tasks.
#[repr(C)]
#[derive(Default)]
pub(super) struct IteratedTask {
    pub(super) thread: u32,
    pub(super) process: u32,
    pub(super) descriptor: u32,
}

/// The part of `union bpf_attr` that BPF_MAP_UPDATE_ELEM and BPF_MAP_FREEZE read.
#[repr(C)]
#[derive(Default)]
pub(super) struct ElementAttributes {
    pub(super) map: u32,
    pub(super) padding: u32,
    pub(super) key: u64,
    pub(super) value: u64,
    pub(super) flags: u64,
}

/// The part of `union bpf_attr` that BPF_MAP_LOOKUP_BATCH reads, and writes the count of.
#[repr(C)]
#[derive(Default)]
pub(super) struct BatchAttributes {
    pub(super) from: u64,
    pub(super) next: u64,
    pub(super) keys: u64,
    pub(super) values: u64,
    pub(super) count: u32,
    pub(super) map: u32,
    pub(super) element_flags: u64,
    pub(super) flags: u64,
}

/// The part of `union bpf_attr` that BPF_MAP_CREATE reads.
#[repr(C)]
#[derive(Default)]
pub(super) struct MapAttributes {
    pub(super) map_type: u32,
    pub(super) key_size: u32,
    pub(super) value_size: u32,
    pub(super) entries: u32,
    pub(super) flags: u32,
    pub(super) inner_map: u32,
    pub(super) memory_node: u32,
    pub(super) name: [u8; 16],
    pub(super) interface_index: u32,
    pub(super) type_descriptor: u32,
    pub(super) key_type: u32,
    pub(super) value_type: u32,
    pub(super) padding: u32,
}

/// The part of `union bpf_attr` that BPF_BTF_LOAD reads.
#[repr(C)]
#[derive(Default)]
pub(super) struct TypeAttributes {
    pub(super) types: u64,
    pub(super) log: u64,
    pub(super) size: u32,
    pub(super) log_size: u32,
    pub(super) log_level: u32,
    pub(super) padding: u32,
}

/// The part of `union bpf_attr` that BPF_LINK_CREATE reads for a uprobe_multi.
#[repr(C)]
#[derive(Default)]
pub(super) struct MultiLinkAttributes {
    pub(super) program: u32,
    pub(super) target: u32,
    pub(super) attach_type: u32,
    pub(super) flags: u32,
    pub(super) path: u64,
    pub(super) offsets: u64,
    pub(super) reference_counter_offsets: u64,
    pub(super) cookies: u64,
    pub(super) count: u32,
    pub(super) uprobe_flags: u32,
    pub(super) pid: u32,
    pub(super) padding: u32,
}

/// The part of `union bpf_attr` that BPF_LINK_CREATE reads for a kprobe_multi.
#[repr(C)]
#[derive(Default)]
pub(super) struct KernelLinkAttributes {
    pub(super) program: u32,
    pub(super) target: u32,
    pub(super) attach_type: u32,
    pub(super) flags: u32,
    pub(super) kprobe_flags: u32,
    pub(super) count: u32,
    pub(super) symbols: u64,
    pub(super) addresses: u64,
    pub(super) cookies: u64,
}

/// The part of `union bpf_attr` that BPF_LINK_CREATE reads for a perf event.
#[repr(C)]
#[derive(Default)]
pub(super) struct PerfLinkAttributes {
    pub(super) program: u32,
    pub(super) target: u32,
    pub(super) attach_type: u32,
    pub(super) flags: u32,
    pub(super) cookie: u64,
}

/// The part of `union bpf_attr` that BPF_RAW_TRACEPOINT_OPEN reads.
#[repr(C)]
#[derive(Default)]
pub(super) struct RawTracepointAttributes {
    pub(super) name: u64,
    pub(super) program: u32,
    pub(super) padding: u32,
}

/// The part of `union bpf_attr` that BPF_OBJ_GET_INFO_BY_FD reads.
#[repr(C)]
pub(super) struct InformationAttributes {
    pub(super) object: u32,
    pub(super) length: u32,
    pub(super) information: u64,
}

/// `struct perf_event_attr`, as a uprobe wants it filled.
#[repr(C)]
pub(super) struct PerfAttributes {
    pub(super) pmu: u32,
    pub(super) size: u32,
    pub(super) config: u64,
    pub(super) sampling: [u64; 4],
    pub(super) wakeup: u32,
    pub(super) breakpoint_type: u32,
    pub(super) path: u64,
    pub(super) offset: u64,
    pub(super) rest: [u64; 7],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<ProgramAttributes>() == 120);
    assert!(offset_of!(ProgramAttributes, attach_type_id) == 108);
    assert!(offset_of!(IteratorLinkAttributes, information) == 16);
    assert!(size_of::<IteratedTask>() == 12);
    assert!(offset_of!(ElementAttributes, value) == 16);
    assert!(offset_of!(BatchAttributes, count) == 32);
    assert!(size_of::<BatchAttributes>() == 56);
    assert!(size_of::<TypeAttributes>() == 32);
    assert!(offset_of!(MapAttributes, type_descriptor) == 48);
    assert!(offset_of!(ProgramAttributes, name) == 48);
    assert!(offset_of!(ProgramAttributes, expected_attach_type) == 68);
    assert!(offset_of!(MultiLinkAttributes, path) == 16);
    assert!(offset_of!(MultiLinkAttributes, pid) == 56);
    assert!(offset_of!(PerfLinkAttributes, cookie) == 16);
    assert!(offset_of!(KernelLinkAttributes, kprobe_flags) == 16);
    assert!(offset_of!(KernelLinkAttributes, cookies) == 40);
    assert!(size_of::<RawTracepointAttributes>() == 16);
    assert!(size_of::<PerfAttributes>() == PERF_ATTRIBUTES_SIZE as usize);
    assert!(offset_of!(PerfAttributes, path) == 56);
};
