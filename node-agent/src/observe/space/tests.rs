use super::*;

#[inline(never)]
fn known_function() -> u64 {
    std::hint::black_box(known_function as fn() -> u64 as usize as u64)
}

fn own() -> ProcessId {
    ProcessId {
        pid: std::process::id(),
        start_ticks: 0,
    }
}

#[test]
fn a_line_is_taken_apart() {
    let line = b"7f1200001000-7f1200003000 r-xp 00021000 fe:00 1234      /usr/lib/lib with space.so (deleted)";
    let line = Line::of_code(line).unwrap();
    assert_eq!(line.range, 0x7f12_0000_1000..0x7f12_0000_3000);
    assert_eq!((line.offset, line.inode), (0x21000, 1234));
    assert_eq!(line.path, b"/usr/lib/lib with space.so (deleted)");
    let others = [
        &b"7f1200001000-7f1200003000 rw-p 00021000 fe:00 1234 /usr/lib/lib.so"[..],
        b"7f1200001000-7f1200003000 r-xp 00000000 00:00 0 ",
        b"nonsense",
        b"",
    ];
    for other in others {
        assert!(Line::of_code(other).is_none());
    }
}

#[test]
fn own_functions_have_names_and_tables() {
    let mut space = Space::read(own()).unwrap();
    assert!(!space.read_again(own()), "nothing has changed");
    let name = space.name(known_function());
    let function = name.function.unwrap();
    assert!(
        function.ends_with("space::tests::known_function"),
        "{function}"
    );
    let modules = space.modules();
    let module = modules
        .iter()
        .find(|module| module.range.contains(&known_function()));
    assert!(module.unwrap().tables.is_some());
    assert!(space.before(known_function() + 8).is_some());
    assert!(space.before(8).is_none());
    assert_eq!(space.name(8).function, None);
    let vdso = modules.iter().filter(|module| module.tables.is_some());
    assert!(vdso.count() >= 3, "the executable, libraries and the vDSO");
    assert!(
        space
            .files
            .iter()
            .any(|file| &*file.name == "[vdso]" && file.file.is_some())
    );
}
