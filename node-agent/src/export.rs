//! What leaves the agent besides its reports.

pub mod exemplars;
pub mod exporters;
pub mod exposition;
pub mod metric_sink;
pub mod metrics;
pub mod reports;
pub mod span_metrics;
pub mod span_sink;
pub mod spans;
