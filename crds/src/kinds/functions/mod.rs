//! `functions`: the latency of any functions of the process, by a pattern of their names.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

mod descriptor;

pub use descriptor::{DESCRIPTOR, DURATION, LONGEST, SLOW, UNBEGUN, UNENDED};

pub use crate::Argument;
use crate::Duration;

/// Latency of functions of the process by a pattern of their names: count, rate, quantiles and slow calls of each.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.stacks) || !self.stacks || has(self.threshold)")
    .message("functions.stacks needs functions.threshold: stacks are those of slow calls, such as threshold: 10ms"))]
#[x_kube(validation = Rule::new("!has(self.to) && !has(self.toReturn) || !has(self.arguments) && (!has(self.stacks) || !self.stacks)")
    .message("functions.to and functions.toReturn measure from one function to another: arguments and stacks are those of calls, leave \
        them out"))]
#[x_kube(validation = Rule::new("!has(self.keyArgument) || has(self.to) || has(self.toReturn)")
    .message("functions.keyArgument is what a beginning and its end have in common: say in functions.to or functions.toReturn where it \
        ends"))]
#[x_kube(validation = Rule::new("!has(self.traceparentArgument) || (has(self.to) || has(self.toReturn)) && has(self.threshold)")
    .message("functions.traceparentArgument needs functions.to or functions.toReturn, and functions.threshold: it is told of what is \
        slow from one to another"))]
#[x_kube(validation = Rule::new("!has(self.keyName) || has(self.keyArgument) && has(self.threshold)")
    .message("functions.keyName is what functions.keyArgument is the number of, where others of the CkbProbe have the same: it needs that, \
        and functions.threshold, since what is slow is told"))]
pub struct FunctionsProbe {
    /// A pattern of function names, with `*`, `?` and `[abc]`. It is matched against the name without parameters of a C++
    /// function (`rocksdb::DBImpl::*`), the path of a Rust function (`ckb_chain::verify::*`), and the symbol itself
    /// (`rocksdb_*`). `ckb-probe symbols --match` shows what a pattern matches. Do not probe functions through which C++
    /// exceptions or Rust panics unwind: with a probe at the return, that ends the process.
    #[schemars(length(max = 256))]
    #[x_kube(validation = Rule::new("size(self) > 0 && !self.matches('^[*]+$')")
        .message("functions.match must say more than '*': a name or a pattern of names, such as rocksdb::DBImpl::* or ckb_chain::*"))]
    pub r#match: String,

    /// The library that has the functions, by its file name, such as `libc.so.6` or `librocksdb`. Unset: the executable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 255))]
    #[x_kube(validation = Rule::new("size(self) > 0 && !self.contains('/')")
        .message("functions.library must be the name of a file without '/', such as libc.so.6 or librocksdb"))]
    pub library: Option<String>,

    /// How many functions may match. If more do, none is attached to, and the status says how many match and names some of
    /// them.
    #[serde(default = "default_limit")]
    #[x_kube(validation = crate::rules::from_one("functions.limit", 200, ""))]
    pub limit: u32,

    /// A call that takes at least this long is counted as slow, and the agent lists it. Unset: no call is slow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Duration")]
    #[x_kube(validation = crate::rules::duration("functions.threshold", "1us", "1h", "500us or 10ms"))]
    pub threshold: Option<Duration>,

    /// The types of the first arguments, at most six: slow calls are listed with these arguments. Further arguments are not
    /// reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 6))]
    pub arguments: Vec<Argument>,

    /// Lists slow calls with their callers: function names, innermost first. The stack is copied when the call returns, then
    /// unwound and wiped immediately. This makes a slow call about 3 us longer, and no more stacks are copied than the budget
    /// allows. For every ten minutes with a slow call there is also a CkbProfile of the mode SlowCalls, which shows the time of
    /// slow calls by caller; the last five are kept.
    #[serde(default)]
    pub stacks: bool,

    /// Also attaches to functions whose first instruction the kernel must single-step. A probed call of such a function costs
    /// many times as much (measured: 19 us instead of 1). The overhead budget still applies.
    #[serde(default)]
    pub include_single_stepped: bool,

    /// Measures the time from when a function that matches begins to when one of these does, instead of how long calls take: patterns, as
    /// `match`. There is one row, `MATCH to TO`. No return is touched; `toReturn` names functions whose returns end it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 256)))]
    pub to: Vec<String>,

    /// The same to when one of these *returns*: patterns, as `match`. With `to`, whichever comes first ends it. Of what returns, the call
    /// must have begun while it was watched. A probe is at the return, as where calls are timed: do not name functions through which C++
    /// exceptions or Rust panics unwind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 256)))]
    pub to_return: Vec<String>,

    /// The number, from 1, of the argument that both have in common, where what begins in one thread ends in another: a number or an address
    /// that the calling convention passes in a register, as the function begins. Unset: what begins in a thread ends in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = crate::rules::from_one("functions.keyArgument", 6, ": the first argument is 1"))]
    pub key_argument: Option<u8>,

    /// What `keyArgument` is the number of, such as `request`, in words of your own: where other probes of this CkbProbe say the same. What is
    /// slow is then exported below what is slow of an equal name and an equal number and had begun, and not ended, when it began, in
    /// whichever thread: below the one that began last. Unset: it is below what it is within on its thread alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    #[x_kube(validation = crate::rules::key_name("functions.keyName"))]
    pub key_name: Option<String>,

    /// The number, from 1, of the argument of what begins that is a W3C `traceparent`: the address of a text that ends with NUL, in a
    /// register. What is slow is then exported in that trace, below that span, whether its caller sampled it or not. Where the address is 0
    /// or the text empty, it is a trace of its own; what is no `traceparent` is taken for none, and counted in `lost.traceparents`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = crate::rules::from_one("functions.traceparentArgument", 6, ": the first argument is 1"))]
    pub traceparent_argument: Option<u8>,
}

impl FunctionsProbe {
    /// Whether time from one function to another is measured, and no calls are.
    pub fn is_between(&self) -> bool {
        !self.to.is_empty() || !self.to_return.is_empty()
    }
}

/// As many as a person looks through.
pub fn default_limit() -> u32 {
    50
}
