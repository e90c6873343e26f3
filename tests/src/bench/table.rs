//! The figures of a family as a table: each row has a name, a formula over what was measured, a unit, and a bound or none. What is
//! compared is measured in turns, round by round.

use super::{
    prelude::*,
    statistics::{percent_more, ratios, rotated, to_and_fro},
};

/// What was measured: a value for each round, by what it is the value of.
#[derive(Clone, Debug, Default)]
pub struct Series(BTreeMap<String, Vec<f64>>);

/// A figure of the report.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What its name ends with.
    pub name: &'static str,
    /// `a`: the values of a; `a / b`: their ratios, round by round; `a % b`: by how many percent a is more; `a - b`: by how much;
    /// `worst a`: the greatest, for what is exact or wrong. Where one of these is `a~b`, it is what is halfway between both.
    pub formula: &'static str,
    /// Of the figure.
    pub unit: &'static str,
    /// What it must be.
    pub bound: Option<Bound>,
}

/// Rows, each `"NAME" = "FORMULA" in "UNIT"`, and what it must be behind a comma where there is such.
macro_rules! table {
    ($($name:literal = $formula:literal in $unit:literal $(, $bound:expr)?;)*) => {
        [$($crate::bench::table::Row {
            name: $name,
            formula: $formula,
            unit: $unit,
            bound: {
                #[allow(unused_variables, reason = "it stands where there is no other")]
                let bound: Option<$crate::report::Bound> = None;
                $(let bound = Some($bound);)?
                bound
            },
        }),*]
    };
}
pub(crate) use table;

/// In which order a round goes through what is compared.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// Each round begins one further on.
    Rotated,
    /// Forth, then back: what stands on both sides of another is measured at the same time as that, on the average.
    ToAndFro,
}

/// What one turn found: values by name, which is empty where there is but one.
pub type Found = Vec<(&'static str, f64)>;

impl Series {
    /// Adds a value.
    pub fn push(&mut self, name: &str, value: f64) {
        self.0.entry(name.to_string()).or_default().push(value);
    }

    /// Adds those of one turn, under the name of what was measured.
    pub fn extend(&mut self, of: &str, found: Found) {
        for (name, value) in found {
            let both = !name.is_empty() && !of.is_empty();
            let separator = if both { "." } else { "" };
            self.push(&format!("{of}{separator}{name}"), value);
        }
    }

    /// The values of a name, or those halfway between two of them.
    pub fn of(&self, name: &str) -> Vec<f64> {
        let values = |name: &str| self.0.get(name).cloned().unwrap_or_default();
        match name.split_once('~') {
            None => values(name),
            Some((one, other)) => {
                let pairs = values(one).into_iter().zip(values(other));
                pairs.map(|(one, other)| one.midpoint(other)).collect()
            }
        }
    }

    /// What was found under this name, by what it was found of.
    pub fn part(&self, name: &str) -> Self {
        let of = |(key, values): (&String, &Vec<f64>)| {
            let of = key.strip_suffix(name)?.strip_suffix('.')?;
            Some((of.to_string(), values.clone()))
        };
        Self(self.0.iter().filter_map(of).collect())
    }

    fn by(&self, formula: &str) -> Vec<f64> {
        let of = |name| self.of(name);
        match formula.split(' ').collect::<Vec<_>>()[..] {
            ["worst", name] => of(name)
                .into_iter()
                .max_by(f64::total_cmp)
                .into_iter()
                .collect(),
            [one, "/", other] => ratios(&of(one), &of(other)),
            [one, "%", other] => percent_more(&of(one), &of(other)),
            [one, "-", other] => of(one)
                .iter()
                .zip(of(other))
                .map(|(one, other)| one - other)
                .collect(),
            _ => of(formula),
        }
    }
}

impl Bench {
    /// Measures all that is compared in each round, in turns.
    pub async fn turns<C: Copy>(
        &self,
        order: Order,
        compared: &[(&str, C)],
        mut measure: impl AsyncFnMut(C) -> Result<Found>,
    ) -> Result<Series> {
        let mut series = Series::default();
        for round in 0..self.settings.rounds {
            let indexes: Vec<usize> = match order {
                Order::Rotated => rotated(compared.len(), round).collect(),
                Order::ToAndFro => to_and_fro(compared.len(), round).collect(),
            };
            for index in indexes {
                let (name, condition) = compared[index];
                series.extend(name, measure(condition).await?);
            }
        }
        Ok(series)
    }

    /// Adds rows to the report, each with this before its name.
    pub fn tell(&mut self, of: &str, series: &Series, rows: &[Row]) {
        self.tell_as(|row| format!("{of}{row}"), series, rows);
    }

    /// The same, where names are made otherwise of those of rows.
    pub fn tell_as(&mut self, name: impl Fn(&str) -> String, series: &Series, rows: &[Row]) {
        for row in rows {
            let figure = summary(series.by(row.formula));
            self.figure(&name(row.name), figure, row.unit, row.bound);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formula_is_of_what_was_measured_in_the_same_round() {
        let mut series = Series::default();
        for (one, other) in [(2.0, 1.0), (6.0, 4.0)] {
            series.extend("a", vec![("x", one), ("", other)]);
        }
        let by = |formula| series.by(formula);
        assert_eq!(by("a.x"), [2.0, 6.0]);
        assert_eq!(by("a.x / a"), [2.0, 1.5]);
        assert_eq!(by("a.x % a"), [100.0, 50.0]);
        assert_eq!(by("a.x - a"), [1.0, 2.0]);
        assert_eq!(by("worst a.x"), [6.0]);
        assert_eq!(by("a.x~a / a"), [1.5, 1.25]);
        assert!(by("b").is_empty());
        assert_eq!(series.part("x").by("a"), [2.0, 6.0]);
        let rows = table! {
            "one" = "a.x" in "ns";
            "two" = "a / a" in "x", Bound::AtMost(1.1);
        };
        assert_eq!((rows[0].name, rows[0].bound), ("one", None));
        assert_eq!(
            (rows[1].unit, rows[1].bound),
            ("x", Some(Bound::AtMost(1.1)))
        );
    }
}
