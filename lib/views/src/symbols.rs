//! What of a process, or of a file, could be attached to: functions, and USDT probes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Functions of a process or of a file.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Symbols {
    /// The process, `process 1234 (ckb)`, or the file, `file ./ckb`.
    pub subject: String,
    /// Whether it has no symbol table: what it exports is all that is known.
    pub stripped: bool,
    /// Whether the program is Go's, whose calls are counted and not timed.
    #[serde(default)]
    pub go: bool,
    /// How many functions there are, also where they are too many to list; of those that are measured by name, how many were found.
    pub total: u64,
    /// What a probed call costs, where that could be measured; of a pattern alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_nanoseconds: Option<u64>,
    /// The same of one that is single-stepped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single_stepped_nanoseconds: Option<u64>,
    /// Each function. Of more than may be listed none is.
    pub functions: Vec<Symbol>,
    /// Some of those that are too many to list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sample: Vec<String>,
}

/// A function.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Symbol {
    /// The row under which its calls are told, of those that are measured by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<String>,
    /// What it is called.
    pub name: String,
    /// Where it is; nothing where it was not found.
    pub places: Vec<SymbolPlace>,
}

/// Where a function begins.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SymbolPlace {
    /// The file that has it.
    pub file: String,
    /// Where in the file.
    pub offset: u64,
    /// Whether the kernel single-steps its first instruction, which costs a second trap.
    pub single_stepped: bool,
}

/// USDT probes of a process or of a file.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UsdtProbes {
    /// The process, `process 1234 (ckb)`, or the file, `file ./ckb`.
    pub subject: String,
    /// What a hit costs while it is attached to, where that could be measured; of a process alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit_nanoseconds: Option<u64>,
    /// Each file that has some.
    pub files: Vec<UsdtFileProbes>,
}

/// USDT probes of one file.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UsdtFileProbes {
    /// The file.
    pub file: String,
    /// Each place of each probe.
    pub probes: Vec<UsdtPlace>,
    /// How many notes of it are not as they should be, and left out.
    pub malformed: u64,
}

/// A place of a USDT probe.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UsdtPlace {
    /// Who provides it.
    pub provider: String,
    /// What it is called.
    pub name: String,
    /// Where in the file; unset where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// What is there to be probed, such as `nop`; unset where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction: Option<String>,
    /// Where in the file its semaphore is; unset where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semaphore_offset: Option<u64>,
    /// Its arguments, each where and how it is, or why it cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// Why it is left out; unset where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}
