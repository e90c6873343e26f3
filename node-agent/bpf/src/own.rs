//! Where this program's own functions are in its file, by which calibration attaches to them.

use std::{
    env, io,
    ops::ControlFlow,
    os::raw::{c_int, c_void},
    path::PathBuf,
    slice,
};

/// What is looked for among the segments that the dynamic linker has loaded, and what was found.
struct Search {
    address: u64,
    offset: Option<u64>,
}

/// This program's executable, and the offset in it of the function at this address.
pub(super) fn file_offset(address: u64) -> io::Result<(PathBuf, u64)> {
    let mut search = Search {
        address,
        offset: None,
    };
    // SAFETY: the callback gets what is passed here, while this function waits for it.
    unsafe { libc::dl_iterate_phdr(Some(first_object), (&raw mut search).cast()) };
    let offset = search
        .offset
        .ok_or_else(|| io::Error::other(format!("no segment of this program has {address:#x}")))?;
    Ok((env::current_exe()?, offset))
}

/// The executable itself comes first, says dl_iterate_phdr(3), and it alone is looked at.
unsafe extern "C" fn first_object(
    object: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the linker's own description of an object, and the search of [`file_offset`].
    let (object, search) = unsafe { (&*object, &mut *search.cast::<Search>()) };
    // SAFETY: as many headers as the linker says, mapped for as long as the object is.
    let segments =
        unsafe { slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
    let found = segments.iter().try_for_each(|segment| {
        let begin = object.dlpi_addr.wrapping_add(segment.p_vaddr);
        let within = search.address.wrapping_sub(begin);
        if segment.p_type == libc::PT_LOAD && within < segment.p_filesz {
            return ControlFlow::Break(segment.p_offset + within);
        }
        ControlFlow::Continue(())
    });
    search.offset = found.break_value();
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_found_where_its_code_is() {
        let address = file_offset as *const () as u64;
        let (path, offset) = file_offset(address).unwrap();
        let file = std::fs::read(path).unwrap();
        // SAFETY: code of this program, which is readable.
        let code = unsafe { slice::from_raw_parts(address as *const u8, 16) };
        assert_eq!(&file[offset as usize..][..16], code);
    }

    #[test]
    fn what_is_no_code_of_the_program_is_not_found() {
        assert!(file_offset(8).is_err());
    }
}
