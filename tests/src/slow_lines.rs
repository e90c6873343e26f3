//! Slow calls as an agent's log lists them.

use serde::Deserialize;

/// A line of the log.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SlowLine {
    /// When the call returned.
    pub time: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The container.
    pub container: String,
    /// On whose behalf.
    pub ckbprobe: String,
    /// The probe in it.
    pub probe: String,
    /// The operation.
    pub operation: String,
    /// The column family, where it is known.
    pub column_family: Option<String>,
    /// The thread, by its number on the host.
    pub thread: u32,
    /// The thread's name.
    pub thread_name: String,
    /// How long the call took.
    pub duration_nanoseconds: u64,
    /// Payload bytes, where they are known.
    pub bytes: Option<u64>,
    /// What ran beside it.
    pub during: Vec<String>,
    /// Who called, from the innermost on, where that is asked.
    #[serde(default)]
    pub stack: Vec<String>,
}

/// The slow calls in a log that are of pods of this namespace, as documented: lines that are JSON and have a duration. What has one, and
/// is otherwise not as it must be, is an error. Calls of other kinds, of which more is told, may be in the log of others.
pub fn parse(log: &str, namespace: &str) -> serde_json::Result<Vec<SlowLine>> {
    let json = log
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    json.filter(|line| line.get("durationNanoseconds").is_some())
        .filter(|line| line.get("namespace").is_none_or(|of| of == namespace))
        .map(serde_json::from_value)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_calls_are_picked_out_of_the_messages() {
        let line = r#"{"time":"2026-11-20T16:50:15.099191Z","namespace":"ckb","pod":"ckb-0","container":"ckb","ckbprobe":"ckb","probe":"storage","operation":"Get","columnFamily":"CELL","thread":7,"threadName":"reader","durationNanoseconds":1500000,"bytes":150,"during":["Flush"]}"#;
        let others = r#"{"namespace":"others","durationNanoseconds":1,"arguments":{}}"#;
        let log = format!(
            "2026-11-20T16:50:14Z  INFO attached\n{line}\n{{\"level\":\"info\"}}\n7\n{others}\n"
        );
        let [slow] = &parse(&log, "ckb").unwrap()[..] else {
            panic!("one slow call");
        };
        assert_eq!(
            (slow.operation.as_str(), slow.duration_nanoseconds),
            ("Get", 1_500_000)
        );
        assert_eq!(slow.column_family.as_deref(), Some("CELL"));
        assert!(parse(r#"{"durationNanoseconds":1}"#, "ckb").is_err());
    }
}
