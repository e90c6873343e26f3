//! What the tests stand on: fixtures whose calls are known, and a local cluster to deploy to.

pub mod fixture;
