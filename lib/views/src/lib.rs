//! What people are shown: where on its way a figure gets stuck, and what to type next ([`diagnosis`]); what is asked for whoever does
//! not want to write a CkbProbe ([`presets`], [`selector`]); what it tells ([`figures`], [`histogram`], [`heatmap`],
//! [`top`], [`blocks`], [`stacks`], [`differences`], of which [`windows`]; [`threads`], [`records`]), what it could be asked ([`symbols`]) and costs ([`cost`]); and the one form in which programs read all of it ([`document`]).
//!
//! Functions from objects to text: no client, no clock, no terminal. Whoever asks brings what was found.

pub mod blocks;
pub mod cost;
pub mod diagnosis;
pub mod differences;
pub mod document;
pub mod figures;
pub mod heatmap;
pub mod histogram;
pub mod news;
pub mod presets;
pub mod records;
pub mod selector;
pub mod stacks;
pub mod symbols;
pub mod text;
pub mod threads;
pub mod top;
pub mod unlisted;
pub mod windows;

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Where a reader goes on.
pub const TROUBLESHOOTING: &str = concat!(
    env!("CARGO_PKG_REPOSITORY"),
    "/blob/main/docs/troubleshooting.md"
);
