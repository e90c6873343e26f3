//! One link for all functions of a file (kernel 6.6 and later): attached and detached in one go, and without
//! CAP_SYS_ADMIN.
//!
//! aya 0.14 does not know this attach type, and the aya that does needs a newer compiler than the project's.
//! So aya makes the maps, and the programs are loaded and linked here by bpf(2). To be deleted then.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ffi::CString,
    io,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
};

use aya::{Ebpf, maps::Map};
use aya_obj::{Function, Object};

use super::{AttachError, OBJECT, Site};

// include/uapi/linux/bpf.h
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_PROG_TYPE_KPROBE: u32 = 2;
const BPF_TRACE_UPROBE_MULTI: u32 = 48;
const BPF_F_UPROBE_MULTI_RETURN: u32 = 1;

const LOG_BYTES: usize = 64 << 10;

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

/// The part of `union bpf_attr` that BPF_LINK_CREATE reads for this attach type.
#[repr(C)]
#[derive(Default)]
struct LinkAttributes {
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

/// Links and programs; the kernel removes the probes when it is dropped.
pub(super) struct Links {
    // Declared first: dropped before the programs.
    _links: Vec<OwnedFd>,
    _programs: Vec<OwnedFd>,
}

/// Loads both programs against the maps of `object`, and links them to the sites of the process.
pub(super) fn attach(object: &Ebpf, pid: u32, sites: &[Site]) -> Result<Links, AttachError> {
    let mut parsed = relocated(object)?;
    let mut links = Links {
        _links: Vec::new(),
        _programs: Vec::new(),
    };
    // Returns first: see the perf-event tier.
    for (name, flags) in [
        ("call_return", BPF_F_UPROBE_MULTI_RETURN),
        ("call_enter", 0),
    ] {
        let program = load(&mut parsed, name)?;
        for sites in by_file(sites).values() {
            links._links.push(link(&program, sites, pid, flags)?);
        }
        links._programs.push(program);
    }
    Ok(links)
}

fn by_file(sites: &[Site]) -> BTreeMap<PathBuf, Vec<&Site>> {
    let mut files: BTreeMap<PathBuf, Vec<&Site>> = BTreeMap::new();
    for site in sites {
        files
            .entry(site.binary.attach_path())
            .or_default()
            .push(site);
    }
    files
}

/// The object once more, its instructions pointing to the maps that aya made.
fn relocated(object: &Ebpf) -> Result<Object, AttachError> {
    let malformed = |_| AttachError::Mismatch("instructions that can be relocated");
    let mut parsed = Object::parse(OBJECT).map_err(|_| AttachError::Mismatch("readable ELF"))?;
    let programs: HashSet<usize> = parsed
        .programs
        .values()
        .map(|program| program.section_index)
        .collect();
    let text: HashSet<usize> = parsed
        .functions
        .keys()
        .map(|(section, _)| *section)
        .filter(|section| !programs.contains(section))
        .collect();
    let descriptors: HashMap<&str, RawFd> = object
        .maps()
        .filter_map(|(name, map)| Some((name, descriptor(map)?)))
        .collect();
    let maps = parsed.maps.clone();
    let maps = maps
        .iter()
        .filter_map(|(name, map)| Some((name.as_str(), *descriptors.get(name.as_str())?, map)));
    parsed.relocate_maps(maps, &text).map_err(malformed)?;
    parsed.relocate_calls(&text).map_err(malformed)?;
    Ok(parsed)
}

fn descriptor(map: &Map) -> Option<RawFd> {
    match map {
        Map::Array(data) | Map::PerCpuArray(data) | Map::HashMap(data) | Map::RingBuf(data) => {
            Some(data.fd().as_fd().as_raw_fd())
        }
        _ => None,
    }
}

fn load(object: &mut Object, name: &'static str) -> Result<OwnedFd, AttachError> {
    let key = object
        .programs
        .get(name)
        .map(aya_obj::Program::function_key)
        .ok_or(AttachError::Mismatch(name))?;
    let function = object
        .functions
        .get(&key)
        .ok_or(AttachError::Mismatch(name))?;
    load_function(function, &object.license, name, 0, &mut []).or_else(|_| {
        // Once more, to be told why.
        let mut log = vec![0; LOG_BYTES];
        load_function(function, &object.license, name, 1, &mut log).map_err(|source| {
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(0);
            let text = String::from_utf8_lossy(&log[..end]);
            AttachError::Program {
                program: name,
                source,
                log: text.lines().rev().take(3).collect::<Vec<_>>().join("; "),
            }
        })
    })
}

fn load_function(
    function: &Function,
    license: &CString,
    name: &str,
    log_level: u32,
    log: &mut [u8],
) -> io::Result<OwnedFd> {
    let mut attributes = ProgramAttributes {
        program_type: BPF_PROG_TYPE_KPROBE,
        instruction_count: function.instructions.len() as u32,
        instructions: function.instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level,
        log_size: log.len() as u32,
        log_buffer: if log.is_empty() {
            0
        } else {
            log.as_mut_ptr() as u64
        },
        expected_attach_type: BPF_TRACE_UPROBE_MULTI,
        ..ProgramAttributes::default()
    };
    // At most 15 bytes and a NUL: the rest is cut off.
    for (to, from) in attributes.name[..15].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    // SAFETY: what the attributes point to outlives the call, with the lengths they say.
    unsafe { bpf(BPF_PROG_LOAD, &attributes) }
}

fn link(program: &OwnedFd, sites: &[&Site], pid: u32, flags: u32) -> Result<OwnedFd, AttachError> {
    let error = |source| AttachError::Link {
        symbols: sites
            .iter()
            .map(|site| site.symbol.as_str())
            .collect::<Vec<_>>()
            .join(", "),
        path: sites
            .first()
            .map(|site| site.binary.path().to_path_buf())
            .unwrap_or_default(),
        source,
    };
    let path = sites.first().map(|site| site.binary.attach_path());
    let name = CString::new(path.unwrap_or_default().as_os_str().as_bytes())
        .map_err(|_| error(io::Error::from(io::ErrorKind::InvalidFilename)))?;
    let offsets: Vec<u64> = sites.iter().map(|site| site.offset).collect();
    let cookies: Vec<u64> = sites.iter().map(|site| site.cookie()).collect();
    let attributes = LinkAttributes {
        program: program.as_raw_fd() as u32,
        attach_type: BPF_TRACE_UPROBE_MULTI,
        path: name.as_ptr() as u64,
        offsets: offsets.as_ptr() as u64,
        cookies: cookies.as_ptr() as u64,
        count: sites.len() as u32,
        uprobe_flags: flags,
        pid,
        ..LinkAttributes::default()
    };
    // SAFETY: what the attributes point to outlives the call, with the lengths they say.
    unsafe { bpf(BPF_LINK_CREATE, &attributes) }.map_err(error)
}

/// bpf(2), for the commands that return a descriptor.
///
/// # Safety
/// The attributes are those of the command, and what they point to is valid for as long as they say.
unsafe fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
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
    // SAFETY: the kernel just made it, for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(result as RawFd) })
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<ProgramAttributes>() == 72);
    assert!(offset_of!(ProgramAttributes, name) == 48);
    assert!(offset_of!(ProgramAttributes, expected_attach_type) == 68);
    assert!(offset_of!(LinkAttributes, path) == 16);
    assert!(offset_of!(LinkAttributes, pid) == 56);
};
