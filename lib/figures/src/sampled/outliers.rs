//! Of how few slices it is that the others differ.

/// Slices that are remembered, about: hours of a busy process. What is looked for is rare.
const MEMORY: f64 = 4096.0;

/// Where slices scatter evenly (by a normal distribution), the mean square of what is observed here is so many times the square of its
/// mean, found by drawing two million.
const EVEN: f64 = 5.0;

/// Slices that lie beyond both of their neighbours, and by how much.
///
/// Of a process that works for seconds and then waits, nearly all slices see the same, and those few that meet where a burst ends see
/// less. How many do is chance, a Poisson variable, and what is told goes by it as its error does: a run that met few of them is told too
/// much, with too small an error. How many they are shows in how unequal slices are, by the kurtosis (as the effective degrees of freedom of
/// Satterthwaite do). It is taken of slices against both of their neighbours, and not of pairs: a load that changes once and stays so has one
/// large difference, and no slice that is by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Outliers {
    /// Slices with a neighbour on either side.
    slices: f64,
    /// By how much they lie beyond both, squared, as a part of the largest of the three; and the squares of that.
    sum: f64,
    squares: f64,
}

impl Outliers {
    /// What three slices of one length saw in a second, one after the other.
    pub(super) fn take(&mut self, [before, slice, after]: [f64; 3]) {
        let [from_before, from_after] = [slice - before, slice - after];
        let beyond = if from_before * from_after > 0.0 {
            let largest = before.max(slice).max(after);
            (from_before.abs().min(from_after.abs()) / largest).powi(2)
        } else {
            0.0
        };
        let kept = 1.0 - 1.0 / MEMORY;
        self.slices = self.slices * kept + 1.0;
        self.sum = self.sum * kept + beyond;
        self.squares = self.squares * kept + beyond * beyond;
    }

    /// With those of another length.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            slices: self.slices + other.slices,
            sum: self.sum + other.sum,
            squares: self.squares + other.squares,
        }
    }

    /// One over how many slices make up the scatter, where those are fewer than of slices that scatter evenly; or else 0.
    pub(super) fn few(&self) -> f64 {
        if self.sum <= 0.0 {
            return 0.0;
        }
        (self.squares / self.sum.powi(2) - EVEN / self.slices).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests;
