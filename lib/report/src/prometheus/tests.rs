mod properties;

use ckb_probe_crds::{Kind, Value, descriptor::Export};
use ckb_probe_figures::histogram::bounds;

use super::{
    answer::{AnswerError, Series, read},
    kept::Answers,
    question::{Grid, MOST_POINTS, Subject, What, of_kinds, of_targets, series},
    *,
};
use crate::{
    content::{Block, Section, content_of_prometheus},
    html, markdown,
};

/// When made-up samples begin, in seconds since 1970.
const BEGAN: u64 = 1_790_000_000;

const GRID: Grid = Grid {
    from: BEGAN,
    to: BEGAN + 60 * 15,
    step: 15,
};

fn rocksdb() -> Kind {
    let mut kinds = Kind::ALL.iter().copied();
    kinds.find(|kind| kind.as_str() == "rocksdb").unwrap()
}

fn metric(name: &str) -> What {
    let metrics = rocksdb().descriptor().metrics;
    let metric = metrics.iter().find(|metric| metric.name == name);
    What::Figure(rocksdb(), metric.unwrap())
}

fn subject() -> Subject {
    Subject {
        namespace: "ckb".to_owned(),
        ckbprobe: "ckb".to_owned(),
        ..Subject::default()
    }
}

/// A series of a target, with these labels besides, whose values are at these places of the grid.
fn of(pod: &str, labels: &[(&str, &str)], points: &[(u64, f64)]) -> Series {
    let own = [
        ("namespace", "ckb"),
        ("ckbprobe", "ckb"),
        ("pod", pod),
        ("container", "ckb"),
        ("job", "agents"),
    ];
    let labels = own.iter().chain(labels);
    let points = points.iter();
    Series {
        labels: labels
            .map(|(label, value)| ((*label).to_owned(), (*value).to_owned()))
            .collect(),
        points: points
            .map(|(place, value)| ((GRID.from + GRID.step * place) * 1000, *value))
            .collect(),
    }
}

/// When an agent was scraped: two seconds before each of these times.
fn scrapes(places: impl IntoIterator<Item = u64>) -> Vec<(u64, f64)> {
    let places = places.into_iter();
    places
        .map(|place| (place, (GRID.from + GRID.step * place - 2) as f64))
        .collect()
}

fn all(places: impl IntoIterator<Item = u64>, value: f64) -> Vec<(u64, f64)> {
    places.into_iter().map(|place| (place, value)).collect()
}

const STORAGE: [(&str, &str); 1] = [("probe", "storage")];

fn row(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    [&STORAGE[..], &[("operation", "Get")], more].concat()
}

/// A target whose probe is in place at all of these times.
fn begin(answers: &mut Answers, pod: &str, instance: &str, places: &[u64]) {
    let instance = ("instance", instance);
    let at = places.iter().copied();
    answers.add(What::Scraped, &[of(pod, &[instance], &scrapes(at.clone()))]);
    let labels = [instance, STORAGE[0], ("kind", "rocksdb")];
    answers.add(What::Attached, &[of(pod, &labels, &all(at, 1.0))]);
}

fn storage(target: &Target) -> crate::history::ProbeHistory {
    let columns = target.history.merged(u64::MAX);
    target.history.probes(&columns).remove(0)
}

/// How many calls of Get there were by the counter, in all and in what is known of each interval.
fn calls(target: &Target) -> (u64, Vec<Option<u64>>) {
    let of = storage(target);
    let get = of.series.iter().find(|one| one.part.is_none()).unwrap();
    let each = target.history.intervals().map(|interval| {
        let rows = &interval.probes.first()?.rows;
        let row = rows.iter().find(|row| row.key == "Get");
        Some(row.map_or(0, |row| row.window.figures.count("duration").unwrap_or(0)))
    });
    (get.total.count("duration").unwrap_or(0), each.collect())
}

fn of_calls(pod: &str, instance: &'static str, points: &[(u64, f64)]) -> Series {
    of(pod, &row(&[("instance", instance)]), points)
}

const CALLS: &str = "ckb_probe_operation_calls_total";

#[test]
fn what_is_counted_between_two_samples_is_told_exactly() {
    let mut answers = Answers::new(subject(), GRID);
    begin(&mut answers, "ckb-0", "a", &[0, 1, 2, 3]);
    let points = [(0, 1000.0), (1, 1007.0), (2, 1007.0), (3, 1010.0)];
    answers.add(metric(CALLS), &[of_calls("ckb-0", "a", &points)]);
    let kept = answers.kept();
    let [target] = &kept.targets[..] else {
        panic!("{kept:?}");
    };
    assert_eq!(
        (kept.subject.as_str(), target.name.as_str()),
        ("ckb/ckb", "ckb-0/ckb")
    );
    // What the agent counted before that time is not of it.
    assert_eq!(calls(target), (10, vec![Some(7), Some(0), Some(3)]));
    let lengths = target
        .history
        .intervals()
        .map(|one| (one.at, one.milliseconds));
    let at = |place: u64| (GRID.from + 15 * place - 2) * 1000;
    assert_eq!(
        lengths.collect::<Vec<_>>(),
        [(at(1), 15_000), (at(2), 15_000), (at(3), 15_000)]
    );
}

#[test]
fn a_counter_that_falls_has_begun_anew_and_a_row_that_comes_was_at_zero() {
    let mut answers = Answers::new(subject(), GRID);
    begin(&mut answers, "ckb-0", "a", &[0, 1, 2, 3]);
    let points = [(1, 5.0), (2, 9.0), (3, 4.0)];
    answers.add(metric(CALLS), &[of_calls("ckb-0", "a", &points)]);
    let target = answers.kept().targets.remove(0);
    assert_eq!(calls(&target), (13, vec![Some(5), Some(4), Some(4)]));
    assert_eq!(target.facts.resets, 1);
    // Unless the agent left rows out: then nobody knows since when it counts.
    let mut answers = Answers::new(subject(), GRID);
    begin(&mut answers, "ckb-0", "a", &[0, 1, 2, 3]);
    let left_out = of("ckb-0", &[("instance", "a")], &[(0, 40.0)]);
    answers.add(What::RowsLeftOut, &[left_out]);
    answers.add(metric(CALLS), &[of_calls("ckb-0", "a", &points)]);
    let target = answers.kept().targets.remove(0);
    assert_eq!(calls(&target).0, 8);
    assert!(target.facts.rows_left_out);
}

#[test]
fn a_time_without_samples_is_a_gap_and_not_zero() {
    let mut answers = Answers::new(subject(), GRID);
    let places: Vec<u64> = (10..20).chain(40..50).collect();
    begin(&mut answers, "ckb-0", "a", &places);
    let points: Vec<(u64, f64)> = places.iter().map(|at| (*at, *at as f64)).collect();
    answers.add(metric(CALLS), &[of_calls("ckb-0", "a", &points)]);
    let target = answers.kept().targets.remove(0);
    let gaps = target.history.gaps.iter();
    let gaps: Vec<(u64, u64)> = gaps
        .map(|gap| {
            (
                gap.from / 1000 - GRID.from,
                gap.to.unwrap() / 1000 - GRID.from,
            )
        })
        .collect();
    assert_eq!(gaps, [(0, 148), (283, 598), (733, 900)]);
    let (total, each) = calls(&target);
    // The agent counted all the while: the total has it, and no interval.
    assert_eq!((total, each), (39, vec![Some(1); 18]));
    assert_eq!(target.history.known(), 18 * 15_000);
    let get = &storage(&target).series[0];
    assert_eq!(
        get.summary().value(Value::Rate("duration")),
        Some(1.0 / 15.0)
    );
}

#[test]
fn a_sample_that_prometheus_repeats_is_none() {
    // It was away for a minute and shows the last sample meanwhile: no stale marker was written.
    let mut answers = Answers::new(subject(), GRID);
    let mut clock = scrapes(0..4);
    let last = clock[3].1;
    clock.extend((4..12).map(|place| (place, last)));
    clock.extend(scrapes(12..14));
    let instance = ("instance", "a");
    answers.add(What::Scraped, &[of("ckb-0", &[instance], &clock)]);
    let labels = [instance, STORAGE[0], ("kind", "rocksdb")];
    answers.add(What::Attached, &[of("ckb-0", &labels, &all(0..14, 1.0))]);
    answers.add(metric(CALLS), &[of_calls("ckb-0", "a", &all(0..14, 3.0))]);
    let target = answers.kept().targets.remove(0);
    assert_eq!(calls(&target).1.len(), 4);
    assert_eq!(target.history.gaps.len(), 2);
    assert_eq!(target.facts.samples, 6);
}

#[test]
fn two_pods_are_two_targets_and_an_agent_that_is_replaced_is_no_reset() {
    let mut answers = Answers::new(subject(), GRID);
    begin(&mut answers, "ckb-0", "a", &[0, 1, 2]);
    begin(&mut answers, "ckb-0", "b", &[4, 5]);
    begin(&mut answers, "ckb-1", "c", &[0, 1]);
    answers.add(
        metric(CALLS),
        &[
            of_calls("ckb-0", "a", &[(0, 10.0), (1, 11.0), (2, 12.0)]),
            of_calls("ckb-0", "b", &[(4, 100.0), (5, 104.0)]),
            of_calls("ckb-1", "c", &[(0, 0.0), (1, 50.0)]),
        ],
    );
    let kept = answers.kept();
    let told: Vec<(&str, u64)> = kept
        .targets
        .iter()
        .map(|target| (target.name.as_str(), calls(target).0))
        .collect();
    assert_eq!(told, [("ckb-0/ckb", 6), ("ckb-1/ckb", 50)]);
    let gaps = &kept.targets[0].history.gaps;
    assert!(gaps[0].why.starts_with("another agent"), "{gaps:?}");
    assert_eq!(kept.targets[0].facts.resets, 0);
    let content = content_of_prometheus("http://x", &kept, None);
    let titles: Vec<&str> = content
        .sections
        .iter()
        .map(|one| one.title.as_str())
        .collect();
    assert!(
        titles.contains(&"ckb-0/ckb: storage (rocksdb)"),
        "{titles:?}"
    );
    assert!(
        titles.contains(&"ckb-1/ckb: storage (rocksdb)"),
        "{titles:?}"
    );
}

#[test]
fn what_two_scrape_of_one_agent_counts_once() {
    let mut answers = Answers::new(subject(), GRID);
    begin(&mut answers, "ckb-0", "a", &[0, 1, 2]);
    begin(&mut answers, "ckb-0", "b", &[1, 2]);
    let points = [(0, 1.0), (1, 2.0), (2, 5.0)];
    let both = [
        of_calls("ckb-0", "a", &points),
        of_calls("ckb-0", "b", &points),
    ];
    answers.add(metric(CALLS), &both);
    assert_eq!(calls(&answers.kept().targets[0]).0, 4);
}

/// Cumulative buckets of these counts, by their bounds in powers of two of a nanosecond, at a place of the grid.
fn buckets(place: u64, counts: &[(i32, u64)]) -> Vec<(String, (u64, f64))> {
    let bounds = (9..=34).map(|power| (power, (2f64.powi(power) / 1e9).to_string()));
    let mut all: Vec<(String, (u64, f64))> = bounds
        .map(|(power, bound)| {
            let below = counts.iter().filter(|(of, _)| *of <= power);
            (
                bound,
                (place, below.map(|(_, count)| count).sum::<u64>() as f64),
            )
        })
        .collect();
    let count: u64 = counts.iter().map(|(_, count)| count).sum();
    all.push(("+Inf".to_owned(), (place, count as f64)));
    all
}

fn of_buckets(points: impl IntoIterator<Item = (String, (u64, f64))>) -> Vec<Series> {
    let mut by_bound: BTreeMap<String, Vec<(u64, f64)>> = BTreeMap::new();
    for (bound, point) in points {
        by_bound.entry(bound).or_default().push(point);
    }
    by_bound
        .into_iter()
        .map(|(bound, points)| {
            let mut series = of_calls("ckb-0", "a", &points);
            series.labels.insert("le".to_owned(), bound);
            series
        })
        .collect()
}

const DURATIONS: &str = "ckb_probe_operation_duration_seconds";

#[test]
fn quantiles_are_in_the_bucket_of_the_metric() {
    let mut answers = Answers::new(subject(), GRID);
    begin(&mut answers, "ckb-0", "a", &[0, 1, 2]);
    let first = buckets(0, &[(10, 5)]);
    // 90 calls of 512 to 1024 ns, 9 of 64 to 128 us, one beyond 17 s; and then the agent restarts.
    let second = buckets(1, &[(10, 95), (17, 9), (35, 1)]);
    let third = buckets(2, &[(10, 40)]);
    let told = of_buckets(first.into_iter().chain(second).chain(third));
    answers.add(metric(DURATIONS), &told);
    let target = answers.kept().targets.remove(0);
    assert_eq!(target.facts.resets, 1);
    let (total, each) = calls(&target);
    assert_eq!((total, each), (140, vec![Some(100), Some(40)]));
    let get = &storage(&target).series[0];
    let of = target.history.merged(0);
    let of = target.history.probes(&of).remove(0).series[0]
        .column(0)
        .unwrap();
    let at = |quantile| of.value(Value::Quantile("duration", quantile)).unwrap() as u64;
    assert!((512..1024).contains(&at(0.5)) && (512..1024).contains(&at(0.9)));
    assert!((65_536..131_072).contains(&at(0.99)), "{}", at(0.99));
    assert!(at(1.0) >= 1 << 34);
    assert_eq!(of.value(Value::Maximum("duration")), None);
    assert_eq!(get.window.figures.count("duration"), Some(140));
    // Calls that are counted and not timed are in the count alone.
    answers.add(
        metric(CALLS),
        &[of_calls("ckb-0", "a", &[(0, 5.0), (1, 108.0)])],
    );
    let target = answers.kept().targets.remove(0);
    let values = &storage(&target).series[0].window.figures.distributions["duration"];
    assert_eq!((values.unmeasured, values.count()), (3, 143));
}

#[test]
fn what_was_sampled_says_so_and_how_far_off_it_is() {
    let mut answers = Answers::new(subject(), GRID);
    begin(&mut answers, "ckb-0", "a", &[0, 1, 2]);
    let of_row = |points: &[(u64, f64)]| [of_calls("ckb-0", "a", points)];
    answers.add(What::Share, &of_row(&[(1, 0.25), (2, 0.25)]));
    answers.add(What::Error, &of_row(&[(1, 0.03), (2, 0.04)]));
    answers.add(What::Samples, &of_row(&[(0, 0.0), (1, 25.0), (2, 50.0)]));
    answers.add(metric(CALLS), &of_row(&[(0, 0.0), (1, 100.0), (2, 200.0)]));
    let target = answers.kept().targets.remove(0);
    let get = storage(&target).series.remove(0);
    assert_eq!(get.summary().share().percent().as_deref(), Some("25"));
    assert_eq!(get.summary().samples(), 50);
    let error = get.total.relative_error("duration").unwrap();
    // The square root of 3^2 + 4^2, of 200.
    assert!((error - 5.0 / 200.0).abs() < 1e-9, "{error}");
}

#[test]
fn a_probe_that_is_not_in_place_is_not_measured() {
    let mut answers = Answers::new(subject(), GRID);
    let labels = [("instance", "a"), STORAGE[0], ("kind", "rocksdb")];
    answers.add(What::Scraped, &[of("ckb-0", &labels[..1], &scrapes(0..3))]);
    let attached = [(0, 1.0), (1, 0.0), (2, 1.0)];
    answers.add(What::Attached, &[of("ckb-0", &labels, &attached)]);
    answers.add(metric(CALLS), &[of_calls("ckb-0", "a", &all(0..3, 6.0))]);
    let target = answers.kept().targets.remove(0);
    let of = storage(&target);
    assert_eq!(of.unmeasured, [("not attached".to_owned(), 15_000)].into());
}

#[test]
fn in_how_much_of_the_time_probes_were_in_place_and_counted_is_told() {
    let mut answers = Answers::new(subject(), GRID);
    begin(&mut answers, "ckb-0", "a", &[0, 1, 2, 3]);
    let told = |points| [of("ckb-0", &[("instance", "a")], points)];
    // At a time at which it is not told nothing is known of it.
    let attached = [(0, 1.0), (1, 1.0), (2, 0.0), (3, 1.0)];
    answers.add(What::TargetAttached, &told(&attached));
    answers.add(What::Firing, &told(&[(0, 1.0), (1, 0.0)]));
    let facts = answers.kept().targets.remove(0).facts;
    assert_eq!((facts.attached, facts.firing), (Some(0.75), Some(0.5)));

    let mut answers = Answers::new(subject(), GRID);
    begin(&mut answers, "ckb-0", "a", &[0, 1]);
    let facts = answers.kept().targets.remove(0).facts;
    assert_eq!((facts.attached, facts.firing), (None, None));
}

#[test]
fn what_is_kept_without_its_histogram_is_told() {
    let mut answers = Answers::new(subject(), GRID);
    begin(&mut answers, "ckb-0", "a", &[0, 1]);
    answers.add(
        What::Samples,
        &[of_calls("ckb-0", "a", &[(0, 0.0), (1, 5.0)])],
    );
    let kept = answers.kept();
    let text = markdown::text(&content_of_prometheus("http://x", &kept, None));
    assert!(text.contains("there are no durations"), "{text}");
    assert_eq!(
        kept.targets[0].facts.without_histogram,
        [("storage".to_owned(), DURATIONS)]
    );
}

#[test]
fn a_report_says_what_prometheus_does_not_have_and_compares_two_times() {
    let made = |each: u64| {
        let mut answers = Answers::new(subject(), GRID);
        let places: Vec<u64> = (0..=60).collect();
        begin(&mut answers, "ckb-0", "a", &places);
        let points = places.iter().map(|at| (*at, (at * each + at % 3) as f64));
        let points: Vec<(u64, f64)> = points.collect();
        answers.add(metric(CALLS), &[of_calls("ckb-0", "a", &points)]);
        answers.kept()
    };
    let (before, after) = (made(100), made(200));
    let content = content_of_prometheus("http://x", &after, Some(&before));
    let compared = |section: &&Section| section.title.starts_with("Compared");
    let compared = content.sections.iter().find(compared).unwrap();
    let [Block::Text(said), Block::Table(table)] = &compared.blocks[..] else {
        panic!("{compared:?}");
    };
    assert!(said.starts_with("1 figures have changed"), "{said}");
    assert_eq!(table.rows[0][6], "more");
    let (page, text) = (html::page(&content), markdown::text(&content));
    for said in [
        "What Prometheus does not have",
        "Flame graphs",
        "ckbprobe slow ckb -n ckb",
        "twice what it was",
    ] {
        assert!(page.contains(said) && text.contains(said), "{said}: {text}");
    }
}

#[test]
fn nothing_is_told_of_no_target() {
    let kept = Answers::new(subject(), GRID).kept();
    assert!(kept.targets.is_empty());
    let text = markdown::text(&content_of_prometheus("http://x", &kept, None));
    assert!(text.contains("ckb/ckb"));
}

#[test]
fn prometheus_is_asked_by_labels_that_mean_nothing_else() {
    let odd = Subject {
        ckbprobe: "a\"} or up{x=\"\\".to_owned(),
        pod: Some("ckb-0".to_owned()),
        probe: Some("storage".to_owned()),
        ..subject()
    };
    let selector = r#"{namespace="ckb",ckbprobe="a\"} or up{x=\"\\",pod="ckb-0""#;
    assert_eq!(odd.selector(false), format!("{selector}}}"));
    assert_eq!(
        odd.selector(true),
        format!("{selector},probe=\"storage\"}}")
    );
    assert_eq!(
        series(&subject()),
        r#"count({__name__=~"ckb_probe_.+",namespace="ckb",ckbprobe="ckb"})"#
    );
    let queries = of_kinds(&subject(), &[rocksdb()]);
    let texts: Vec<&str> = queries.iter().map(|query| query.text.as_str()).collect();
    let labels = r#"{namespace="ckb",ckbprobe="ckb"}"#;
    for name in [
        &format!("{DURATIONS}_bucket"),
        &format!("{DURATIONS}_sum"),
        CALLS,
    ] {
        assert!(
            texts.contains(&format!("{name}{labels}").as_str()),
            "{name}"
        );
    }
    // Each metric of the kind is asked for.
    let metrics = rocksdb().descriptor().metrics.iter();
    let histograms = metrics
        .clone()
        .filter(|one| matches!(one.export, Export::Histogram(_)));
    assert_eq!(queries.len(), metrics.len() + histograms.count());
    let mean = of_targets(&subject(), GRID);
    let mean = mean.iter().find(|query| matches!(query.what, What::Share));
    assert_eq!(
        mean.unwrap().text,
        format!("avg_over_time(ckb_probe_sampling_ratio{labels}[15s])")
    );
}

#[test]
fn an_answer_is_series_a_refusal_or_nothing_of_prometheus() {
    let told = br#"{"status":"success","warnings":["one\u001b[2J store"],"data":{"resultType":"matrix","result":[{"metric":{"pod":"a"},
        "values":[[1790000000,"1"],[1790000015.000,"NaN"],[1790000030,"+Inf"],[1790000045,"-1"],[1790000060,"x"],[1790000075,"2.5"]]}]}}"#;
    let (series, warnings) = read(told).unwrap();
    assert_eq!(series[0].label("pod"), "a");
    assert_eq!(
        series[0].points,
        [
            (1_790_000_000_000, 1.0),
            (1_790_000_030_000, f64::INFINITY),
            (1_790_000_075_000, 2.5)
        ]
    );
    assert_eq!(warnings, ["one [2J store"]);
    let refused = read(br#"{"status":"error","errorType":"bad_data","error":"no"}"#);
    assert!(matches!(refused, Err(AnswerError::Refused { message, .. }) if message == "no"));
    for foreign in [
        "",
        "<html>\u{1b}[2J",
        "{}",
        "[1]",
        "{\"status\":\"success\"}",
    ] {
        let read = read(foreign.as_bytes());
        let Err(AnswerError::Foreign(said)) = read else {
            panic!("{foreign}: {read:?}");
        };
        assert!(!said.contains('\u{1b}'));
    }
}

#[test]
fn what_is_lost_beyond_what_a_number_can_hold_is_as_much_as_it_can() {
    let mut answers = Answers::new(subject(), GRID);
    begin(&mut answers, "ckb-0", "a", &[0, 1, 2, 3]);
    // It falls in between: both times it is all that was lost since it began anew.
    let points = [(0, 0.0), (1, 1e19), (2, 0.0), (3, 1e19)];
    let labels = [("instance", "a"), ("what", "events")];
    answers.add(What::Lost, &[of("ckb-0", &labels, &points)]);
    let kept = answers.kept();
    let lost: Vec<u64> = kept.targets[0].facts.lost.values().copied().collect();
    assert_eq!(lost, [u64::MAX]);
}
