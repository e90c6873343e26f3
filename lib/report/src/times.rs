//! Times for people.

use k8s_openapi::jiff::Timestamp;

/// A time in milliseconds since 1970, to the second, in UTC.
pub fn clock(milliseconds: u64) -> String {
    format(milliseconds, "%Y-%m-%d %H:%M:%S")
}

/// The same as short as an axis wants it, where all of it lasts so long.
pub fn tick(milliseconds: u64, span: u64) -> String {
    const DAY: u64 = 86_400_000;
    let form = match span {
        0..=600_000 => "%H:%M:%S",
        600_001..DAY => "%H:%M",
        _ => "%d. %H:%M",
    };
    format(milliseconds, form)
}

fn format(milliseconds: u64, form: &str) -> String {
    let time = i64::try_from(milliseconds).ok();
    let time = time.and_then(|time| Timestamp::from_millisecond(time).ok());
    time.map_or_else(|| "-".to_owned(), |time| time.strftime(form).to_string())
}

/// A length in milliseconds.
pub fn lasted(milliseconds: u64) -> String {
    let seconds = milliseconds as f64 / 1000.0;
    let (hours, minutes) = (milliseconds / 3_600_000, milliseconds / 60_000 % 60);
    match milliseconds {
        0..60_000 => format!("{seconds:.1} s"),
        60_000..3_600_000 => format!("{minutes} min {} s", milliseconds / 1000 % 60),
        _ => format!("{hours} h {minutes} min"),
    }
}
