//! Pages of Markdown, as far as tests ask about them: headings, what is between them, blocks of code, links, figures.

use std::collections::{BTreeMap, BTreeSet};

/// A page.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Page {
    /// What comes before the first heading, and then a section for each.
    pub sections: Vec<Section>,
}

/// What is below one heading, up to the next, whatever its level.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Section {
    /// 1 for the title, 0 for what comes before any heading.
    pub level: usize,
    /// The heading as it is written.
    pub heading: String,
    /// Everything but blocks of code, the heading among it.
    pub prose: String,
    /// Blocks of code in their order.
    pub blocks: Vec<Block>,
}

/// A fenced block of code.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Block {
    /// The word after the fence: `console`, `yaml`, or nothing.
    pub language: String,
    /// What is between the fences.
    pub lines: Vec<String>,
}

impl Page {
    /// Reads a page. A fence that nobody closes goes to the end.
    pub fn read(text: &str) -> Self {
        let mut sections = vec![Section::default()];
        let mut fence: Option<&str> = None;
        for line in text.lines() {
            let Some(section) = sections.last_mut() else {
                break;
            };
            if let Some(mark) = fence {
                if line.trim() == mark {
                    fence = None;
                } else if let Some(block) = section.blocks.last_mut() {
                    block.lines.push(line.to_owned());
                }
            } else if let Some(language) = line.trim_start().strip_prefix("```") {
                fence = Some("```");
                section.blocks.push(Block {
                    language: language.trim().to_owned(),
                    lines: Vec::new(),
                });
            } else if let Some((level, heading)) = heading(line) {
                sections.push(Section {
                    level,
                    heading: heading.to_owned(),
                    prose: format!("{heading}\n"),
                    blocks: Vec::new(),
                });
            } else {
                section.prose += line;
                section.prose.push('\n');
            }
        }
        Self { sections }
    }

    /// The names by which its headings are linked to, as GitHub and mdBook make them.
    pub fn anchors(&self) -> BTreeSet<String> {
        let mut met: BTreeMap<String, usize> = BTreeMap::new();
        let headings = self.sections.iter().filter(|section| section.level > 0);
        headings
            .map(|section| {
                let name = anchor(&section.heading);
                let times = met.entry(name.clone()).or_default();
                *times += 1;
                match *times {
                    1 => name,
                    again => format!("{name}-{}", again - 1),
                }
            })
            .collect()
    }

    /// What it links to, pictures included.
    pub fn links(&self) -> Vec<&str> {
        let prose = self.sections.iter().map(|section| &*section.prose);
        prose.flat_map(links).collect()
    }
}

impl Section {
    /// The numbers of its text, in the order of their size as text: another language has another order of words.
    pub fn figures(&self) -> Vec<String> {
        let mut text = String::new();
        let mut rest = &*self.prose;
        // Where a link leads to is no figure.
        while let Some((before, after)) = rest.split_once("](") {
            text += before;
            text.push(']');
            rest = after.split_once(')').map_or("", |(_, after)| after);
        }
        text += rest;
        let mut found: Vec<String> = text
            .split(|letter: char| !(letter.is_ascii_digit() || letter == '.' || letter == ','))
            .map(|number| number.trim_matches(['.', ',']).to_owned())
            .filter(|number| !number.is_empty())
            .collect();
        found.sort();
        found
    }
}

fn heading(line: &str) -> Option<(usize, &str)> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    let heading = text.strip_prefix(' ')?;
    (1..=6).contains(&level).then(|| (level, heading.trim()))
}

/// The name by which a heading is linked to.
pub fn anchor(heading: &str) -> String {
    // Of a link its text.
    let mut text = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        text += before;
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text += rest;
    let kept = text.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter.is_alphanumeric().then_some(letter),
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// What a text links to, but for what is between backquotes.
fn links(prose: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (place, _) in prose.match_indices("](") {
        let line = prose[..place].rfind('\n').map_or(0, |end| end + 1);
        if prose[line..place].matches('`').count() % 2 == 1 {
            continue;
        }
        let after = &prose[place + 2..];
        if let Some(end) = after.find(')') {
            found.push(&after[..end]);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "before\n\n# Title\n\nsee [it](other.md#a-b) and `[no](link)`, 1.5 % of 170,000.\n\n\
                        ```console\n$ echo '# no heading 7'\n```\n\n## A `b`, c\n\n## A b c\n\n## [Peers](tcp.md) 2\n";

    #[test]
    fn a_page_is_taken_apart() {
        let page = Page::read(PAGE);
        let headings: Vec<(usize, &str)> = page
            .sections
            .iter()
            .map(|section| (section.level, &*section.heading))
            .collect();
        let expected = [
            (0, ""),
            (1, "Title"),
            (2, "A `b`, c"),
            (2, "A b c"),
            (2, "[Peers](tcp.md) 2"),
        ];
        assert_eq!(headings, expected);
        let title = &page.sections[1];
        assert_eq!(title.blocks.len(), 1);
        assert_eq!(title.blocks[0].language, "console");
        assert_eq!(title.blocks[0].lines, ["$ echo '# no heading 7'"]);
        assert_eq!(title.figures(), ["1.5", "170,000"]);
        assert_eq!(page.links(), ["other.md#a-b", "tcp.md"]);
    }

    #[test]
    fn anchors_are_those_of_github() {
        let anchors: Vec<String> = Page::read(PAGE).anchors().into_iter().collect();
        assert_eq!(anchors, ["a-b-c", "a-b-c-1", "peers-2", "title"]);
        assert_eq!(anchor("-o json"), "-o-json");
        assert_eq!(anchor("开销预算 (1 %)"), "开销预算-1-");
    }
}
