//! docs/ as a book: each page is in it once, and what a page links to is there, to the heading.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

use ckb_probe_kubectl::Program;
use ckb_probe_tests::{fixture::repository, pages::Page};
use clap::Parser as _;

/// What is in the book, and in which order.
const SUMMARY: &str = "SUMMARY.md";

/// Pages beside docs/ that lead into it.
const BESIDE: [&str; 6] = [
    "README.md",
    "README.zh-CN.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "SUPPORT.md",
];

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files of a folder, at any depth, whose names end in this.
fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, end));
        } else if path.to_string_lossy().ends_with(end) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A path without `..`, as a browser has it.
fn straight(path: &Path) -> PathBuf {
    let mut straight = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                straight.pop();
            }
            Component::CurDir => {}
            part => straight.push(part),
        }
    }
    straight
}

#[test]
fn each_page_is_in_the_book_once_and_each_entry_is_a_page() {
    let docs = repository().join("docs");
    let summary = Page::read(&read(&docs.join(SUMMARY)));
    let mut entries: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for link in summary.links() {
        *entries.entry(docs.join(link)).or_default() += 1;
    }
    let twice: Vec<&PathBuf> = entries
        .iter()
        .filter_map(|(path, times)| (*times > 1).then_some(path))
        .collect();
    assert!(twice.is_empty(), "twice in {SUMMARY}: {twice:?}");
    let entries: BTreeSet<PathBuf> = entries.into_keys().collect();
    let pages: BTreeSet<PathBuf> = files(&docs, ".md")
        .into_iter()
        .filter(|path| !path.ends_with(SUMMARY))
        .collect();
    let missing: Vec<_> = pages.difference(&entries).collect();
    assert!(missing.is_empty(), "not in {SUMMARY}: {missing:?}");
    let invented: Vec<_> = entries.difference(&pages).collect();
    assert!(invented.is_empty(), "{SUMMARY} names no page: {invented:?}");
    assert!(pages.len() > 50, "{}", pages.len());
}

/// What a page links to of ours, with the heading, if it names one.
fn leads_to<'a>(page: &Path, link: &'a str) -> Option<(PathBuf, Option<&'a str>)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = match link.split_once('#') {
        Some((path, heading)) => (path, Some(heading)),
        None => (link, None),
    };
    let target = match path {
        "" => page.to_path_buf(),
        path => straight(&page.parent()?.join(path)),
    };
    Some((target, heading))
}

#[test]
fn what_a_page_links_to_is_there_to_the_heading() {
    let mut pages = files(&repository().join("docs"), ".md");
    pages.extend(BESIDE.map(|name| repository().join(name)));
    let mut anchors: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    let mut broken = Vec::new();
    let mut headings = 0;
    for path in &pages {
        let page = Page::read(&read(path));
        for link in page.links() {
            let Some((target, heading)) = leads_to(path, link) else {
                continue;
            };
            let is_page = target.extension().is_some_and(|end| end == "md");
            let is_there = target.exists()
                && heading.is_none_or(|heading| {
                    headings += 1;
                    let anchors = anchors
                        .entry(target.clone())
                        .or_insert_with(|| Page::read(&read(&target)).anchors());
                    !is_page || anchors.contains(heading)
                });
            if !is_there {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "these lead nowhere: {broken:#?}");
    assert!(headings > 100, "{headings}");
}

/// The words of a command that pages tell to type, up to a pipe, a comment or another command.
fn words(line: &str) -> Option<Vec<&str>> {
    let line = line.trim_start().trim_start_matches("$ ");
    let begin = line.strip_prefix("watch ").unwrap_or(line);
    let rest = begin.strip_prefix("kubectl ckbprobe ")?;
    let ends = ["#", "|", ">", "&&", "\\"];
    let words = rest.split_whitespace();
    Some(words.take_while(|word| !ends.contains(word)).collect())
}

#[test]
fn what_is_typed_of_the_plugin_is_understood() {
    let mut pages = files(&repository().join("docs"), ".md");
    pages.extend(BESIDE.map(|name| repository().join(name)));
    let mut typed = 0;
    for path in &pages {
        let page = Page::read(&read(path));
        let blocks = page.sections.iter().flat_map(|section| &section.blocks);
        for line in blocks.flat_map(|block| &block.lines) {
            let Some(words) = words(line) else { continue };
            typed += 1;
            let understood = Program::try_parse_from([&["kubectl ckbprobe"], &words[..]].concat());
            if let Err(error) = understood {
                panic!("{}: {line}\n{error}", path.display());
            }
        }
    }
    assert!(typed > 10, "{typed}");
}

/// The values of an attribute in HTML that a program wrote.
fn values<'a>(html: &'a str, attribute: &str) -> Vec<&'a str> {
    let begin = format!(" {attribute}=\"");
    let parts = html.split(&*begin).skip(1);
    parts.filter_map(|part| part.split('"').next()).collect()
}

/// Of what `make book` wrote, which runs it.
#[test]
#[ignore = "it is of target/book, which `make book` writes"]
fn what_the_book_links_to_is_in_it_to_the_heading() {
    let book = repository().join("target/book");
    let mut names: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    let pages = files(&book, ".html");
    for path in &pages {
        let html = read(path);
        let ids = values(&html, "id").into_iter().map(str::to_owned);
        names.insert(path.clone(), ids.collect());
    }
    let mut broken = BTreeSet::new();
    let mut looked_at = 0;
    for path in &pages {
        // All of the book on one page, and what is shown of an address that is not there: both have links from elsewhere.
        if path.ends_with("print.html") || path.ends_with("404.html") {
            continue;
        }
        let html = read(path);
        for link in [values(&html, "href"), values(&html, "src")].concat() {
            let Some((target, heading)) = leads_to(path, link).filter(|_| !link.is_empty()) else {
                continue;
            };
            looked_at += 1;
            let heading = heading.filter(|heading| !heading.is_empty());
            let is_there = target.exists()
                && heading.is_none_or(|heading| {
                    names.get(&target).is_none_or(|ids| ids.contains(heading))
                });
            if !is_there {
                broken.insert(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "these lead nowhere: {broken:#?}");
    assert!(pages.len() > 50 && looked_at > 1000, "{looked_at}");
}
