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
    let mut space = Space::default();
    assert!(space.read_again(own(), u64::MAX).unwrap());
    assert!(
        !space.read_again(own(), u64::MAX).unwrap(),
        "nothing has changed"
    );
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

#[test]
fn no_more_is_kept_of_files_than_there_is_room_for() {
    let mut space = Space::default();
    assert!(space.read_again(own(), u64::MAX).unwrap());
    assert_eq!(space.lacking(), None);
    let whole = space.kept();
    assert!(whole > 1 << 20, "this program and its libraries: {whole}");

    // The libraries fit in that, the program does not.
    let mut space = Space::default();
    let little = whole / 4;
    assert!(space.read_again(own(), little).unwrap());
    assert!((1..=little).contains(&space.kept()), "{}", space.kept());
    assert!(space.lacking().unwrap() > 0);
    let unnamed = space.name(known_function());
    assert_eq!(unnamed.function, None);
    assert!(!unnamed.file.is_empty(), "of what file it is is known");
    assert!(!space.read_again(own(), little).unwrap(), "no more room");

    // There is, by and by.
    assert!(space.read_again(own(), 4 * whole).unwrap());
    assert_eq!((space.lacking(), space.kept()), (None, whole));
    assert!(space.name(known_function()).function.is_some());
}
