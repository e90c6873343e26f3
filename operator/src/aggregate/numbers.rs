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
