//! A compiled BPF object: its maps made, its programs loaded one by one as they are needed.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    sync::OnceLock,
};

use aya::maps::{Map, MapData, MapError};
use aya_obj::{EbpfSectionKind, Object as Parsed, generated::bpf_insn};
use ckb_probe_common::{KFUNC_SESSION_COOKIE, KFUNC_SESSION_IS_RETURN};

use super::{
    AttachError, ReadError,
    btf::Types,
    memory::{self, Reservation},
    sys::{self, AttachType, Mapped, ProgramType},
    tracing::Traced,
    walk::Walk,
};

/// What stands in programs for a map that is not made. They are not loaded: the kernel would refuse them.
const NOT_MADE: RawFd = -1;

// include/uapi/linux/bpf.h
const BPF_JMP_CALL: u8 = 0x85;
const BPF_PSEUDO_KFUNC_CALL: u8 = 2;

/// A relocated object, and the maps that its programs use.
pub(super) struct Object {
    parsed: Parsed,
    maps: BTreeMap<String, MapData>,
    /// What they take; goes with them.
    room: Option<Reservation>,
}

impl Object {
    /// Makes the maps, each with as many entries as `sizes` says or the object itself. One that is to have none is not made.
    pub(super) fn load(bytes: &[u8], sizes: &[(&str, u32)]) -> Result<Self, AttachError> {
        Self::load_with(bytes, sizes, &[])
    }

    /// The same, after setting constants of its programs: what `constants` has for a name is as long as the static.
    pub(super) fn load_with(
        bytes: &[u8],
        sizes: &[(&str, u32)],
        constants: &[(&'static str, &[u8])],
    ) -> Result<Self, AttachError> {
        let mut parsed = Parsed::parse(bytes).map_err(|_| AttachError::Mismatch("readable ELF"))?;
        for (name, bytes) in constants {
            parsed
                .patch_map_data(HashMap::from([(*name, (*bytes, true))]))
                .map_err(|_| AttachError::Mismatch(name))?;
        }
        let cpus = memory::possible_cpus();
        let needed = memory::sum(&memory::shapes_of(&parsed, sizes), cpus);
        let room = memory::budget().take(needed, cpus)?;
        let mut maps = BTreeMap::new();
        for (name, definition) in &parsed.maps {
            let mut definition = definition.clone();
            match sizes.iter().find(|(sized, _)| sized == name) {
                Some((_, 0)) => continue,
                Some((_, entries)) => definition.set_max_entries(*entries),
                None => {}
            }
            let constant = definition.section_kind() == EbpfSectionKind::Rodata;
            let data = definition.data().to_vec();
            let map_type = definition.map_type();
            let failed: Option<fn(std::io::Error) -> AttachError> = match map_type {
                sys::TASK_STORAGE => Some(AttachError::TaskStorage),
                sys::SOCKET_STORAGE => Some(AttachError::SocketStorage),
                _ => None,
            };
            let map = if let Some(failed) = failed {
                let flags = definition.map_flags();
                sys::create_storage(map_type, definition.value_size(), flags)
                    .map_err(failed)
                    .and_then(|map| MapData::from_fd(map).map_err(read_error(name)))
            } else {
                MapData::create(definition, name, None).map_err(read_error(name))
            }?;
            if !data.is_empty() {
                sys::fill_map(map.fd().as_fd(), &data, constant).map_err(AttachError::Data)?;
            }
            maps.insert(name.clone(), map);
        }
        let malformed = |_| AttachError::Mismatch("instructions that can be relocated");
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
        let definitions = parsed.maps.clone();
        let descriptors: HashMap<&str, RawFd> = maps
            .iter()
            .map(|(name, map)| (name.as_str(), map.fd().as_fd().as_raw_fd()))
            .collect();
        let relocations = definitions.iter().map(|(name, map)| {
            let made = descriptors.get(name.as_str()).copied();
            (name.as_str(), made.unwrap_or(NOT_MADE), map)
        });
        parsed
            .relocate_maps(relocations, &text)
            .map_err(malformed)?;
        parsed.relocate_calls(&text).map_err(malformed)?;
        Ok(Self {
            parsed,
            maps,
            room: Some(room),
        })
    }

    /// Loads a program.
    pub(super) fn program(
        &self,
        name: &'static str,
        program_type: ProgramType,
        attach_type: AttachType,
    ) -> Result<OwnedFd, AttachError> {
        self.load_program(name, program_type, attach_type, 0)
    }

    /// Loads a tracing program.
    pub(super) fn tracing_program(
        &self,
        name: &'static str,
        traced: Traced,
        types: &Types,
    ) -> Result<OwnedFd, AttachError> {
        let type_id = traced.type_id(types)?;
        self.load_program(name, ProgramType::Tracing, traced.attach_type(), type_id)
    }

    fn load_program(
        &self,
        name: &'static str,
        program_type: ProgramType,
        attach_type: AttachType,
        traced_type: u32,
    ) -> Result<OwnedFd, AttachError> {
        let function = self
            .parsed
            .programs
            .get(name)
            .and_then(|program| self.parsed.functions.get(&program.function_key()))
            .ok_or(AttachError::Mismatch(name))?;
        let mut instructions = function.instructions.clone();
        if attach_type.is_session() {
            SessionFunctions::find()?.put_into(&mut instructions);
        }
        let license = &self.parsed.license;
        sys::load_program(
            &instructions,
            license,
            name,
            program_type,
            attach_type,
            traced_type,
        )
        .map_err(|(source, log)| AttachError::Program {
            program: name,
            source,
            log,
        })
    }

    /// A way through the entries of a hash map, which is still to be taken.
    pub(super) fn walk<K: aya::Pod, V: aya::Pod>(
        &self,
        name: &'static str,
    ) -> Result<Walk<K, V>, AttachError> {
        let data = self.maps.get(name).ok_or(AttachError::Mismatch(name))?;
        let room = data.info().map_err(read_error(name))?.max_entries();
        Walk::through(data, room).map_err(|source| read_error(name)(MapError::IoError(source)))
    }

    /// A map's descriptor once more.
    pub(super) fn duplicate(&self, name: &'static str) -> Result<OwnedFd, AttachError> {
        let data = self.maps.get(name).ok_or(AttachError::Mismatch(name))?;
        let duplicate = data.fd().as_fd().try_clone_to_owned();
        duplicate.map_err(|source| read_error(name)(MapError::IoError(source)))
    }

    /// Hands out what the maps take, to be kept for as long as they are.
    pub(super) fn take_room(&mut self) -> Option<Reservation> {
        self.room.take()
    }

    /// A map's descriptor.
    #[cfg(test)]
    pub(super) fn descriptor(&self, name: &str) -> std::os::fd::BorrowedFd<'_> {
        self.maps[name].fd().as_fd()
    }

    /// A map's memory, of one that is made to be mapped.
    pub(super) fn map_memory(
        &self,
        name: &'static str,
        bytes: usize,
    ) -> Result<Mapped, AttachError> {
        let data = self.maps.get(name).ok_or(AttachError::Mismatch(name))?;
        Mapped::of(data.fd().as_fd(), bytes)
            .map_err(|source| read_error(name)(MapError::IoError(source)))
    }

    /// Hands out a map as the type that its use asks for.
    pub(super) fn take_map<T>(&mut self, name: &'static str) -> Result<T, AttachError>
    where
        T: TryFrom<Map, Error = MapError>,
    {
        let data = self.maps.remove(name).ok_or(AttachError::Mismatch(name))?;
        let map = Map::from_map_data(data).and_then(T::try_from);
        map.map_err(read_error(name))
    }
}

fn read_error(map: &str) -> impl Fn(MapError) -> AttachError {
    move |source| {
        AttachError::Map(ReadError {
            map: map.to_string(),
            source: Box::new(source),
        })
    }
}

/// The functions of the kernel that session programs call, each by what stands for it in the object and the kernel's type id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SessionFunctions([(i32, i32); 2]);

impl SessionFunctions {
    /// Looks for them in the kernel's type information, once.
    fn find() -> Result<Self, AttachError> {
        static FOUND: OnceLock<Option<SessionFunctions>> = OnceLock::new();
        Self::find_once(&FOUND, || Ok(Self::of(&Types::read()?)))
    }

    /// What was found before. Until it is known whether the kernel has them it is looked again: that it was short of descriptors,
    /// or of memory, does not mean that it has none.
    fn find_once(
        found: &OnceLock<Option<Self>>,
        look: impl FnOnce() -> Result<Option<Self>, AttachError>,
    ) -> Result<Self, AttachError> {
        let known = match found.get() {
            Some(known) => *known,
            None => match look() {
                Err(error) if !error.is_lasting() => return Err(error),
                looked => *found.get_or_init(|| looked.ok().flatten()),
            },
        };
        known.ok_or(AttachError::NoSession)
    }

    fn of(types: &Types) -> Option<Self> {
        let id = |name| types.function(name).map(|id| id as i32);
        Some(Self([
            (KFUNC_SESSION_COOKIE, id("bpf_session_cookie")?),
            (KFUNC_SESSION_IS_RETURN, id("bpf_session_is_return")?),
        ]))
    }

    /// Replaces the calls that stand for them.
    fn put_into(self, instructions: &mut [bpf_insn]) {
        for instruction in instructions {
            if instruction.code != BPF_JMP_CALL || instruction.src_reg() != 0 {
                continue;
            }
            let mut known = self.0.iter();
            if let Some((_, id)) = known.find(|(stand_in, _)| *stand_in == instruction.imm) {
                instruction.set_src_reg(BPF_PSEUDO_KFUNC_CALL);
                instruction.imm = *id;
                instruction.off = 0;
            }
        }
    }
}

#[cfg(test)]
mod stack;

#[cfg(test)]
mod tests {
    use std::io;

    use super::{
        super::{CALLS, programs},
        *,
    };

    /// bpf_tail_call.
    const TAIL_CALL: i32 = 12;

    /// What a tail call is for here: see `stack.rs` of the programs.
    #[test]
    fn every_program_of_a_uprobe_stays_on_the_threads_stack() {
        let parsed = Parsed::parse(programs::named(CALLS).unwrap()).unwrap();
        assert!(!parsed.programs.is_empty());
        for (name, program) in &parsed.programs {
            let function = &parsed.functions[&program.function_key()];
            let calls = function.instructions.iter().filter(|instruction| {
                instruction.code == BPF_JMP_CALL
                    && instruction.src_reg() == 0
                    && instruction.imm == TAIL_CALL
            });
            assert!(calls.count() > 0, "{name} may be given a stack of its own");
        }
    }

    #[test]
    fn functions_that_could_not_be_looked_for_are_looked_for_again() {
        let error = |code| AttachError::NoTypes(io::Error::from_raw_os_error(code));
        let functions = SessionFunctions([(1, 2), (3, 4)]);
        let found = OnceLock::new();
        let first = SessionFunctions::find_once(&found, || Err(error(libc::EMFILE)));
        let first = first.unwrap_err();
        assert!(!first.is_lasting(), "{first}");
        let second = SessionFunctions::find_once(&found, || Ok(Some(functions)));
        assert_eq!(second.unwrap(), functions);
        let third = SessionFunctions::find_once(&found, || panic!("they are known"));
        assert_eq!(third.unwrap(), functions);
    }

    #[test]
    fn functions_that_the_kernel_lacks_are_looked_for_once() {
        let none = || Err(AttachError::NoTypes(io::ErrorKind::NotFound.into()));
        for look in [&none as &dyn Fn() -> _, &|| Ok(None)] {
            let found = OnceLock::new();
            let first = SessionFunctions::find_once(&found, look);
            assert!(matches!(first, Err(AttachError::NoSession)));
            let second = SessionFunctions::find_once(&found, || panic!("there are none"));
            assert!(matches!(second, Err(AttachError::NoSession)));
        }
    }
}
