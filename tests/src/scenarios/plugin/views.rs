//! What the views of a CkbProbe show of a program whose calls are known: each of them the same calls.

use ckb_probe_views::document::{Distribution, TopTarget, View};

use super::{asked, documents};
use crate::scenarios::prelude::*;

/// The row of the calls that the fixture makes.
const ROW: &str = "Get";

/// Three report intervals are complete in it, wherever it begins.
const WATCHED: &str = "9s";
const INTERVALS: usize = 3;

/// From one report to the next, and how many calls are made in a second, which waits between two of them.
const INTERVAL: f64 = 2.0;
const RATE: f64 = 20.0;

/// `top`, `histogram` and `heatmap` of a CkbProbe whose target makes these calls.
pub(super) async fn agree(scene: &Scene<'_>, name: &str, pod: &str) -> Result<()> {
    let top = of_top(scene, name, pod).await?;
    let row = top.rows.iter().find(|row| row.row == ROW);
    let rate = row.and_then(|row| row.per_second.as_deref()?.parse::<f64>().ok());
    calls(
        scene,
        "calls a second that top shows",
        rate.unwrap_or(f64::NAN),
        RATE,
    );
    let error = row.and_then(|row| row.error.clone());
    expect(error.is_none(), "no error of what is all seen", || {
        format!("{error:?}")
    })?;

    let shown = asked(scene, "histogram", &[name, "--row", ROW, "-o", "json"], &[]).await?;
    let shown = distributions(&shown.printed);
    let [histogram] = shown.as_slice() else {
        return Err(Failure::missing(format!(
            "one histogram of {ROW} in {shown:?}"
        )));
    };
    calls(
        scene,
        "calls that a histogram shows",
        histogram.count as f64,
        RATE * INTERVAL,
    );

    let watched = ["--for", WATCHED, "-o", "json"];
    let heatmap = asked(scene, "heatmap", &[name, ROW], &watched).await?;
    scene.equal("exit code of a heatmap", heatmap.code, 0);
    let shown = distributions(&heatmap.printed);
    scene.figure(
        "intervals of a heatmap",
        shown.len(),
        "",
        Bound::AtLeast(INTERVALS as f64),
    );
    for one in &shown {
        calls(
            scene,
            "calls that an interval of a heatmap shows",
            one.count as f64,
            RATE * INTERVAL,
        );
    }
    let moments: BTreeSet<_> = shown.iter().map(|one| &one.time).collect();
    scene.equal(
        "intervals that a heatmap shows twice",
        shown.len() - moments.len(),
        0,
    );
    let bars = |one: &Distribution| one.bars.iter().map(|bar| bar.count).sum::<u64>();
    let torn = shown.iter().chain([histogram]);
    let torn = torn.filter(|one| bars(one) != one.count).count();
    scene.equal(
        "distributions whose bars do not add up to their count",
        torn,
        0,
    );
    Ok(())
}

/// The target as `top` shows it, as a line for programs; and for people its row in a picture.
async fn of_top(scene: &Scene<'_>, name: &str, pod: &str) -> Result<TopTarget> {
    let ended = asked(scene, "top", &[name, "-l", "app=healthy"], &["-o", "json"]).await?;
    scene.equal(
        "exit code of top where something is measured",
        ended.code,
        0,
    );
    let shown = documents(&ended.printed).find_map(|document| match document.view {
        View::Top(top) => Some(top.targets),
        _ => None,
    });
    let mut targets = shown.unwrap_or_default();
    expect(
        targets.len() == 1 && targets[0].target.starts_with(pod) && targets[0].reason.is_none(),
        format!("{pod} alone, measured"),
        || format!("{targets:?}"),
    )?;
    let picture = asked(scene, "top", &[name, "--once"], &[]).await?.printed;
    expect(
        picture.lines().any(|line| line.contains(ROW)) && !picture.contains('\x1b'),
        format!("a line of {ROW}, and nothing that moves a cursor"),
        || picture.clone(),
    )?;
    let nobody = asked(scene, "top", &[name, "-l", "app=nobody"], &["--once"]).await?;
    scene.equal("exit code of top of nobody", nobody.code, 1);
    Ok(targets.remove(0))
}

/// A third of what is expected is let a busy machine make too late, or at once after it did.
fn calls(scene: &Scene<'_>, what: &str, shown: f64, expected: f64) {
    let off = (shown / expected - 1.0).abs();
    let unit = format!("of {expected}, off by a part of it: {shown}");
    scene.figure(what, off, &unit, Bound::AtMost(1.0 / 3.0));
}

fn distributions(printed: &str) -> Vec<Distribution> {
    let shown = documents(printed).filter_map(|document| match document.view {
        View::Distribution(one) => Some(one),
        _ => None,
    });
    shown.collect()
}
