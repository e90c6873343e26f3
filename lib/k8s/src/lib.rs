//! How operator and agent meet the network.
//!
//! The way out: [`client`], by which a dead API server is noticed, and [`account`], by which a pod knows it. The ways in: [`listener`], which serves pages to anybody who
//! can connect and lets none of them keep others out, and [`secure`], which asks the API server who they are.

pub mod account;
pub mod client;
mod connections;
pub mod listener;
pub mod secure;
