//! Profiles as text and as pictures.

#[cfg(feature = "render")]
mod colours;
#[cfg(feature = "render")]
mod compared;
mod diff;
#[cfg(feature = "render")]
mod page;
#[cfg(feature = "render")]
mod picture;
#[cfg(feature = "render")]
mod speedscope;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, str::FromStr};

pub use diff::Difference;
#[cfg(feature = "render")]
pub use picture::{RenderError, diff_html, diff_svg, html, svg};
#[cfg(feature = "render")]
pub use speedscope::speedscope;

use crate::{Frame, Stack, Stacks, WEIGHT_LIMIT, categories::category, text::shown};

/// What is below all of a stack's functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// The thread's name.
    #[default]
    Thread,
    /// The process that was profiled.
    Target,
    /// The part of CKB.
    Category,
    /// Nothing but functions.
    Nothing,
}

impl FromStr for By {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "thread" => Ok(Self::Thread),
            "target" => Ok(Self::Target),
            "heading" => Ok(Self::Category),
            "nothing" => Ok(Self::Nothing),
            _ => Err("there are thread, target, heading and nothing".to_owned()),
        }
    }
}

/// What is shown of a profile.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The place of the sample type.
    pub place: usize,
    /// What is below all functions.
    pub by: By,
}

/// The stacks as text: one on each line, functions between semicolons, the outermost first, and a number behind them. It is
/// what flamegraph.pl, inferno and speedscope read.
pub fn folded(stacks: &Stacks, view: View) -> String {
    let mut text = String::new();
    for (stack, weight) in lines(stacks, view) {
        text += &format!("{stack} {weight}\n");
    }
    text
}

/// What goes beyond the limit of a total is lost here too, and of the lightest.
fn lines(stacks: &Stacks, view: View) -> BTreeMap<String, u64> {
    let mut lines = BTreeMap::new();
    let mut left = WEIGHT_LIMIT;
    for stack in stacks.sorted() {
        let weight = stack.weights.get(view.place).copied().unwrap_or_default();
        let weight = weight.min(left);
        left -= weight;
        if weight > 0 {
            *lines.entry(line(&stack, view.by)).or_default() += weight;
        }
    }
    lines
}

fn line(stack: &Stack, by: By) -> String {
    let below = match by {
        By::Thread => stack.thread,
        By::Target => stack.target,
        By::Category => category(stack).as_str(),
        By::Nothing => "",
    };
    let mut frames = Vec::with_capacity(stack.frames.len() + 3);
    if !below.is_empty() {
        frames.push(text(below));
    }
    if !stack.state.is_empty() {
        frames.push(text(&format!("[{}]", stack.state)));
    }
    frames.extend(stack.frames.iter().map(frame_text));
    if !stack.wait.is_empty() {
        frames.push(text(&format!("[waits: {}]", stack.wait)));
    }
    if frames.is_empty() {
        frames.push("[unknown]".to_owned());
    }
    // A number behind a space would be taken for a weight, and this sign at the beginning for that of a remark.
    if let Some(last) = frames.last_mut()
        && let Some((before, end)) = last.rsplit_once(' ')
        && end
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        *last = format!("{before}_{end}");
    }
    let line = frames.join(";");
    if line.starts_with('#') {
        format!("_{line}")
    } else {
        line
    }
}

/// The kernel's functions have perf's mark.
fn frame_text(frame: &Frame) -> String {
    let name = if frame.name.is_empty() {
        "[unknown]"
    } else {
        frame.name
    };
    let mark = if frame.is_kernel() { "_[k]" } else { "" };
    text(name) + mark
}

/// A name is one word of a line, and no control character of a terminal or a browser. (`[u8; 32]` becomes `[u8: 32]`.)
fn text(name: &str) -> String {
    let clean = |letter: char| match letter {
        ';' => ':',
        _ => shown(letter),
    };
    let name = name.trim();
    let clean = name.chars().map(clean).collect::<String>();
    if clean.is_empty() {
        "[unknown]".to_owned()
    } else {
        clean
    }
}
