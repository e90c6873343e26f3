//! What holds of any answers.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn no_request_has_more_points_than_prometheus_answers(
        from in 0_u64..2_000_000_000, span in 1_u64..400_000_000, series in 0_u64..10_000_000,
    ) {
        let grid = Grid::of(from, from + span, series);
        let mut times = Vec::new();
        for part in grid.parts() {
            let points = (part.to - part.from) / part.step + 1;
            prop_assert!(points < MOST_POINTS);
            times.extend((0..points).map(|place| part.from + place * part.step));
        }
        let all = (0..=(grid.to - grid.from) / grid.step).map(|place| grid.from + place * grid.step);
        prop_assert_eq!(times, all.collect::<Vec<_>>());
        prop_assert!(grid.from >= from && grid.from < from + grid.step && grid.to == from + span);
        prop_assert_eq!(grid.place(grid.to * 1000), Some(((grid.to - grid.from) / grid.step) as u32));
    }

    /// Whatever is missing and however often it begins anew: what is told adds up, and each moment is known or a gap.
    #[test]
    fn what_is_counted_adds_up_and_each_moment_is_known_or_a_gap(
        steps in prop::collection::vec((0_u64..100, prop::bool::weighted(0.05), prop::bool::weighted(0.8)), 61),
    ) {
        let (mut value, mut told, mut expected, mut last) = (0, Vec::new(), 0, None);
        for (place, (added, anew, there)) in (0..).zip(&steps) {
            value = if *anew { *added } else { value + added };
            if !there {
                continue;
            }
            expected += match last {
                None => 0,
                Some(last) if value < last => value,
                Some(last) => value - last,
            };
            last = Some(value);
            told.push((place, value as f64));
        }
        let places: Vec<u64> = told.iter().map(|(place, _)| *place).collect();
        prop_assume!(places.len() > 4);
        let mut answers = Answers::new(subject(), GRID);
        begin(&mut answers, "ckb-0", "a", &places);
        answers.add(metric(CALLS), &[of_calls("ckb-0", "a", &told)]);
        let target = answers.kept().targets.remove(0);
        let (total, each) = calls(&target);
        prop_assert_eq!(total, expected);
        let known: u64 = each.into_iter().flatten().sum();
        prop_assert!(known <= total);
        let gaps = target.history.gaps.iter();
        let between: u64 = gaps
            .filter(|gap| gap.why.contains("did not scrape"))
            .map(|gap| gap.to.unwrap() - gap.from)
            .sum();
        let span = (places[places.len() - 1] - places[0]) * 15_000;
        prop_assert_eq!(target.history.known() + between, span);
    }

    /// Whatever is answered, there is a report, which says only numbers that are.
    #[test]
    fn whatever_is_answered_there_is_a_report(
        told in prop::collection::vec((0_usize..9, 0_usize..4, prop::collection::vec((0_u64..70, prop_oneof![
            any::<f64>(), Just(f64::INFINITY), Just(f64::NAN), 0.0..1e6_f64, (0_u64..60).prop_map(|at| (BEGAN + at * 15) as f64)
        ]), 0..20)), 0..30),
    ) {
        let mut answers = Answers::new(subject(), GRID);
        begin(&mut answers, "ckb-0", "a", &[0, 1, 2, 5, 9, 30]);
        for (what, labels, mut points) in told {
            points.retain(|(_, value)| *value >= 0.0);
            points.sort_by_key(|(place, _)| *place);
            let what = [
                What::Scraped, What::Attached, What::Cost, What::Lost, What::Samples, What::Share, What::Error, metric(CALLS), metric(DURATIONS),
            ][what];
            let mut series = of_calls(["ckb-0", "ckb-1", "", "ckb-0"][labels], ["a", "b", "a", "a"][labels], &points);
            series.labels.insert("le".to_owned(), ["0.001", "+Inf", "x", "0"][labels].to_owned());
            series.labels.insert("kind".to_owned(), ["rocksdb", "tcp", "", "rocksdb"][labels].to_owned());
            answers.add(what, &[series]);
        }
        let kept = answers.kept();
        for target in &kept.targets {
            for interval in target.history.intervals() {
                for row in interval.probes.iter().flat_map(|probe| &probe.rows) {
                    for values in row.window.figures.distributions.values() {
                        let places = values.histogram.iter();
                        prop_assert!(places.map(|(place, _)| bounds(place).end).all(|end| end > 0));
                    }
                }
            }
        }
        let content = content_of_prometheus("http://x", &kept, Some(&kept));
        prop_assert!(!html::page(&content).contains("NaN"));
        prop_assert!(markdown::text(&content).contains("ckb/ckb"));
    }
}
