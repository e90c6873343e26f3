//! Spans that leave together, as they are written.

use bytes::Bytes;
use prost::Message;

use super::{
    messages,
    metric::Written,
    span::{Attributes, Span, written},
};

/// About what a span takes beside its bytes.
const SPAN_OVERHEAD: usize = 64;

/// Who says all of this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The program.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// Where spans are from, written once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource(Bytes);

impl Resource {
    /// Of whom all of this is said.
    pub fn new(attributes: &Attributes) -> Self {
        let message = messages::Resource {
            attributes: written(attributes),
        };
        Self(message.encode_to_vec().into())
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.0.clone()
    }
}

/// Spans of one trace, which are exported all or none, as they are written.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    resource: Resource,
    owner: u64,
    spans: Vec<Bytes>,
    /// How many things that is: spans, or points of metrics.
    count: usize,
}

impl Group {
    /// These, of this place.
    pub fn new(resource: &Resource, spans: &[Span]) -> Self {
        let spans = spans.iter();
        let spans: Vec<Bytes> = spans
            .map(|span| span.message().encode_to_vec().into())
            .collect();
        Self {
            resource: resource.clone(),
            owner: 0,
            count: spans.len(),
            spans,
        }
    }

    /// Metrics, of this place, which are counted by their points. They never go to whom spans go to.
    pub fn of_metrics(resource: &Resource, metrics: Vec<Written>) -> Self {
        Self {
            resource: resource.clone(),
            owner: 0,
            count: metrics.iter().map(|one| one.points).sum(),
            spans: metrics.into_iter().map(|one| one.bytes).collect(),
        }
    }

    /// The same, counted for whoever has this number.
    #[must_use]
    pub fn owned_by(self, owner: u64) -> Self {
        Self { owner, ..self }
    }

    /// For whom it is counted.
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// How many spans are in it.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// About what they take, of memory and of a request.
    pub fn bytes(&self) -> usize {
        let spans = self.spans.iter();
        spans.map(|span| span.len() + SPAN_OVERHEAD).sum()
    }
}

/// Groups as one request: those of one place side by side, whatever was between them.
pub(crate) fn request(groups: &[Group], scope: &Scope) -> messages::ExportTraceServiceRequest {
    let mut places: Vec<(&Resource, Vec<Bytes>)> = Vec::new();
    for group in groups {
        let spans = group.spans.iter().cloned();
        let known = places
            .iter_mut()
            .find(|(resource, _)| **resource == group.resource);
        match known {
            Some((_, all)) => all.extend(spans),
            None => places.push((&group.resource, spans.collect())),
        }
    }
    let scope = messages::InstrumentationScope {
        name: scope.name.clone(),
        version: scope.version.clone(),
    };
    let resource_spans = places
        .into_iter()
        .map(|(resource, spans)| messages::ResourceSpans {
            resource: resource.bytes(),
            scope_spans: vec![messages::ScopeSpans {
                scope: Some(scope.clone()),
                spans,
            }],
        });
    messages::ExportTraceServiceRequest {
        resource_spans: resource_spans.collect(),
    }
}
