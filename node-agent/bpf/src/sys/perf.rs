//! Probes by perf event: what kernels offer that lack links of many.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use super::{
    BPF_LINK_CREATE,
    attributes::{PERF_ATTRIBUTES_SIZE, PerfAttributes, PerfLinkAttributes},
    bpf, descriptor,
};

// include/uapi/linux/bpf.h
const BPF_PERF_EVENT: u32 = 41;

// include/uapi/linux/perf_event.h
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// The kernel's number for probes among its performance monitoring units, and the bit that asks for returns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbePmu {
    number: u32,
    return_bit: u32,
}

/// What a perf event connects. For a function of the kernel, its name stands for the path, and without a process the program is run
/// for all.
pub(crate) struct PerfLink<'a> {
    pub(crate) program: &'a OwnedFd,
    pub(crate) pmu: ProbePmu,
    pub(crate) returns: bool,
    pub(crate) path: &'a CStr,
    pub(crate) offset: u64,
    /// The offset of the counter that the kernel is to raise meanwhile, 0 where there is none.
    pub(crate) semaphore: u64,
    pub(crate) cookie: u64,
    pub(crate) pid: Option<u32>,
}

/// Where a counter's offset stands in an event's configuration: `config:32-63` of `format/ref_ctr_offset`, since Linux 4.20.
const SEMAPHORE_SHIFT: u32 = 32;

impl ProbePmu {
    /// That of uprobes.
    pub(crate) fn of_uprobes() -> io::Result<Self> {
        Self::find("/sys/bus/event_source/devices/uprobe")
    }

    /// That of functions of the kernel.
    pub(crate) fn of_kprobes() -> io::Result<Self> {
        Self::find("/sys/bus/event_source/devices/kprobe")
    }

    /// As sysfs tells it.
    fn find(directory: &str) -> io::Result<Self> {
        let malformed = || io::Error::from(io::ErrorKind::InvalidData);
        let number = std::fs::read_to_string(format!("{directory}/type"))?;
        let format = std::fs::read_to_string(format!("{directory}/format/retprobe"))?;
        // config:0
        let (_, bit) = format.trim().split_once(':').ok_or_else(malformed)?;
        Ok(Self {
            number: number.trim().parse().map_err(|_| malformed())?,
            return_bit: bit.parse().map_err(|_| malformed())?,
        })
    }
}

/// A perf event for one place of a file in one process, and the link of a program to it.
pub(crate) fn link_perf_event(link: &PerfLink) -> io::Result<[OwnedFd; 2]> {
    let PerfLink {
        program,
        pmu,
        returns,
        path,
        offset,
        semaphore,
        cookie,
        pid,
    } = *link;
    // An event that is of no process must be of a CPU: its program is run on all.
    let (pid, cpu) = pid.map_or((-1, 0), |pid| (pid as libc::pid_t, -1));
    let semaphore = u32::try_from(semaphore).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let attributes = PerfAttributes {
        pmu: pmu.number,
        size: PERF_ATTRIBUTES_SIZE,
        config: u64::from(semaphore) << SEMAPHORE_SHIFT
            | if returns { 1 << pmu.return_bit } else { 0 },
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
            pid,
            cpu,
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
