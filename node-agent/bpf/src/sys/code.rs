//! The program's own code, in memory.

use std::ptr;

/// Lets go of the pages of this program's code that are mapped: most of what it took to begin is not needed again, and what is needed comes back
/// from the page cache. Most of an agent's memory is code, and the kernel maps sixteen pages for each that is touched.
///
/// Not while functions of this program are probed: the kernel has a breakpoint in a copy of the page, which goes with it.
pub fn release_code() {
    // SAFETY: the callback has the type that is asked for, and takes no data.
    unsafe { libc::dl_iterate_phdr(Some(of_program), ptr::null_mut()) };
}

/// The first object is the program.
unsafe extern "C" fn of_program(
    object: *mut libc::dl_phdr_info,
    _bytes: libc::size_t,
    _data: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the loader's own, for as long as this runs.
    let object = unsafe { &*object };
    // SAFETY: so many headers are there.
    let headers =
        unsafe { std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
    for header in headers {
        let is_code = header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0;
        if !is_code || header.p_flags & libc::PF_W != 0 {
            continue;
        }
        let begin = object.dlpi_addr + header.p_vaddr;
        let first = begin & !(PAGE - 1);
        let bytes = begin + header.p_memsz - first;
        // SAFETY: a mapping of the file that nobody writes to: each page is read from there again.
        unsafe {
            libc::madvise(
                first as *mut libc::c_void,
                bytes as usize,
                libc::MADV_DONTNEED,
            )
        };
    }
    1
}

/// No machine that agents run on has smaller ones; where they are larger, the kernel says no.
const PAGE: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_let_go_of_comes_back_as_it_was() {
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let mut lines = status.lines();
            let line = lines
                .find_map(|line| line.strip_prefix("RssFile:"))
                .unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        let words = || format!("{:?}", "what is formatted".split(' ').collect::<Vec<_>>());
        let (before, said) = (resident(), words());
        release_code();
        let after = resident();
        assert!(after + 200 < before, "{before} kB before, {after} kB after");
        assert_eq!(words(), said);
    }
}
