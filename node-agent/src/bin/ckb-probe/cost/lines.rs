//! What is printed for programs: lines of JSON, each window, then what each measure comes to.

use std::io::{self, Write};

use ckb_probe_views::cost::{Compared, Window};
use serde_json::{Value, json};

pub fn print(out: &mut impl Write, windows: &[Window], compared: &[Compared]) -> io::Result<()> {
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
    for one in compared {
        let line = json!({
            "measure": <&str>::from(one.measure),
            "without": one.without,
            "with": one.with,
            "effect": {
                "effect": one.effect,
                "low": one.low,
                "high": one.high,
                "p": one.p,
                "pairs": one.pairs,
            },
            "noise": one.noise,
        });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ckb_probe_views::cost::{Measure, compare};

    use super::*;

    #[test]
    fn each_window_is_a_line_and_so_is_each_effect() {
        let of = |pair, probed| Window {
            pair,
            probed,
            account: [(Measure::Cpu, 1e8)].into(),
            ..Window::default()
        };
        let windows: Vec<Window> = (0..6)
            .flat_map(|pair| [of(pair, false), of(pair, true)])
            .collect();
        let mut out = Vec::new();
        print(&mut out, &windows, &compare(&windows)).unwrap();
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
