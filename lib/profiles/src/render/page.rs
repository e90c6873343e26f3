//! A page around a drawing.

use super::picture::unit;
use crate::{
    SampleType,
    functions::{Function, Top},
    text::html,
};

const PAGE: &str = include_str!("page.html");

/// A page that needs nothing but itself.
pub fn page(title: &str, svg: &str, tables: &str) -> String {
    // A page has no declaration of its own for what is drawn in it.
    let svg = svg.find("<svg").map_or(svg, |at| &svg[at..]);
    let mut page = String::with_capacity(PAGE.len() + svg.len() + tables.len());
    let mut rest = PAGE;
    // In one pass: what is put in is not looked at again.
    for (mark, text) in [
        ("{{title}}", html(title).as_str()),
        ("{{svg}}", svg),
        ("{{tables}}", tables),
    ] {
        if let Some((before, after)) = rest.split_once(mark) {
            page += before;
            page += text;
            rest = after;
        }
    }
    page + rest
}

/// The functions that are seen most. A click on one seeks it in the drawing.
pub fn tables(top: &Top, of: &SampleType) -> String {
    let tables = [
        (
            "Itself",
            "seen while it was the one that ran or waited",
            &top.by_self,
        ),
        (
            "Total",
            "seen while it, or what it called, ran or waited",
            &top.by_total,
        ),
    ];
    let mut out = String::new();
    for (place, (title, about, functions)) in tables.into_iter().enumerate() {
        out += &format!("<table><caption>{title}: {about}</caption>\n");
        for function in functions {
            let weight = if place == 0 {
                function.itself
            } else {
                function.total
            };
            out += &row(function, weight, top.of, of);
        }
        out += "</table>\n";
    }
    out
}

fn row(function: &Function, weight: u64, all: u64, of: &SampleType) -> String {
    let (factor, unit) = unit(of);
    let percent = 100.0 * weight as f64 / all.max(1) as f64;
    let amount = weight as f64 * factor;
    let (name, module) = (html(&function.name), html(&function.module));
    format!(
        "<tr><td>{percent:.1} %</td><td>{amount:.0} {unit}</td><td><button type=\"button\">{name}</button></td><td>{module}</td></tr>\n",
        unit = html(unit)
    )
}
