//! The report for people: its rows, and what agent and operator held over time.

use std::{fmt::Write as _, fs, time::Duration};

use super::{
    Settings,
    levels::{FIGURES, Level, Levels},
};
use crate::{
    bench::report::{Report, Row},
    failure::{Failure, Result},
};

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 120.0;

const STYLE: &str = "body{font:14px/1.5 sans-serif;margin:2em auto;max-width:62em;color:#222}\
    table{border-collapse:collapse}td,th{padding:2px 10px;border-bottom:1px solid #ddd;text-align:left}\
    td.n{text-align:right}.no{color:#b00;font-weight:bold}svg{background:#fafafa;display:block}\
    polyline{fill:none;stroke:#06c;stroke-width:1.2}line{stroke:#d33;stroke-width:.6;opacity:.6}text{font-size:10px;fill:#555}";

/// Writes report.html.
pub fn write(settings: &Settings, report: &Report, levels: &Levels) -> Result<()> {
    let path = settings.folder.join("report.html");
    let page = page(settings, report.rows(), &levels.all(), &levels.marks());
    fs::create_dir_all(&settings.folder)
        .and_then(|()| fs::write(&path, page))
        .map_err(Failure::at(&path))
}

fn page(
    settings: &Settings,
    rows: &[Row],
    levels: &[Level],
    marks: &[(Duration, &'static str)],
) -> String {
    let mut page = format!(
        "<!doctype html><meta charset=\"utf-8\"><title>Soak</title><style>{STYLE}</style>\
         <h1>Everything that goes wrong, again and again</h1>\
         <p>By <code>make soak</code>, seed {}, at least {} s of faults. Red lines are where one strikes; see docs/scale.md.</p>",
        settings.seed,
        settings.duration.as_secs(),
    );
    page.push_str("<h2>Figures</h2><table><tr><th>what<th>value<th>must be<th>is");
    for row in rows {
        let value = row.value.map_or_else(
            || "not measured".to_string(),
            |value| format!("{value} {}", row.unit),
        );
        let (class, verdict) = match row.met {
            Some(true) => ("", "yes"),
            Some(false) => (" class=\"no\"", "no"),
            None => ("", ""),
        };
        let bound = row.bound.as_deref().unwrap_or_default();
        let _ = write!(
            page,
            "<tr><td>{}<td class=\"n\">{}<td>{}<td{class}>{verdict} {}",
            escaped(&row.name),
            escaped(&value),
            escaped(bound),
            escaped(row.why.as_deref().unwrap_or_default()),
        );
    }
    page.push_str("</table><h2>Over time</h2>");
    for (name, of, _, unit) in FIGURES {
        let separator = if unit.is_empty() { "" } else { ", " };
        let (name, plot) = (escaped(name), plot(levels, marks, of));
        let _ = write!(page, "<h3>{name}{separator}{unit}</h3>{plot}");
    }
    page
}

/// A line over time, from zero up, with a mark where something happens.
fn plot(
    levels: &[Level],
    marks: &[(Duration, &'static str)],
    of: impl Fn(&Level) -> f64,
) -> String {
    let end = levels
        .last()
        .map_or(1.0, |level| level.at.as_secs_f64())
        .max(1.0);
    let most = levels.iter().map(&of).fold(1.0, f64::max);
    let x = |at: Duration| at.as_secs_f64() / end * WIDTH;
    let mut points = String::new();
    for level in levels {
        let y = HEIGHT - of(level) / most * (HEIGHT - 14.0);
        let _ = write!(points, "{:.1},{y:.1} ", x(level.at));
    }
    let mut svg =
        format!("<svg width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\">");
    for (at, what) in marks.iter().filter(|(_, what)| *what != "recovered") {
        let x = x(*at);
        let _ = write!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{HEIGHT}\"><title>{}</title></line>",
            escaped(what),
        );
    }
    let _ = write!(
        svg,
        "<polyline points=\"{points}\"/><text x=\"2\" y=\"10\">{most:.1}</text>\
         <text x=\"{}\" y=\"10\" text-anchor=\"end\">{end:.0} s</text></svg>",
        WIDTH - 2.0,
    );
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_a_point_for_each_look_and_a_line_for_each_fault() {
        let level = |seconds, megabytes| {
            let mut level = Level {
                at: Duration::from_secs(seconds),
                ..Level::default()
            };
            level.agent.megabytes = megabytes;
            level
        };
        let levels = [level(0, 10.0), level(5, 20.0), level(10, 15.0)];
        let marks = [
            (Duration::from_secs(5), "agent-killed"),
            (Duration::from_secs(7), "recovered"),
        ];
        let svg = plot(&levels, &marks, |level| level.agent.megabytes);
        // In proportion to the greatest, which is at the top but for the height of a line of text.
        assert!(
            svg.contains("points=\"0.0,67.0 450.0,14.0 900.0,40.5 \""),
            "{svg}"
        );
        assert_eq!(svg.matches("<line").count(), 1);
        assert!(svg.contains("<title>agent-killed</title>"), "{svg}");
    }

    #[test]
    fn what_a_name_holds_is_text() {
        assert_eq!(escaped("a<b>&c"), "a&lt;b&gt;&amp;c");
    }
}
