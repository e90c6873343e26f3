//! The picture of a state.

use std::time::Duration;

use ratatui_core::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
    text::Span,
};

use crate::{
    columns::{Column, Plan, Sort},
    history::{bar, span},
    screen::{Line, Mode, Screen},
};

/// Lines that are not the list's: what is shown, what is said of it, the head, and what keys do.
pub(crate) const AROUND: u16 = 4;

/// What keys do.
pub const HELP: &[(&str, &str)] = &[
    ("q, Ctrl-C", "quit; Ctrl-Z suspends"),
    ("?, h", "this help; any key ends it"),
    (
        "up, down, j, k",
        "choose a line; also page keys, Home, End, g, G",
    ),
    ("Enter", "open the rows of a target, or close them"),
    ("right, left", "open; close.  + and -: all of them"),
    ("r p t n", "sort by rate, p99, share of time, name"),
    ("< >", "sort by the column to the left, to the right"),
    ("R", "turn the order around"),
    ("/", "show what has this in its name; Esc shows all again"),
    ("space", "hold the picture, and go on"),
    ("", ""),
    (
        "ERROR",
        "standard error of the rate, where calls are sampled",
    ),
    ("TIME", "share of the time in calls; of two at a time, 200%"),
    ("≥", "the least that there was"),
    ("-", "not known, which is not zero"),
];

/// What the last line says, as far as there is room.
const KEYS: &[&str] = &[
    "q quit",
    "? help",
    "/ filter",
    "< > sort",
    "Enter opens",
    "space holds",
];

impl Screen {
    /// Draws it on what is there, which it covers.
    pub fn draw(&self, buffer: &mut Buffer) {
        let area = buffer.area;
        buffer.reset();
        if area.width == 0 || area.height == 0 {
            return;
        }
        put(buffer, 0, self.head(), bold());
        let last = area.height - 1;
        if last > 0 {
            put(buffer, last, self.keys(area.width), Style::new());
        }
        if last > 1 {
            let style = match self.trouble {
                Some(_) => self.coloured(Color::Red).add_modifier(Modifier::BOLD),
                None => Style::new(),
            };
            put(buffer, 1, self.said(), style);
        }
        if last <= 2 {
            return;
        }
        if self.mode == Mode::Help {
            self.help(buffer, last);
            return;
        }
        let lines = self.lines();
        let plan = self.plan(area.width, &lines, true);
        self.titles(buffer, 2, &plan);
        let shown = lines.iter().enumerate().skip(self.top);
        for (y, (place, line)) in (3..last).zip(shown) {
            self.line(buffer, y, &plan, line);
            if place == self.selected() {
                let own = Rect::new(0, y, area.width, 1);
                buffer.set_style(own, Style::new().add_modifier(Modifier::REVERSED));
            }
        }
    }

    /// All of it as text of this width, each target with its rows: what `--once` prints.
    pub fn text(&self, width: u16) -> String {
        let mut all = self.clone();
        let targets = self.moment.targets.iter();
        all.open = targets
            .map(|target| crate::screen::LineId::of(target, None))
            .collect();
        let lines = all.lines();
        let plan = all.plan(width, &lines, false);
        let mut text = written(width, |buffer| put(buffer, 0, all.head(), Style::new()));
        text += &written(width, |buffer| all.titles(buffer, 0, &plan));
        for line in &lines {
            text += &written(width, |buffer| all.line(buffer, 0, &plan, line));
        }
        text
    }

    fn plan(&self, width: u16, lines: &[Line<'_>], heat: bool) -> Plan {
        let widest = lines.iter().map(|line| Span::raw(name(line)).width()).max();
        let widest = u16::try_from(widest.unwrap_or_default() + 1).unwrap_or(u16::MAX);
        Plan::of(width, widest, heat)
    }

    fn head(&self) -> String {
        let mut head = self.options.title.clone();
        let lost = self.moment.targets.iter().filter(|one| one.lost.is_some());
        let (all, lost) = (self.moment.targets.len(), lost.count());
        if self.is_told {
            head += &match lost {
                0 => format!("  {all} measured"),
                _ => format!("  {} of {all} measured", all - lost),
            };
        }
        if let Some(cost) = &self.moment.cost {
            head += &format!("  costs {cost}");
        }
        if !self.clock.is_empty() {
            head += &format!("  {}", self.clock);
        }
        head
    }

    /// The second line: what is most worth saying.
    fn said(&self) -> String {
        if self.mode == Mode::Filter {
            return format!("filter: {}_  (Enter keeps it, Esc ends it)", self.filter);
        }
        let mut said = Vec::new();
        if self.is_paused() {
            said.push("HELD: space goes on".to_owned());
        }
        if let Some(trouble) = &self.trouble {
            said.push(ckb_probe_views::text::neutral(trouble));
        }
        if !self.filter.is_empty() {
            said.push(format!("filter: {}", self.filter));
        }
        let lines = self.lines();
        let lost = lines.get(self.selected());
        if let Some((reason, message)) = lost.and_then(|line| line.target.lost.as_ref()) {
            said.push(format!("{reason}: {message}"));
        }
        if said.is_empty() && !self.is_told {
            said.push("waiting for the first figures".to_owned());
        } else if said.is_empty() && lines.is_empty() {
            said.push("nothing is measured".to_owned());
        }
        said.join("  ")
    }

    fn keys(&self, width: u16) -> String {
        let mut keys = String::new();
        for one in KEYS {
            let more = if keys.is_empty() { 0 } else { 2 };
            if keys.len() + more + one.len() > usize::from(width) {
                break;
            }
            keys += if more > 0 { "  " } else { "" };
            keys += one;
        }
        let place = match self.count() {
            0 => String::new(),
            count => format!("{}/{count}", self.selected() + 1),
        };
        let room = usize::from(width).saturating_sub(keys.len());
        match room > place.len() {
            true => format!("{keys}{place:>room$}"),
            false => keys,
        }
    }

    fn titles(&self, buffer: &mut Buffer, y: u16, plan: &Plan) {
        let direction = if self.reversed { '^' } else { 'v' };
        let head = |text: &str, sort: Option<Sort>| match sort == Some(self.sort) {
            true => format!("{text}{direction}"),
            false => text.to_owned(),
        };
        let width = buffer.area.width;
        let style = Style::new().add_modifier(Modifier::REVERSED);
        buffer.set_style(Rect::new(0, y, width, 1), style);
        let names = head("TARGET, ROW", Some(Sort::Name));
        buffer.set_stringn(0, y, fit(&names, plan.name.into()), plan.name.into(), style);
        let mut x = plan.name;
        for column in &plan.columns {
            let room = usize::from(column.width() - 1);
            let text = head(column.head(), column.sort());
            // Beside its mark there may be no room for the last letter.
            let text = match text.chars().count() > room {
                true => format!("/SECOND{direction}"),
                false => text,
            };
            let text = format!(" {text:>room$}");
            buffer.set_stringn(x, y, text, room + 1, style);
            x += column.width();
        }
        if plan.heat > 0 {
            let what = match self.sort {
                Sort::Name | Sort::Rate => "RATE",
                Sort::P99 => "P99",
                Sort::Time => "TIME",
            };
            let time = written_time(span(plan.heat.into(), self.interval()));
            let long = format!("{what}, LAST {time}");
            let text = match long.len() <= usize::from(plan.heat) {
                true => long,
                false => what.to_owned(),
            };
            buffer.set_stringn(x + 1, y, text, plan.heat.into(), style);
        }
    }

    /// The shortest interval of a target that is shown.
    fn interval(&self) -> Duration {
        let each = self.moment.targets.iter().map(|one| one.interval_ms);
        let least = each.filter(|one| *one > 0).min();
        Duration::from_millis(least.unwrap_or(1_000))
    }

    fn line(&self, buffer: &mut Buffer, y: u16, plan: &Plan, line: &Line<'_>) {
        let style = match (line.row, &line.target.lost) {
            (_, Some(_)) => self.coloured(Color::Red),
            (None, None) => bold(),
            (Some(_), None) => Style::new(),
        };
        let room = usize::from(plan.name);
        let lost = line.target.lost.as_ref().filter(|_| line.row.is_none());
        if let Some((reason, message)) = lost {
            let width = usize::from(buffer.area.width);
            let text = format!("{}  {reason}: {message}", name(line));
            buffer.set_stringn(0, y, fit(&text, width), width, style);
            return;
        }
        buffer.set_stringn(0, y, fit(&name(line), room), room, style);
        let figures = line.figures();
        let mut x = plan.name;
        for column in &plan.columns {
            let room = usize::from(column.width() - 1);
            let text = match column {
                // Where all was seen there is none.
                Column::Error => column.of(figures).unwrap_or_default(),
                _ => column.of(figures).unwrap_or("-"),
            };
            let text = fit(text, room);
            let text = format!(" {text:>room$}");
            buffer.set_stringn(x, y, text, room + 1, style);
            x += column.width();
        }
        self.heat(buffer, (x + 1, y), plan.heat, line);
    }

    fn heat(&self, buffer: &mut Buffer, (x, y): (u16, u16), width: u16, line: &Line<'_>) {
        let Some(history) = self.histories.get(&line.id).filter(|_| width > 0) else {
            return;
        };
        let interval = Duration::from_millis(line.target.interval_ms.max(1));
        let cells = history.strip(self.sort, width.into(), interval);
        for (x, heat) in (x..x + width).zip(cells) {
            let colour = match heat {
                Some(0..=3) | None => Color::Green,
                Some(4..=6) => Color::Yellow,
                Some(_) => Color::Red,
            };
            let text = bar(heat).to_string();
            buffer.set_stringn(x, y, text, 1, self.coloured(colour));
        }
    }

    fn help(&self, buffer: &mut Buffer, last: u16) {
        for (y, (keys, what)) in (3..last).zip(HELP) {
            put(buffer, y, format!("  {keys:<15} {what}"), Style::new());
        }
    }

    fn coloured(&self, colour: Color) -> Style {
        match self.options.colour {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// What a line is called: as in `htop`, `+` can be opened and `-` is open.
fn name(line: &Line<'_>) -> String {
    match line.row {
        Some(row) => format!("    {}", row.key),
        None => {
            let sign = match (line.target.rows.is_empty(), line.is_open) {
                (true, _) => ' ',
                (false, true) => '-',
                (false, false) => '+',
            };
            format!("{sign} {} {}", line.target.name, line.target.probe)
        }
    }
}

fn put(buffer: &mut Buffer, y: u16, text: impl AsRef<str>, style: Style) {
    let width = usize::from(buffer.area.width);
    buffer.set_stringn(0, y, fit(text.as_ref(), width), width, style);
}

/// What has room in so many cells, by how wide characters are; that something is left out is said.
fn fit(text: &str, width: usize) -> String {
    let text = text.trim_end();
    if Span::raw(text).width() <= width {
        return text.to_owned();
    }
    let mut fitting = String::new();
    let mut left = width.saturating_sub(1);
    for one in text.chars() {
        let cells = Span::raw(one.to_string()).width();
        if cells > left {
            break;
        }
        left -= cells;
        fitting.push(one);
    }
    if width > 0 {
        fitting.push('…');
    }
    fitting
}

/// A line of text that was drawn.
fn written(width: u16, draw: impl FnOnce(&mut Buffer)) -> String {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, 1));
    draw(&mut buffer);
    let mut text = String::new();
    let mut skip = 0;
    for cell in &buffer.content {
        // Beside what is two cells wide there is an empty one.
        if skip == 0 {
            text.push_str(cell.symbol());
            skip = Span::raw(cell.symbol()).width().max(1);
        }
        skip -= 1;
    }
    format!("{}\n", text.trim_end())
}

fn written_time(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", (seconds + 30) / 60),
        _ => format!("{}h", (seconds + 1800) / 3600),
    }
}
