//! `usdt`: the probes that a program's authors left in it.

use std::str::FromStr;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod descriptor;

pub use descriptor::{DESCRIPTOR, DURATION, HITS, LONGEST, SLOW, UNBEGUN, UNENDED};

use crate::{Argument, Duration};

/// USDT probes of the process (user-level statically defined tracing), by provider and name: how often each is met. They are in
/// the executable or in a library that it has mapped, and cost nothing while nobody attaches. Semaphores are raised while a probe is
/// attached to, by the kernel, which lowers them however the agent ends.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.between) || size(self.names) == 1 && self.names[0] == '*'")
    .message("usdt.between says itself which probes it is about: leave usdt.names out"))]
#[x_kube(validation = Rule::new("!has(self.payload) || !has(self.between) && !has(self.byArgument)")
    .message("usdt.payload is told of each hit by itself: leave usdt.between and usdt.byArgument out, or ask for them in another probe"))]
pub struct UsdtProbe {
    /// Whose probes: `postgresql`, `python`, `libstdcxx`. `ckb-probe symbols --usdt` lists what a process has.
    #[schemars(length(max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^[!-~]+$') && !self.contains('*')")
        .message("usdt.provider must be the whole name of a provider, such as postgresql: patterns are for usdt.names"))]
    pub provider: String,

    /// Patterns of the probes' names, with `*`, `?` and `[abc]`: a probe that matches one of them is a row. `transaction__*`,
    /// `query__start`.
    #[serde(default = "default_names")]
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 128)))]
    pub names: Vec<String>,

    /// How many probes may match. If more do, none is attached to, and the status says how many match and names some of them.
    #[serde(default = "default_limit")]
    #[x_kube(validation = crate::rules::from_one("usdt.limit", 200, ""))]
    pub limit: u32,

    /// Tells the hits of each probe apart by the value of one of its arguments: the first 32 values that are met are parts of the
    /// probe's row, and `other` has the rest. Each probe that matches must have the argument.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_argument: Option<ByArgument>,

    /// Measures the time from one probe to another, instead of how often each is met: of transactions, queries, collections of
    /// garbage. There is one row, `FROM to TO`; with `byArgument`, an argument of `from` tells its parts apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<Between>,

    /// Reads a text that the probe hands over at each hit, and exports the spans that it says, as the program wrote them: Core Lightning's
    /// `span_emit` does. Each probe that matches must have the argument.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
}

/// What a probe hands over at each hit.
#[derive(Clone, Copy, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Payload {
    /// Which argument it is, from 1: a pointer to a text that ends with NUL. Up to 2,048 bytes are read. A longer one is counted in
    /// `lost.longPayloads`, and one that cannot be read in `lost.unreadPayloads`.
    #[x_kube(validation = crate::rules::from_one("usdt.payload.argument", 12, ": the first argument is 1"))]
    pub argument: u8,

    /// What the text is: `ZipkinV2`, a span or an array of spans in the JSON of Zipkin, version 2. What is none is counted in
    /// `lost.malformedPayloads`.
    #[serde(default)]
    pub format: PayloadFormat,
}

/// What a text is that a probe hands over.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum PayloadFormat {
    /// A span, or an array of spans, in the JSON of Zipkin, version 2.
    #[default]
    ZipkinV2,
}

/// From which probe to which time is measured.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!self.to.exists(name, name == self.from)")
    .message("usdt.between.to must be other probes than usdt.between.from"))]
#[x_kube(validation = Rule::new("!has(self.traceparentArgument) || has(self.threshold)")
    .message("usdt.between.traceparentArgument needs usdt.between.threshold: it is told of what is slow, such as threshold: 10ms"))]
#[x_kube(validation = Rule::new("!has(self.keyName) || has(self.keyArgument) && has(self.threshold)")
    .message("usdt.between.keyName is what usdt.between.keyArgument is the number of, where others of the CkbProbe have the same: it needs \
        that, and usdt.between.threshold, since what is slow is told"))]
pub struct Between {
    /// The whole name of the probe that is met as something begins: `transaction__start`.
    #[schemars(length(min = 1, max = 128))]
    pub from: String,

    /// The whole names of the probes one of which is met as it ends: `transaction__commit`, `transaction__abort`.
    #[schemars(length(min = 1, max = 8), inner(length(min = 1, max = 128)))]
    pub to: Vec<String>,

    /// The number, from 1, of the argument that `from` and `to` have in common, where what begins in one thread ends in another,
    /// such as that of a request. Unset: what begins in a thread ends in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = crate::rules::from_one("usdt.between.keyArgument", 12, ": the first argument is 1"))]
    pub key_argument: Option<u8>,

    /// What `keyArgument` is the number of, such as `request`, in words of your own: where other probes of this CkbProbe say the same. What is
    /// slow is then exported below what is slow of an equal name and an equal number and had begun, and not ended, when it began, in
    /// whichever thread: below the one that began last. Unset: it is below what it is within on its thread alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    #[x_kube(validation = crate::rules::key_name("usdt.between.keyName"))]
    pub key_name: Option<String>,

    /// The number, from 1, of the argument of `from` that is a W3C `traceparent`: a pointer to a text that ends with NUL. What is slow is
    /// then exported in that trace, below that span, whether its caller sampled it or not. Where the pointer is null or the text empty, it
    /// is a trace of its own; what is no `traceparent` is taken for none, and counted in `lost.traceparents`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = crate::rules::from_one("usdt.between.traceparentArgument", 12, ": the first argument is 1"))]
    pub traceparent_argument: Option<u8>,

    /// What takes at least this long is counted as slow, and the agent lists it. Unset: nothing is slow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Duration")]
    #[x_kube(validation = crate::rules::duration("usdt.between.threshold", "1us", "1h", "500us or 10ms"))]
    pub threshold: Option<Duration>,
}

/// An argument by whose values hits are told apart.
#[derive(Clone, Copy, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ByArgument {
    /// Which one, from 1. `ckb-probe symbols --usdt` lists what a probe has.
    #[x_kube(validation = crate::rules::from_one("usdt.byArgument.number", 12, ": the first argument is 1"))]
    pub number: u8,

    /// What it is: an `Integer`, shown as a number with the sign and size that the probe says, or a `String`, a pointer to a text
    /// that ends with NUL, of which the first 47 bytes count.
    #[serde(default)]
    pub r#type: Argument,
}

impl FromStr for ByArgument {
    type Err = String;

    /// `1`, or `1:string`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, r#type) = match text.split_once(':') {
            Some((number, r#type)) => (number, r#type.parse()?),
            None => (text, Argument::default()),
        };
        let number = number.parse().ok().filter(|number| (1..=12).contains(number));
        let number = number.ok_or_else(|| {
            format!("no argument {text:?}: its number, from 1 to 12, such as 1 or 1:string")
        })?;
        Ok(Self { number, r#type })
    }
}

/// All that the provider has.
pub fn default_names() -> Vec<String> {
    vec!["*".to_string()]
}

/// As many as a person looks through.
pub fn default_limit() -> u32 {
    50
}
