//! What `tcp` gives: the connections of each peer, network or port.

use crate::{Value, descriptor::{Column, Descriptor, Measure, Merge, Phrase, Unit, metrics}};

/// Connections that the process has, in whatever state.
pub const CONNECTIONS: Measure = Measure::new("connections", Unit::Count, Merge::Level);
/// Those of them that are established.
pub const ESTABLISHED: Measure = Measure::new("established", Unit::Count, Merge::Level);
/// Sockets that listen; they are no connections.
pub const LISTENING: Measure = Measure::new("listening", Unit::Count, Merge::Level);
/// Smoothed round-trip times: that of each established connection at each look.
pub const RTT: Measure = Measure::new("rtt", Unit::Nanoseconds, Merge::Distribution);
/// How long connections were open that ended. Those whose beginning was not seen are counted, and not measured.
pub const LIFETIME: Measure = Measure::new("lifetime", Unit::Nanoseconds, Merge::Distribution);
/// Payload bytes sent, those that were sent again too.
pub const SENT: Measure = Measure::new("sent", Unit::Bytes, Merge::Sum);
/// Payload bytes received.
pub const RECEIVED: Measure = Measure::new("received", Unit::Bytes, Merge::Sum);
/// Segments sent.
pub const SEGMENTS: Measure = Measure::new("segments", Unit::Count, Merge::Sum);
/// Those of them that were sent again.
pub const RETRANSMITS: Measure = Measure::new("retransmits", Unit::Count, Merge::Sum);
/// Connections that were established.
pub const OPENED: Measure = Measure::new("opened", Unit::Count, Merge::Sum);
/// Connections that ended.
pub const CLOSED: Measure = Measure::new("closed", Unit::Count, Merge::Sum);
/// Connects of the process that came to nothing.
pub const FAILED: Measure = Measure::new("failed", Unit::Count, Merge::Sum);
/// Segments that a listening socket dropped: connects of others that it had no room for, and whatever else comes to it that no
/// connect is, such as a scanner's resets.
pub const DROPPED: Measure = Measure::new("dropped", Unit::Count, Merge::Sum);
/// Time for which connections had something to send, and the peer's window was full.
pub const WINDOW_LIMITED: Measure =
    Measure::new("windowLimited", Unit::Nanoseconds, Merge::Sum);
/// The same, with the process's own send buffer full.
pub const BUFFER_LIMITED: Measure =
    Measure::new("bufferLimited", Unit::Nanoseconds, Merge::Sum);

/// The kind. A node whose peers are gone, or that has none yet, has nothing to tell, and nothing is wrong with its probe.
pub const DESCRIPTOR: Descriptor = Descriptor {
    row: "peer",
    part: Some("local_port"),
    measures: &[
        CONNECTIONS,
        ESTABLISHED,
        LISTENING,
        RTT,
        LIFETIME,
        SENT,
        RECEIVED,
        SEGMENTS,
        RETRANSMITS,
        OPENED,
        CLOSED,
        FAILED,
        DROPPED,
        WINDOW_LIMITED,
        BUFFER_LIMITED,
    ],
    columns: &[
        Column::new("open", "OPEN", Value::Level("connections")),
        Column::new("established", "ESTAB", Value::Level("established")).of_rows(),
        Column::new("listening", "LISTEN", Value::Level("listening")).of_rows(),
        Column::new("rttP50", "RTT P50", Value::Quantile("rtt", 0.5)),
        Column::new("rttP99", "RTT P99", Value::Quantile("rtt", 0.99)),
        Column::new("sentPerSecond", "SENT/S", Value::Rate("sent")),
        Column::new("receivedPerSecond", "RECEIVED/S", Value::Rate("received")),
        Column::new("retransmits", "RETRANS", Value::Total("retransmits")),
        Column::new("windowLimited", "WINDOW", Value::Total("windowLimited")).of_rows(),
        Column::new("bufferLimited", "BUFFER", Value::Total("bufferLimited")).of_rows(),
        Column::new("opened", "OPENED", Value::Total("opened")),
        Column::new("closed", "CLOSED", Value::Total("closed")),
        Column::new("failed", "FAILED", Value::Total("failed")),
        Column::new("dropped", "DROPPED", Value::Total("dropped")),
        Column::new("lifetimeP50", "LIFETIME", Value::Quantile("lifetime", 0.5)).of_rows(),
    ],
    headline: &[
        Phrase::new("", Value::Level("connections"), " open"),
        Phrase::new("rtt p99 ", Value::Quantile("rtt", 0.99), ""),
        Phrase::new("", Value::Percent("retransmits", "segments"), "% retransmitted")
            .unless_zero(),
        Phrase::new("", Value::Recent("failed"), " failed").unless_zero(),
        Phrase::new("", Value::Recent("dropped"), " dropped").unless_zero(),
    ],
    metrics: metrics! {
        /// Connections that the process has open to the peer, in whatever state.
        gauge("ckb_probe_tcp_connections", "connections"),
        /// Smoothed round-trip time: that of each established connection at each look, which is every second at most.
        histogram("ckb_probe_tcp_rtt_seconds", "rtt"),
        /// Payload bytes sent, those that were sent again too.
        counter("ckb_probe_tcp_sent_bytes_total", "sent"),
        /// Payload bytes received.
        counter("ckb_probe_tcp_received_bytes_total", "received"),
        /// Segments sent, those that were sent again too.
        counter("ckb_probe_tcp_segments_total", "segments"),
        /// Segments that were sent again.
        counter("ckb_probe_tcp_retransmits_total", "retransmits"),
        /// Time for which connections had something to send and the peer's receive window was full.
        counter("ckb_probe_tcp_window_limited_seconds_total", "windowLimited"),
        /// Time for which connections had something to send and their own send buffer was full.
        counter("ckb_probe_tcp_buffer_limited_seconds_total", "bufferLimited"),
        /// Connections that were established.
        counter("ckb_probe_tcp_opened_total", "opened"),
        /// Connections that ended.
        counter("ckb_probe_tcp_closed_total", "closed"),
        /// Connects of the process that came to nothing.
        counter("ckb_probe_tcp_failed_total", "failed"),
        /// Segments that listening sockets dropped: connects of others that there was no room for, and whatever else came that is no
        /// connect, such as a scanner's.
        counter("ckb_probe_tcp_dropped_total", "dropped"),
        /// How long connections were open that ended; those whose beginning was not seen are in ckb_probe_tcp_closed_total only.
        histogram("ckb_probe_tcp_lifetime_seconds", "lifetime"),
    },
    quiet: true,
    ..Descriptor::EMPTY
};
