//! Writes what watches ckb-probe and what it measures: the rules of alerts, which the chart makes a PrometheusRule of, and dashboards for
//! Grafana, into one directory, and their reference as Markdown into another. `make crds` commits it and `make lint` compares.

use std::{error::Error, fs, path::PathBuf};

mod alerts;
mod dashboards;
mod query;
mod reference;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(chart), Some(docs)) = (arguments.next(), arguments.next()) else {
        return Err("usage: monitoring DIRECTORY DIRECTORY-OF-THE-REFERENCE".into());
    };
    let (groups, dashboards) = (alerts::all(), dashboards::all());
    let folder = chart.join("dashboards");
    fs::create_dir_all(&folder)?;
    fs::create_dir_all(&docs)?;
    fs::write(chart.join("alerts.yaml"), alerts::yaml(&groups)?)?;
    for dashboard in &dashboards {
        let path = folder.join(format!("{}.json", dashboard.name));
        let text = serde_json::to_string_pretty(&dashboard.json())?;
        fs::write(path, text + "\n")?;
    }
    let page = reference::page(&groups, &dashboards)?;
    fs::write(docs.join("alerts.md"), page)?;
    Ok(())
}
