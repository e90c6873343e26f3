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
    assert!(space.read_again(own(), true, &mut |_| true).unwrap());
    assert!(
        !space.read_again(own(), true, &mut |_| true).unwrap(),
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
    assert!(space.read_again(own(), true, &mut |_| true).unwrap());
    let whole = space.kept();
    assert!(whole > 1 << 20, "this program and its libraries: {whole}");

    // The libraries fit in that, the program does not.
    let (mut space, mut left, mut lacking) = (Space::default(), whole / 4, 0);
    let mut takes = |bytes| match u64::checked_sub(left, bytes) {
        Some(rest) => {
            left = rest;
            true
        }
        None => {
            lacking += 1;
            false
        }
    };
    assert!(space.read_again(own(), true, &mut takes).unwrap());
    assert!((1..=whole / 4).contains(&space.kept()), "{}", space.kept());
    let unnamed = space.name(known_function());
    assert_eq!(unnamed.function, None);
    assert!(!unnamed.file.is_empty(), "of what file it is is known");
    assert!(
        !space.read_again(own(), false, &mut takes).unwrap(),
        "there is nothing else"
    );
    assert_eq!(lacking, 1);

    // There is room, by and by: what is known is not read again, and takes none.
    let (before, mut more) = (space.kept(), 0);
    let mut takes = |bytes| {
        more += bytes;
        true
    };
    assert!(space.read_again(own(), true, &mut takes).unwrap());
    assert_eq!(space.kept(), whole);
    assert!((whole - before..2 * whole).contains(&more), "{more}");
    assert!(space.name(known_function()).function.is_some());
}
