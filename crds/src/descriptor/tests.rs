use std::collections::BTreeSet;

use super::*;
use crate::{Distribution, Figures, IntervalFigures, Kind, figures::MAX_MEASURES};

/// Every kind's name with what it gives.
fn kinds() -> impl Iterator<Item = (&'static str, &'static Descriptor)> {
    Kind::ALL
        .iter()
        .map(|kind| (kind.as_str(), kind.descriptor()))
}

fn has(descriptor: &Descriptor, name: &str, merges: &[Merge]) -> bool {
    let mut measures = descriptor.measures.iter();
    measures.any(|measure| measure.name == name && merges.contains(&measure.merge))
}

/// Whether the figures that a value is made from are among the measures.
fn can_be_made(descriptor: &Descriptor, value: Value) -> bool {
    const FLOWS: &[Merge] = &[Merge::Sum, Merge::Distribution];
    match value {
        Value::Rate(measure) | Value::Total(measure) | Value::Recent(measure) => {
            has(descriptor, measure, FLOWS)
        }
        Value::Maximum(measure) => has(descriptor, measure, &[Merge::Maximum]),
        Value::Level(measure) => has(descriptor, measure, &[Merge::Level]),
        Value::Quantile(measure, quantile) => {
            (0.0..=1.0).contains(&quantile) && has(descriptor, measure, &[Merge::Distribution])
        }
        Value::Percent(part, whole) | Value::Each(part, whole) | Value::EachInAll(part, whole) => {
            has(descriptor, part, FLOWS) && has(descriptor, whole, FLOWS)
        }
        Value::Portion(part, whole) => {
            let all = [part, whole];
            all.iter()
                .all(|measure| has(descriptor, measure, &[Merge::Level]))
        }
    }
}

#[test]
fn whatever_is_shown_can_be_made_of_the_measures() {
    for (kind, descriptor) in kinds() {
        let columns = descriptor.columns.iter().map(|column| column.value);
        let phrases = descriptor.headline.iter().map(|phrase| phrase.value);
        let alarms = descriptor.alarms.iter().map(|alarm| alarm.value);
        for value in columns.chain(phrases).chain(alarms) {
            assert!(can_be_made(descriptor, value), "{kind}: {value:?}");
        }
        let levels = descriptor.split.iter();
        for measure in levels.filter(|_| descriptor.part.is_some()) {
            assert!(
                has(descriptor, measure, &[Merge::Level]),
                "{kind}: {measure}"
            );
        }
        for metric in descriptor.metrics {
            let (measure, merges): (_, &[_]) = match metric.export {
                Export::Histogram(measure) => (measure, &[Merge::Distribution]),
                Export::Counter(measure) => (measure, &[Merge::Sum, Merge::Distribution]),
                Export::Gauge(measure) => (measure, &[Merge::Level]),
            };
            assert!(has(descriptor, measure, merges), "{kind}: {metric:?}");
        }
    }
}

#[test]
fn measures_are_few_and_each_is_there_once() {
    for (kind, descriptor) in kinds() {
        assert!(descriptor.measures.len() <= MAX_MEASURES, "{kind}");
        let names = descriptor.measures.iter();
        let distinct: BTreeSet<_> = names
            .map(|measure| (measure.name, format!("{:?}", measure.merge)))
            .collect();
        assert_eq!(distinct.len(), descriptor.measures.len(), "{kind}");
        let units: BTreeSet<_> = descriptor
            .measures
            .iter()
            .map(|measure| (measure.name, format!("{:?}", measure.unit)))
            .collect();
        let names: BTreeSet<_> = units.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), units.len(), "{kind}: one name, two units");
    }
}

#[test]
fn rows_and_parts_can_be_labels_and_hide_no_other() {
    let common = ["namespace", "pod", "container", "ckbprobe", "probe", "le"];
    for (kind, descriptor) in kinds() {
        let named = descriptor.metrics.iter().filter_map(|metric| metric.part);
        for label in [descriptor.row]
            .into_iter()
            .chain(descriptor.part)
            .chain(named)
        {
            let word = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(label.chars().all(word), "{kind}: {label}");
            assert!(label.starts_with(|c: char| c.is_ascii_lowercase()));
            assert!(!common.contains(&label), "{kind}: {label}");
        }
        assert_ne!(Some(descriptor.row), descriptor.part, "{kind}");
    }
}

#[test]
fn columns_have_names_of_their_own_as_fields_have_them() {
    for (kind, descriptor) in kinds() {
        assert!(!descriptor.columns.is_empty(), "{kind}: rows have no order");
        assert!(descriptor.columns.len() <= 32, "{kind}: the status's bound");
        let names: BTreeSet<_> = descriptor.columns.iter().map(|c| c.name).collect();
        assert_eq!(names.len(), descriptor.columns.len(), "{kind}");
        for Column { name, head, .. } in descriptor.columns {
            assert!(name.starts_with(|c: char| c.is_ascii_lowercase()), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "{name}");
            assert_eq!(*head, head.to_uppercase(), "{kind}: {name}");
            assert!(!head.is_empty(), "{kind}: {name}");
        }
    }
}

#[test]
fn metrics_have_names_of_their_own_as_prometheus_wants_them() {
    let mut names = BTreeSet::new();
    for (kind, descriptor) in kinds() {
        for metric in descriptor.metrics {
            let Metric {
                name,
                help,
                export,
                of_parts,
                part,
            } = metric;
            assert!(names.insert(*name), "{name} is there twice");
            assert!(name.starts_with("ckb_probe_"), "{name}");
            let word = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(name.chars().all(word), "{name}");
            let unit = match descriptor.unit(export.measure()) {
                Unit::Count => "",
                Unit::Nanoseconds => "_seconds",
                Unit::Bytes => "_bytes",
            };
            // How many values there are of a distribution has no unit, whatever that of the values.
            let values = has(descriptor, export.measure(), &[Merge::Distribution]);
            let suffix = match export {
                Export::Histogram(_) | Export::Gauge(_) => unit.to_owned(),
                Export::Counter(_) if values => "_total".to_owned(),
                Export::Counter(_) => format!("{unit}_total"),
            };
            assert!(name.ends_with(&suffix), "{kind}: {name} lacks {suffix}");
            let total = name.ends_with("_total");
            assert_eq!(total, matches!(export, Export::Counter(_)), "{name}");
            for kept in ["_count", "_sum", "_bucket"] {
                assert!(!name.ends_with(kept), "{name}: histograms have {kept}");
            }
            assert!(help.ends_with('.') && help.len() > 10, "{name}: {help:?}");
            assert!(!of_parts || descriptor.part.is_some(), "{name}");
            assert!(*of_parts || part.is_none(), "{name}");
        }
    }
}

fn column(name: &'static str, value: Value, of_parts: bool) -> Column {
    Column {
        name,
        head: "",
        value,
        of_parts,
    }
}

fn phrase(before: &'static str, value: Value, after: &'static str, of_zero: bool) -> Phrase {
    Phrase {
        before,
        value,
        after,
        of_zero,
    }
}

/// A kind that has one of everything.
fn sample() -> Descriptor {
    let columns = [
        column("rate", Value::Rate("time"), true),
        column("count", Value::Total("time"), true),
        column("longest", Value::Maximum("time"), true),
        column("median", Value::Quantile("time", 0.5), false),
        column("waited", Value::Total("waited"), false),
        column("bytes", Value::Recent("bytes"), false),
        column("open", Value::Level("open"), false),
        column("failed", Value::Percent("failed", "time"), false),
    ];
    let headline = [
        phrase("", Value::Rate("time"), "/s", true),
        phrase("p50 ", Value::Quantile("time", 0.5), "", true),
        phrase("", Value::Recent("failed"), " failed", false),
        phrase("", Value::Level("open"), " open", true),
    ];
    Descriptor {
        row: "row",
        part: None,
        measures: const {
            &[
                Measure::new("time", Unit::Nanoseconds, Merge::Distribution),
                Measure::new("time", Unit::Nanoseconds, Merge::Maximum),
                Measure::new("waited", Unit::Nanoseconds, Merge::Sum),
                Measure::new("bytes", Unit::Bytes, Merge::Sum),
                Measure::new("failed", Unit::Count, Merge::Sum),
                Measure::new("open", Unit::Count, Merge::Level),
            ]
        },
        columns: Box::leak(Box::new(columns)),
        split: &["waited", "open"],
        headline: Box::leak(Box::new(headline)),
        metrics: &[],
        alarms: &[],
        apart: |_| false,
        background: |_| false,
        quiet: true,
    }
}

/// So many calls of 1.48 us in a second, a quarter of which failed.
fn calls(count: u64) -> Summary {
    let figures = Figures {
        sums: [
            ("waited".into(), 2_500_000),
            ("bytes".into(), 4096),
            ("failed".into(), count / 4),
        ]
        .into(),
        maxima: [("time".into(), 1480)].into(),
        levels: [("open".into(), 3)].into(),
        distributions: [(
            "time".into(),
            Distribution {
                histogram: [(119, count)].into_iter().collect(),
                ..Distribution::default()
            },
        )]
        .into(),
        ..Figures::default()
    };
    let window = IntervalFigures {
        milliseconds: 1000,
        recorded_milliseconds: 1000,
        samples: count,
        figures: figures.clone(),
    };
    Summary::of(&figures, &window, true)
}

fn shown(figures: &BTreeMap<String, String>) -> Vec<(&str, &str)> {
    let figures = figures.iter();
    figures.map(|(name, text)| (&**name, &**text)).collect()
}

#[test]
fn figures_are_shown_in_their_units() {
    let descriptor = sample();
    assert_eq!(
        shown(&descriptor.figures(&calls(12), false)),
        [
            ("bytes", "4096"),
            ("count", "12"),
            ("failed", "25"),
            ("longest", "1.48us"),
            ("median", "1.48us"),
            ("open", "3"),
            ("rate", "12"),
            ("waited", "2.5ms"),
        ]
    );
    assert_eq!(
        shown(&descriptor.figures(&calls(12), true)),
        [("count", "12"), ("longest", "1.48us"), ("rate", "12")]
    );
    assert_eq!(
        shown(&descriptor.figures(&Summary::default(), false)),
        [],
        "what is not known is not there"
    );
}

#[test]
fn a_headline_leaves_out_what_is_not_known_and_zeros_that_say_nothing() {
    let descriptor = sample();
    for (of, expected) in [
        (calls(12), "12/s p50 1.48us 3 failed 3 open"),
        (calls(3), "3/s p50 1.48us 3 open"),
        (calls(0), "0/s 3 open"),
        (Summary::default(), ""),
    ] {
        assert_eq!(descriptor.headline(&of), expected);
    }
}

#[test]
fn a_headline_of_rows_of_which_some_were_not_seen_is_the_least_and_says_of_how_many() {
    let descriptor = sample();
    let unseen = || {
        let mut window = IntervalFigures {
            milliseconds: 1000,
            ..IntervalFigures::default()
        };
        let figures = &mut window.figures;
        figures.distributions = [("time".into(), Distribution::default())].into();
        Summary::of(&Figures::default(), &window, true)
    };
    let told = |rows: Vec<Summary>| descriptor.headline_of(rows.into_iter().map(|of| ("", of)));
    assert_eq!(told(vec![calls(12)]), "12/s p50 1.48us 3 failed 3 open");
    assert_eq!(
        told(vec![calls(12), unseen()]),
        "≥12/s p50 1.48us 3 failed 3 open, 1 row not seen"
    );
    assert_eq!(
        told(vec![unseen(), calls(3), unseen()]),
        "≥3/s p50 1.48us 3 open, 2 rows not seen"
    );
    assert_eq!(told(vec![unseen()]), "", "nothing is known");
}

#[test]
fn what_is_counted_of_a_row_is_the_first_of_its_rates() {
    let of_rows = |kind: Kind| kind.descriptor().counted(false);
    for (kind, measure) in [
        ("rocksdb", Some("duration")),
        ("syscalls", Some("duration")),
        ("blockIo", Some("device")),
        ("processes", Some("execs")),
        ("tcp", Some("sent")),
        ("profile", None),
    ] {
        let kind = Kind::ALL.iter().find(|known| known.as_str() == kind);
        let value = kind.and_then(|kind| of_rows(*kind));
        assert_eq!(value, measure.map(Value::Rate), "{kind:?}");
    }
    // Only errors tell the parts of a system call apart.
    let parts = Kind::ALL.iter().find(|kind| kind.as_str() == "syscalls");
    let parts = parts.and_then(|kind| kind.descriptor().counted(true));
    assert_eq!(parts, Some(Value::Rate("errors")));
}

fn level(measures: &[(&'static str, u64)]) -> Summary {
    let levels = measures.iter();
    let figures = Figures {
        levels: levels
            .map(|(name, level)| ((*name).into(), *level))
            .collect(),
        ..Figures::default()
    };
    Summary::of(&figures, &IntervalFigures::default(), true)
}

#[test]
fn a_row_is_split_by_the_first_measure_it_has_the_greatest_part_first() {
    let descriptor = sample();
    let time = |nanos| level(&[("waited", nanos), ("open", 7)]);
    let (cpu, memory, idle) = (time(1_000), level(&[("open", 3)]), time(0));
    let parts = [
        ("tiny", time(9)),
        ("reads", time(330)),
        ("scripts", time(400)),
        ("a", time(100)),
        ("b", time(100)),
        ("c", time(61)),
    ];
    let of_memory = [
        ("scripts", level(&[("open", 2)])),
        ("reads", level(&[("open", 1)])),
    ];
    let refer =
        |parts: &[(&'static str, Summary)]| -> Vec<(&'static str, Summary)> { parts.to_vec() };
    let (parts, of_memory) = (refer(&parts), refer(&of_memory));
    let rows = [
        (
            "Cpu",
            &cpu,
            parts.iter().map(|(key, part)| (*key, part)).collect(),
        ),
        (
            "Idle",
            &idle,
            parts.iter().map(|(key, part)| (*key, part)).collect(),
        ),
        (
            "Memory",
            &memory,
            of_memory.iter().map(|(key, part)| (*key, part)).collect(),
        ),
        ("Unknown", &memory, Vec::new()),
    ];
    assert_eq!(
        descriptor.split(rows.into_iter()),
        "Cpu: scripts 40 %, reads 33 %, a 10 %, b 10 %; Idle: nothing; Memory: scripts 67 %, reads 33 %"
    );
}

#[test]
fn the_busiest_come_first_then_what_was_busier_then_names() {
    let descriptor = sample();
    let now = |count| calls(count);
    let past = |count| {
        let figures = Figures {
            sums: [("time".into(), count)].into(),
            ..Figures::default()
        };
        Summary::of(&figures, &IntervalFigures::default(), false)
    };
    let rows = [
        ("z", now(9)),
        ("y", now(1)),
        ("idle", now(0)),
        ("a", past(7)),
        ("b", past(7)),
        ("c", past(3)),
        ("nothing", Summary::default()),
    ];
    for (place, (name, one)) in rows.iter().enumerate() {
        for (other_place, (other_name, other)) in rows.iter().enumerate() {
            assert_eq!(
                descriptor.order((name, one), (other_name, other)),
                place.cmp(&other_place),
                "{name} {other_name}"
            );
        }
    }
}
