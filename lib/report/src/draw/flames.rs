//! Stacks as a flame graph that stands still: the outermost function below, each as wide as its share.
//!
//! `ckb-probe render` draws one to search and to zoom, which takes a script; here is none.

use std::{collections::BTreeMap, fmt::Write as _};

use ckb_probe_profiles::{Stacks, text::html};

const WIDTH: f64 = 900.0;
const ROW: usize = 15;

/// What is narrower is not drawn.
const NARROWEST: f64 = 1.0;

/// Nor what is deeper.
const DEEPEST: usize = 60;

/// About so wide is a letter.
const LETTER: f64 = 6.2;

#[derive(Default)]
struct Frame {
    weight: u64,
    calls: BTreeMap<String, Frame>,
}

/// The drawing; empty where there is nothing to draw.
pub fn flames(stacks: &Stacks) -> String {
    let place = stacks.shown();
    let mut root = Frame::default();
    for stack in stacks.iter() {
        let weight = stack.weights.get(place).copied().unwrap_or_default();
        if weight == 0 {
            continue;
        }
        root.weight = root.weight.saturating_add(weight);
        let mut frame = &mut root;
        let thread = std::iter::once(stack.thread).filter(|name| !name.is_empty());
        let names = thread.chain(stack.frames.iter().map(|frame| frame.name));
        for name in names.take(DEEPEST) {
            frame = frame.calls.entry(name.to_owned()).or_default();
            frame.weight = frame.weight.saturating_add(weight);
        }
    }
    if root.weight == 0 {
        return String::new();
    }
    let deep = depth(&root, root.weight);
    let mut out = String::new();
    let height = (deep + 1) * ROW;
    let _ = write!(
        out,
        "<svg class=\"flames\" role=\"img\" viewBox=\"0 0 {WIDTH} {height}\">"
    );
    draw(
        &mut out,
        "all",
        &root,
        &Drawn {
            all: root.weight,
            left: 0.0,
            deep: 0,
            height,
        },
    );
    out + "</svg>"
}

struct Drawn {
    all: u64,
    left: f64,
    deep: usize,
    height: usize,
}

fn wide(weight: u64, all: u64) -> f64 {
    WIDTH * weight as f64 / all as f64
}

fn depth(frame: &Frame, all: u64) -> usize {
    let calls = frame
        .calls
        .values()
        .filter(|call| wide(call.weight, all) >= NARROWEST);
    calls.map(|call| 1 + depth(call, all)).max().unwrap_or(0)
}

fn draw(out: &mut String, name: &str, frame: &Frame, at: &Drawn) {
    let wide_of = wide(frame.weight, at.all);
    let (x, y) = (at.left, at.height - (at.deep + 1) * ROW);
    let percent = 100.0 * frame.weight as f64 / at.all as f64;
    let shade = crc32fast::hash(name.as_bytes()) % 4;
    let _ = write!(
        out,
        "<g><title>{name} ({percent:.1} %)</title><rect class=\"f{shade}\" x=\"{x:.1}\" y=\"{y}\" width=\"{wide_of:.1}\" height=\"{ROW}\"/>",
        name = html(name)
    );
    let room = (wide_of / LETTER) as usize;
    if room > 3 {
        let short: String = match name.chars().count() > room {
            true => name.chars().take(room - 1).chain(['…']).collect(),
            false => name.to_owned(),
        };
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{}\">{}</text>",
            x + 2.0,
            y + ROW - 4,
            html(&short)
        );
    }
    out.push_str("</g>");
    let mut left = at.left;
    let mut calls: Vec<(&String, &Frame)> = frame.calls.iter().collect();
    calls.sort_by(|(a_name, a), (b_name, b)| b.weight.cmp(&a.weight).then(a_name.cmp(b_name)));
    for (name, call) in calls {
        let wide_of = wide(call.weight, at.all);
        if wide_of >= NARROWEST {
            draw(
                out,
                name,
                call,
                &Drawn {
                    left,
                    deep: at.deep + 1,
                    ..*at
                },
            );
        }
        left += wide_of;
    }
}
