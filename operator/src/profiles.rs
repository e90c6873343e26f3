//! Profiles: of the parts that agents write, one CkbProfile for each window of a CkbProbe's probe, and no more of them than it keeps.
//!
//! [`rows`] is what the API has of both, without their stacks. [`plan`] says what to do about it and [`merge`] makes one profile of
//! parts: plain functions. [`publish`] carries out, one thing at a time, so that stacks of no more than one profile and one part are
//! in memory; [`push`] hands what was published to whoever collects profiles.

pub mod merge;
pub mod plan;
pub mod publish;
pub mod push;
pub mod rows;
