//! Colours of differences, for everybody.
//!
//! The usual red and blue are pale in the same way, and pale red is grey to some. Here more is orange and less is blue, which
//! people with any of the usual deficiencies tell apart, from faint to full; and whoever sees no colours reads the signs.

/// What there is more of, and what there is less of, at the greatest difference. Both are of Okabe and Ito's palette.
const MORE: [f64; 3] = [213.0, 94.0, 0.0];
const LESS: [f64; 3] = [0.0, 114.0, 178.0];
const NO_CHANGE: [f64; 3] = [245.0, 245.0, 245.0];

/// The smallest difference has so much of the colour: it is still told from none.
const FAINTEST: f64 = 0.25;

/// The colour of a difference from -1 to 1. However small, it has a colour; only none has none.
pub fn colour(difference: f64) -> [u8; 3] {
    let depth = match difference.abs() {
        0.0 => 0.0,
        size => FAINTEST + (1.0 - FAINTEST) * size.min(1.0),
    };
    let full = if difference > 0.0 { MORE } else { LESS };
    let mut mixed = [0; 3];
    for (place, mixed) in mixed.iter_mut().enumerate() {
        let (from, to) = (NO_CHANGE[place], full[place]);
        *mixed = (from + (to - from) * depth).round() as u8;
    }
    mixed
}
