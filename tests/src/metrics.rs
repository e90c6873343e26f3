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
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
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
        let text = get(address, "/metrics").await?;
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
    fn a_sum_is_over_what_has_the_labels_and_is_none_without_any() {
        let samples = [
            "a{x=\"1\",y=\"1\"} 1",
            "a{x=\"1\",y=\"2\"} 2",
            "a{x=\"2\"} 4",
        ];
        let metrics = Metrics {
            text: String::new(),
            samples: samples.iter().map(|line| parse(line).unwrap()).collect(),
        };
        assert_eq!(metrics.sum("a", &[("x", "1")]), Some(3.0));
        assert_eq!(metrics.sum("a", &[]), Some(7.0));
        assert_eq!(metrics.sum("a", &[("x", "3")]), None);
        assert_eq!(metrics.sum("b", &[]), None);
    }
}
