//! Exact pictures, as a terminal has them, and what no input breaks.

use std::time::Duration;

use ckb_probe_views::top::{Figure, Moment, Row, Target};
use proptest::prelude::*;
use ratatui_core::{
    backend::TestBackend,
    style::{Color, Modifier},
    terminal::Terminal,
    text::Span,
};

use crate::{Input, Key, Next, Options, Screen};

fn figure(number: f64, shown: &str) -> Option<Figure> {
    Some(Figure {
        number,
        shown: shown.to_owned(),
    })
}

fn row(key: &str, rate: f64) -> Row {
    Row {
        key: key.to_owned(),
        rate: figure(rate, &rate.to_string()),
        p99: figure(96_300.0, "96.3us"),
        time: figure(1.2, "1.2%"),
        error: None,
        sampled: Some("100".to_owned()),
    }
}

fn target(name: &str, rows: Vec<Row>) -> Target {
    let rate: f64 = rows
        .iter()
        .filter_map(|row| row.rate.as_ref())
        .map(|one| one.number)
        .sum();
    Target {
        subject: "ckb/ckb".to_owned(),
        name: name.to_owned(),
        probe: "storage".to_owned(),
        kind: "rocksdb".to_owned(),
        lost: None,
        stamp: 1,
        interval_ms: 10_000,
        all: row("", rate),
        rows,
    }
}

fn two() -> Moment {
    Moment {
        cost: Some("2.6%".to_owned()),
        targets: vec![
            target("ckb-0/ckb", vec![row("Get", 733.0), row("TxnCommit", 12.0)]),
            target("ckb-1/ckb", vec![row("Get", 20.0)]),
        ],
    }
}

/// One that was told this at each of so many intervals.
fn told(moment: &Moment, intervals: u64, width: u16, height: u16) -> Screen {
    let options = Options {
        title: "ckbprobe top  ckb/ckb".to_owned(),
        colour: false,
    };
    let mut screen = Screen::new(options, width, height);
    for interval in 0..intervals {
        let mut moment = moment.clone();
        for target in &mut moment.targets {
            target.stamp = interval;
        }
        let now = Duration::from_secs(10 * interval);
        screen.on(Input::Moment(moment, now, "12:31:04".to_owned()));
    }
    screen
}

fn press(screen: &mut Screen, keys: &[Key]) {
    for key in keys {
        assert_eq!(screen.on(Input::Key(*key)), Next::On, "{key:?}");
    }
}

fn terminal(screen: &Screen) -> Terminal<TestBackend> {
    let (width, height) = screen.size;
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| screen.draw(frame.buffer_mut()))
        .unwrap();
    terminal
}

/// The lines of the picture, as they are seen.
fn picture(screen: &Screen) -> Vec<String> {
    let terminal = terminal(screen);
    let text = terminal.backend().to_string();
    let lines = text
        .lines()
        .map(|line| line.trim_matches('"').trim_end().to_owned());
    lines.collect()
}

#[test]
fn a_picture_of_80_by_24() {
    let screen = told(&two(), 3, 80, 24);
    let lines = picture(&screen);
    assert_eq!(lines.len(), 24);
    assert_eq!(
        &lines[..9],
        [
            "ckbprobe top  ckb/ckb  2 measured  costs 2.6%  12:31:04",
            "",
            "TARGET, ROW            /SECONDv    ERROR      P99     TIME RATE, LAST 4m",
            "- ckb-0/ckb storage         745            96.3us     1.2%                   ███",
            "    Get                     733            96.3us     1.2%                   ███",
            "    TxnCommit                12            96.3us     1.2%                   ███",
            "- ckb-1/ckb storage          20            96.3us     1.2%                   ███",
            "    Get                      20            96.3us     1.2%                   ███",
            "",
        ],
        "{lines:#?}"
    );
    assert!(lines[9..23].iter().all(String::is_empty));
    assert_eq!(
        lines[23],
        "q quit  ? help  / filter  < > sort  Enter opens  space holds                 1/5"
    );
}

#[test]
fn a_picture_of_40_by_10_has_what_matters_most() {
    let lines = picture(&told(&two(), 1, 40, 10));
    assert_eq!(
        lines,
        [
            "ckbprobe top  ckb/ckb  2 measured  cost…",
            "",
            "TARGET, ROW            /SECONDv      P99",
            "- ckb-0/ckb storage         745   96.3us",
            "    Get                     733   96.3us",
            "    TxnCommit                12   96.3us",
            "- ckb-1/ckb storage          20   96.3us",
            "    Get                      20   96.3us",
            "",
            "q quit  ? help  / filter  < > sort   1/5",
        ],
        "{lines:#?}"
    );
}

#[test]
fn a_wide_picture_has_room_for_names_and_for_heat() {
    let mut moment = two();
    moment.targets[0].name = "a-stateful-set-with-a-long-name-0/container".to_owned();
    let lines = picture(&told(&moment, 30, 200, 50));
    assert!(
        lines[3].starts_with("- a-stateful-set-with-a-long-name-0/container storage "),
        "{lines:#?}"
    );
    assert!(lines[3].ends_with(&"█".repeat(30)), "{lines:#?}");
    assert!(lines.iter().all(|line| line.chars().count() <= 200));
}

#[test]
fn before_anything_is_told_and_where_nothing_is_measured_it_says_so() {
    let screen = Screen::new(Options::default(), 80, 24);
    assert_eq!(picture(&screen)[1], "waiting for the first figures");
    let mut screen = told(&two(), 1, 80, 24);
    press(&mut screen, &[Key::Char('/'), Key::Char('z'), Key::Enter]);
    assert_eq!(picture(&screen)[1], "filter: z");
    assert_eq!((screen.count(), screen.selected()), (0, 0));
    screen.on(Input::Trouble(Some(
        "the API server cannot be reached".to_owned(),
    )));
    assert_eq!(
        picture(&screen)[1],
        "the API server cannot be reached  filter: z"
    );
}

#[test]
fn of_a_target_that_is_lost_it_is_said_why_and_nothing_is_zero() {
    let mut moment = two();
    let mut screen = told(&moment, 3, 80, 24);
    let why = (
        "AgentSilent".to_owned(),
        "the agent of node1 is silent".to_owned(),
    );
    moment.targets[1] = Target {
        lost: Some(why),
        rows: Vec::new(),
        all: Row::default(),
        ..moment.targets[1].clone()
    };
    for interval in 3..6 {
        moment.targets[0].stamp = interval;
        screen.on(Input::Moment(
            moment.clone(),
            Duration::from_secs(10 * interval),
            String::new(),
        ));
    }
    let lines = picture(&screen);
    assert_eq!(
        lines[0],
        "ckbprobe top  ckb/ckb  1 of 2 measured  costs 2.6%"
    );
    assert_eq!(
        lines[6], "  ckb-1/ckb storage  AgentSilent: the agent of node1 is silent",
        "{lines:#?}"
    );
    assert!(lines[3].ends_with("██████"), "{lines:#?}");
    press(&mut screen, &[Key::End]);
    assert_eq!(
        picture(&screen)[1],
        "AgentSilent: the agent of node1 is silent"
    );
}

#[test]
fn what_was_not_seen_is_a_gap_and_what_was_seen_to_be_nothing_is_a_line() {
    let options = Options::default();
    let mut screen = Screen::new(options, 80, 24);
    for (interval, rate) in [
        (0, Some(8.0)),
        (1, Some(0.0)),
        (2, None),
        (3, Some(4.0)),
        (7, Some(1.0)),
    ] {
        let mut own = row("Get", 0.0);
        own.rate = rate.map(|rate| Figure {
            number: rate,
            shown: rate.to_string(),
        });
        let mut target = target("ckb-0/ckb", vec![own.clone()]);
        target.all = own;
        target.stamp = interval;
        let moment = Moment {
            cost: None,
            targets: vec![target],
        };
        screen.on(Input::Moment(
            moment,
            Duration::from_secs(interval * 10),
            String::new(),
        ));
    }
    let lines = picture(&screen);
    assert!(lines[4].ends_with("█_ ▄▁"), "{lines:#?}");
}

#[test]
fn errors_that_are_large_and_figures_that_are_the_least_are_told() {
    let mut moment = two();
    let sampled = &mut moment.targets[0].rows[0];
    sampled.error = Some("±1250%".to_owned());
    let least = &mut moment.targets[0].rows[1];
    least.error = Some("at least".to_owned());
    least.rate = figure(12.0, "≥12");
    least.p99 = None;
    let lines = picture(&told(&moment, 1, 80, 24));
    assert!(
        lines[4].starts_with("    Get                     733   ±1250%   96.3us     1.2%"),
        "{lines:#?}"
    );
    assert!(
        lines[5].starts_with("    TxnCommit               ≥12 at least        -     1.2%"),
        "{lines:#?}"
    );
}

#[test]
fn a_tenants_names_move_no_cursor_and_take_the_cells_that_they_are_wide() {
    let mut moment = two();
    moment.targets[0].name = "\u{1b}[2J\u{1b}]0;x\u{7}evil\u{202e}/区块链".to_owned();
    moment.targets[0].rows[0].key = "区块链区块链区块链区块链区块链区块链".to_owned();
    let screen = told(&moment, 1, 60, 24);
    let terminal = terminal(&screen);
    for cell in &terminal.backend().buffer().content {
        assert!(
            !cell
                .symbol()
                .chars()
                .any(|one| one.is_control() || one == '\u{202e}'),
            "{cell:?}"
        );
    }
    let text = screen.text(80);
    assert!(
        !text.chars().any(|one| one.is_control() && one != '\n'),
        "{text:?}"
    );
    // Where figures end, whatever stands before them.
    let end = |figure: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(figure));
        Span::raw(lines.next().unwrap().0).width() + figure.len()
    };
    assert!(text.contains("区块链"));
    assert_eq!(end(" 733 "), end(" 12 "));
}

#[test]
fn rows_open_close_are_sorted_turned_and_sought() {
    let mut screen = told(&two(), 1, 80, 7);
    assert_eq!(screen.count(), 2, "three lines have no room for five");
    press(&mut screen, &[Key::Enter]);
    assert_eq!(screen.count(), 4);
    press(&mut screen, &[Key::Char('n'), Key::Char('R')]);
    let lines = picture(&screen);
    assert!(
        lines[4].starts_with("- ckb-0/ckb"),
        "the selection stays: {lines:#?}"
    );
    assert!(lines[5].starts_with("    TxnCommit"), "{lines:#?}");
    assert!(lines[2].starts_with("TARGET, ROW^"), "{lines:#?}");
    press(&mut screen, &[Key::Down, Key::Left]);
    assert_eq!((screen.count(), screen.selected()), (2, 1));
    press(
        &mut screen,
        &[
            Key::Char('/'),
            Key::Char('c'),
            Key::Char('O'),
            Key::Char('m'),
            Key::Enter,
        ],
    );
    assert_eq!(
        screen.count(),
        2,
        "a target, and the row of it that is sought"
    );
    press(&mut screen, &[Key::Escape]);
    assert_eq!(screen.count(), 2);
    press(&mut screen, &[Key::Char('+')]);
    assert_eq!(screen.count(), 5);
    press(&mut screen, &[Key::Char('-')]);
    assert_eq!(screen.count(), 2);
}

#[test]
fn while_it_is_held_nothing_moves_and_nothing_is_lost() {
    let mut screen = told(&two(), 1, 80, 24);
    press(&mut screen, &[Key::Char(' ')]);
    let held = picture(&screen);
    assert_eq!(held[1], "HELD: space goes on");
    for interval in 1..4 {
        let mut moment = two();
        moment.targets[0].stamp = 10 + interval;
        moment.targets[0].rows[0] = row("Get", 9.0);
        screen.on(Input::Moment(
            moment,
            Duration::from_secs(10 * interval),
            "later".to_owned(),
        ));
    }
    assert_eq!(picture(&screen), held);
    press(&mut screen, &[Key::Char(' ')]);
    let lines = picture(&screen);
    assert!(lines[0].ends_with("later"));
    assert!(
        lines[5].starts_with("    Get                       9"),
        "{lines:#?}"
    );
    assert!(lines[5].ends_with("█▁▁▁"), "{lines:#?}");
}

#[test]
fn help_has_every_key_and_goes_with_any_and_q_quits() {
    let mut screen = told(&two(), 1, 80, 24);
    press(&mut screen, &[Key::Char('?')]);
    let lines = picture(&screen).join("\n");
    for (keys, what) in crate::HELP {
        assert!(
            lines.contains(keys) && lines.contains(what),
            "{what}: {lines}"
        );
    }
    press(&mut screen, &[Key::Char('x')]);
    assert!(!picture(&screen).join("\n").contains("Ctrl-C"));
    assert_eq!(screen.on(Input::Key(Key::Char('q'))), Next::Quit);
    for prepare in ['/', '?', ' '] {
        press(&mut screen, &[Key::Char(prepare)]);
        assert_eq!(screen.clone().on(Input::Key(Key::Interrupt)), Next::Quit);
        let shown = picture(&screen);
        assert_eq!(screen.on(Input::Key(Key::Suspend)), Next::Suspend);
        assert_eq!(picture(&screen), shown, "it goes on as it was");
        press(&mut screen, &[Key::Escape]);
    }
}

#[test]
fn without_colour_there_is_none_and_the_selection_is_seen() {
    let mut screen = told(&two(), 3, 80, 24);
    let is_coloured = |screen: &Screen| {
        let terminal = terminal(screen);
        let cells = &terminal.backend().buffer().content;
        cells
            .iter()
            .any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(!is_coloured(&screen));
    let terminal = terminal(&screen);
    let cell = &terminal.backend().buffer()[(0, 3)];
    assert!(cell.modifier.contains(Modifier::REVERSED));
    screen.options.colour = true;
    assert!(is_coloured(&screen));
}

#[test]
fn thousands_of_rows_are_paged_through() {
    let rows = (0..5_000)
        .map(|one| row(&format!("peer {one:04}"), f64::from(one)))
        .collect();
    let moment = Moment {
        cost: None,
        targets: vec![target("ckb-0/ckb", rows)],
    };
    let mut screen = told(&moment, 2, 80, 24);
    assert_eq!(screen.count(), 5_001);
    press(&mut screen, &[Key::PageDown]);
    assert_eq!(screen.selected(), 20);
    press(&mut screen, &[Key::End]);
    let lines = picture(&screen);
    assert!(lines[22].starts_with("    peer 0000"), "{lines:#?}");
    assert!(lines[23].ends_with("5001/5001"), "{lines:#?}");
}

#[test]
fn one_picture_has_all_rows_and_no_heat() {
    let text = told(&two(), 1, 80, 5).text(80);
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        [
            "ckbprobe top  ckb/ckb  2 measured  costs 2.6%  12:31:04",
            "TARGET, ROW            /SECONDv    ERROR      P99     TIME",
            "- ckb-0/ckb storage         745            96.3us     1.2%",
            "    Get                     733            96.3us     1.2%",
            "    TxnCommit                12            96.3us     1.2%",
            "- ckb-1/ckb storage          20            96.3us     1.2%",
            "    Get                      20            96.3us     1.2%",
        ]
    );
}

fn inputs() -> impl Strategy<Value = Input> {
    let keys = prop_oneof![
        Just(Key::Up),
        Just(Key::Down),
        Just(Key::Left),
        Just(Key::Right),
        Just(Key::PageUp),
        Just(Key::PageDown),
        Just(Key::Home),
        Just(Key::End),
        Just(Key::Enter),
        Just(Key::Escape),
        Just(Key::Backspace),
        prop::char::any().prop_map(Key::Char),
        prop::sample::select("rptn<>R/ +-?jkgG".chars().collect::<Vec<_>>()).prop_map(Key::Char),
    ];
    let rows = prop::collection::vec((".{0,12}", prop::option::of(any::<f64>())), 0..8);
    let targets = prop::collection::vec((".{0,8}", rows, any::<bool>(), any::<u64>()), 0..5);
    let moments = (targets, 0..10_000_u64).prop_map(|(targets, seconds)| {
        let targets = targets.into_iter().map(|(name, rows, is_lost, stamp)| {
            let rows = rows.into_iter().map(|(key, rate)| Row {
                rate: rate.map(|number| Figure {
                    number,
                    shown: number.to_string(),
                }),
                ..row(&key, 1.0)
            });
            Target {
                lost: is_lost.then(|| ("Lost".to_owned(), name.clone())),
                interval_ms: stamp % 20_000,
                stamp,
                ..target(&name, rows.collect())
            }
        });
        let moment = Moment {
            cost: None,
            targets: targets.collect(),
        };
        Input::Moment(moment, Duration::from_secs(seconds), String::new())
    });
    prop_oneof![
        6 => keys.prop_map(Input::Key),
        2 => moments,
        1 => (0..210_u16, 0..60_u16).prop_map(|(width, height)| Input::Size(width, height)),
        1 => prop::option::of(".{0,90}").prop_map(Input::Trouble),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_size_and_no_keys_break_it_and_the_selection_is_one_of_the_lines(inputs in prop::collection::vec(inputs(), 0..40)) {
        let mut screen = Screen::new(Options { title: "t".to_owned(), colour: true }, 80, 24);
        for input in inputs {
            screen.on(input);
            let count = screen.count();
            prop_assert!(screen.selected() < count.max(1));
            let (width, height) = screen.size;
            let rows = usize::from(height.saturating_sub(4)).max(1);
            prop_assert!(screen.top <= screen.selected() && screen.selected() < screen.top + rows);
            let area = ratatui_core::layout::Rect::new(0, 0, width, height);
            let mut buffer = ratatui_core::buffer::Buffer::empty(area);
            screen.draw(&mut buffer);
            let controls = buffer.content.iter().any(|cell| cell.symbol().chars().any(char::is_control));
            prop_assert!(!controls);
        }
    }
}
