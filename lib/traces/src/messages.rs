//! The messages of OTLP 1.x (opentelemetry/proto/trace/v1, common/v1, resource/v1, collector/trace/v1), as far as they are used here, and of
//! google.rpc what a gRPC receiver says about trying again.

pub mod metrics;

use bytes::Bytes;
use prost::{Message, Oneof};

/// What is sent: to `/v1/traces`, or to [`EXPORT`].
#[derive(Clone, PartialEq, Message)]
pub struct ExportTraceServiceRequest {
    /// By where they are from.
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// Where gRPC takes them.
pub const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Where HTTP takes them, below an endpoint.
pub const TRACES: &str = "v1/traces";

/// Spans of one place. Messages within are written already: embedded messages and bytes look the same.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceSpans {
    /// A [`Resource`].
    #[prost(bytes = "bytes", tag = "1")]
    pub resource: Bytes,
    /// By what told them.
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

/// Spans that one library told, each written already.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeSpans {
    /// What told them.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    /// Each a [`Span`].
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub spans: Vec<Bytes>,
}

/// What told spans.
#[derive(Clone, PartialEq, Message)]
pub struct InstrumentationScope {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// Where spans are from.
#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    /// What is said of it.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// A span.
#[derive(Clone, PartialEq, Message)]
pub struct Span {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// 8 bytes, or none.
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    /// What it is.
    #[prost(string, tag = "5")]
    pub name: String,
    /// A number of [`SpanKind`](super::SpanKind).
    #[prost(int32, tag = "6")]
    pub kind: i32,
    /// Nanoseconds since 1970.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    /// Nanoseconds since 1970.
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    /// What is said of it.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    /// What happened within it.
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}

/// What happened at one moment of a span.
#[derive(Clone, PartialEq, Message)]
pub struct Event {
    /// Nanoseconds since 1970.
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    /// The name of what happened.
    #[prost(string, tag = "2")]
    pub name: String,
}

/// An attribute.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    /// One of several.
    #[prost(oneof = "any_value::Value", tags = "1, 2, 3, 4, 5")]
    pub value: Option<any_value::Value>,
}

/// What a value may be.
pub mod any_value {
    use super::{ArrayValue, Oneof};

    /// One of several.
    #[derive(Clone, PartialEq, Oneof)]
    pub enum Value {
        /// A text.
        #[prost(string, tag = "1")]
        String(String),
        /// Yes or no.
        #[prost(bool, tag = "2")]
        Bool(bool),
        /// A whole number.
        #[prost(int64, tag = "3")]
        Int(i64),
        /// Any other number.
        #[prost(double, tag = "4")]
        Double(f64),
        /// Several values.
        #[prost(message, tag = "5")]
        Array(ArrayValue),
    }
}

/// Several values.
#[derive(Clone, PartialEq, Message)]
pub struct ArrayValue {
    /// One after the other.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<AnyValue>,
}

/// What a receiver answers.
#[derive(Clone, PartialEq, Message)]
pub struct ExportTraceServiceResponse {
    /// What it did not take, if that is anything.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// What a receiver did not take of a request.
#[derive(Clone, PartialEq, Message)]
pub struct PartialSuccess {
    /// How many spans.
    #[prost(int64, tag = "1")]
    pub rejected_spans: i64,
    /// Why; also advice where it took all.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// `google.rpc.Status`: why a request failed. Over HTTP in the body, over gRPC in the trailer `grpc-status-details-bin`.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// A code of gRPC's.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// Why it failed, for developers to read.
    #[prost(string, tag = "2")]
    pub message: String,
    /// Whatever else there is to say.
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// A message of any type.
#[derive(Clone, PartialEq, Message)]
pub struct Any {
    /// Ends with the name of the type.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The message.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// `google.rpc.RetryInfo`: how long to wait at least.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct RetryInfo {
    /// So long.
    #[prost(message, optional, tag = "1")]
    pub retry_delay: Option<RetryDelay>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct RetryDelay {
    /// Whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// And nanoseconds.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}
