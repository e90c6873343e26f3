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
    let mut space = AddressSpace::default();
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
    let mut space = AddressSpace::default();
    assert!(space.read_again(own(), true, &mut |_| true).unwrap());
    let whole = space.kept();
    assert!(whole > 1 << 20, "this program and its libraries: {whole}");

    // The libraries fit in that, the program does not.
    let (mut space, mut refused) = (AddressSpace::default(), 0);
    let mut has_room = |all| {
        refused += u32::from(all > whole / 4);
        all <= whole / 4
    };
    assert!(space.read_again(own(), true, &mut has_room).unwrap());
    assert!((1..=whole / 4).contains(&space.kept()), "{}", space.kept());
    let unnamed = space.name(known_function());
    assert_eq!(unnamed.function, None);
    assert!(!unnamed.file.is_empty(), "of what file it is is known");
    for wanted in [false, true] {
        assert!(
            !space.read_again(own(), wanted, &mut has_room).unwrap(),
            "no more is known"
        );
    }
    assert_eq!(refused, 2, "where it is wanted it is looked again");

    // There is room, by and by: what is known is not read again.
    let mut asked = Vec::new();
    let mut has_room = |all| {
        asked.push(all);
        true
    };
    assert!(space.read_again(own(), true, &mut has_room).unwrap());
    assert_eq!(space.kept(), whole);
    assert_eq!(asked.len(), 1);
    assert!(asked[0] >= whole, "{asked:?}");
    assert!(space.name(known_function()).function.is_some());
}

#[test]
fn a_file_that_is_mapped_time_and_again_has_tables_in_two_places() {
    let library = |start: u64| Line {
        range: start..start + 0x1000,
        is_executable: true,
        offset: 0,
        inode: 1,
        path: VDSO,
    };
    let lines: Vec<Vec<u8>> = (1..=1_000)
        .map(|at| {
            let Line { range, inode, .. } = library(at << 20);
            let line = format!(
                "{:x}-{:x} r-xp 0 00:00 {inode} [vdso]",
                range.start, range.end
            );
            line.into_bytes()
        })
        .collect();
    let space = AddressSpace::of(own(), &lines, Vec::new(), &mut |_| true);
    assert_eq!((space.files.len(), space.mappings.len()), (1, 1_000));
    assert!(space.lines().eq((1..=1_000).map(|at| library(at << 20))));
    let modules = space.modules();
    let tables = modules.iter().filter(|module| module.tables.is_some());
    assert_eq!((modules.len(), tables.count()), (1_000, 2));
}

#[test]
fn what_another_file_is_mapped_to_is_other_code() {
    let line = |path: &str| format!("1000-2000 r-xp 00000000 00:00 1 {path}").into_bytes();
    let space = AddressSpace::of(own(), &[line("/a")], Vec::new(), &mut |_| true);
    for (path, is_known) in [("/a", true), ("/b", false)] {
        let other = line(path);
        let other = std::iter::once(Line::of_code(&other).unwrap());
        assert_eq!(space.lines().eq(other), is_known, "{path}");
    }
}
