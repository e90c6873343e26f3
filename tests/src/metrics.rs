//! Scrapes, and the text that Prometheus reads.

use std::{collections::BTreeMap, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::failure::{Failure, Result, expect};

/// An endpoint that answers at once or not at all.
const PATIENCE: Duration = Duration::from_secs(5);

/// One line of a scrape.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The metric.
    pub name: String,
    /// The labels of the sample.
    pub labels: BTreeMap<String, String>,
    /// The value of the sample.
    pub value: f64,
}

/// A scrape.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// As it came.
    pub text: String,
    /// Its lines, less the comments.
    pub samples: Vec<Sample>,
}

impl Metrics {
    /// Scrapes an address such as `10.244.0.7:9464`.
    pub async fn scrape(address: &str) -> Result<Self> {
        Self::parse(get(address, "/metrics").await?)
    }

    /// Reads what an endpoint said.
    pub fn parse(text: String) -> Result<Self> {
        let samples = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .map(|line| parse(line).ok_or(line).map_err(Failure::format("a sample")))
            .collect::<Result<_>>()?;
        Ok(Self { text, samples })
    }

    /// The sum over all samples that have these labels; None when there are none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let fits = |sample: &&Sample| {
            sample.name == name
                && labels
                    .iter()
                    .all(|(label, value)| sample.labels.get(*label).is_some_and(|is| is == value))
        };
        let mut fitting = self.samples.iter().filter(fits).peekable();
        fitting.peek()?;
        Some(fitting.map(|sample| sample.value).sum())
    }

    /// The same; 0 when there are none.
    pub fn total(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.sum(name, labels).unwrap_or_default()
    }

    /// How many counters are less than they were.
    pub fn backwards(&self, before: &Self) -> u64 {
        let counter = |name: &str| name.ends_with("_total") || name.ends_with("_count");
        let less = self.samples.iter().filter(|now| {
            let same = |one: &&Sample| one.name == now.name && one.labels == now.labels;
            let before = before.samples.iter().find(same);
            counter(&now.name) && before.is_some_and(|before| before.value > now.value)
        });
        less.count() as u64
    }
}

/// What the metrics say of one operation of one target.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The name of the operation.
    pub name: String,
    /// Calls, scaled up where they were sampled.
    pub calls: f64,
    /// Calls in the histogram of durations.
    pub timed: f64,
    /// How long they took together, in seconds.
    pub seconds: f64,
    /// Calls that were seen.
    pub samples: f64,
    /// Calls on all column families together; None where they are not told apart.
    pub on_families: Option<f64>,
    /// The part of the last interval in which calls were recorded; None before one has ended.
    pub sampling_ratio: Option<f64>,
}

impl Metrics {
    /// The operations that are measured on behalf of a CkbProbe with one target.
    pub fn operations(&self, namespace: &str, ckbprobe: &str) -> Vec<Operation> {
        let calls = self.samples.iter().filter(|sample| {
            let is = |label: &str, value| sample.labels.get(label).is_some_and(|is| is == value);
            sample.name == "ckb_probe_operation_calls_total"
                && is("namespace", namespace)
                && is("ckbprobe", ckbprobe)
        });
        calls
            .map(|calls| {
                let labels: Vec<(&str, &str)> = calls
                    .labels
                    .iter()
                    .map(|(label, value)| (label.as_str(), value.as_str()))
                    .collect();
                let value = |name| self.sum(name, &labels);
                const FAMILIES: &str = "ckb_probe_column_family_operation_duration_seconds_count";
                Operation {
                    name: calls.labels.get("operation").cloned().unwrap_or_default(),
                    calls: calls.value,
                    timed: value("ckb_probe_operation_duration_seconds_count").unwrap_or_default(),
                    seconds: value("ckb_probe_operation_duration_seconds_sum").unwrap_or_default(),
                    samples: value("ckb_probe_samples_total").unwrap_or_default(),
                    on_families: value(FAMILIES),
                    sampling_ratio: value("ckb_probe_sampling_ratio"),
                }
            })
            .collect()
    }
}

impl Operation {
    /// Whether every call was seen, timed and put down to a column family where there are any, as far as this tells.
    pub fn is_complete(&self) -> bool {
        let calls = self.calls;
        self.timed == calls
            && self.samples == calls
            && self.on_families.is_none_or(|sum| sum == calls)
            && self.sampling_ratio == Some(1.0)
    }
}

/// The body of the answer to a GET.
pub async fn get(address: &str, path: &str) -> Result<String> {
    let what = || format!("GET http://{address}{path}");
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        // Of version 1.0: the answer is not in chunks, and the connection ends with it.
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = timeout(PATIENCE, exchange)
        .await
        .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
        .map_err(Failure::system(what()))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().unwrap_or_default();
    expect(
        status.split_whitespace().nth(1) == Some("200"),
        format!("{} to be answered with 200", what()),
        || format!("{status}: {body}"),
    )?;
    Ok(body.to_string())
}

fn parse(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let Some((name, labels)) = series.split_once('{') else {
        return Some(Sample {
            name: series.to_string(),
            labels: BTreeMap::new(),
            value,
        });
    };
    // No label value here holds a comma or a quotation mark: they are names of Kubernetes and of operations.
    let labels = labels
        .strip_suffix('}')?
        .split(',')
        .filter(|label| !label.is_empty())
        .map(|label| {
            let (label, value) = label.split_once('=')?;
            let value = value.strip_prefix('"')?.strip_suffix('"')?;
            Some((label.to_string(), value.to_string()))
        })
        .collect::<Option<_>>()?;
    Some(Sample {
        name: name.to_string(),
        labels,
        value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_values_are_taken_apart() {
        let sample = parse(r#"calls_total{pod="ckb-0",operation="Get"} 12"#).unwrap();
        assert_eq!((sample.name.as_str(), sample.value), ("calls_total", 12.0));
        assert_eq!(sample.labels["pod"], "ckb-0");
        assert_eq!(parse("up 1").unwrap().labels, BTreeMap::new());
        assert_eq!(parse("up"), None);
        assert_eq!(parse(r#"up{pod="a} 1"#), None);
    }

    #[test]
    fn an_operation_is_complete_when_all_that_is_said_of_it_agrees() {
        let lines = [
            r#"ckb_probe_operation_calls_total{namespace="n",ckbprobe="a",operation="Get"} 7"#,
            r#"ckb_probe_operation_calls_total{namespace="n",ckbprobe="b",operation="Get"} 9"#,
            r#"ckb_probe_operation_calls_total{namespace="m",ckbprobe="a",operation="Get"} 5"#,
            r#"ckb_probe_operation_duration_seconds_count{namespace="n",ckbprobe="a",operation="Get"} 7"#,
            r#"ckb_probe_samples_total{namespace="n",ckbprobe="a",operation="Get"} 7"#,
            r#"ckb_probe_sampling_ratio{namespace="n",ckbprobe="a",operation="Get"} 1"#,
            r#"ckb_probe_column_family_operation_duration_seconds_count{namespace="n",ckbprobe="a",operation="Get",column_family="CELL"} 3"#,
            r#"ckb_probe_column_family_operation_duration_seconds_count{namespace="n",ckbprobe="a",operation="Get",column_family="META"} 4"#,
        ];
        let metrics = Metrics::parse(lines.join("\n")).unwrap();
        let [get] = &metrics.operations("n", "a")[..] else {
            panic!("one operation of one namespace");
        };
        assert_eq!((get.name.as_str(), get.on_families), ("Get", Some(7.0)));
        assert!(get.is_complete());
        let wrong: [fn(&mut Operation); 5] = [
            |get| get.samples = 6.0,
            |get| get.timed = 8.0,
            |get| get.on_families = Some(6.0),
            |get| get.sampling_ratio = Some(0.999),
            |get| get.sampling_ratio = None,
        ];
        for make_wrong in wrong {
            let mut wrong = get.clone();
            make_wrong(&mut wrong);
            assert!(!wrong.is_complete(), "{wrong:?}");
        }
    }

    #[test]
    fn a_counter_that_is_less_than_before_went_backwards_and_a_gauge_did_not() {
        let scrape = |calls: u32, share: u32, pod: &str| {
            let text =
                format!("calls_total{{pod=\"{pod}\"}} {calls}\nshare{{pod=\"{pod}\"}} {share}\n");
            Metrics::parse(text).unwrap()
        };
        let before = scrape(7, 3, "a");
        assert_eq!(scrape(8, 2, "a").backwards(&before), 0);
        assert_eq!(scrape(6, 4, "a").backwards(&before), 1);
        // Another target's counter begins anew.
        assert_eq!(scrape(1, 1, "b").backwards(&before), 0);
    }

    #[test]
    fn a_sum_is_over_what_has_the_labels_and_is_none_without_any() {
        let text = "a{x=\"1\",y=\"1\"} 1\na{x=\"1\",y=\"2\"} 2\na{x=\"2\"} 4\n";
        let metrics = Metrics::parse(text.to_string()).unwrap();
        assert_eq!(metrics.sum("a", &[("x", "1")]), Some(3.0));
        assert_eq!(metrics.sum("a", &[]), Some(7.0));
        assert_eq!(metrics.sum("a", &[("x", "3")]), None);
        assert_eq!(metrics.sum("b", &[]), None);
    }
}
