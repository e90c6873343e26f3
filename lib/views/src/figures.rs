//! What a CkbProbe tells at one moment, as a table of 80 columns.

use std::fmt::Write as _;

use ckb_probe_crds::{CkbProbe, Descriptor, EventStatus, Kind, ProbeStatus, RowStatus, condition};

use crate::{
    document::Figures,
    text::{WIDTH, one_line},
};

/// How wide the first column is, and each other.
const ROW: usize = 24;
const COLUMN: usize = 11;

/// So many events are shown of a probe.
const EVENTS: usize = 3;

/// A share of the time, for which there is room in the last column.
const SAMPLED: &str = "SAMPLED";

/// What this one tells; None before there is an answer to what it asks.
pub fn of(probe: &CkbProbe) -> Option<Figures> {
    let status = probe.status.as_ref()?;
    let meta = &probe.metadata;
    let mut conditions = status.conditions.iter();
    Some(Figures {
        subject: format!(
            "{}/{}",
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default()
        ),
        ready: conditions.any(|one| one.type_ == condition::READY && one.status == "True"),
        headline: status.headline.clone(),
        overhead: status.overhead.summary.clone(),
        probes: status.probes.clone(),
    })
}

/// How far a CkbProbe has got, in a line.
pub fn progress(probe: &CkbProbe) -> String {
    let conditions = probe.status.iter().flat_map(|status| &status.conditions);
    let mut ready = conditions.filter(|one| one.type_ == condition::READY);
    match ready.next() {
        None => "the operator has yet to answer".to_owned(),
        Some(ready) => one_line(&format!("{}: {}", ready.reason, ready.message)),
    }
}

/// The first characters of a line that has room for so many.
pub fn cut(line: &str, width: usize) -> String {
    match line.chars().count() > width {
        false => line.to_owned(),
        true => line
            .chars()
            .take(width.saturating_sub(1))
            .chain(['…'])
            .collect(),
    }
}

impl Figures {
    /// The table, with so many rows of each probe.
    pub fn text(&self, rows: usize) -> String {
        let mut text = String::new();
        let cost = self.overhead.as_deref().map_or_else(String::new, |cost| {
            format!("   costs {cost} of the CPU time")
        });
        let _ = writeln!(text, "{}", cut(&format!("{}{cost}", self.subject), WIDTH));
        for probe in &self.probes {
            text.push('\n');
            of_probe(&mut text, probe, rows);
        }
        text
    }
}

fn of_probe(text: &mut String, probe: &ProbeStatus, most: usize) {
    let ProbeStatus {
        name,
        kind,
        headline,
        message,
        rows,
        events,
        ..
    } = probe;
    let said = match headline.is_empty() {
        true => message,
        false => headline,
    };
    let _ = writeln!(
        text,
        "{}",
        cut(&one_line(&format!("{name}: {said}")), WIDTH)
    );
    let mut kinds = Kind::ALL.iter();
    let Some(kind) = kinds.find(|known| known.as_str() == kind) else {
        return;
    };
    table(text, kind.descriptor(), rows, most);
    for event in events.iter().take(EVENTS) {
        let _ = writeln!(text, "{}", cut(&event_line(event), WIDTH));
    }
}

fn table(text: &mut String, descriptor: &Descriptor, rows: &[RowStatus], most: usize) {
    if rows.is_empty() {
        return;
    }
    // What nothing has is not shown, for what something has there is room then.
    let has = |name: &str| rows.iter().any(|row| row.figures.contains_key(name));
    let columns = descriptor.columns.iter().filter(|column| has(column.name));
    let room = (WIDTH - ROW) / COLUMN - 1;
    let columns: Vec<_> = columns.take(room).collect();
    let _ = write!(text, "{:<ROW$}", descriptor.row.to_uppercase());
    for column in &columns {
        let _ = write!(text, "{:>COLUMN$}", column.head);
    }
    let _ = writeln!(text, "{SAMPLED:>COLUMN$}");
    for row in rows.iter().take(most) {
        let key = cut(&one_line(&row.key), ROW - 1);
        let _ = write!(text, "{key:<ROW$}");
        for column in &columns {
            let figure = row.figures.get(column.name);
            let figure = figure.map_or("-", String::as_str);
            let _ = write!(text, "{:>COLUMN$}", cut(figure, COLUMN - 1));
        }
        let share = row.sampling_percent.as_deref();
        let share = share.map_or_else(|| "-".to_owned(), |share| format!("{share}%"));
        let _ = writeln!(text, "{share:>COLUMN$}");
    }
    if rows.len() > most {
        let _ = writeln!(text, "and {} rows more", rows.len() - most);
    }
}

/// Something that happened, in a line.
pub fn event_line(event: &EventStatus) -> String {
    let EventStatus {
        time,
        pod,
        row,
        part,
        thread,
        text,
        ..
    } = event;
    let time = time.as_ref().map_or_else(String::new, |time| {
        format!("{} ", time.0.strftime("%H:%M:%S%.3f"))
    });
    let part = part
        .as_deref()
        .map_or_else(String::new, |part| format!(" {part}"));
    let thread = match thread.is_empty() {
        true => String::new(),
        false => format!(" ({thread})"),
    };
    one_line(&format!("{time}{pod} {row}{part}: {text}{thread}"))
}

#[cfg(test)]
mod tests;
