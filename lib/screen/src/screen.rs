//! The state: what was told, what is open, chosen, sought and held. A pure function of the inputs up to now.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ckb_probe_views::{
    news::News,
    top::{Moment, Row, Target},
};

use crate::{columns::Sort, history::History};

/// So many moments wait while it pauses.
const HELD: usize = 300;

/// A filter is no longer.
const FILTER: usize = 60;

/// How it looks, once and for all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// What is shown, in the first line.
    pub title: String,
    /// Whether there are colours; without, heat is told by bars alone.
    pub colour: bool,
}

/// A key that means something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs, reason = "they are what stands on them")]
pub enum Key {
    Char(char),
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
}

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A key was pressed.
    Key(Key),
    /// This is how it is now; the time is one that only goes forward. The last is what a clock on the wall says.
    Moment(Moment, Duration, String),
    /// Figures cannot be asked for, and why; or they can again.
    Trouble(Option<String>),
    /// The screen has this width and height.
    Size(u16, u16),
}

/// Whether it goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// It does.
    On,
    /// Somebody has seen enough.
    Quit,
    /// Somebody wants the terminal for something else, for a while.
    Suspend,
}

/// A target, or one of its rows, as long as it is there.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct LineId {
    subject: String,
    name: String,
    probe: String,
    row: Option<String>,
}

impl LineId {
    pub(crate) fn of(target: &Target, row: Option<&Row>) -> Self {
        Self {
            subject: target.subject.clone(),
            name: target.name.clone(),
            probe: target.probe.clone(),
            row: row.map(|row| row.key.clone()),
        }
    }
}

/// A line of the list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line<'a> {
    pub(crate) target: &'a Target,
    /// None: the line is the target's own.
    pub(crate) row: Option<&'a Row>,
    pub(crate) id: LineId,
    pub(crate) is_open: bool,
}

impl<'a> Line<'a> {
    /// The figures that it shows.
    pub(crate) fn figures(&self) -> &'a Row {
        self.row.unwrap_or(&self.target.all)
    }
}

/// What is asked of whoever looks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Mode {
    #[default]
    Browse,
    Filter,
    Help,
}

/// The screen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Screen {
    pub(crate) options: Options,
    pub(crate) moment: Moment,
    pub(crate) clock: String,
    pub(crate) is_told: bool,
    pub(crate) trouble: Option<String>,
    pub(crate) histories: BTreeMap<LineId, History>,
    news: BTreeMap<LineId, News<Vec<Row>>>,
    pub(crate) open: BTreeSet<LineId>,
    pub(crate) sort: Sort,
    pub(crate) reversed: bool,
    pub(crate) filter: String,
    pub(crate) mode: Mode,
    held: Option<Vec<(Moment, Duration, String)>>,
    selected: LineId,
    /// Where the selection was: what is there now is selected where it is gone.
    at: usize,
    pub(crate) top: usize,
    pub(crate) size: (u16, u16),
}

impl Screen {
    /// One of this size, of which nothing was told yet.
    pub fn new(options: Options, width: u16, height: u16) -> Self {
        Self {
            options,
            size: (width, height),
            ..Self::default()
        }
    }

    /// Takes an input.
    pub fn on(&mut self, input: Input) -> Next {
        let mut next = Next::On;
        match input {
            Input::Size(width, height) => self.size = (width, height),
            Input::Trouble(said) => self.trouble = said,
            Input::Moment(moment, now, clock) => match &mut self.held {
                Some(held) if held.len() < HELD => held.push((moment, now, clock)),
                Some(_) => {}
                None => self.take(moment, now, clock),
            },
            Input::Key(key) => next = self.press(key),
        }
        self.settle();
        next
    }

    /// Whether it is held.
    pub fn is_paused(&self) -> bool {
        self.held.is_some()
    }

    fn take(&mut self, moment: Moment, now: Duration, clock: String) {
        let moment = moment.neutral();
        for target in &moment.targets {
            self.remember(target, now);
        }
        self.forget(&moment);
        let is_first = !self.is_told && !moment.targets.is_empty();
        self.moment = moment;
        self.clock = clock;
        if is_first {
            self.is_told = true;
            self.open_if_all_fit();
        }
    }

    /// Few lines are seen without a key.
    fn open_if_all_fit(&mut self) {
        let targets = &self.moment.targets;
        let lines: usize = targets.iter().map(|one| 1 + one.rows.len()).sum();
        if targets.len() == 1 || lines <= usize::from(self.rows()) {
            self.open = targets.iter().map(|one| LineId::of(one, None)).collect();
        }
    }

    fn remember(&mut self, target: &Target, now: Duration) {
        let id = LineId::of(target, None);
        let interval = Duration::from_millis(target.interval_ms);
        let mut push = |figures: bool| {
            let own = figures.then_some(&target.all);
            self.histories.entry(id.clone()).or_default().push(own);
            for row in &target.rows {
                let history = self.histories.entry(LineId::of(target, Some(row)));
                history.or_default().push(figures.then_some(row));
            }
        };
        if target.lost.is_some() {
            let missed = self
                .news
                .get_mut(&id)
                .map(|news| news.missed(interval, now));
            (0..missed.unwrap_or_default()).for_each(|_| push(false));
            return;
        }
        // Before any interval has ended there is nothing to remember.
        if target.interval_ms == 0 {
            return;
        }
        let Some(news) = self.news.get_mut(&id) else {
            push(true);
            let news = News::first(target.stamp, target.rows.clone(), now);
            self.news.insert(id, news);
            return;
        };
        let is_new = news.take(target.stamp, target.rows.clone(), interval, now);
        let missed = news.missed(interval, now);
        if is_new {
            push(true);
        }
        (0..missed).for_each(|_| push(false));
    }

    /// What is gone is not remembered: peers come and go.
    fn forget(&mut self, moment: &Moment) {
        let mut there = BTreeSet::new();
        for target in &moment.targets {
            there.insert(LineId::of(target, None));
            there.extend(target.rows.iter().map(|row| LineId::of(target, Some(row))));
        }
        self.histories.retain(|id, _| there.contains(id));
        self.news.retain(|id, _| there.contains(id));
    }

    fn press(&mut self, key: Key) -> Next {
        match (self.mode, key) {
            (_, Key::Interrupt) => return Next::Quit,
            (_, Key::Suspend) => return Next::Suspend,
            (Mode::Help, Key::Char('q')) => return Next::Quit,
            (Mode::Help, _) => self.mode = Mode::Browse,
            (Mode::Filter, Key::Enter) => self.mode = Mode::Browse,
            (Mode::Filter, Key::Escape) => {
                self.filter.clear();
                self.mode = Mode::Browse;
            }
            (Mode::Filter, Key::Backspace) => drop(self.filter.pop()),
            (Mode::Filter, Key::Char(one)) => {
                if !one.is_control() && self.filter.chars().count() < FILTER {
                    self.filter.push(one);
                }
            }
            (Mode::Filter, _) => {}
            (Mode::Browse, key) => return self.browse(key),
        }
        Next::On
    }

    fn browse(&mut self, key: Key) -> Next {
        let page = usize::from(self.rows()).max(1);
        match key {
            Key::Char('q') => return Next::Quit,
            Key::Char('?' | 'h') => self.mode = Mode::Help,
            Key::Char('/') => self.mode = Mode::Filter,
            Key::Char(' ') => self.pause(),
            Key::Char('r') => self.sort_by(Sort::Rate),
            Key::Char('p') => self.sort_by(Sort::P99),
            Key::Char('t') => self.sort_by(Sort::Time),
            Key::Char('n') => self.sort_by(Sort::Name),
            Key::Char('<') => self.sort_by(self.sort.beside(-1)),
            Key::Char('>') => self.sort_by(self.sort.beside(1)),
            Key::Char('R' | 'I') => self.reversed = !self.reversed,
            Key::Char('+') => {
                let targets = self.moment.targets.iter();
                self.open = targets.map(|one| LineId::of(one, None)).collect();
            }
            Key::Char('-') => self.open.clear(),
            Key::Up | Key::Char('k') => self.select(self.at.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.select(self.at.saturating_add(1)),
            Key::PageUp => self.select(self.at.saturating_sub(page)),
            Key::PageDown => self.select(self.at.saturating_add(page)),
            Key::Home | Key::Char('g') => self.select(0),
            Key::End | Key::Char('G') => self.select(usize::MAX),
            Key::Enter => self.toggle(None),
            Key::Right | Key::Char('l') => self.toggle(Some(true)),
            Key::Left => self.toggle(Some(false)),
            Key::Escape => self.filter.clear(),
            Key::Backspace | Key::Interrupt | Key::Suspend | Key::Char(_) => {}
        }
        Next::On
    }

    fn sort_by(&mut self, sort: Sort) {
        self.sort = sort;
    }

    fn pause(&mut self) {
        match self.held.take() {
            None => self.held = Some(Vec::new()),
            Some(held) => {
                for (moment, now, clock) in held {
                    self.take(moment, now, clock);
                }
            }
        }
    }

    fn select(&mut self, at: usize) {
        let lines = self.lines();
        let at = at.min(lines.len().saturating_sub(1));
        let id = lines.into_iter().nth(at).map(|line| line.id);
        self.at = at;
        self.selected = id.unwrap_or_default();
    }

    /// Opens the target of the selected line, or closes it.
    fn toggle(&mut self, wanted: Option<bool>) {
        let target = LineId {
            row: None,
            ..self.selected.clone()
        };
        let is_open = self.open.contains(&target);
        if wanted.unwrap_or(!is_open) {
            self.open.insert(target);
        } else {
            self.open.remove(&target);
            self.selected = target;
        }
    }

    /// The selection is one of the lines, and is seen.
    fn settle(&mut self) {
        let lines = self.lines();
        let count = lines.len();
        let place = lines.iter().position(|line| line.id == self.selected);
        let at = place.unwrap_or(self.at).min(count.saturating_sub(1));
        let id = lines.into_iter().nth(at).map(|line| line.id);
        self.selected = id.unwrap_or_default();
        self.at = at;
        let rows = usize::from(self.rows()).max(1);
        let least = (at + 1).saturating_sub(rows);
        self.top = self.top.clamp(least, at.max(least));
        // No empty lines at the end while there are some above.
        self.top = self.top.min(count.saturating_sub(rows).max(least));
    }

    /// Which line is selected.
    pub fn selected(&self) -> usize {
        self.at
    }

    /// How many lines there are.
    pub fn count(&self) -> usize {
        self.lines().len()
    }

    /// How many lines of the list have room.
    pub(crate) fn rows(&self) -> u16 {
        self.size.1.saturating_sub(crate::draw::AROUND)
    }

    /// The list, as it is ordered, opened and filtered.
    pub(crate) fn lines(&self) -> Vec<Line<'_>> {
        let wanted = self.filter.to_lowercase();
        let matches = |text: &str| wanted.is_empty() || text.to_lowercase().contains(&wanted);
        let mut targets: Vec<&Target> = self.moment.targets.iter().collect();
        targets.sort_by(|a, b| {
            let order = self.sort.order((&a.name, &a.all), (&b.name, &b.all));
            self.directed(order.then_with(|| (&a.subject, &a.probe).cmp(&(&b.subject, &b.probe))))
        });
        let mut lines = Vec::new();
        for target in targets {
            let id = LineId::of(target, None);
            let is_named = matches(&format!("{} {}", target.name, target.probe));
            let mut rows: Vec<&Row> = target.rows.iter().collect();
            if !is_named {
                rows.retain(|row| matches(&row.key));
                if rows.is_empty() {
                    continue;
                }
            }
            // What is sought is shown.
            let is_open = self.open.contains(&id) || !is_named;
            lines.push(Line {
                target,
                row: None,
                id,
                is_open,
            });
            if is_open {
                rows.sort_by(|a, b| self.directed(self.sort.order((&a.key, a), (&b.key, b))));
                lines.extend(rows.into_iter().map(|row| Line {
                    target,
                    row: Some(row),
                    id: LineId::of(target, Some(row)),
                    is_open: false,
                }));
            }
        }
        lines
    }

    fn directed(&self, order: std::cmp::Ordering) -> std::cmp::Ordering {
        match self.reversed {
            true => order.reverse(),
            false => order,
        }
    }
}
