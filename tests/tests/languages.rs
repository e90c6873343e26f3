//! What is in English and in Chinese says the same: the same sections, the same blocks of code, the same tables, the same figures.

use std::{collections::BTreeSet, fs};

use ckb_probe_tests::{
    fixture::repository,
    pages::{Page, Section},
};

/// Pages that are in Chinese from the first heading to the last: the English one, and ours.
const WHOLE: [(&str, &str); 4] = [
    ("README.md", "README.zh-CN.md"),
    ("docs/tutorial.md", "docs/zh-CN/tutorial.md"),
    ("docs/install.md", "docs/zh-CN/install.md"),
    ("docs/overhead.md", "docs/zh-CN/overhead.md"),
];

/// Pages of which some sections are in Chinese, those under a heading that is a word of the program: `### Silent`, `## try`.
const EXCERPTS: [(&str, &str); 2] = [
    ("docs/command-line.md", "docs/zh-CN/command-line.md"),
    ("docs/troubleshooting.md", "docs/zh-CN/troubleshooting.md"),
];

/// Ours that is a page by itself: it leads to the others.
const OWN: &str = "docs/zh-CN/README.md";

fn page(path: &str) -> Page {
    let path = repository().join(path);
    let text = fs::read_to_string(&path);
    Page::read(&text.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// In what a section differs from the same in another language, if it does.
fn difference(english: &Section, chinese: &Section) -> Option<String> {
    let rows = |section: &Section| {
        let lines = section.prose.lines();
        lines.filter(|line| line.starts_with('|')).count()
    };
    let told = if english.level != chinese.level {
        format!("level {} and {}", english.level, chinese.level)
    } else if english.blocks != chinese.blocks {
        format!("blocks {:#?} and {:#?}", english.blocks, chinese.blocks)
    } else if rows(english) != rows(chinese) {
        format!("{} rows of tables and {}", rows(english), rows(chinese))
    } else if english.figures() != chinese.figures() {
        format!(
            "figures {:?} and {:?}",
            english.figures(),
            chinese.figures()
        )
    } else {
        return None;
    };
    Some(format!(
        "`{}` and `{}`: {told}",
        english.heading, chinese.heading
    ))
}

/// In what pages differ that are whole in both languages.
fn differences(english: &Page, chinese: &Page) -> Vec<String> {
    let [left, right] = [english, chinese].map(|page| page.sections.len());
    if left != right {
        let headings = |page: &Page| -> Vec<String> {
            let sections = page.sections.iter();
            sections.map(|section| section.heading.clone()).collect()
        };
        return vec![format!(
            "{:?} and {:?}",
            headings(english),
            headings(chinese)
        )];
    }
    let pairs = english.sections.iter().zip(&chinese.sections);
    pairs
        .filter_map(|(english, chinese)| difference(english, chinese))
        .collect()
}

/// In what an excerpt differs: of sections with a heading that is no word of the program nothing is asked, and they have no figures.
fn differences_of_excerpt(english: &Page, chinese: &Page) -> Vec<String> {
    let mut found = Vec::new();
    let mut same = 0;
    for section in chinese.sections.iter().filter(|section| section.level > 1) {
        let heading = &section.heading;
        match english
            .sections
            .iter()
            .find(|other| other.heading == *heading)
        {
            Some(other) => {
                same += 1;
                found.extend(difference(other, section));
            }
            None if heading.is_ascii() => found.push(format!("`{heading}` is nowhere in English")),
            None if section.blocks.is_empty() && section.figures().is_empty() => {}
            None => found.push(format!(
                "`{heading}` has blocks or figures that nobody holds"
            )),
        }
    }
    if same < 4 {
        found.push(format!("{same} sections"));
    }
    found
}

#[test]
fn what_is_in_two_languages_says_the_same() {
    let mut found = Vec::new();
    let whole =
        WHOLE.map(|(english, chinese)| (chinese, differences(&page(english), &page(chinese))));
    let excerpts = EXCERPTS.map(|(english, chinese)| {
        (
            chinese,
            differences_of_excerpt(&page(english), &page(chinese)),
        )
    });
    for (path, differences) in whole.into_iter().chain(excerpts) {
        found.extend(differences.into_iter().map(|one| format!("{path}: {one}")));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn each_page_of_ours_is_held_against_another_and_leads_to_it() {
    let folder = repository().join("docs/zh-CN");
    let there: BTreeSet<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            format!(
                "docs/zh-CN/{}",
                entry.unwrap().file_name().to_string_lossy()
            )
        })
        .collect();
    let pairs = || WHOLE.iter().chain(&EXCERPTS);
    let held: BTreeSet<String> = pairs()
        .map(|(_, chinese)| *chinese)
        .filter(|chinese| chinese.starts_with("docs/"))
        .chain([OWN])
        .map(str::to_owned)
        .collect();
    assert_eq!(there, held);
    for (english, chinese) in pairs() {
        let [from, to] = [english, chinese].map(|path| page(path));
        let name = |path: &str| path.rsplit('/').next().map(str::to_owned).unwrap();
        let leads =
            |page: &Page, target: &str| page.links().iter().any(|link| link.ends_with(target));
        assert!(
            leads(&to, &name(english)),
            "{chinese} does not lead to {english}"
        );
        assert!(
            leads(&from, &name(chinese)),
            "{english} does not lead to {chinese}"
        );
    }
}

#[test]
fn what_differs_is_found() {
    let english = "# Cost\n\nIt takes 1.5 % of 3 cores.\n\n## More\n\n| a | 2 |\n\n```\nls\n```\n";
    let found = |chinese: &str| differences(&Page::read(english), &Page::read(chinese));
    let same = "# 开销\n\n3 核的 1.5%。\n\n## 更多\n\n| 甲 | 2 |\n\n```\nls\n```\n";
    assert_eq!(found(same), [""; 0]);
    for (from, to, told) in [
        ("1.5%", "1.6%", "figures"),
        ("3 核", "三核", "figures"),
        ("ls\n", "ls -l\n", "blocks"),
        ("| 甲 | 2 |\n", "| 甲 | 2 |\n| 乙 | |\n", "rows"),
        ("## 更多", "### 更多", "level"),
        ("## 更多", "更多", "Cost"),
    ] {
        let found = found(&same.replace(from, to));
        assert!(
            matches!(&found[..], [one] if one.contains(told)),
            "{to}: {found:?}"
        );
    }
    let excerpt = |chinese: &str| {
        differences_of_excerpt(&page("docs/troubleshooting.md"), &Page::read(chinese))
    };
    let few = "# 排查\n\n## 目标\n\n### Nowhere\n\n### Firing\n\n9\n";
    let told = excerpt(few).join("\n");
    for part in [
        "`Nowhere` is nowhere",
        "figures [] and [\"9\"]",
        "1 sections",
    ] {
        assert!(told.contains(part), "{told}");
    }
}
