//! Which columns there is room for, and what rows are ordered by.

use std::cmp::Ordering;

use ckb_probe_views::top::Row;

/// What rows are ordered by.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Sort {
    /// By name.
    Name,
    /// By how many a second.
    #[default]
    Rate,
    /// By the p99.
    P99,
    /// By the share of the time.
    Time,
}

impl Sort {
    /// In the order in which they stand.
    const ALL: [Self; 4] = [Self::Name, Self::Rate, Self::P99, Self::Time];

    /// The one so many places to the right.
    pub fn beside(self, places: isize) -> Self {
        let own = Self::ALL.iter().position(|one| *one == self).unwrap_or(1);
        let count = Self::ALL.len() as isize;
        let next = (own as isize + places).rem_euclid(count);
        Self::ALL[next.unsigned_abs()]
    }

    /// The greater figure first, what is not known last, and what is alike by name; by name in the order of the alphabet.
    pub fn order(self, a: (&str, &Row), b: (&str, &Row)) -> Ordering {
        let ((a_name, a), (b_name, b)) = (a, b);
        let figure = |row: &Row| {
            let figure = match self {
                Self::Name => None,
                Self::Rate => row.rate.as_ref(),
                Self::P99 => row.p99.as_ref(),
                Self::Time => row.time.as_ref(),
            };
            figure.map_or(f64::NEG_INFINITY, |one| one.number)
        };
        figure(b).total_cmp(&figure(a)).then(a_name.cmp(b_name))
    }
}

/// A column of figures.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Column {
    /// How many a second.
    Rate,
    /// The standard error of that.
    Error,
    /// The p99.
    P99,
    /// The share of the time.
    Time,
}

impl Column {
    /// In the order in which they stand.
    const ALL: [Self; 4] = [Self::Rate, Self::Error, Self::P99, Self::Time];

    /// Those that matter most come first.
    const BY_NEED: [Self; 4] = [Self::Rate, Self::P99, Self::Time, Self::Error];

    /// The head.
    pub fn head(self) -> &'static str {
        match self {
            Self::Rate => "PER SECOND",
            Self::Error => "ERROR",
            Self::P99 => "P99",
            Self::Time => "TIME",
        }
    }

    /// How wide it is, with the space before it.
    pub fn width(self) -> u16 {
        match self {
            Self::Rate => 11,
            Self::Error | Self::P99 | Self::Time => 9,
        }
    }

    /// What is ordered where this is its column.
    pub fn sort(self) -> Option<Sort> {
        match self {
            Self::Rate => Some(Sort::Rate),
            Self::Error => None,
            Self::P99 => Some(Sort::P99),
            Self::Time => Some(Sort::Time),
        }
    }

    /// What a row has in it.
    pub fn of(self, row: &Row) -> Option<&str> {
        let figure = match self {
            Self::Rate => &row.rate,
            Self::Error => return row.error.as_deref(),
            Self::P99 => &row.p99,
            Self::Time => &row.time,
        };
        figure.as_ref().map(|one| one.shown.as_str())
    }
}

/// Names have at least so much room.
const NAME: u16 = 12;
/// And at most so much, where there is something to do with the rest.
const WIDEST_NAME: u16 = 60;
/// Where there is less, no heat is drawn.
const HEAT: u16 = 8;

/// What there is room for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Plan {
    /// For names, from the left edge.
    pub name: u16,
    /// The columns of figures.
    pub columns: Vec<Column>,
    /// For the heat of the last minutes, at the right edge, a space before it aside; 0 where there is none.
    pub heat: u16,
}

impl Plan {
    /// For a width, and names that are so wide.
    pub fn of(width: u16, widest: u16, heat: bool) -> Self {
        let mut left = width.saturating_sub(NAME);
        let mut taken = Vec::new();
        for column in Column::BY_NEED {
            if column.width() <= left {
                left -= column.width();
                taken.push(column);
            }
        }
        let columns: Vec<Column> = Column::ALL
            .into_iter()
            .filter(|one| taken.contains(one))
            .collect();
        // Half of the rest is the names', if they need it, and the other is heat.
        let heat_fits = heat && left > HEAT;
        let wanted = widest.clamp(NAME, WIDEST_NAME) - NAME;
        let more = match heat_fits {
            true => {
                wanted.min((left - HEAT - 1).min(left.div_ceil(2).max(left.saturating_sub(120))))
            }
            false => left.min(widest.saturating_sub(NAME)),
        };
        let name = width.min(NAME + more);
        let heat = match heat_fits {
            true => left - more - 1,
            false => 0,
        };
        Self {
            name,
            columns,
            heat,
        }
    }
}
