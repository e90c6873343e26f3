//! The same for people.

use std::{fmt::Write as _, time::Duration};

use ckb_probe_crds::numbers;

use super::{Compared, Cost, Measure, Window, compare, estimate};

const NOTES: &str = "EFFECT is the mean over pairs, P how often a coin for each pair makes as much of what is no effect (randomisation test), \
                     noise what it does in 5 of 100 cases and more";

/// A line for each pair, while it goes on: it takes minutes.
pub fn progress(pair: usize, windows: &[Window], left: Duration) -> String {
    let mut compared = compare(windows).into_iter();
    let cpu = compared.find(|one| one.measure == Measure::Cpu);
    let so_far = cpu.map_or_else(String::new, |cpu| {
        format!(
            ", CPU time {} ({} to {}) so far",
            percent(cpu.effect),
            percent(cpu.low),
            percent(cpu.high)
        )
    });
    let left = ckb_probe_crds::Duration::from(Duration::from_secs(left.as_secs()));
    format!("{pair} pairs{so_far}, {left} left")
}

/// What windows come to, under a title; where there are too few, that.
pub fn table(windows: &[Window], title: &str) -> String {
    let compared = compare(windows);
    let mut text = format!(
        "{title}; {} pairs, each in an order that a coin decided\n",
        windows.len() / 2
    );
    if compared.is_empty() {
        text.push_str("too few pairs to compare: six are needed, of windows in which it did something: give it more time\n");
        return text;
    }
    let _ = writeln!(
        text,
        "{:<32} {:>12} {:>12} {:>9} {:>22} {:>7}",
        "MEASURE", "WITHOUT", "WITH", "EFFECT", "95 OF 100", "P"
    );
    for one in &compared {
        let told = if one.noise { "  noise" } else { "" };
        let _ = writeln!(
            text,
            "{:<32} {:>12} {:>12} {:>9} {:>22} {:>7.4}{told}",
            <&str>::from(one.measure),
            shown(one.measure, one.without),
            shown(one.measure, one.with),
            percent(one.effect),
            format!("{} to {}", percent(one.low), percent(one.high)),
            one.p,
        );
    }
    let cpu = compared.iter().find(|one| one.measure == Measure::Cpu);
    if let Some(cpu) = cpu {
        let _ = writeln!(text, "{}", verdict(cpu));
    }
    if let Some(estimate) = estimate(windows) {
        let beside = cpu.map_or_else(String::new, |cpu| beside(estimate, cpu));
        let _ = writeln!(
            text,
            "estimated by calls times their cost: {estimate:.2} % of its CPU time{beside}"
        );
    }
    let _ = writeln!(text, "{NOTES}");
    text
}

/// What it comes to, in a sentence.
fn verdict(cpu: &Compared) -> String {
    let between = format!("between {} and {}", percent(cpu.low), percent(cpu.high));
    match cpu.noise {
        true => format!("no effect on its CPU time seen: if there is one, it is {between}"),
        false => format!("an effect on its CPU time, {between}"),
    }
}

/// How an estimate stands to what was measured: both are parts of the CPU time that there is without probes.
fn beside(estimate: f64, cpu: &Compared) -> String {
    let place = match estimate / 100.0 {
        part if part < cpu.low => "below",
        part if part > cpu.high => "above",
        _ => "within",
    };
    format!(", {place} what was measured")
}

fn percent(part: f64) -> String {
    format!("{:+.2}%", part * 100.0)
}

fn shown(measure: Measure, value: f64) -> String {
    match measure {
        Measure::Cpu | Measure::CpuOfByte | Measure::CpuOfCount | Measure::Request => {
            numbers::display_nanos(value as u64)
        }
        Measure::Bytes | Measure::Network | Measure::Counter => format!("{value:.0}"),
    }
}

impl Cost {
    /// All of it: each pair, and what they come to.
    pub fn text(&self) -> String {
        let Self {
            subject,
            seed,
            window,
            settle,
            ended,
            windows,
            compared: _,
            estimated_percent: _,
        } = self;
        let mut text = String::new();
        if !windows.is_empty() {
            let _ = writeln!(
                text,
                "{:<6} {:<8} {:>12} {:>12} {:>9}",
                "PAIR", "FIRST", "WITHOUT", "WITH", "CPU TIME"
            );
        }
        for pair in windows.chunks_exact(2) {
            let of = |probed| {
                let window = pair.iter().find(|window| window.probed == probed)?;
                window.account.get(&Measure::Cpu).copied()
            };
            if let (Some(without), Some(with)) = (of(false), of(true)) {
                let first = if pair[0].probed { "with" } else { "without" };
                let _ = writeln!(
                    text,
                    "{:<6} {first:<8} {:>12} {:>12} {:>9}",
                    pair[0].pair + 1,
                    shown(Measure::Cpu, without),
                    shown(Measure::Cpu, with),
                    percent(with / without - 1.0),
                );
            }
        }
        let title = format!(
            "CkbProbe {subject}: windows of {window}, {settle} after each change, coins of seed {seed}"
        );
        let _ = write!(text, "{}", table(windows, &title));
        if let Some(ended) = ended {
            let _ = writeln!(text, "it ended before its time: {ended}");
        }
        text
    }
}
