//! What each thread of a process does now.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The threads of a process, at one moment.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Threads {
    /// The process, `process 1234 (ckb)`.
    pub subject: String,
    /// Each thread, in the order of their numbers.
    pub threads: Vec<Thread>,
    /// How many there are besides: more than are told.
    pub left_out: u64,
}

/// What a thread does now.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Thread {
    /// Its number.
    pub thread: u32,
    /// Its name.
    pub name: String,
    /// Its state, as a word, such as `sleeping`.
    pub state: String,
    /// For what it waits, such as `futex`; unset where it does not, or the kernel does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// The time since it last came to a CPU; unset where the kernel does not say, or it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_nanoseconds: Option<u64>,
    /// The calls that it is in, from the innermost on. Of one that runs there are none.
    pub calls: Vec<ThreadCall>,
}

/// A call that a thread is in.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ThreadCall {
    /// The function.
    pub name: String,
    /// The file that it is in; empty where that is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub module: String,
}
