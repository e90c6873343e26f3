//! Numbers as a status shows them: three significant figures, never an exponent.

/// A rate: whole from 100 on, three significant figures below, `0` for nothing.
pub fn rate(value: f64) -> String {
    if !value.is_finite() || value <= 0.0 {
        return "0".to_owned();
    }
    let decimals = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        _ => 3,
    };
    trimmed(&format!("{value:.decimals$}"))
}

/// Thousandths of a percent as percent, exactly: `412` is `0.412`.
pub fn percent(millipercent: u64) -> String {
    let text = format!("{}.{:03}", millipercent / 1000, millipercent % 1000);
    trimmed(&text)
}

/// The same at a glance: `0.4%`, and two decimals below a tenth.
pub fn percent_summary(millipercent: u64) -> String {
    let percent = millipercent as f64 / 1000.0;
    let decimals = if percent < 0.095 { 2 } else { 1 };
    format!("{}%", trimmed(&format!("{percent:.decimals$}")))
}

/// A standard error that is given as a part of the figure, in percent: two significant figures, and `0` for nothing only.
pub fn error(relative: f64) -> String {
    let percent = relative * 100.0;
    if !percent.is_finite() || percent <= 0.0 {
        return "0".to_owned();
    }
    let decimals = match percent {
        p if p >= 9.95 => 0,
        p if p >= 0.995 => 1,
        p if p >= 0.0995 => 2,
        _ => 3,
    };
    trimmed(&format!("{:.decimals$}", percent.max(0.001)))
}

/// The same as people write it: `±4.1%`, and `at least` of what is the least that there was.
pub fn plus_or_minus(relative: f64) -> String {
    if relative == f64::INFINITY {
        "at least".to_owned()
    } else {
        format!("±{}%", error(relative))
    }
}

/// Nanoseconds in three significant figures with the unit a reader expects: `870ns`, `12.3us`, `1.05ms`, `2.5s`.
pub fn display_nanos(nanos: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let Some((scale, unit)) = UNITS.iter().find(|(scale, _)| nanos >= *scale) else {
        return format!("{nanos}ns");
    };
    let value = nanos as f64 / *scale as f64;
    let decimals = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text}{unit}")
}

/// A part of a whole (above 0) as percent, with so many figures and at most three decimals. Rounded down, and up from
/// nothing, so that `100` is all of it and `0` is none.
pub fn share(part: u64, whole: u64, figures: u32) -> String {
    let exact = u128::from(part) * 100_000 / u128::from(whole);
    let millipercent = exact.max(u128::from(part > 0)) as u64;
    let digits = millipercent.checked_ilog10().map_or(1, |log| log + 1);
    let cut = 10_u64.pow(digits.saturating_sub(figures));
    percent(millipercent / cut * cut)
}

/// Milliseconds as seconds, exactly.
pub fn seconds(milliseconds: u64) -> String {
    percent(milliseconds)
}

fn trimmed(text: &str) -> String {
    if !text.contains('.') {
        return text.to_owned();
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_have_three_figures_and_no_exponent() {
        for (value, text) in [
            (0.0, "0"),
            (f64::NAN, "0"),
            (0.0123, "0.012"),
            (1.0, "1"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (171_034.4, "171034"),
        ] {
            assert_eq!(rate(value), text);
        }
        for (value, exact, glance) in [
            (0, "0", "0%"),
            (4, "0.004", "0%"),
            (40, "0.04", "0.04%"),
            (412, "0.412", "0.4%"),
            (12_500, "12.5", "12.5%"),
        ] {
            assert_eq!(percent(value), exact);
            assert_eq!(percent_summary(value), glance);
        }
    }

    #[test]
    fn nanoseconds_are_shown_in_three_figures() {
        for (nanos, text) in [
            (0, "0ns"),
            (999, "999ns"),
            (1_000, "1us"),
            (12_340, "12.3us"),
            (123_456, "123us"),
            (1_050_000, "1.05ms"),
            (2_500_000_000, "2.5s"),
            (100_000_000_000, "100s"),
        ] {
            assert_eq!(display_nanos(nanos), text);
        }
    }

    #[test]
    fn errors_have_two_figures_and_are_none_only_where_there_is_none() {
        for (relative, text) in [
            (0.0, "±0%"),
            (f64::NAN, "±0%"),
            (0.000_000_1, "±0.001%"),
            (0.000_41, "±0.041%"),
            (0.004_12, "±0.41%"),
            (0.0412, "±4.1%"),
            (0.04, "±4%"),
            (0.0996, "±10%"),
            (0.412, "±41%"),
            (1.5, "±150%"),
            (f64::INFINITY, "at least"),
        ] {
            assert_eq!(plus_or_minus(relative), text);
        }
    }

    #[test]
    fn all_and_nothing_are_never_the_result_of_rounding() {
        for (part, whole, exact, glance) in [
            (10_000, 10_000, "100", "100"),
            (9_999, 10_000, "99.9", "99"),
            (u64::MAX - 1, u64::MAX, "99.9", "99"),
            (463, 10_000, "4.63", "4.6"),
            (46, 10_000, "0.46", "0.46"),
            (1, 3_600_000, "0.001", "0.001"),
            (0, 10_000, "0", "0"),
        ] {
            assert_eq!(share(part, whole, 3), exact);
            assert_eq!(share(part, whole, 2), glance);
        }
    }

    proptest! {
        #[test]
        fn a_share_is_rounded_down_by_less_than_its_last_figure(whole in 1..=u64::MAX, part in any::<u64>()) {
            let part = part % whole + 1;
            let exact = part as f64 * 100.0 / whole as f64;
            let shown: f64 = share(part, whole, 3).parse().unwrap();
            prop_assert!(shown <= exact * (1.0 + 1e-9) || shown == 0.001, "{} {}", shown, exact);
            prop_assert!(exact - shown <= (exact / 100.0).max(0.001), "{} {}", shown, exact);
        }
    }
}
