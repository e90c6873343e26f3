//! What is printed of windows without and with probes: all of them, and what they come to.

use std::{
    io::{self, Write},
    time::Duration,
};

use ckb_probe_crds::{Effect, numbers};
use serde_json::{Value, json};
use strum::IntoEnumIterator;

use super::{Window, account::Measure};

/// One line to the terminal for each pair: it takes minutes.
pub fn progress(pair: usize, windows: &[Window], left: Duration) {
    let mut effects = effects(windows).into_iter();
    let cpu = effects.find(|(measure, ..)| *measure == Measure::Cpu);
    let so_far = cpu.map_or_else(String::new, |(_, _, effect)| {
        format!(", CPU time {} so far", interval(&effect))
    });
    let left = ckb_probe_crds::Duration::from(Duration::from_secs(left.as_secs()));
    eprintln!("ckb-probe: {pair} pairs{so_far}, {left} left");
}

/// Whether there was enough to compare.
pub fn table(out: &mut impl Write, windows: &[Window], title: &str) -> io::Result<bool> {
    let effects = effects(windows);
    writeln!(
        out,
        "{title}; {} pairs, each in an order that a coin decided",
        windows.len() / 2
    )?;
    if effects.is_empty() {
        writeln!(
            out,
            "too few pairs to compare: six are needed, of windows in which it did something; see --duration"
        )?;
        return Ok(false);
    }
    writeln!(
        out,
        "{:<32} {:>12} {:>12} {:>9} {:>22} {:>7}",
        "MEASURE", "WITHOUT", "WITH", "EFFECT", "95 OF 100", "P"
    )?;
    for (measure, [without, with], effect) in &effects {
        let told = if effect.is_noise() { "  noise" } else { "" };
        writeln!(
            out,
            "{:<32} {:>12} {:>12} {:>9} {:>22} {:>7.4}{told}",
            <&str>::from(measure),
            shown(*measure, *without),
            shown(*measure, *with),
            percent(effect.effect),
            format!("{} to {}", percent(effect.low), percent(effect.high)),
            effect.p,
        )?;
    }
    if let Some(estimate) = estimate(windows) {
        writeln!(
            out,
            "estimated by calls times their cost: {estimate:.2} % of its CPU time"
        )?;
    }
    writeln!(
        out,
        "EFFECT is the mean over pairs, P how often a coin for each pair makes as much of what is no effect (randomisation test), \
         noise what it does in 5 of 100 cases and more"
    )?;
    Ok(true)
}

/// The same as lines of JSON: each window, then each effect.
pub fn lines(out: &mut impl Write, windows: &[Window]) -> io::Result<bool> {
    for window in windows {
        let account = window.account.iter();
        let account: serde_json::Map<String, Value> = account
            .map(|(measure, value)| (<&str>::from(measure).to_string(), json!(value)))
            .collect();
        let line = json!({
            "pair": window.pair,
            "probed": window.probed,
            "account": account,
            "estimatedPercent": window.estimated_percent,
        });
        writeln!(out, "{line}")?;
    }
    let effects = effects(windows);
    for (measure, [without, with], effect) in &effects {
        let line = json!({
            "measure": <&str>::from(measure),
            "without": without,
            "with": with,
            "effect": effect,
            "noise": effect.is_noise(),
        });
        writeln!(out, "{line}")?;
    }
    Ok(!effects.is_empty())
}

/// Of each measure that is known of enough pairs: what it is on the average without and with, and the effect.
fn effects(windows: &[Window]) -> Vec<(Measure, [f64; 2], Effect)> {
    let of = |measure: Measure| {
        let pairs: Vec<(f64, f64)> = windows
            .chunks_exact(2)
            .filter_map(|pair| {
                let of = |probed| {
                    let window = pair.iter().find(|window| window.probed == probed)?;
                    window.account.get(&measure).copied()
                };
                Some((of(false)?, of(true)?))
            })
            .collect();
        let effect = Effect::of(&pairs)?;
        let mean =
            |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / pairs.len() as f64;
        Some((measure, [mean(|pair| pair.0), mean(|pair| pair.1)], effect))
    };
    Measure::iter().filter_map(of).collect()
}

/// The mean of what windows with probes were estimated to cost.
fn estimate(windows: &[Window]) -> Option<f64> {
    let all: Vec<f64> = windows
        .iter()
        .filter_map(|window| window.estimated_percent)
        .collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

fn interval(effect: &Effect) -> String {
    format!(
        "{} ({} to {})",
        percent(effect.effect),
        percent(effect.low),
        percent(effect.high)
    )
}

fn percent(part: f64) -> String {
    format!("{:+.2}%", part * 100.0)
}

fn shown(measure: Measure, value: f64) -> String {
    match measure {
        Measure::Cpu | Measure::CpuOfByte | Measure::CpuOfCount | Measure::Request => {
            numbers::display_nanos(value as u64)
        }
        Measure::Bytes | Measure::Counter => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(cpu: impl Fn(usize, bool) -> f64, pairs: usize) -> Vec<Window> {
        let of = |pair: usize, probed| Window {
            pair,
            probed,
            account: [(Measure::Cpu, cpu(pair, probed))].into(),
            estimated_percent: probed.then_some(0.8),
        };
        // In either order.
        (0..pairs)
            .flat_map(|pair| [of(pair, pair % 3 == 0), of(pair, pair % 3 != 0)])
            .collect()
    }

    fn printed(windows: &[Window]) -> (String, bool) {
        let mut out = Vec::new();
        let told = table(&mut out, windows, "rocksdb of process 7").unwrap();
        (String::from_utf8(out).unwrap(), told)
    }

    #[test]
    fn an_effect_is_that_of_probes_whichever_came_first() {
        let (table, told) = printed(&windows(
            |pair, probed| 1e8 * (1.0 + pair as f64) * if probed { 1.02 } else { 1.0 },
            8,
        ));
        assert!(told);
        let cpu = table
            .lines()
            .find(|line| line.starts_with("CPU time a second"))
            .unwrap();
        let words: Vec<&str> = cpu.split_whitespace().collect();
        assert_eq!(
            words,
            [
                "CPU", "time", "a", "second", "450ms", "459ms", "+2.00%", "+2.00%", "to", "+2.00%",
                "0.0078"
            ]
        );
        assert!(table.contains("estimated by calls times their cost: 0.80 % of its CPU time"));
    }

    #[test]
    fn what_is_noise_is_called_noise() {
        let (table, told) = printed(&windows(
            |pair, probed| 1e8 + if (pair % 2 == 0) == probed { 1e6 } else { 0.0 },
            8,
        ));
        assert!(told);
        assert!(
            table
                .lines()
                .any(|line| line.starts_with("CPU time") && line.ends_with("noise")),
            "{table}"
        );
    }

    #[test]
    fn of_too_few_pairs_nothing_is_compared() {
        let (table, told) = printed(&windows(|_, _| 1e8, 5));
        assert!(!told);
        assert!(table.contains("too few pairs to compare"), "{table}");
    }

    #[test]
    fn each_window_is_a_line_and_so_is_each_effect() {
        let mut out = Vec::new();
        assert!(lines(&mut out, &windows(|_, _| 1e8, 6)).unwrap());
        let lines: Vec<Value> = String::from_utf8(out)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 13);
        assert_eq!(lines[0]["account"]["CPU time a second"], 1e8);
        assert_eq!(lines[12]["effect"]["pairs"], 6);
        assert_eq!(lines[12]["noise"], true);
    }
}
