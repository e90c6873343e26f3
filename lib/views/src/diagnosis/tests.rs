//! Each kind of breakage, on objects as the API server gives them.

mod broken;
mod hosts;
mod objects;

/// A link that is written out leads to a heading of the page, as GitHub makes anchors of them.
#[test]
fn each_link_leads_to_a_heading() {
    let page = include_str!("../../../../docs/troubleshooting.md");
    let anchors: Vec<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## ").or(line.strip_prefix("### ")))
        .map(|title| title.to_lowercase().replace(' ', "-").replace(',', ""))
        .collect();
    let mut links = 0;
    for source in [
        include_str!("cluster.rs"),
        include_str!("host.rs"),
        include_str!("installation.rs"),
        include_str!("probe.rs"),
    ] {
        for (at, _) in source.match_indices(".see(\"") {
            let anchor = source[at + 6..].split('"').next().unwrap();
            assert!(
                anchors.iter().any(|one| one == anchor),
                "there is no {anchor}"
            );
            links += 1;
        }
    }
    assert!(links > 15, "{links}");
}
