//! A report as one page that needs nothing but itself: no script, and a policy that lets nothing be fetched.

use std::fmt::Write as _;

use ckb_probe_profiles::text::html;

use crate::{
    content::{Block, Content, Table},
    draw,
};

const STYLE: &str = include_str!("style.css");

/// The page.
pub fn page(content: &Content) -> String {
    let mut out = String::new();
    let title = html(&content.title);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'\">\
         <meta name=\"viewport\" content=\"width=device-width\"><meta name=\"color-scheme\" content=\"light dark\">\
         <title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n<nav><ul>"
    );
    for (place, section) in content.sections.iter().enumerate() {
        let _ = write!(
            out,
            "<li><a href=\"#s{place}\">{}</a></li>",
            html(&section.title)
        );
    }
    out.push_str("</ul></nav>\n");
    for (place, section) in content.sections.iter().enumerate() {
        let _ = writeln!(
            out,
            "<section id=\"s{place}\"><h2>{}</h2>",
            html(&section.title)
        );
        for block in &section.blocks {
            block_of(&mut out, block);
        }
        out.push_str("</section>\n");
    }
    out + "</body></html>\n"
}

fn block_of(out: &mut String, block: &Block) {
    let figure = |title: &str, drawn: String| match drawn.is_empty() {
        true => String::new(),
        false => format!(
            "<figure><figcaption>{}</figcaption>{drawn}</figure>\n",
            html(title)
        ),
    };
    match block {
        Block::Text(text) => {
            let _ = writeln!(out, "<p>{}</p>", html(text));
        }
        Block::Table(table) => table_of(out, table),
        Block::Lines(lines) => *out += &figure(&lines.title, draw::lines(lines)),
        Block::Heat(heat) => *out += &figure(&heat.title, draw::heat(heat)),
        Block::Flames(name, profile) => *out += &figure(name, draw::flames(&profile.stacks)),
    }
}

fn table_of(out: &mut String, table: &Table) {
    let class = if table.numbers {
        " class=\"numbers\""
    } else {
        ""
    };
    let _ = write!(out, "<div class=\"wide\"><table{class}><thead><tr>");
    for head in &table.head {
        let _ = write!(out, "<th>{}</th>", html(head));
    }
    out.push_str("</tr></thead><tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for cell in row {
            let _ = write!(out, "<td>{}</td>", html(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}
