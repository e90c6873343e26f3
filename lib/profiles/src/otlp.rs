//! Profiles as OTLP has them (`opentelemetry.proto.profiles.v1development`, of protocol 1.9 and later): alpha, by its own word, which may change in
//! any way.
//!
//! One request has a profile for each sample type, since OTLP's have one each, and one dictionary for all of them. The first of each table of
//! that stands for nothing.

mod messages;
#[cfg(test)]
mod tests;

use indexmap::IndexSet;
use prost::Message;

use crate::{Frame, Profile, Stack, WEIGHT_LIMIT, categories::category};

/// To this a receiver has it sent, after its address.
pub const PATH: &str = "/v1development/profiles";

/// What is said of a sample: what OpenTelemetry calls it, or else a name of our own.
mod attribute {
    pub const THREAD: &str = "thread.name";
    pub const TARGET: &str = "ckb_probe.target";
    pub const STATE: &str = "ckb_probe.state";
    pub const WAIT: &str = "ckb_probe.wait";
    pub const HEADING: &str = "ckb_probe.heading";
}

impl Profile {
    /// The request by which all of it is exported, with what is to be said of where it is from. The same stacks make the same bytes, in
    /// whatever order they came.
    pub fn to_otlp(&self, resource: &[(&str, &str)]) -> Vec<u8> {
        let mut writer = Writer::default();
        let profiles = writer.profiles(self);
        let attributes = resource.iter().map(|(key, text)| messages::KeyValue {
            key: (*key).to_owned(),
            value: Some(text_of(text)),
        });
        let request = messages::Request {
            resource_profiles: vec![messages::ResourceProfiles {
                resource: Some(messages::Resource {
                    attributes: attributes.collect(),
                }),
                scope_profiles: vec![messages::ScopeProfiles {
                    scope: Some(messages::Scope {
                        name: "ckb-probe".to_owned(),
                        version: env!("CARGO_PKG_VERSION").to_owned(),
                    }),
                    profiles,
                }],
            }],
            dictionary: Some(writer.dictionary()),
        };
        request.encode_to_vec()
    }
}

/// Why a receiver that answered well did not take all of a request, by what it answered; None where it did.
pub fn refused(answer: &[u8]) -> Option<String> {
    let answer = match messages::Response::decode(answer) {
        Ok(answer) => answer.partial_success.unwrap_or_default(),
        Err(error) => return Some(format!("an answer that is none of OTLP's: {error}")),
    };
    let messages::PartialSuccess { rejected, message } = answer;
    (rejected > 0).then_some(message)
}

fn text_of(text: &str) -> messages::AnyValue {
    messages::AnyValue {
        text: Some(text.to_owned()),
    }
}

/// Tables whose places are numbers, the first of which is nothing.
#[derive(Default)]
struct Writer<'a> {
    texts: IndexSet<&'a str>,
    modules: IndexSet<&'a str>,
    functions: IndexSet<&'a str>,
    frames: IndexSet<Frame<'a>>,
    stacks: IndexSet<Vec<i32>>,
    attributes: IndexSet<(&'static str, &'a str)>,
}

impl<'a> Writer<'a> {
    fn profiles(&mut self, profile: &'a Profile) -> Vec<messages::Profile> {
        let stacks = profile.stacks.sorted();
        let places: Vec<(i32, Vec<i32>)> = stacks
            .iter()
            .map(|stack| (self.stack(stack), self.attributes(stack)))
            .collect();
        let types = profile.stacks.types().iter().enumerate();
        types
            .map(|(place, of)| {
                let sample_type = messages::ValueType {
                    name: self.text(&of.name),
                    unit: self.text(&of.unit),
                };
                let samples = stacks.iter().zip(&places);
                // What weighs nothing of one type was seen of another.
                let samples = samples.filter_map(|(stack, (stack_index, attributes))| {
                    let weight = stack.weights.get(place).copied().unwrap_or(0);
                    (weight > 0).then(|| messages::Sample {
                        stack_index: *stack_index,
                        attribute_indices: attributes.clone(),
                        values: vec![signed(weight)],
                    })
                });
                let is_shown = place == profile.stacks.shown();
                messages::Profile {
                    sample_type: Some(sample_type),
                    samples: samples.collect(),
                    time_unix_nano: profile.window.start_ns,
                    duration_nano: profile.window.duration_ns,
                    period_type: is_shown.then_some(sample_type),
                    period: if is_shown { signed(profile.period) } else { 0 },
                }
            })
            .collect()
    }

    /// The innermost function first, as pprof has it.
    fn stack(&mut self, stack: &Stack<'a>) -> i32 {
        let frames = stack.frames.iter().rev();
        let places = frames.map(|frame| after_nothing(self.frames.insert_full(*frame).0));
        let places = places.collect();
        after_nothing(self.stacks.insert_full(places).0)
    }

    fn attributes(&mut self, stack: &Stack<'a>) -> Vec<i32> {
        let all = [
            (attribute::THREAD, stack.thread),
            (attribute::TARGET, stack.target),
            (attribute::STATE, stack.state),
            (attribute::WAIT, stack.wait),
            (attribute::HEADING, category(stack).as_str()),
        ];
        let known = all.into_iter().filter(|(_, text)| !text.is_empty());
        known
            .map(|one| after_nothing(self.attributes.insert_full(one).0))
            .collect()
    }

    fn text(&mut self, text: &'a str) -> i32 {
        match text {
            "" => 0,
            text => after_nothing(self.texts.insert_full(text).0),
        }
    }

    fn dictionary(mut self) -> messages::Dictionary {
        let frames = std::mem::take(&mut self.frames);
        let mut locations = vec![messages::Location::default()];
        for frame in &frames {
            let function = after_nothing(self.functions.insert_full(frame.name).0);
            let mapping = match frame.module {
                "" => 0,
                module => after_nothing(self.modules.insert_full(module).0),
            };
            locations.push(messages::Location {
                mapping_index: mapping,
                lines: vec![messages::Line {
                    function_index: function,
                }],
            });
        }
        let mut functions = vec![messages::Function::default()];
        for name in std::mem::take(&mut self.functions) {
            let name = self.text(name);
            functions.push(messages::Function {
                name,
                system_name: name,
            });
        }
        let mut mappings = vec![messages::Mapping::default()];
        for module in std::mem::take(&mut self.modules) {
            let filename = self.text(module);
            mappings.push(messages::Mapping { filename });
        }
        let mut attributes = vec![messages::KeyValueAndUnit::default()];
        for (key, text) in std::mem::take(&mut self.attributes) {
            attributes.push(messages::KeyValueAndUnit {
                key: self.text(key),
                value: Some(text_of(text)),
            });
        }
        let stacks = self.stacks.into_iter();
        let stacks = stacks.map(|location_indices| messages::Stack { location_indices });
        let texts = self.texts.into_iter().map(str::to_owned);
        messages::Dictionary {
            mapping_table: mappings,
            location_table: locations,
            function_table: functions,
            link_table: vec![messages::Link {}],
            string_table: [String::new()].into_iter().chain(texts).collect(),
            attribute_table: attributes,
            stack_table: [messages::Stack::default()]
                .into_iter()
                .chain(stacks)
                .collect(),
        }
    }
}

/// The place in a table that begins with nothing.
fn after_nothing(place: usize) -> i32 {
    i32::try_from(place + 1).unwrap_or_default()
}

fn signed(number: u64) -> i64 {
    i64::try_from(number.min(WEIGHT_LIMIT)).unwrap_or(i64::MAX)
}
