//! Crafted notes, and those of real files as readelf(1) tells them.

use std::{path::PathBuf, process::Command};

use proptest::prelude::*;

use super::*;
use crate::{
    elf::tests::image::{Field, patches},
    usdt_argument::{Base, Operand},
};

const CODE: usize = 512;
const DATA: usize = CODE + 64;
const TEXT_BASE: u64 = 0x40_0000;
const DATA_BASE: u64 = 0x50_0000;

/// Addresses of code: a nop, one with each of the longer ones after it, and the midst of an instruction.
const NOP: u64 = TEXT_BASE + CODE as u64;
const NOP5: u64 = NOP + 8;
const NOP10: u64 = NOP + 16;
const MOV: u64 = NOP + 32;
const SEMAPHORE: u64 = DATA_BASE + DATA as u64;
const VARIABLE: u64 = SEMAPHORE + 16;

/// What a note says.
#[derive(Clone, Debug)]
struct Said {
    owner: &'static [u8],
    kind: u32,
    address: u64,
    base: u64,
    semaphore: u64,
    strings: Vec<u8>,
}

fn said(address: u64, semaphore: u64, strings: &str) -> Said {
    Said {
        owner: OWNER,
        kind: NOTE_TYPE,
        address,
        base: 0x1000,
        semaphore,
        strings: strings.as_bytes().to_vec(),
    }
}

fn padded(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn notes(all: &[Said]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for one in all {
        let mut about = Vec::new();
        for address in [one.address, one.base, one.semaphore] {
            about.extend_from_slice(&address.to_le_bytes());
        }
        about.extend_from_slice(&one.strings);
        for number in [one.owner.len() as u32, about.len() as u32, one.kind] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(one.owner);
        padded(&mut bytes);
        bytes.extend_from_slice(&about);
        padded(&mut bytes);
    }
    bytes
}

/// A variable: its name, its type and its address.
type Variable<'a> = (&'a str, u8, u64);

/// A file with this code, these notes and these variables; `base`: where the base is now.
struct File {
    bytes: Vec<u8>,
    /// Where the header of the notes' section is.
    notes: usize,
}

fn put(bytes: &mut Vec<u8>, at: usize, value: impl Field) {
    let value = value.bytes(false);
    bytes.resize(bytes.len().max(at + value.len()), 0);
    bytes[at..at + value.len()].copy_from_slice(&value);
}

fn file(notes: &[u8], base: Option<u64>, variables: &[Variable]) -> File {
    let mut bytes = vec![0; DATA + 32];
    bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    put(&mut bytes, 18, 62u16);
    let code = [
        (NOP, &[0x90, 0xc3][..]),
        (NOP5, &[0x90, 0x0f, 0x1f, 0x44, 0, 0, 0xc3]),
        (
            NOP10,
            &[0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0xc3],
        ),
        (MOV, &[0x48, 0x89, 0xf8]),
    ];
    for (address, code) in code {
        let at = (address - TEXT_BASE) as usize;
        bytes[at..at + code.len()].copy_from_slice(code);
    }
    put(&mut bytes, 32, 64u64);
    put(&mut bytes, 56, 2u16);
    for (at, flags, offset, address, length) in [
        (64, 5u32, CODE as u64, TEXT_BASE, 64u64),
        (64 + 56, 6, DATA as u64, DATA_BASE, 32),
    ] {
        put(&mut bytes, at, 1u32);
        put(&mut bytes, at + 4, flags);
        put(&mut bytes, at + 8, offset);
        put(&mut bytes, at + 16, address + offset);
        put(&mut bytes, at + 32, length);
    }
    let mut strings = vec![0];
    let mut symbols = vec![0; 24];
    for (name, kind, address) in variables {
        let at = symbols.len();
        put(&mut symbols, at, strings.len() as u32);
        put(&mut symbols, at + 4, *kind);
        put(&mut symbols, at + 6, 1u16);
        put(&mut symbols, at + 8, *address);
        put(&mut symbols, at + 16, 0u64);
        strings.extend_from_slice(name.as_bytes());
        strings.push(0);
    }
    let names = [&b"\0"[..], NOTES, BASE].concat();
    // Name, type, address, contents, link.
    let sections = [
        (0u32, 0u32, 0, &[][..], 0u32),
        (0, 3, 0, &names[..], 0),
        (1, 7, 0, notes, 0),
        (15, u32::from(base.is_some()), base.unwrap_or(0), &[], 0),
        (0, 2, 0, &symbols[..], 5),
        (0, 3, 0, &strings[..], 0),
    ];
    let mut headers = Vec::new();
    for (index, (name, kind, address, contents, link)) in sections.into_iter().enumerate() {
        let at = index * 64;
        let name = if index == 3 && base.is_none() {
            0
        } else {
            name
        };
        padded(&mut bytes);
        put(&mut headers, at, name);
        put(&mut headers, at + 4, kind);
        put(&mut headers, at + 16, address);
        put(&mut headers, at + 24, bytes.len() as u64);
        put(&mut headers, at + 32, contents.len() as u64);
        put(&mut headers, at + 40, link);
        put(&mut headers, at + 56, 0u64);
        bytes.extend_from_slice(contents);
    }
    padded(&mut bytes);
    let at = bytes.len();
    put(&mut bytes, 40, at as u64);
    put(&mut bytes, 60, sections.len() as u16);
    put(&mut bytes, 62, 1u16);
    bytes.extend_from_slice(&headers);
    File {
        bytes,
        notes: at + 2 * 64,
    }
}

fn probes(file: &File) -> Result<UsdtProbes, SearchError> {
    usdt_probes(&file.bytes[..], &mut Budget::default())
}

fn of(all: &[Said]) -> UsdtProbes {
    probes(&file(&notes(all), Some(0x1000), &[])).unwrap()
}

/// Where the fuzzer begins. After a change of these files: `WRITE_SEEDS=1 cargo test -p ckb-probe-symbols usdt`.
fn seed(name: &str, file: &File) {
    let seeds = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/usdt"));
    let seed = seeds.join(name);
    if std::env::var_os("WRITE_SEEDS").is_some() {
        std::fs::create_dir_all(seeds).unwrap();
        std::fs::write(&seed, &file.bytes).unwrap();
    }
    let committed = std::fs::read(&seed).unwrap_or_default();
    assert!(committed == file.bytes, "{} is another", seed.display());
}

fn three() -> Vec<Said> {
    vec![
        said(NOP, 0, "db\0query__start\08@%rdi -4@%esi\0"),
        said(NOP5, SEMAPHORE, "db\0query__done\0\0"),
        said(NOP10, SEMAPHORE + 2, "db\0checkpoint\0-4@40+Stats(%rip)\0"),
    ]
}

#[test]
fn sites_are_found_with_their_semaphores_and_arguments() {
    let of = file(&notes(&three()), Some(0x1000), &[("Stats", 1, VARIABLE)]);
    seed("three", &of);
    let found = probes(&of).unwrap();
    let told: Vec<_> = found
        .sites
        .iter()
        .map(|site| {
            (
                site.name.as_str(),
                site.offset,
                site.nops.as_str(),
                site.semaphore,
                site.arguments.len(),
            )
        })
        .collect();
    let (code, data) = (CODE as u64, DATA as u64);
    assert_eq!(
        told,
        [
            ("query__start", code, "nop", None, 2),
            ("query__done", code + 8, "nop,nop5", Some(data), 0),
            ("checkpoint", code + 16, "nop,nop10", Some(data + 2), 1),
        ]
    );
    assert!(found.sites.iter().all(|site| site.provider == "db"));
    assert_eq!((found.refused.len(), found.malformed), (0, 0));
    let argument = found.sites[2].arguments[0].clone().unwrap();
    let Operand::Memory {
        base: Base::Site,
        index: None,
        displacement,
    } = argument.operand
    else {
        panic!("{argument}");
    };
    assert_eq!(NOP10.wrapping_add_signed(displacement), VARIABLE + 40);
}

#[test]
fn what_was_moved_since_it_was_linked_is_found_where_it_is() {
    let all: Vec<Said> = three()
        .into_iter()
        .map(|one| Said {
            address: one.address - 0x7000,
            base: 0x1000,
            semaphore: one.semaphore.saturating_sub(0x7000),
            ..one
        })
        .collect();
    let moved = file(&notes(&all), Some(0x8000), &[]);
    seed("prelinked", &moved);
    let strip = |probes: UsdtProbes| {
        let sites = probes.sites.into_iter();
        let sites = sites.map(|site| (site.name, site.offset, site.semaphore));
        sites.collect::<Vec<_>>()
    };
    assert_eq!(strip(probes(&moved).unwrap()), strip(of(&three())));
    // Where nothing tells of the base, nothing has moved, whatever the notes say.
    let unmoved = file(&notes(&three()), None, &[]);
    assert_eq!(strip(probes(&unmoved).unwrap()), strip(of(&three())));
}

#[test]
fn a_place_that_could_not_be_attached_to_without_harm_is_refused() {
    let found = of(&[
        said(NOP, 0, "a\0fine\0\0"),
        said(MOV, 0, "a\0mov\0\0"),
        said(NOP + 64, 0, "a\0beyond\0\0"),
        said(SEMAPHORE, 0, "a\0data\0\0"),
        said(NOP, NOP, "a\0code_as_semaphore\0\0"),
        said(NOP, SEMAPHORE + 31, "a\0half_a_semaphore\0\0"),
        said(u64::MAX, u64::MAX, "a\0last\0\0"),
    ]);
    let refused = found.refused.iter();
    let refused: Vec<_> = refused.map(|one| (one.name.as_str(), one.why)).collect();
    assert_eq!(
        refused,
        [
            ("mov", SiteError::NoNop),
            ("beyond", SiteError::NoCode),
            ("data", SiteError::NoCode),
            ("code_as_semaphore", SiteError::NoSemaphore),
            ("half_a_semaphore", SiteError::NoSemaphore),
            ("last", SiteError::NoCode),
        ]
    );
    assert_eq!(found.sites.len(), 1);
    let mut other = file(&notes(&three()), None, &[]);
    put(&mut other.bytes, 18, 243u16);
    let other = probes(&other).unwrap();
    assert!(other.sites.is_empty());
    assert_eq!(
        other.refused[0].why.to_string(),
        "the file is for another machine than x86-64 and arm64"
    );
}

#[test]
fn notes_that_are_not_as_they_should_be_are_counted_and_left_out() {
    let malformed = |strings: &str| said(NOP, 0, strings);
    let all = [
        malformed("a\0b\0"),
        malformed("\0b\0\0"),
        malformed("a\0\0\0"),
        malformed(""),
        malformed(&format!("{}\0b\0\0", "a".repeat(NAME_LIMIT + 1))),
        malformed("a b\0c\0\0"),
        malformed("a\u{202e}\0c\0\0"),
        malformed(&format!("a\0b\0{}\0", "1@$1 ".repeat(13))),
        Said {
            strings: b"a\xff\0b\0\0".to_vec(),
            ..malformed("")
        },
        said(NOP, 0, "a\0b\0\0"),
        Said {
            owner: b"GNU\0",
            ..malformed("another's\0b\0\0")
        },
        Said {
            kind: 4,
            ..malformed("another\0b\0\0")
        },
    ];
    let file = file(&notes(&all), None, &[]);
    seed("malformed", &file);
    let found = probes(&file).unwrap();
    assert_eq!((found.sites.len(), found.malformed), (1, 9));
    assert_eq!(found.refused, []);
}

#[test]
fn what_is_cut_off_ends_the_notes() {
    let whole = notes(&three());
    for (cut, sites) in [(whole.len(), 3), (whole.len() - 4, 2), (90, 1), (11, 0)] {
        let found = probes(&file(&whole[..cut], None, &[])).unwrap();
        let malformed = u64::from(cut < whole.len());
        assert_eq!((found.sites.len(), found.malformed), (sites, malformed));
    }
    let mut huge = whole.clone();
    huge[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    let huge = file(&huge, None, &[]);
    seed("huge-note", &huge);
    assert_eq!(probes(&huge).unwrap().malformed, 1);
    // A section may be filled up with zeros.
    let mut filled = whole;
    filled.extend_from_slice(&[0; 40]);
    let found = probes(&file(&filled, None, &[])).unwrap();
    assert_eq!((found.sites.len(), found.malformed), (3, 0));
}

#[test]
fn more_than_any_file_has_is_refused() {
    let one = said(NOP, 0, "a\0b\0\0");
    let many = vec![one; PROBE_LIMIT as usize + 1];
    let error = probes(&file(&notes(&many), None, &[])).unwrap_err();
    assert_eq!(error.to_string(), "it has more than 8192 USDT probes");
    assert_eq!(of(&many[..PROBE_LIMIT as usize]).sites.len(), 8192);
    let long = vec![0; NOTES_LIMIT as usize + 1];
    let error = probes(&file(&long, None, &[])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "its notes of USDT probes take 1048577 bytes, more than is ever read of a process's files"
    );
    let mut beyond = file(&notes(&three()), None, &[]);
    let at = beyond.notes + 24;
    put(&mut beyond.bytes, at, u64::MAX - 8);
    seed("notes-beyond", &beyond);
    let error = probes(&beyond).unwrap_err();
    assert_eq!(
        error.to_string(),
        "it is cut short: its notes of USDT probes reach beyond its end"
    );
    let mut narrow = file(&notes(&three()), None, &[]);
    narrow.bytes[4] = 1;
    seed("32-bit", &narrow);
    assert_eq!(
        probes(&narrow).unwrap_err().to_string(),
        "it is no 64-bit ELF file: it does not begin like one"
    );
}

#[test]
fn an_argument_whose_symbol_is_not_known_is_refused_and_leaves_the_probe() {
    let all = [said(
        NOP,
        0,
        "a\0b\0-4@There(%rip) 8@Away(%rip) 4@Mine(%rip)\0",
    )];
    let variables = [("There", 1, VARIABLE), ("Mine", 6, 8), ("Other", 1, 16)];
    let of = file(&notes(&all), None, &variables);
    seed("symbols", &of);
    let arguments = probes(&of).unwrap().sites.remove(0).arguments;
    assert!(arguments[0].is_ok());
    assert_eq!(
        arguments[1..],
        [
            Err(ArgumentError::NoSymbol("Away".to_string())),
            Err(ArgumentError::ThreadLocal("Mine".to_string())),
        ]
    );
}

/// What readelf(1) says of a file's probes: provider, name, and whether there is a semaphore.
fn by_readelf(path: &str) -> Vec<(String, String, bool, usize)> {
    let out = Command::new("readelf").args(["-n", path]).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let (mut all, mut provider, mut name, mut semaphore) =
        (Vec::new(), String::new(), String::new(), false);
    for line in text.lines().map(str::trim) {
        if let Some(told) = line.strip_prefix("Provider: ") {
            provider = told.to_string();
        } else if let Some(told) = line.strip_prefix("Name: ") {
            name = told.to_string();
        } else if let Some((_, told)) = line.split_once("Semaphore: 0x") {
            semaphore = told.bytes().any(|byte| byte != b'0');
        } else if let Some(told) = line.strip_prefix("Arguments:") {
            let count = told.split_whitespace().count();
            all.push((provider.clone(), name.clone(), semaphore, count));
        }
    }
    all
}

/// libstdc++ is there wherever this can be built; the others may be.
#[test]
fn of_real_files_everything_is_found_and_every_argument_understood() {
    let files = [
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/bin/python3.11",
        "/usr/lib/postgresql/15/bin/postgres",
    ];
    let there = files
        .iter()
        .filter(|path| std::path::Path::new(path).exists());
    let mut looked_at = 0;
    for path in there {
        let file = std::fs::File::open(path).unwrap();
        let found = usdt_probes(&file, &mut Budget::default()).unwrap();
        assert_eq!((found.refused.len(), found.malformed), (0, 0), "{path}");
        for argument in found.sites.iter().flat_map(|site| &site.arguments) {
            let argument = argument.as_ref().unwrap();
            assert_eq!(argument.symbol(), None, "{path}: {argument}");
        }
        let told: Vec<_> = found
            .sites
            .into_iter()
            .map(|site| {
                let arguments = site.arguments.len();
                (
                    site.provider,
                    site.name,
                    site.semaphore.is_some(),
                    arguments,
                )
            })
            .collect();
        assert!(told.len() >= 3, "{path}");
        assert_eq!(told, by_readelf(path), "{path}");
        looked_at += 1;
    }
    assert!(looked_at > 0);
}

proptest! {
    /// Numbers that matter, anywhere in a file.
    #[test]
    fn a_file_with_any_numbers_in_it_is_searched_or_refused(patches in patches()) {
        let mut bytes = file(&notes(&three()), Some(0x1000), &[("Stats", 1, VARIABLE)]).bytes;
        for (at, value, width) in patches {
            let at = at.index(bytes.len() - 8);
            bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        }
        if let Ok(found) = usdt_probes(&bytes[..], &mut Budget(1 << 20)) {
            for site in found.sites {
                prop_assert!(site.offset < bytes.len() as u64);
                prop_assert!(site.semaphore.is_none_or(|at| at + 2 <= bytes.len() as u64));
                prop_assert_eq!(bytes[site.offset as usize], 0x90);
            }
        }
    }

    /// Any bytes as notes.
    #[test]
    fn any_notes_are_read_or_counted(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let found = probes(&file(&bytes, None, &[])).unwrap();
        prop_assert!(found.sites.is_empty());
    }
}

/// The same file for arm64, with its nop in the place of the others'.
#[test]
fn a_file_for_arm64_has_its_own_nop_and_its_own_arguments() {
    let all = [
        said(NOP, SEMAPHORE, "a\0nop\0-4@[sp, 12] 8@x0\0"),
        said(NOP + 4, 0, "a\0other\0\0"),
        said(NOP + 10, 0, "a\0midst\0\0"),
    ];
    let mut of = file(&notes(&all), Some(0x1000), &[]);
    put(&mut of.bytes, 18, 183u16);
    let at = (NOP - TEXT_BASE) as usize;
    let nop = [0x1f, 0x20, 0x03, 0xd5];
    of.bytes[at..at + 4].copy_from_slice(&nop);
    // Where no instruction begins.
    of.bytes[at + 10..at + 14].copy_from_slice(&nop);
    let found = probes(&of).unwrap();
    let [site] = &found.sites[..] else {
        panic!("{found:?}");
    };
    assert_eq!((site.name.as_str(), site.nops), ("nop", Nops::One));
    let told = site.arguments.iter().flatten();
    let told: Vec<_> = told.map(|one| one.told(Machine::Aarch64)).collect();
    assert_eq!(told, ["-4@[sp, 12]", "8@x0"]);
    let refused = found.refused.iter();
    let refused: Vec<_> = refused.map(|one| (one.name.as_str(), one.why)).collect();
    assert_eq!(
        refused,
        [("other", SiteError::NoNop), ("midst", SiteError::NoNop)]
    );
}
