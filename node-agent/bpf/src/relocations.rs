//! The list of places that the loader wrote addresses into when this program began. It is read before `main`, and never again: of an agent it
//! would be 0.6 MB of its memory for as long as that runs.

use std::ops::Range;

use libc::{AT_PAGESZ, AT_PHDR, AT_PHNUM, Elf64_Phdr, PF_R, PT_DYNAMIC, PT_LOAD, PT_PHDR};

/// What the loader is told, by the ELF specification, such as the list's place and size; libc has nothing of it.
#[repr(C)]
struct Entry {
    tag: i64,
    value: u64,
}

const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;

/// Lets go of the list's pages, and returns how many bytes that are. They are this program's file as it is, from which they would come
/// back; and they are no code, so nobody's breakpoint is in them.
pub fn forget_relocations() -> usize {
    let Some(pages) = list().and_then(whole_pages) else {
        return 0;
    };
    // SAFETY: they are whole pages of a part of this program's file that nobody may write, so none differs from the file: whoever reads
    // them again finds the same.
    let result = unsafe { libc::madvise(pages.start as *mut _, pages.len(), libc::MADV_DONTNEED) };
    if result == 0 { pages.len() } else { 0 }
}

/// Where the list is, if it is where nobody may write or run anything.
fn list() -> Option<Range<usize>> {
    let all = headers();
    let of = |kind| all.iter().find(move |header| header.p_type == kind);
    let moved = auxiliary(AT_PHDR).wrapping_sub(of(PT_PHDR)?.p_vaddr as usize);
    let dynamic = of(PT_DYNAMIC)?;
    let place = moved.wrapping_add(dynamic.p_vaddr as usize) as *const Entry;
    let entries = dynamic.p_memsz as usize / size_of::<Entry>();
    // SAFETY: the loader has mapped what the header says, and writes nothing there once the program runs.
    let entries = unsafe { std::slice::from_raw_parts(place, entries) };
    let value = |tag| {
        let mut all = entries.iter();
        all.find(|entry| entry.tag == tag)
            .map(|entry| entry.value as usize)
    };
    let (place, size) = (value(DT_RELA)?, value(DT_RELASZ)?);
    // Some loaders have made an address of it, and others have left it as it is in the file.
    let places = [place, place.wrapping_add(moved)];
    let mut ranges = places
        .into_iter()
        .filter_map(|place| Some(place..place.checked_add(size)?));
    ranges.find(|range| {
        let mut loaded = all.iter().filter(|header| header.p_type == PT_LOAD);
        loaded.any(|header| {
            let start = moved.wrapping_add(header.p_vaddr as usize);
            let end = start.saturating_add(header.p_filesz as usize);
            header.p_flags == PF_R && start <= range.start && range.end <= end
        })
    })
}

fn whole_pages(range: Range<usize>) -> Option<Range<usize>> {
    let page = Some(auxiliary(AT_PAGESZ)).filter(|page| page.is_power_of_two())?;
    let start = range.start.checked_next_multiple_of(page)?;
    let end = range.end & !(page - 1);
    (start < end).then_some(start..end)
}

/// This program's, as the kernel has mapped it.
fn headers() -> &'static [Elf64_Phdr] {
    let (place, count) = (auxiliary(AT_PHDR), auxiliary(AT_PHNUM));
    if place == 0 {
        return &[];
    }
    // SAFETY: the kernel says where it has mapped so many, which stay as long as the program.
    unsafe { std::slice::from_raw_parts(place as *const Elf64_Phdr, count) }
}

fn auxiliary(kind: libc::c_ulong) -> usize {
    // SAFETY: getauxval has no preconditions, and says 0 of what there is not.
    unsafe { libc::getauxval(kind) as usize }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{forget_relocations, list, whole_pages};

    /// How much of what is mapped at an address is in memory.
    fn resident(address: usize) -> u64 {
        let all = fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in all.lines() {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap();
            if let Some((start, end)) = first.split_once('-') {
                let number = |text| usize::from_str_radix(text, 16).unwrap();
                inside = (number(start)..number(end)).contains(&address);
            } else if inside && first == "Rss:" {
                return words.next().unwrap().parse::<u64>().unwrap() * 1024;
            }
        }
        0
    }

    #[test]
    fn what_the_loader_has_read_takes_no_memory_and_can_still_be_read() {
        let list = list().unwrap();
        let pages = whole_pages(list.clone()).unwrap();
        // SAFETY: it is mapped, and nobody may write it.
        let bytes =
            || unsafe { std::slice::from_raw_parts(list.start as *const u8, list.len()).to_vec() };
        let before = bytes();
        let held = resident(pages.start);
        assert_eq!(forget_relocations(), pages.len());
        assert_eq!(held - resident(pages.start), pages.len() as u64);
        assert_eq!(bytes(), before);
    }
}
