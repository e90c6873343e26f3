//! Programs that the kernel knows by their types: at its tracepoints, and of its iterators. Both are loaded once for a
//! node, and need no tracefs.

use std::{fmt, fs::File, io, os::fd::OwnedFd};

use super::{
    AttachError, Links,
    btf::Types,
    object::Object,
    sys::{self, AttachType},
};

/// What a tracing program is loaded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traced {
    /// A tracepoint, by its name.
    Tracepoint(&'static str),
    /// An iterator, by what it goes through: `task`, `task_file`.
    Iterator(&'static str),
}

impl fmt::Display for Traced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tracepoint(name) => write!(f, "tracepoint {name}"),
            Self::Iterator(name) => write!(f, "iterator {name}"),
        }
    }
}

impl Traced {
    pub(super) fn attach_type(self) -> AttachType {
        match self {
            Self::Tracepoint(_) => AttachType::Tracepoint,
            Self::Iterator(_) => AttachType::Iterator,
        }
    }

    pub(super) fn type_id(self, types: &Types) -> Result<u32, AttachError> {
        let id = match self {
            Self::Tracepoint(name) => types.typedef(&format!("btf_trace_{name}")),
            Self::Iterator(name) => types.function(&format!("bpf_iter_{name}")),
        };
        id.ok_or(AttachError::NotTraceable(self))
    }
}

/// Programs for tracepoints, in the order in which they are attached: what sees the end of something before what sees
/// its beginning, so that no beginning is remembered without its end being seen.
pub(super) struct Tracepoints {
    programs: Vec<(&'static str, OwnedFd)>,
}

impl Tracepoints {
    /// Loads programs, each by its name and its tracepoint's.
    pub(super) fn load(
        object: &Object,
        types: &Types,
        programs: &[(&'static str, &'static str)],
    ) -> Result<Self, AttachError> {
        let programs = programs.iter().map(|&(program, tracepoint)| {
            let traced = Traced::Tracepoint(tracepoint);
            Ok((tracepoint, object.tracing_program(program, traced, types)?))
        });
        Ok(Self {
            programs: programs.collect::<Result<_, AttachError>>()?,
        })
    }

    /// Attaches them all, or none.
    pub(super) fn attach(&self) -> Result<Links, AttachError> {
        let links = self.programs.iter().map(|(name, program)| {
            sys::open_raw_tracepoint(program, None)
                .map_err(|source| AttachError::Tracepoint { name, source })
        });
        Ok(Links::of(links.collect::<Result<_, _>>()?))
    }

    /// How often the program of a tracepoint was not run, as it interrupted itself; 0 where the kernel does not say.
    pub(super) fn missed(&self, tracepoint: &str) -> u64 {
        let programs = self.programs.iter().filter(|(name, _)| *name == tracepoint);
        programs
            .map(|(_, program)| sys::missed_runs(program).unwrap_or_default())
            .sum()
    }
}

/// A program that the kernel runs for each of the tasks of a process, or what is theirs.
pub(super) struct Iterator {
    program: OwnedFd,
}

impl Iterator {
    pub(super) fn load(
        object: &Object,
        types: &Types,
        program: &'static str,
        over: &'static str,
    ) -> Result<Self, AttachError> {
        let program = object.tracing_program(program, Traced::Iterator(over), types)?;
        Ok(Self { program })
    }

    /// Limits it to a process. Of a process that ends, nothing comes any more.
    pub(super) fn over(&self, process: u32) -> Result<Iteration, AttachError> {
        let link = sys::link_iterator(&self.program, process).map_err(AttachError::Iterate)?;
        Ok(Iteration { link })
    }
}

/// An iterator over one process.
pub(super) struct Iteration {
    link: OwnedFd,
}

impl Iteration {
    /// Begins to go through it once: what is read is what the program writes.
    pub(super) fn begin(&self) -> io::Result<File> {
        sys::iterate(&self.link).map(File::from)
    }
}

#[cfg(test)]
mod tests;
