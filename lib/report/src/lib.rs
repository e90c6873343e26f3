//! A record of what was measured over hours or days, and the report that is made of it.
//!
//! [`record`] is what is written down, [`lines`] how, so that whoever is killed meanwhile leaves nothing torn; [`merge`] puts intervals
//! together, and [`history`] a record; [`prometheus`] makes histories of what a Prometheus has kept. [`content`] says what there is to say of it, [`html`] and [`markdown`] how it looks. Pure: files,
//! clocks and processes are for who calls.
#![forbid(unsafe_code)]

pub mod content;
mod draw;
pub mod history;
pub mod html;
pub mod lines;
pub mod markdown;
pub mod merge;
pub mod prometheus;
pub mod record;
mod times;

#[cfg(test)]
mod testing;

pub use history::History;
pub use lines::{Damage, Part, RecordError, Segment};
pub use record::{Asked, End, Header, Interval, Line, ProbeInterval, Row, SCHEMA};
