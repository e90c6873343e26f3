//! The oldest tier: two perf events for each function, one at its entry and one at its return.

use std::num::NonZeroU32;

use aya::{
    Ebpf,
    programs::{
        Program, ProgramError, UProbe,
        uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeScope},
    },
};

use super::{AttachError, Site};

const ENTER: &str = "call_enter";
const RETURN: &str = "call_return";

/// Attaches both programs to every site. On an error the object, and with it every link so far, is dropped
/// by the caller.
pub(super) fn attach(object: &mut Ebpf, pid: u32, sites: &[Site]) -> Result<(), AttachError> {
    let scope = match NonZeroU32::new(pid) {
        Some(pid) => UProbeScope::OneProcess(pid),
        None => UProbeScope::CallingProcess,
    };
    // Returns first: a call that enters in between is ignored at its return. The other way round it would
    // stay in the table of calls in flight for ever.
    for name in [RETURN, ENTER] {
        let program = program(object, name)?;
        program.load().map_err(|source| AttachError::Verify {
            program: name,
            source: Box::new(source),
        })?;
        for site in sites {
            attach_one(program, site, scope).map_err(|source| AttachError::Attach {
                symbol: site.symbol.clone(),
                path: site.binary.path().to_path_buf(),
                offset: site.offset,
                source: Box::new(source),
            })?;
        }
    }
    Ok(())
}

fn program<'a>(object: &'a mut Ebpf, name: &'static str) -> Result<&'a mut UProbe, AttachError> {
    match object.program_mut(name) {
        Some(Program::UProbe(program)) => Ok(program),
        _ => Err(AttachError::Mismatch(name)),
    }
}

fn attach_one(program: &mut UProbe, site: &Site, scope: UProbeScope) -> Result<(), ProgramError> {
    let point = UProbeAttachPoint {
        location: UProbeAttachLocation::AbsoluteOffset(site.offset),
        cookie: Some(site.cookie()),
    };
    // The link stays with the program and goes when the program does.
    program
        .attach(point, site.binary.attach_path(), scope)
        .map(|_| ())
}
