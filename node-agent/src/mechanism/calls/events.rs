//! What is told of each call, or text, by itself: as it is listed, and not as it is counted.

use std::{collections::HashMap, sync::Arc};

use ckb_probe_traces::{Traceparent, zipkin};
use k8s_openapi::jiff::Timestamp;

use super::{
    super::{Detail, Event, GroupId, Keyed, RowId, stacks::Callers},
    Calls, Slot, operand,
};
use crate::{
    kernel::{SeenCall, SeenPayload, SlowCall},
    observe, text,
};

impl Calls {
    /// `callers`: of the calls whose stacks are known, by their numbers.
    pub(super) fn event(
        &mut self,
        seen: &SeenCall,
        callers: &mut HashMap<u32, Callers>,
    ) -> Option<Event> {
        let call = &seen.call;
        let family = self.probes.family(call.slot);
        let value = self.probes.value(call.slot);
        let slot = match (&family, &value) {
            (Some(family), _) => family.slot,
            (None, Some(value)) => value.slot,
            (None, None) => call.slot,
        } as usize;
        let Slot {
            told,
            arguments,
            stacks,
            span,
            ..
        } = self.slots.get(slot)?;
        let during = self
            .causes
            .iter()
            .filter(|cause| call.during & (1 << cause.number) != 0);
        let during = during.map(|cause| cause.name.to_string()).collect();
        let mut details = vec![("duration", Detail::Nanoseconds(call.duration_ns))];
        if told.bytes {
            details.push(("bytes", Detail::Bytes(call.bytes)));
        }
        if let Some(seen) = &seen.arguments {
            let kept = arguments.iter().zip(&seen.values).zip(&seen.texts);
            let kept = kept.map(|((kept, value), text)| kept.told(*value, text));
            details.push(("arguments", Detail::List(kept.collect())));
        }
        details.push(("during", Detail::List(during)));
        if let Some(span) = span.as_ref().filter(|span| span.key.is_some()) {
            let key = Keyed {
                name: span.key_name.clone(),
                number: call.bytes,
                began_on: call.began_on(),
            };
            details.push(("key", Detail::Keyed(key)));
        }
        if let Some(parent) = &seen.parent {
            let text = parent.split(|byte| *byte == 0).next();
            match Traceparent::of(text.unwrap_or_default()) {
                Some(parent) => details.push(("traceparent", Detail::Parent(parent))),
                None => self.misplaced[slot] += 1,
            }
        }
        if *stacks && call.stack > 0 {
            let untold = &mut self.untold[slot];
            match callers.remove(&call.stack) {
                Some(callers) => {
                    untold.frames += u64::from(!callers.complete);
                    details.push(("stack", Detail::Callers(Arc::new(callers))));
                }
                None => untold.stacks += 1,
            }
        }
        let of_value = value.map(|value| RowId {
            place: u64::from(call.slot),
            number: 0,
            text: operand::told(&value),
        });
        let of_family = family.map(|family| RowId {
            place: u64::from(call.slot),
            number: u64::from(family.id),
            text: family.name,
        });
        Some(Event {
            part: of_family.or(of_value),
            ..slow_call(call, self.first.offset(slot), self.booted, details)
        })
    }
}

/// What happened in this slot as a thread emitted a text; None where that is no spans.
pub(super) fn emitted(seen: &SeenPayload, group: GroupId, booted: Timestamp) -> Option<Event> {
    let time = observe::since_boot(booted, seen.head.time_ns);
    let now_ns = u64::try_from(time.as_nanosecond()).unwrap_or_default();
    let spans = zipkin::read(&seen.text, now_ns).ok()?;
    if spans.is_empty() {
        return None;
    }
    let lasted = spans.iter().map(|span| span.end_ns - span.start_ns);
    Some(Event {
        time,
        group,
        row: None,
        part: None,
        thread: seen.head.thread,
        thread_name: text::of_padded(&seen.head.thread_name),
        weight: lasted.max().unwrap_or_default(),
        details: vec![("spans", Detail::Emitted(spans.into()))],
    })
}

/// A slow call, of a group that has one row.
pub(in super::super) fn slow_call(
    call: &SlowCall,
    group: GroupId,
    booted: Timestamp,
    details: Vec<(&'static str, Detail)>,
) -> Event {
    Event {
        time: observe::since_boot(booted, call.time_ns),
        group,
        row: None,
        part: None,
        thread: call.thread,
        thread_name: text::of_padded(&call.thread_name),
        weight: call.duration_ns,
        details,
    }
}
