//! ckb-probe-tests
