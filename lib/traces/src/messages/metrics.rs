//! The messages of OTLP's metrics (opentelemetry/proto/metrics/v1), as far as they are used here. What goes around them, and what is answered,
//! has the numbers that it has for spans: [`super::ExportTraceServiceRequest`], in which each span is a [`Metric`].

use prost::{Message, Oneof};

use super::KeyValue;

/// Where gRPC takes them.
pub const EXPORT: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

/// Where HTTP takes them, below an endpoint.
pub const METRICS: &str = "v1/metrics";

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`: since the start time, and not since the last one.
pub const CUMULATIVE: i32 = 2;

/// Series of one name.
#[derive(Clone, PartialEq, Message)]
pub struct Metric {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// What it means.
    #[prost(string, tag = "2")]
    pub description: String,
    /// As UCUM has it.
    #[prost(string, tag = "3")]
    pub unit: String,
    /// One of several.
    #[prost(oneof = "metric::Data", tags = "5, 7, 10")]
    pub data: Option<metric::Data>,
}

/// What a metric may be.
pub mod metric {
    use super::{ExponentialHistogram, Gauge, Oneof, Sum};

    /// One of several.
    #[derive(Clone, PartialEq, Oneof)]
    pub enum Data {
        /// Levels.
        #[prost(message, tag = "5")]
        Gauge(Gauge),
        /// Counters.
        #[prost(message, tag = "7")]
        Sum(Sum),
        /// Distributions.
        #[prost(message, tag = "10")]
        ExponentialHistogram(ExponentialHistogram),
    }
}

/// Levels.
#[derive(Clone, PartialEq, Message)]
pub struct Gauge {
    /// Each of one series.
    #[prost(message, repeated, tag = "1")]
    pub points: Vec<NumberPoint>,
}

/// Counters.
#[derive(Clone, PartialEq, Message)]
pub struct Sum {
    /// Each of one series.
    #[prost(message, repeated, tag = "1")]
    pub points: Vec<NumberPoint>,
    /// [`CUMULATIVE`].
    #[prost(int32, tag = "2")]
    pub temporality: i32,
    /// It never falls.
    #[prost(bool, tag = "3")]
    pub is_monotonic: bool,
}

/// Distributions.
#[derive(Clone, PartialEq, Message)]
pub struct ExponentialHistogram {
    /// Each of one series.
    #[prost(message, repeated, tag = "1")]
    pub points: Vec<HistogramPoint>,
    /// [`CUMULATIVE`].
    #[prost(int32, tag = "2")]
    pub temporality: i32,
}

/// A number.
#[derive(Clone, PartialEq, Message)]
pub struct NumberPoint {
    /// Since when it counts, in nanoseconds since 1970; zero of a level.
    #[prost(fixed64, tag = "2")]
    pub start_time_unix_nano: u64,
    /// When it was so.
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    /// The value then.
    #[prost(double, optional, tag = "4")]
    pub value: Option<f64>,
    /// The labels of the series.
    #[prost(message, repeated, tag = "7")]
    pub attributes: Vec<KeyValue>,
}

/// A distribution.
#[derive(Clone, PartialEq, Message)]
pub struct HistogramPoint {
    /// The labels of the series.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
    /// Since when it counts.
    #[prost(fixed64, tag = "2")]
    pub start_time_unix_nano: u64,
    /// When it was so.
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    /// How many values.
    #[prost(fixed64, tag = "4")]
    pub count: u64,
    /// Their sum.
    #[prost(double, optional, tag = "5")]
    pub sum: Option<f64>,
    /// Buckets have the base 2^(2^-scale).
    #[prost(sint32, tag = "6")]
    pub scale: i32,
    /// How many are zero.
    #[prost(fixed64, tag = "7")]
    pub zero_count: u64,
    /// Of what is greater.
    #[prost(message, optional, tag = "8")]
    pub positive: Option<Buckets>,
    /// Some of them, with their traces.
    #[prost(message, repeated, tag = "11")]
    pub exemplars: Vec<Exemplar>,
}

/// How often each bucket was hit, one beside the other.
#[derive(Clone, PartialEq, Message)]
pub struct Buckets {
    /// Which the first is: bucket i holds what is above base^i and not above base^(i+1).
    #[prost(sint32, tag = "1")]
    pub offset: i32,
    /// The counts.
    #[prost(uint64, repeated, tag = "2")]
    pub counts: Vec<u64>,
}

/// A value and its trace.
#[derive(Clone, PartialEq, Message)]
pub struct Exemplar {
    /// When it was.
    #[prost(fixed64, tag = "2")]
    pub time_unix_nano: u64,
    /// The value.
    #[prost(double, optional, tag = "3")]
    pub value: Option<f64>,
    /// 8 bytes.
    #[prost(bytes = "vec", tag = "4")]
    pub span_id: Vec<u8>,
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "5")]
    pub trace_id: Vec<u8>,
}
