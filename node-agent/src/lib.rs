//! ckb-probe-agent
