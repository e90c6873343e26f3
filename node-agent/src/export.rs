//! What leaves the agent besides its reports.

pub mod metrics;
pub mod reports;
