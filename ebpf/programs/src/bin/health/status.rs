//! `rocksdb::Status`: `{code, subcode, severity, retryable, data_loss, scope, …: a byte each; text: a pointer}`. The text ends with NUL.

use ckb_probe_common::health::StatusHead;

use crate::read_user;

/// The codes, subcodes and severities that there are stay below these, with room for new ones.
const CODES: u8 = 24;
const SUBCODES: u8 = 32;
const SEVERITIES: u8 = 8;

/// A status as it is in the target's memory.
#[derive(Clone, Copy)]
pub struct Status {
    /// What it says.
    pub head: StatusHead,
    /// Where its text is; 0 for none.
    pub text: u64,
    /// Whether RocksDB takes it for an error that is to be got over: one that has a severity, or will have one, since it can be tried
    /// again.
    pub lasts: bool,
}

/// `rocksdb::IOStatus::IOErrorScope`: of one file, which is written once more.
const OF_A_FILE: u8 = 1;

impl Status {
    /// The one that is there. What can't be one is unknown, and has no text.
    #[inline(always)]
    pub fn at(address: u64) -> Self {
        let unknown = Self {
            head: StatusHead {
                is_unknown: 1,
                ..StatusHead::default()
            },
            text: 0,
            lasts: true,
        };
        let Some([head, text]) = read_user(address) else {
            return unknown;
        };
        let [code, subcode, severity, retryable, data_loss, scope, ..] = head.to_le_bytes();
        let is_one = code < CODES
            && subcode < SUBCODES
            && severity < SEVERITIES
            && retryable <= 1
            && data_loss <= 1;
        if !is_one {
            return unknown;
        }
        Self {
            head: StatusHead {
                code,
                subcode,
                severity,
                is_unknown: 0,
            },
            text,
            lasts: severity > 0 || retryable > 0 || scope == OF_A_FILE,
        }
    }

    /// Whether nothing failed.
    #[inline(always)]
    pub fn is_ok(&self) -> bool {
        self.head.is_unknown == 0 && self.head.code == 0
    }
}
