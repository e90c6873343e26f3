//! Rules, dashboards and runbooks: that each alert is raised when it should be and not otherwise, that each query reads what there is, and
//! that values of the chart do what they say. scripts/setup.sh unit and cluster install promtool, Prometheus and helm.

mod cases;
mod pages;
mod panels;
mod queries;
mod rules;
mod values;
