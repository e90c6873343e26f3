//! Writes a profile.

use std::{collections::HashMap, io::Write};

use flate2::{Compression, GzBuilder};
use indexmap::{IndexMap, IndexSet};
use prost::Message;

use super::{label, messages};
use crate::{Frame, Profile, Stack, WEIGHT_LIMIT, categories::category};

impl Profile {
    /// The profile as gzipped pprof. The same stacks make the same bytes, in whatever order they came.
    pub fn to_pprof(&self) -> Vec<u8> {
        let message = Writer::default().profile(self).encode_to_vec();
        let mut out = GzBuilder::new().write(Vec::new(), Compression::default());
        // Memory takes all that is written.
        let _ = out.write_all(&message);
        out.finish().unwrap_or_default()
    }
}

#[derive(Default)]
struct Writer<'a> {
    texts: IndexMap<&'a str, ()>,
    /// What is numbered from 1 on.
    modules: HashMap<&'a str, u64>,
    functions: IndexSet<&'a str>,
    frames: IndexSet<Frame<'a>>,
}

impl<'a> Writer<'a> {
    fn profile(mut self, profile: &'a Profile) -> messages::Profile {
        let stacks = &profile.stacks;
        self.text("");
        let sorted = stacks.sorted();
        let mut types = Vec::new();
        for of in stacks.types() {
            types.push(messages::ValueType {
                name: self.text(&of.name),
                unit: self.text(&of.unit),
            });
        }
        let sample = sorted.iter().map(|stack| self.sample(stack)).collect();
        let mapping = self.mappings();
        let location = self.locations();
        let function = (1..).zip(self.functions.clone());
        let function = function.map(|(id, name)| {
            let name = self.text(name);
            messages::Function {
                id,
                name,
                system_name: name,
            }
        });
        let function = function.collect();
        let shown = types.get(stacks.shown()).copied();
        messages::Profile {
            sample,
            mapping,
            location,
            function,
            time_nanos: signed(profile.window.start_ns),
            duration_nanos: signed(profile.window.duration_ns),
            period_type: shown,
            period: signed(profile.period),
            default_sample_type: shown.map_or(0, |of| of.name),
            sample_type: types,
            string_table: self.texts.into_keys().map(str::to_owned).collect(),
        }
    }

    fn sample(&mut self, stack: &Stack<'a>) -> messages::Sample {
        let labels = [
            (label::THREAD, stack.thread),
            (label::TARGET, stack.target),
            (label::STATE, stack.state),
            (label::WAIT, stack.wait),
            (label::HEADING, category(stack).as_str()),
        ];
        let known = labels.into_iter().filter(|(_, text)| !text.is_empty());
        messages::Sample {
            location_id: (stack.frames.iter().rev())
                .map(|frame| 1 + self.frames.insert_full(*frame).0 as u64)
                .collect(),
            value: stack.weights.iter().map(|weight| signed(*weight)).collect(),
            label: known
                .map(|(key, text)| messages::Label {
                    key: self.text(key),
                    text: self.text(text),
                })
                .collect(),
        }
    }

    /// The kernel last: the first mapping is taken for the program.
    fn mappings(&mut self) -> Vec<messages::Mapping> {
        let modules: IndexSet<&str> = self.frames.iter().map(|frame| frame.module).collect();
        let (kernel, users): (Vec<&str>, Vec<&str>) = (modules.into_iter())
            .filter(|module| !module.is_empty())
            .partition(|module| *module == Frame::KERNEL);
        let numbered = (1..).zip(users.into_iter().chain(kernel));
        numbered
            .map(|(id, module)| {
                self.modules.insert(module, id);
                messages::Mapping {
                    id,
                    filename: self.text(module),
                    has_functions: true,
                    ..Default::default()
                }
            })
            .collect()
    }

    fn locations(&mut self) -> Vec<messages::Location> {
        let Self {
            frames,
            functions,
            modules,
            ..
        } = self;
        (1..)
            .zip(frames.iter())
            .map(|(id, frame)| messages::Location {
                id,
                mapping_id: modules.get(frame.module).copied().unwrap_or_default(),
                address: 0,
                line: vec![messages::Line {
                    function_id: 1 + functions.insert_full(frame.name).0 as u64,
                }],
            })
            .collect()
    }

    fn text(&mut self, text: &'a str) -> i64 {
        let place = self.texts.insert_full(text, ()).0;
        i64::try_from(place).unwrap_or_default()
    }
}

/// Numbers here are no greater than [`WEIGHT_LIMIT`], which is the greatest that there is room for.
fn signed(number: u64) -> i64 {
    i64::try_from(number.min(WEIGHT_LIMIT)).unwrap_or(i64::MAX)
}
