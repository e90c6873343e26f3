//! `functions`: the latency of any functions of the process, by a pattern of their names.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod descriptor;

pub use descriptor::{DESCRIPTOR, DURATION, LONGEST, SLOW};

use crate::Duration;

/// Latency of functions of the process by a pattern of their names: count, rate, quantiles and slow calls of each.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.stacks) || !self.stacks || has(self.threshold)")
    .message("functions.stacks needs functions.threshold: stacks are those of slow calls, such as threshold: 10ms"))]
pub struct FunctionsProbe {
    /// What their names match, with `*`, `?` and `[abc]`: the name without parameters of a C++ function
    /// (`rocksdb::DBImpl::*`), the path of a Rust function (`ckb_chain::verify::*`), or the symbol itself (`rocksdb_*`).
    /// `ckb-probe symbols --match` shows what a pattern finds. Not for functions that C++ exceptions or Rust panics pass
    /// through: a probe at their return ends the process then.
    #[schemars(length(max = 256))]
    #[x_kube(validation = Rule::new("size(self) > 0 && !self.matches('^[*]+$')")
        .message("functions.match must say more than '*': a name or a pattern of names, such as rocksdb::DBImpl::* or ckb_chain::*"))]
    pub r#match: String,

    /// The library that they are in, by its file's name, such as `libc.so.6` or `librocksdb`. Unset: the executable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 255))]
    #[x_kube(validation = Rule::new("size(self) > 0 && !self.contains('/')")
        .message("functions.library must be the name of a file without '/', such as libc.so.6 or librocksdb"))]
    pub library: Option<String>,

    /// How many functions may match. Where more do, none is attached to, and the status says how many match, and some of them.
    #[serde(default = "default_limit")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 200")
        .message("functions.limit must be from 1 to 200"))]
    pub limit: u32,

    /// A call that takes at least this long is counted as slow, and listed. Unset: none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Duration")]
    #[x_kube(validation = Rule::new(
        "self.matches('^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('1us') && duration(self) <= duration('1h')"
    ).message("functions.threshold must be a duration from 1us to 1h, such as 500us or 10ms"))]
    pub threshold: Option<Duration>,

    /// What the first arguments are, at most six, so that slow calls are listed with them. Those beyond are not told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 6))]
    pub arguments: Vec<Argument>,

    /// Lists slow calls with who called them: functions' names, from the innermost on. The stack is copied as the call returns, and
    /// unwound and wiped at once. It makes a slow call some 3 us longer, and no more are copied than the budget pays. For each ten
    /// minutes of the clock in which any call was slow, a CkbProfile of the mode SlowCalls has their time by who called; the last
    /// five are kept.
    #[serde(default)]
    pub stacks: bool,

    /// Also attaches to functions whose first instruction the kernel must single-step: a probed call of theirs costs many
    /// times as much (measured: 19 us instead of 1). The overhead budget holds for them too.
    #[serde(default)]
    pub include_single_stepped: bool,
}

/// What an argument is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Argument {
    /// A number or a pointer: shown as a signed number, of 32 bits where it fits.
    Integer,
    /// A pointer to a text that ends with a NUL: shown as it stands when the call returns, its first 47 bytes.
    String,
}

impl std::str::FromStr for Argument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_lowercase().as_str() {
            "integer" | "int" => Ok(Self::Integer),
            "string" | "str" => Ok(Self::String),
            _ => Err(format!("no argument {text:?}; there are integer and string")),
        }
    }
}

/// As many as a person looks through.
pub fn default_limit() -> u32 {
    50
}
