//! bpf(2) and perf_event_open(2), as far as aya 0.14 does not make these calls.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

use aya_obj::generated::bpf_insn;

// include/uapi/linux/bpf.h
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_RAW_TRACEPOINT_OPEN: libc::c_long = 17;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_PERF_EVENT: u32 = 41;
const BPF_F_UPROBE_MULTI_RETURN: u32 = 1;

// include/uapi/linux/perf_event.h
const PERF_ATTRIBUTES_SIZE: u32 = 128;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

const LOG_BYTES: usize = 64 << 10;

/// `enum bpf_prog_type`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramType {
    Kprobe = 2,
    RawTracepoint = 17,
}

/// `enum bpf_attach_type`, of a program for uprobes.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttachType {
    /// By perf event: none is expected.
    None = 0,
    UprobeMulti = 48,
    UprobeSession = 57,
}

/// The part of `union bpf_attr` that BPF_PROG_LOAD reads.
#[repr(C)]
#[derive(Default)]
struct ProgramAttributes {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buffer: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface_index: u32,
    expected_attach_type: u32,
}

/// The part of `union bpf_attr` that BPF_LINK_CREATE reads for a uprobe_multi.
#[repr(C)]
#[derive(Default)]
struct MultiLinkAttributes {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    reference_counter_offsets: u64,
    cookies: u64,
    count: u32,
    uprobe_flags: u32,
    pid: u32,
    padding: u32,
}

/// The part of `union bpf_attr` that BPF_LINK_CREATE reads for a perf event.
#[repr(C)]
#[derive(Default)]
struct PerfLinkAttributes {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    cookie: u64,
}

/// The part of `union bpf_attr` that BPF_RAW_TRACEPOINT_OPEN reads.
#[repr(C)]
#[derive(Default)]
struct RawTracepointAttributes {
    name: u64,
    program: u32,
    padding: u32,
}

/// `struct perf_event_attr`, as a uprobe wants it filled.
#[repr(C)]
struct PerfAttributes {
    pmu: u32,
    size: u32,
    config: u64,
    sampling: [u64; 4],
    wakeup: u32,
    breakpoint_type: u32,
    path: u64,
    offset: u64,
    rest: [u64; 7],
}

/// Loads a program. On a refusal, with the end of the verifier's log.
pub(super) fn load_program(
    instructions: &[bpf_insn],
    license: &CStr,
    name: &str,
    program_type: ProgramType,
    attach_type: AttachType,
) -> Result<OwnedFd, (io::Error, String)> {
    let load = |log: &mut [u8]| {
        let mut attributes = ProgramAttributes {
            program_type: program_type as u32,
            instruction_count: instructions.len() as u32,
            instructions: instructions.as_ptr() as u64,
            license: license.as_ptr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_size: log.len() as u32,
            log_buffer: if log.is_empty() {
                0
            } else {
                log.as_mut_ptr() as u64
            },
            expected_attach_type: attach_type as u32,
            ..ProgramAttributes::default()
        };
        // At most 15 bytes and a NUL: the rest is cut off.
        for (to, from) in attributes.name[..15].iter_mut().zip(name.bytes()) {
            *to = from;
        }
        // SAFETY: what the attributes point to outlives the call, with the lengths they say.
        unsafe { bpf(BPF_PROG_LOAD, &attributes) }
    };
    load(&mut []).or_else(|_| {
        // Once more, to be told why.
        let mut log = vec![0; LOG_BYTES];
        load(&mut log).map_err(|error| {
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(0);
            let text = String::from_utf8_lossy(&log[..end]);
            let end: Vec<&str> = text.lines().rev().take(3).collect();
            (error, end.join("; "))
        })
    })
}

/// What a link of many uprobes connects.
pub(super) struct MultiLink<'a> {
    pub(super) program: &'a OwnedFd,
    pub(super) attach_type: AttachType,
    /// At the functions' returns instead of their entries.
    pub(super) returns: bool,
    pub(super) path: &'a CStr,
    /// As many as cookies.
    pub(super) offsets: &'a [u64],
    pub(super) cookies: &'a [u64],
    pub(super) pid: u32,
}

/// Links a program to many places of one file, in one process.
pub(super) fn link_multi(link: &MultiLink) -> io::Result<OwnedFd> {
    debug_assert_eq!(link.offsets.len(), link.cookies.len());
    let attributes = MultiLinkAttributes {
        program: link.program.as_raw_fd() as u32,
        attach_type: link.attach_type as u32,
        path: link.path.as_ptr() as u64,
        offsets: link.offsets.as_ptr() as u64,
        cookies: link.cookies.as_ptr() as u64,
        count: link.offsets.len().min(link.cookies.len()) as u32,
        uprobe_flags: if link.returns {
            BPF_F_UPROBE_MULTI_RETURN
        } else {
            0
        },
        pid: link.pid,
        ..MultiLinkAttributes::default()
    };
    // SAFETY: what the attributes point to outlives the call, with the lengths they say.
    unsafe { bpf(BPF_LINK_CREATE, &attributes) }
}

/// The kernel's number for uprobes among its performance monitoring units, and the bit that asks for returns.
#[derive(Clone, Copy, Debug)]
pub(super) struct UprobePmu {
    number: u32,
    return_bit: u32,
}

impl UprobePmu {
    /// As sysfs tells it.
    pub(super) fn find() -> io::Result<Self> {
        const DIRECTORY: &str = "/sys/bus/event_source/devices/uprobe";
        let malformed = || io::Error::from(io::ErrorKind::InvalidData);
        let number = std::fs::read_to_string(format!("{DIRECTORY}/type"))?;
        let format = std::fs::read_to_string(format!("{DIRECTORY}/format/retprobe"))?;
        // config:0
        let (_, bit) = format.trim().split_once(':').ok_or_else(malformed)?;
        Ok(Self {
            number: number.trim().parse().map_err(|_| malformed())?,
            return_bit: bit.parse().map_err(|_| malformed())?,
        })
    }
}

/// A perf event for one place of a file in one process, and the link of a program to it.
pub(super) fn link_perf_event(
    program: &OwnedFd,
    pmu: UprobePmu,
    returns: bool,
    path: &CStr,
    offset: u64,
    cookie: u64,
    pid: u32,
) -> io::Result<[OwnedFd; 2]> {
    let attributes = PerfAttributes {
        pmu: pmu.number,
        size: PERF_ATTRIBUTES_SIZE,
        config: if returns { 1 << pmu.return_bit } else { 0 },
        sampling: [0; 4],
        wakeup: 0,
        breakpoint_type: 0,
        path: path.as_ptr() as u64,
        offset,
        rest: [0; 7],
    };
    // SAFETY: the attributes are as long as they say, and their path outlives the call.
    let event = unsafe {
        descriptor(libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            pid as libc::pid_t,
            -1,
            -1,
            PERF_FLAG_FD_CLOEXEC,
        ))
    }?;
    let link = PerfLinkAttributes {
        program: program.as_raw_fd() as u32,
        target: event.as_raw_fd() as u32,
        attach_type: BPF_PERF_EVENT,
        cookie,
        ..PerfLinkAttributes::default()
    };
    // SAFETY: the attributes point to nothing.
    let link = unsafe { bpf(BPF_LINK_CREATE, &link) }?;
    // The link goes first.
    Ok([link, event])
}

/// Attaches a program to a tracepoint, for all processes.
pub(super) fn open_raw_tracepoint(program: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    let attributes = RawTracepointAttributes {
        name: name.as_ptr() as u64,
        program: program.as_raw_fd() as u32,
        padding: 0,
    };
    // SAFETY: the name outlives the call.
    unsafe { bpf(BPF_RAW_TRACEPOINT_OPEN, &attributes) }
}

/// A path as the kernel takes it.
pub(super) fn c_path(path: &std::path::Path) -> io::Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidFilename))
}

/// bpf(2), for the commands that return a descriptor.
///
/// # Safety
/// The attributes are those of the command, and what they point to is valid for as long as they say.
unsafe fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: by the caller's word; the kernel reads no more than the size given.
    unsafe {
        descriptor(libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        ))
    }
}

/// The descriptor that a system call returned.
///
/// # Safety
/// The system call was one that makes a descriptor.
unsafe fn descriptor(result: libc::c_long) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made it, for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(result as RawFd) })
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<ProgramAttributes>() == 72);
    assert!(offset_of!(ProgramAttributes, name) == 48);
    assert!(offset_of!(ProgramAttributes, expected_attach_type) == 68);
    assert!(offset_of!(MultiLinkAttributes, path) == 16);
    assert!(offset_of!(MultiLinkAttributes, pid) == 56);
    assert!(offset_of!(PerfLinkAttributes, cookie) == 16);
    assert!(size_of::<RawTracepointAttributes>() == 16);
    assert!(size_of::<PerfAttributes>() == PERF_ATTRIBUTES_SIZE as usize);
    assert!(offset_of!(PerfAttributes, path) == 56);
};
