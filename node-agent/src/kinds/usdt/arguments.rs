//! What the command line takes for `usdt`.

use ckb_probe_crds::{
    Duration, KindSpec,
    kinds::usdt::{Between, ByArgument, Payload, PayloadFormat, UsdtProbe, default_limit},
};
use clap::Args;

use crate::kinds::Asking;

/// How often the process meets USDT probes: those that its authors left in it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ckb-probe symbols --usdt --executable postgres             which probes are there?\n  \
    ckb-probe usdt --provider postgresql --names 'transaction__*,query__*' --pid 4711\n  \
    ckb-probe usdt --provider postgresql --names query__start --by-argument 1:string --pid 4711\n  \
    ckb-probe usdt --provider postgresql --from transaction__start --to transaction__commit,transaction__abort --pid 4711\n  \
    ckb-probe usdt --provider lightningd --names span_emit --payload-argument 2 --otlp http://127.0.0.1:4318 --executable lightningd\n  \
    ckb-probe usdt --provider libstdcxx --executable ckb       how many C++ exceptions are thrown?")]
pub struct Arguments {
    /// Whose probes, such as postgresql.
    #[arg(long)]
    provider: String,
    /// Patterns of their names, with *, ? and [abc], at most 16.
    #[arg(long, value_delimiter = ',', num_args = 1..=16, default_value = "*", value_name = "GLOB")]
    names: Vec<String>,
    /// How many probes may match; if more do, none is measured.
    #[arg(long, default_value_t = default_limit(), value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: u32,
    /// Tell hits apart by the value of an argument: its number, and `:string` where it is a text.
    #[arg(long, value_name = "NUMBER")]
    by_argument: Option<ByArgument>,
    /// Measure the time from this probe to one of those of --to, instead of how often probes are met.
    #[arg(long, requires = "to", conflicts_with = "names", value_name = "PROBE")]
    from: Option<String>,
    /// Where that time ends: at one of these probes, at most 8.
    #[arg(long, requires = "from", value_delimiter = ',', num_args = 1..=8, value_name = "PROBE")]
    to: Vec<String>,
    /// The number of the argument that both have in common, where what begins in one thread ends in another.
    #[arg(long, requires = "from", value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=12))]
    key_argument: Option<u8>,
    /// The number of the argument of --from that is a W3C traceparent: what is slow is exported in that trace (--otlp).
    #[arg(long, requires_all = ["from", "threshold"], value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=12))]
    traceparent_argument: Option<u8>,
    /// The number of the argument that is a text with spans of Zipkin's JSON, version 2, which are exported as they were written (--otlp).
    #[arg(long, conflicts_with_all = ["from", "by_argument"], value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=12))]
    payload_argument: Option<u8>,
    /// What takes at least this long from one to the other is slow, such as 10ms.
    #[arg(long, requires = "from")]
    threshold: Option<Duration>,
}

impl Asking for Arguments {
    const COMMAND: &str = "usdt";

    fn kind_spec(self) -> KindSpec {
        let Self {
            provider,
            names,
            limit,
            by_argument,
            from,
            to,
            key_argument,
            traceparent_argument,
            payload_argument,
            threshold,
        } = self;
        UsdtProbe {
            provider,
            names,
            limit,
            by_argument,
            between: from.map(|from| Between {
                from,
                to,
                key_argument,
                // It is for several probes, and this is one.
                key_name: None,
                traceparent_argument,
                threshold,
            }),
            payload: payload_argument.map(|argument| Payload {
                argument,
                format: PayloadFormat::ZipkinV2,
            }),
        }
        .into()
    }
}
