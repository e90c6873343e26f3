//! The probe kinds. A new one is a folder here, a field of [`crate::Probe`], and a folder in the agent.

pub mod rocksdb;
