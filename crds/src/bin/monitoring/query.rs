//! What PromQL there is more than once.

/// Which target a series is about.
pub const TARGET: &str = "cluster, namespace, pod, container, ckbprobe";

/// How much a counter grew, of series too that began meanwhile: those begin with what is counted, and `increase` would not see the first.
/// Of them it is all that there is.
pub fn grown(counter: &str, within: &str) -> String {
    format!("(({counter} unless {counter} offset {within}) or increase({counter}[{within}]))")
}

/// A quantile of a histogram's values, for each of these labels.
pub fn quantile(quantile: f64, histogram: &str, by: &str, within: &str) -> String {
    format!("histogram_quantile({quantile}, sum by ({by}, le) (rate({histogram}[{within}])))")
}

/// A metric of the targets that a dashboard's variables choose, and with these matchers more.
pub fn chosen(metric: &str, more: &str) -> String {
    let and = if more.is_empty() { "" } else { ", " };
    format!(
        "{metric}{{cluster=~\"$cluster\", namespace=~\"$namespace\", pod=~\"$pod\"{and}{more}}}"
    )
}

/// The greatest value that this metric has of any of these targets.
pub fn most(metric: &str) -> String {
    format!("max({})", chosen(metric, ""))
}

/// The same of each pod.
pub fn most_of_pods(metric: &str) -> String {
    format!("max by (namespace, pod) ({})", chosen(metric, ""))
}

/// A metric of an agent or of the operator, which are no target.
pub fn of_cluster(metric: &str) -> String {
    format!("{metric}{{cluster=~\"$cluster\"}}")
}

/// Its rate, within what the dashboard's scale asks for.
pub fn rate(series: &str) -> String {
    format!("rate({series}[$__rate_interval])")
}
