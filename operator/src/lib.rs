//! ckb-probe-operator
