//! Probes that do nothing: what any probing by uprobe_multi costs at least.

use std::{ffi::CStr, os::fd::OwnedFd};

use aya_obj::generated::bpf_insn;

use super::{
    AttachError, Site,
    sys::{self, AttachType, MultiLink, ProgramType},
};

// include/uapi/linux/bpf_common.h: BPF_ALU64 | BPF_MOV | BPF_K, BPF_JMP | BPF_EXIT
const MOVE_IMMEDIATE: u8 = 0xb7;
const EXIT: u8 = 0x95;

const LICENSE: &CStr = c"Dual MIT/GPL";

/// An empty program at the entry and one at the return of each site, which `make bench` measures everything else
/// against. Dropping it detaches them.
#[must_use = "dropping it detaches"]
pub struct Floor {
    _links: Vec<OwnedFd>,
}

impl Floor {
    /// Attaches to the sites of a process, all of one file.
    pub fn attach(pid: u32, sites: &[Site]) -> Result<Self, AttachError> {
        let error = |source| AttachError::Link {
            symbols: "empty probes".to_string(),
            path: sites
                .first()
                .map(|site| site.binary.path().to_path_buf())
                .unwrap_or_default(),
            source,
        };
        let path = sites.first().map(|site| site.binary.attach_path());
        let path = sys::c_path(&path.unwrap_or_default()).map_err(error)?;
        let offsets: Vec<u64> = sites.iter().map(|site| site.offset).collect();
        let cookies = vec![0; offsets.len()];
        let program = empty_program()?;
        let links = [true, false].map(|returns| {
            sys::link_multi(&MultiLink {
                program: &program,
                attach_type: AttachType::UprobeMulti,
                returns,
                path: &path,
                offsets: &offsets,
                semaphores: &[],
                cookies: &cookies,
                pid,
            })
            .map_err(error)
        });
        let [returns, entries] = links;
        Ok(Self {
            _links: vec![returns?, entries?],
        })
    }
}

fn empty_program() -> Result<OwnedFd, AttachError> {
    let instruction = |code| bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: bpf_insn::new_bitfield_1(0, 0),
        off: 0,
        imm: 0,
    };
    sys::load_program(
        &[instruction(MOVE_IMMEDIATE), instruction(EXIT)],
        LICENSE,
        "empty",
        ProgramType::Kprobe,
        AttachType::UprobeMulti,
        0,
    )
    .map_err(|(source, log)| AttachError::Program {
        program: "empty",
        source,
        log,
    })
}
