//! Spans on their way out: what they are, how they wait, and what becomes of each.
//!
//! A [`Span`] is what took a time, a [`Group`] those that belong to one trace and leave together. An [`Outbox`] holds groups until a receiver
//! took them, and counts: what was started is exported, dropped or queued, always ([`Counts`]). Points of a [`Metric`] leave by the same way, and are counted as
//! spans are. [`Settings`] are where they go, by the
//! environment variables that OpenTelemetry names; a [`Traceparent`] is what a caller says that they are a part of; [`zipkin`] reads
//! those that a program wrote itself; [`answer`] is what a receiver's answer means; [`messages`] is what OTLP writes. Pure: no
//! clock, no I/O, no randomness.
#![forbid(unsafe_code)]

pub mod answer;
mod backoff;
mod group;
mod ids;
pub mod messages;
mod metric;
mod nest;
mod outbox;
mod settings;
mod span;
mod traceparent;
pub mod zipkin;

pub use group::{Group, Resource, Scope};
pub use ids::{Ids, SpanId, TraceId};
pub use metric::{Distribution, Example, Metric, Points, Written};
pub use nest::{Key, Nest, Within};
pub use outbox::{Batch, Cause, Counts, Limits, Next, Offered, Outbox};
pub use settings::{Compression, Protocol, Settings, SettingsError, Signal, metric_interval};
pub use span::{Attributes, Moment, Span, SpanKind, Value};
pub use traceparent::Traceparent;
