//! bpf(2) and perf_event_open(2), as far as aya 0.14 does not make these calls.

mod attributes;
mod mapped;
mod perf;
mod process_memory;

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    ptr,
};

use aya_obj::generated::{bpf_insn, bpf_prog_info};

use super::btf;
use attributes::{
    BatchAttributes, ElementAttributes, InformationAttributes, IteratedTask,
    IteratorLinkAttributes, KernelLinkAttributes, MapAttributes, MultiLinkAttributes,
    ProgramAttributes, RawTracepointAttributes, TypeAttributes,
};
pub(super) use mapped::Mapped;
pub(super) use perf::{PerfLink, ProbePmu, link_perf_event};
pub(super) use process_memory::{lives_without_main_thread, may_read_memory, read_memory};

// include/uapi/linux/bpf.h
const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const BPF_RAW_TRACEPOINT_OPEN: libc::c_long = 17;
const BPF_BTF_LOAD: libc::c_long = 18;
const BPF_MAP_FREEZE: libc::c_long = 22;
const BPF_MAP_LOOKUP_BATCH: libc::c_long = 24;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_ITER_CREATE: libc::c_long = 33;
const BPF_F_UPROBE_MULTI_RETURN: u32 = 1;
const BPF_F_KPROBE_MULTI_RETURN: u32 = 1;

const LOG_BYTES: usize = 64 << 10;

/// `enum bpf_prog_type`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramType {
    Kprobe = 2,
    RawTracepoint = 17,
    Tracing = 26,
}

/// `enum bpf_attach_type`, of a program for functions or of a tracing program.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttachType {
    /// By perf event: none is expected.
    None = 0,
    /// A tracepoint whose arguments have types.
    Tracepoint = 23,
    Iterator = 28,
    KprobeMulti = 42,
    UprobeMulti = 48,
    KprobeSession = 56,
    UprobeSession = 57,
}

impl AttachType {
    /// Whether one program sees both ends of a call.
    pub(super) fn is_session(self) -> bool {
        matches!(self, Self::KprobeSession | Self::UprobeSession)
    }
}

/// How often a program is loaded that signals interrupt: as often as libbpf tries.
const LOAD_ATTEMPTS: usize = 5;

/// The verifier tells what it does not accept and how far it came, and not each of a million steps, of which kernels before 6.4 keep the first.
const LOG_OF_ERRORS: u32 = 4;

/// Loads a program; a tracing program, for what the kernel's type of this number says. On a refusal, with the end of the verifier's log.
pub(super) fn load_program(
    instructions: &[bpf_insn],
    license: &CStr,
    name: &str,
    program_type: ProgramType,
    attach_type: AttachType,
    attach_type_id: u32,
) -> Result<OwnedFd, (io::Error, String)> {
    let load = |log: &mut [u8]| {
        let mut attributes = ProgramAttributes {
            program_type: program_type as u32,
            instruction_count: instructions.len() as u32,
            instructions: instructions.as_ptr() as u64,
            license: license.as_ptr() as u64,
            log_level: if log.is_empty() { 0 } else { LOG_OF_ERRORS },
            log_size: log.len() as u32,
            log_buffer: if log.is_empty() {
                0
            } else {
                log.as_mut_ptr() as u64
            },
            expected_attach_type: attach_type as u32,
            attach_type_id,
            ..ProgramAttributes::default()
        };
        // At most 15 bytes and a NUL: the rest is cut off.
        for (to, from) in attributes.name[..15].iter_mut().zip(name.bytes()) {
            *to = from;
        }
        // SAFETY: what the attributes point to outlives the call, with the lengths they say.
        unsafe { bpf(BPF_PROG_LOAD, &attributes) }
    };
    let interrupted = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
    let mut result = load(&mut []);
    for _ in 1..LOAD_ATTEMPTS {
        // The verifier gives up when a signal comes, and says so.
        if !result.as_ref().is_err_and(interrupted) {
            break;
        }
        result = load(&mut []);
    }
    result.or_else(|error| {
        // Once more, to be told why. That the log has no room for all of it is no reason.
        let mut log = vec![0; LOG_BYTES];
        load(&mut log).map_err(|_| {
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(0);
            let text = String::from_utf8_lossy(&log[..end]);
            // The last are how far it came.
            let end: Vec<&str> = text.lines().rev().take(5).collect();
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
    /// Offsets of the counters that the kernel is to raise meanwhile, 0 where there is none: as many, or none at all.
    pub(super) semaphores: &'a [u64],
    pub(super) pid: u32,
}

/// Links a program to many places of one file, in one process.
pub(super) fn link_multi(link: &MultiLink) -> io::Result<OwnedFd> {
    debug_assert_eq!(link.offsets.len(), link.cookies.len());
    // For as many as there are places, or the kernel would read beyond them.
    let any =
        link.semaphores.len() >= link.offsets.len() && link.semaphores.iter().any(|at| *at > 0);
    let attributes = MultiLinkAttributes {
        reference_counter_offsets: if any {
            link.semaphores.as_ptr() as u64
        } else {
            0
        },
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

/// Links a program to many functions of the kernel, at their returns or their entries (a session at both), for all processes.
/// As many names as cookies.
pub(super) fn link_kernel_functions(
    program: &OwnedFd,
    attach_type: AttachType,
    returns: bool,
    names: &[&CString],
    cookies: &[u64],
) -> io::Result<OwnedFd> {
    debug_assert_eq!(names.len(), cookies.len());
    let names: Vec<u64> = names.iter().map(|name| name.as_ptr() as u64).collect();
    let attributes = KernelLinkAttributes {
        program: program.as_raw_fd() as u32,
        attach_type: attach_type as u32,
        kprobe_flags: if returns {
            BPF_F_KPROBE_MULTI_RETURN
        } else {
            0
        },
        count: names.len().min(cookies.len()) as u32,
        symbols: names.as_ptr() as u64,
        cookies: cookies.as_ptr() as u64,
        ..KernelLinkAttributes::default()
    };
    // SAFETY: what the attributes point to, and what the names point to, outlives the call, with the lengths they say.
    unsafe { bpf(BPF_LINK_CREATE, &attributes) }
}

/// Attaches a program to a tracepoint, for all processes. A tracing program has been loaded for its tracepoint, and
/// takes no name.
pub(super) fn open_raw_tracepoint(program: &OwnedFd, name: Option<&CStr>) -> io::Result<OwnedFd> {
    let attributes = RawTracepointAttributes {
        name: name.map_or(0, |name| name.as_ptr() as u64),
        program: program.as_raw_fd() as u32,
        padding: 0,
    };
    // SAFETY: the name outlives the call.
    unsafe { bpf(BPF_RAW_TRACEPOINT_OPEN, &attributes) }
}

/// How often a tracing program was not run, since it was running on that CPU already: what interrupted it met it again.
pub(super) fn missed_runs(program: &OwnedFd) -> io::Result<u64> {
    // SAFETY: integers only.
    let mut information: bpf_prog_info = unsafe { std::mem::zeroed() };
    let attributes = InformationAttributes {
        object: program.as_raw_fd() as u32,
        length: size_of::<bpf_prog_info>() as u32,
        information: &raw mut information as u64,
    };
    // SAFETY: there is room for what the attributes say, and the call makes no descriptor.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_OBJ_GET_INFO_BY_FD,
            &raw const attributes,
            size_of::<InformationAttributes>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(information.recursion_misses)
}

/// Links an iterator's program to the tasks of one process, and what is theirs: kernel 6.1 and later.
pub(super) fn link_iterator(program: &OwnedFd, process: u32) -> io::Result<OwnedFd> {
    let task = IteratedTask {
        process,
        ..IteratedTask::default()
    };
    let attributes = IteratorLinkAttributes {
        program: program.as_raw_fd() as u32,
        attach_type: AttachType::Iterator as u32,
        information: &raw const task as u64,
        information_length: size_of::<IteratedTask>() as u32,
        ..IteratorLinkAttributes::default()
    };
    // SAFETY: the task outlives the call, with the length that is said.
    unsafe { bpf(BPF_LINK_CREATE, &attributes) }
}

/// Begins an iteration: reading what is returned runs the program.
pub(super) fn iterate(link: &OwnedFd) -> io::Result<OwnedFd> {
    let attributes = [link.as_raw_fd() as u32, 0];
    // SAFETY: the attributes point to nothing.
    unsafe { bpf(BPF_ITER_CREATE, &attributes) }
}

/// Fills the one value of a map that holds an object's data; `constant`: for good, so that the verifier may rely on
/// what it holds.
pub(super) fn fill_map(map: BorrowedFd<'_>, data: &[u8], constant: bool) -> io::Result<()> {
    let key = 0u32;
    let mut attributes = ElementAttributes {
        map: map.as_raw_fd() as u32,
        key: &raw const key as u64,
        value: data.as_ptr() as u64,
        ..ElementAttributes::default()
    };
    // SAFETY: key and value outlive the call; the map's value is as long as the data it was made for.
    unsafe { bpf_call(BPF_MAP_UPDATE_ELEM, &attributes) }?;
    if constant {
        attributes = ElementAttributes {
            map: attributes.map,
            ..ElementAttributes::default()
        };
        // SAFETY: the attributes point to nothing.
        unsafe { bpf_call(BPF_MAP_FREEZE, &attributes) }?;
    }
    Ok(())
}

/// A place in a hash map between two of its buckets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket(u32);

/// Adds up to so many entries of a hash map, beginning at a place, and returns where those after them begin; None where there are
/// none. ENOSPC: the next bucket has more than were asked for.
pub(super) fn lookup_batch<K: aya::Pod, V: aya::Pod>(
    map: BorrowedFd<'_>,
    from: Option<Bucket>,
    most: usize,
    entries: &mut Vec<(K, V)>,
) -> io::Result<Option<Bucket>> {
    let mut keys: Vec<K> = Vec::with_capacity(most);
    let mut values: Vec<V> = Vec::with_capacity(most);
    let mut next = Bucket::default();
    let (from, places) = (
        from.map(|from| from.0),
        (keys.as_mut_ptr(), values.as_mut_ptr()),
    );
    // SAFETY: there is room for as many entries; the map's keys and values are as long as these types, by which it was made.
    let (found, at_end) = unsafe { batch(map, from.as_ref(), &mut next.0, places, most)? };
    // SAFETY: the kernel has filled as many, and any bit pattern is a key or a value.
    unsafe {
        keys.set_len(found);
        values.set_len(found);
    }
    entries.extend(keys.into_iter().zip(values));
    Ok((!at_end).then_some(next))
}

/// The bytes of the first values of an array, as many as are asked for or there are, each so long: one call for all of them. ENOTSUPP
/// of arrays of which each CPU has its own, before Linux 5.13.
pub(super) fn lookup_array(map: BorrowedFd<'_>, most: usize, each: usize) -> io::Result<Vec<u8>> {
    let mut keys: Vec<u32> = Vec::with_capacity(most);
    let mut values: Vec<u8> = Vec::with_capacity(most * each);
    let places = (keys.as_mut_ptr(), values.as_mut_ptr());
    // SAFETY: there is room for as many values, each as long as the caller knows the map's to be.
    let (found, _) = unsafe { batch(map, None, &mut 0, places, most)? };
    // SAFETY: the kernel has filled as many.
    unsafe { values.set_len(found * each) };
    Ok(values)
}

/// How many entries were looked up from a place on, and whether there are no more; else the next begins at `next`.
///
/// # Safety
/// There is room for as many keys and values of the map as `most` says.
unsafe fn batch<K, V>(
    map: BorrowedFd<'_>,
    from: Option<&u32>,
    next: &mut u32,
    (keys, values): (*mut K, *mut V),
    most: usize,
) -> io::Result<(usize, bool)> {
    let mut attributes = BatchAttributes {
        from: from.map_or(0, |from| ptr::from_ref(from) as u64),
        next: ptr::from_mut(next) as u64,
        keys: keys as u64,
        values: values as u64,
        count: most as u32,
        map: map.as_raw_fd() as u32,
        ..BatchAttributes::default()
    };
    // SAFETY: the caller's; the kernel writes the count back.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_MAP_LOOKUP_BATCH,
            &raw mut attributes,
            size_of::<BatchAttributes>(),
        )
    };
    let error = (result < 0).then(io::Error::last_os_error);
    let at_end = match error {
        None => false,
        Some(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
        Some(error) => return Err(error),
    };
    Ok(((attributes.count as usize).min(most), at_end))
}

/// `enum bpf_map_type`: values that the kernel keeps with each socket.
pub(super) const SOCKET_STORAGE: u32 = 24;

/// The same: with each thread.
pub(super) const TASK_STORAGE: u32 = 29;

/// Makes a map from threads or sockets to values of so many bytes. The kernel wants to be told what types they are.
pub(super) fn create_storage(map_type: u32, value_size: u32, flags: u32) -> io::Result<OwnedFd> {
    let types = btf::of_map(value_size / 8);
    let attributes = TypeAttributes {
        types: types.as_ptr() as u64,
        size: types.len() as u32,
        ..TypeAttributes::default()
    };
    // SAFETY: the types outlive the call, with the length that is said.
    let types = unsafe { bpf(BPF_BTF_LOAD, &attributes) }?;
    let attributes = MapAttributes {
        map_type,
        key_size: 4,
        value_size,
        flags,
        type_descriptor: types.as_raw_fd() as u32,
        key_type: btf::KEY_TYPE,
        value_type: btf::VALUE_TYPE,
        ..MapAttributes::default()
    };
    // SAFETY: the attributes point to nothing.
    unsafe { bpf(BPF_MAP_CREATE, &attributes) }
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
    // SAFETY: by the caller's word.
    unsafe { descriptor(bpf_call(command, attributes)?) }
}

/// bpf(2), for the commands that return a number.
///
/// # Safety
/// As of [`bpf`].
unsafe fn bpf_call<T>(command: libc::c_long, attributes: &T) -> io::Result<libc::c_long> {
    // SAFETY: by the caller's word; the kernel reads no more than the size given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
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
