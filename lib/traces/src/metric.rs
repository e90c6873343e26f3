//! Figures as OTLP's metrics: counters since a time, levels, and distributions in buckets as fine as ours.

use bytes::Bytes;
use libm::log2;
use prost::Message;

use super::{
    ids::{SpanId, TraceId},
    messages::metrics::{
        self as messages, Buckets, CUMULATIVE, ExponentialHistogram, HistogramPoint, NumberPoint,
        metric::Data,
    },
    span::{Attributes, written},
};

/// Buckets of 2^(1/32), 2.2 % wide. Ours are 3.2 % to 6.3 % wide: the middles of no two of them are in one.
const SCALE: i32 = 5;

/// So many points of a metric are in one message.
const POINTS: usize = 256;

/// A metric, before it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name.
    pub name: String,
    /// What it means.
    pub help: String,
    /// As UCUM has it: `s`, `By`, `1`.
    pub unit: &'static str,
    /// Its series.
    pub points: Points,
}

/// Series of one metric. Times are nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub enum Points {
    /// What never falls.
    Counters(Vec<(Attributes, f64)>),
    /// What stands so now.
    Gauges(Vec<(Attributes, f64)>),
    /// How values are distributed.
    Distributions(Vec<(Attributes, Distribution)>),
}

/// How values are distributed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// Their sum.
    pub sum: f64,
    /// The middle of each bucket, rising, and how many values are in it.
    pub buckets: Vec<(f64, u64)>,
    /// Some of the values.
    pub exemplars: Vec<Example>,
}

/// A value and its trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Example {
    /// The trace.
    pub trace: TraceId,
    /// The span in it.
    pub span: SpanId,
    /// The value.
    pub value: f64,
    /// When it was.
    pub time_ns: u64,
}

/// A metric as it is written, and how many points it has.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    pub(crate) bytes: Bytes,
    pub(crate) points: usize,
}

impl Metric {
    /// As OTLP has it: in pieces, where it has many points. Counters count since `start_ns`.
    pub fn written(&self, start_ns: u64, time_ns: u64) -> Vec<Written> {
        let number = |(attributes, value): &(Attributes, f64), start| NumberPoint {
            start_time_unix_nano: start,
            time_unix_nano: time_ns,
            value: Some(*value),
            attributes: written(attributes),
        };
        match &self.points {
            Points::Counters(points) => self.pieces(points, |points| {
                Data::Sum(messages::Sum {
                    points: points.iter().map(|one| number(one, start_ns)).collect(),
                    temporality: CUMULATIVE,
                    is_monotonic: true,
                })
            }),
            Points::Gauges(points) => self.pieces(points, |points| {
                Data::Gauge(messages::Gauge {
                    points: points.iter().map(|one| number(one, 0)).collect(),
                })
            }),
            Points::Distributions(points) => self.pieces(points, |points| {
                let points = points.iter();
                let points = points.map(|(attributes, one)| HistogramPoint {
                    attributes: written(attributes),
                    ..one.point(start_ns, time_ns)
                });
                Data::ExponentialHistogram(ExponentialHistogram {
                    points: points.collect(),
                    temporality: CUMULATIVE,
                })
            }),
        }
    }

    fn pieces<Point>(&self, points: &[Point], data: impl Fn(&[Point]) -> Data) -> Vec<Written> {
        let pieces = points.chunks(POINTS);
        let pieces = pieces.map(|piece| {
            let message = messages::Metric {
                name: self.name.clone(),
                description: self.help.clone(),
                unit: self.unit.to_string(),
                data: Some(data(piece)),
            };
            Written {
                bytes: message.encode_to_vec().into(),
                points: piece.len(),
            }
        });
        pieces.collect()
    }
}

impl Distribution {
    fn point(&self, start_ns: u64, time_ns: u64) -> HistogramPoint {
        let counts = || self.buckets.iter().map(|(_, count)| *count);
        let (zero, positive) = buckets(&self.buckets);
        let exemplars = self.exemplars.iter();
        HistogramPoint {
            attributes: Vec::new(),
            start_time_unix_nano: start_ns,
            time_unix_nano: time_ns,
            count: counts().fold(0, u64::saturating_add),
            sum: Some(self.sum),
            scale: SCALE,
            zero_count: zero,
            positive: Some(positive),
            exemplars: exemplars
                .map(|one| messages::Exemplar {
                    time_unix_nano: one.time_ns,
                    value: Some(one.value),
                    span_id: one.span.bytes().to_vec(),
                    trace_id: one.trace.bytes().to_vec(),
                })
                .collect(),
        }
    }
}

/// How many values are zero, and the others in buckets of [`SCALE`].
fn buckets(middles: &[(f64, u64)]) -> (u64, Buckets) {
    let (mut zero, mut all) = (0_u64, Buckets::default());
    for (middle, count) in middles {
        if *middle <= 0.0 {
            zero = zero.saturating_add(*count);
            continue;
        }
        let index = index(*middle);
        if all.counts.is_empty() {
            all.offset = index;
        }
        // What does not rise counts in the last.
        let place = usize::try_from(index - all.offset).unwrap_or_default();
        if place >= all.counts.len() {
            all.counts.resize(place + 1, 0);
        }
        all.counts[place] = all.counts[place].saturating_add(*count);
    }
    (zero, all)
}

/// The bucket of a value above zero: that of which base^i is less than it and base^(i+1) is not.
fn index(value: f64) -> i32 {
    (log2(value) * f64::from(1 << SCALE)).ceil() as i32 - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_is_above_its_lower_bound_up_to_its_upper() {
        assert_eq!((index(1.0), index(1.000001), index(2.0)), (-1, 0, 31));
        assert_eq!((index(0.5), index(1e-9)), (-33, -957));
        for value in [1e-9, 5.12e-7, 0.001, 0.9, 1.1, 3600.0] {
            let bound = |index: i32| (f64::from(index) / 32.0).exp2();
            let at = index(value);
            assert!(bound(at) < value && value <= bound(at + 1), "{value}");
        }
    }

    #[test]
    fn zeros_and_gaps_are_where_they_belong() {
        let (zero, all) = buckets(&[(0.0, 3), (1.5, 1), (2.0, 4), (4.0, 2)]);
        assert_eq!(zero, 3);
        assert_eq!(all.offset, index(1.5));
        let hit: Vec<(usize, u64)> = all.counts.iter().copied().enumerate().collect();
        let hit: Vec<_> = hit.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(hit, [(0, 1), (13, 4), (45, 2)]);
    }

    #[test]
    fn many_points_go_in_pieces_and_counters_say_since_when() {
        let points = (0..POINTS * 2 + 1).map(|one| (Attributes::new(), one as f64));
        let metric = Metric {
            name: "n".to_string(),
            help: "h".to_string(),
            unit: "1",
            points: Points::Counters(points.collect()),
        };
        let written = metric.written(7, 9);
        let counts: Vec<usize> = written.iter().map(|one| one.points).collect();
        assert_eq!(counts, [POINTS, POINTS, 1]);
        let last = messages::Metric::decode(written[2].bytes.clone()).unwrap();
        let Some(Data::Sum(sum)) = last.data else {
            panic!("{last:?}");
        };
        assert!(sum.is_monotonic && sum.temporality == CUMULATIVE);
        let point = &sum.points[0];
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (7, 9));
        assert_eq!(point.value, Some(512.0));
        // A level is of no time but its own.
        let gauge = Metric {
            points: Points::Gauges(vec![(Attributes::new(), 1.0)]),
            ..metric
        };
        let one = messages::Metric::decode(gauge.written(7, 9)[0].bytes.clone()).unwrap();
        let Some(Data::Gauge(gauge)) = one.data else {
            panic!("{one:?}");
        };
        assert_eq!(gauge.points[0].start_time_unix_nano, 0);
    }
}
