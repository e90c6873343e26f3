//! What compilers do, unless told not to, to make a program's mistakes harder to use: whether an executable has it.

use object::{
    LittleEndian,
    elf::{
        DF_1_NOW, DF_1_PIE, DF_BIND_NOW, DT_BIND_NOW, DT_FLAGS, DT_FLAGS_1, DynamicTag, ET_DYN,
        FileHeader64, PF_W, PF_X, PT_GNU_RELRO, PT_GNU_STACK,
    },
    read::elf::{FileHeader as _, ProgramHeader as _},
};

use crate::failure::{Failure, Result};

type Header = FileHeader64<LittleEndian>;

/// What an executable of Linux on x86-64 or arm64 lacks, in the terms of `checksec`; empty where it has all.
pub fn lacks(file: &[u8]) -> Result<Vec<&'static str>> {
    let failed = Failure::format("an executable");
    let endian = LittleEndian;
    let read = || -> object::Result<Vec<&'static str>> {
        let header = Header::parse(file)?;
        let segments = header.program_headers(endian, file)?;
        let mut dynamic: Vec<(DynamicTag, u64)> = Vec::new();
        for segment in segments {
            let entries = segment.dynamic(endian, file)?.into_iter().flatten();
            dynamic.extend(entries.map(|entry| (entry.d_tag.get(endian), entry.d_val.get(endian))));
        }
        let value = |tag| {
            let mut found = dynamic.iter().filter(|(of, _)| *of == tag);
            found.next().map(|(_, value)| *value)
        };
        let flag = |tag, flag: u64| value(tag).is_some_and(|flags| flags & flag != 0);
        let flags_of = |kind| {
            let of_kind = segments
                .iter()
                .filter(move |one| one.p_type.get(endian) == kind);
            of_kind.map(|segment| segment.p_flags.get(endian).0)
        };
        let write_and_execute = PF_W.0 | PF_X.0;
        let mut flags = segments.iter().map(|one| one.p_flags.get(endian).0);
        let writable_code = flags.any(|flags| flags & write_and_execute == write_and_execute);
        let binds_at_once = value(DT_BIND_NOW).is_some()
            || flag(DT_FLAGS, DF_BIND_NOW.0)
            || flag(DT_FLAGS_1, DF_1_NOW.0);
        let is_pie = header.e_type(endian) == ET_DYN && flag(DT_FLAGS_1, DF_1_PIE.0);
        let mut stack = flags_of(PT_GNU_STACK);
        let stack = stack.next().is_some_and(|flags| flags & PF_X.0 == 0);
        let checks = [
            ("position-independent code (PIE)", is_pie),
            (
                "relocations that are read-only once made (RELRO)",
                flags_of(PT_GNU_RELRO).next().is_some(),
            ),
            ("all of them made before it runs (BIND_NOW)", binds_at_once),
            ("a stack that holds no code (NX)", stack),
            ("code that is not writable (W^X)", !writable_code),
        ];
        let lacking = checks.into_iter().filter(|(_, has)| !has);
        Ok(lacking.map(|(what, _)| what).collect())
    };
    read().map_err(failed)
}

#[cfg(test)]
mod tests {
    use object::elf::{ProgramFlags, ProgramType};

    use super::*;

    fn this_program() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    /// Where the program headers begin, and each has its type and flags in the first eight bytes.
    fn set_flags(file: &mut [u8], kind: ProgramType, flags: ProgramFlags) {
        let number = |file: &[u8], at: usize, bytes: usize| {
            let mut value = [0; 8];
            value[..bytes].copy_from_slice(&file[at..at + bytes]);
            u64::from_le_bytes(value) as usize
        };
        let (begin, size, count) = (
            number(file, 32, 8),
            number(file, 54, 2),
            number(file, 56, 2),
        );
        for header in (0..count).map(|index| begin + index * size) {
            if number(file, header, 4) == kind.0 as usize {
                file[header + 4..header + 8].copy_from_slice(&flags.0.to_le_bytes());
            }
        }
    }

    #[test]
    fn what_this_compiler_makes_has_it_all() {
        assert_eq!(lacks(&this_program()).unwrap(), Vec::<&str>::new());
    }

    #[test]
    fn what_is_taken_away_is_missed() {
        let mut file = this_program();
        set_flags(&mut file, PT_GNU_STACK, ProgramFlags(PF_W.0 | PF_X.0));
        let expected = [
            "a stack that holds no code (NX)",
            "code that is not writable (W^X)",
        ];
        assert_eq!(lacks(&file).unwrap(), expected);
        // Another type of file: no shared object, and so not position-independent.
        let mut file = this_program();
        file[16] = 2;
        assert_eq!(lacks(&file).unwrap(), ["position-independent code (PIE)"]);
        assert!(lacks(b"no executable").is_err());
    }
}
