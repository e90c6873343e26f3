//! How spans reach a receiver: an [`Exporter`] has a thread of its own, which sends what its outbox holds, over HTTP or gRPC.
//!
//! What is to be sent, when, and what an answer means is decided in `ckb-probe-traces`; here is what has an effect. Whoever measures is
//! never kept waiting: it puts spans into the outbox, which takes microseconds, or has no room for them and says so in its counts.

mod exporter;
mod overheard;
mod sender;
mod tls;

pub use exporter::{Exporter, ExporterError};
pub use tls::TlsError;
