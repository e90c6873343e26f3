//! What RocksDB says of its own health: errors of flushes and compactions, compactions that there is no room for, and writes that
//! are held back.

use ckb_probe_crds::{
    Figures,
    descriptor::Measure,
    kinds::rocksdb::{LASTING, LEVEL0_FILES, MEMTABLES, PENDING, PROBLEMS, STALLED, STALLS, row},
    report::NOTABLE,
};

use crate::{
    mechanism::{
        Detail, MOST_WEIGHT,
        health::{
            Decode, FamilyState, HealthEvent, HealthIncident, HealthKey, HealthReading, HealthRow,
            HealthSums, Judgement, StatusHead, Watched, held, role,
        },
    },
    observe::SymbolName::Demangled,
    text,
};

/// The functions that tell of it. In the order of their slots.
pub const FUNCTIONS: &[Watched] = &[
    watched(row::FAILED_COMPACTION, role::OUTCOME, "rocksdb::DBImpl::BackgroundCompaction"),
    watched(row::FAILED_FLUSH, role::OUTCOME, "rocksdb::DBImpl::BackgroundFlush"),
    watched(row::BACKGROUND_ERROR, role::ERROR, "rocksdb::EventHelpers::NotifyOnBackgroundError"),
    watched("Recovery", role::RECOVERY, "rocksdb::EventHelpers::NotifyOnErrorRecoveryEnd"),
    watched("StallCondition", role::JUDGE, "rocksdb::ColumnFamilyData::RecalculateWriteStallConditions"),
    watched("StallCause", role::VERDICT, "rocksdb::ColumnFamilyData::GetWriteStallConditionAndCause"),
    watched("Delay", role::DELAY, "rocksdb::WriteController::GetDelayToken"),
    watched("Stop", role::STOP, "rocksdb::WriteController::GetStopToken"),
    watched(row::STOPPED_BY_WRITE_BUFFERS, role::WAIT, "rocksdb::DBImpl::WriteBufferManagerStallWrites"),
    watched(row::NO_ROOM, role::ROOM, "rocksdb::SstFileManagerImpl::EnoughRoomForCompaction"),
    watched("Log", role::LOG, "rocksdb::Log"),
];

const fn watched(name: &'static str, role: u8, symbol: &'static str) -> Watched {
    Watched {
        name,
        role,
        symbol: Demangled(symbol),
    }
}

/// `rocksdb::BackgroundErrorReason`, from 7 on; before, there were the first of them.
const REASONS: [&str; 7] = [
    "Flush",
    "Compaction",
    "WriteCallback",
    "MemTable",
    "ManifestWrite",
    "FlushNoWAL",
    "ManifestWriteNoWAL",
];

/// `rocksdb::Status::Code`.
const CODES: [&str; 16] = [
    "Ok",
    "NotFound",
    "Corruption",
    "NotSupported",
    "InvalidArgument",
    "IOError",
    "MergeInProgress",
    "Incomplete",
    "ShutdownInProgress",
    "TimedOut",
    "Aborted",
    "Busy",
    "Expired",
    "TryAgain",
    "CompactionTooLarge",
    "ColumnFamilyDropped",
];

/// `rocksdb::Status::SubCode`.
const SUBCODES: [&str; 16] = [
    "",
    "MutexTimeout",
    "LockTimeout",
    "LockLimit",
    "NoSpace",
    "Deadlock",
    "StaleFile",
    "MemoryLimit",
    "SpaceLimit",
    "PathNotFound",
    "MergeOperandsInsufficientCapacity",
    "ManualCompactionPaused",
    "Overwritten",
    "TxnNotPrepared",
    "IOFenced",
    "MergeOperatorFailed",
];

/// `rocksdb::Status::Severity`.
const SEVERITIES: [&str; 5] = ["", "soft", "hard", "fatal", "unrecoverable"];

/// No failures, whatever returns them: the database is closed, a family is dropped, somebody else is at it.
const NO_FAILURES: [u8; 3] = [8, 11, 15];

/// A manual compaction that was paused has this subcode.
const PAUSED: u8 = 11;

/// What RocksDB writes to its log where there is no room for a compaction, as far as its numbers are concerned.
const NO_ROOM_LINE: [&str; 2] = ["free space [%", "needed headroom [%"];

/// From a hard error on, RocksDB takes no writes.
const HARD: u8 = 2;

/// What the functions of a process say, and what it means.
#[derive(Clone, Copy, Debug)]
pub struct RocksDbHealth;

/// What its causes are called by number. They are numbered anew in some versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbering {
    /// That of no cause is 0, and the others follow: up to 7.
    NoneFirst,
    /// That of no cause is 6, after all others: from 8 on.
    NoneLast,
}

impl Numbering {
    /// Families that are not held back tell it: their cause is none.
    fn of(read: &HealthReading) -> Option<Self> {
        let rows = read.rows.iter().map(|(key, _)| key.judgement);
        let mut numbers = rows
            .filter(|judged| judged.held == held::NOT && judged.has_cause != 0)
            .map(|judged| judged.cause);
        let first = numbers.next()?;
        match first {
            // Never two for the same process.
            _ if numbers.any(|other| other != first) => None,
            0 => Some(Self::NoneFirst),
            6 => Some(Self::NoneLast),
            _ => None,
        }
    }

    /// The cause of a judgement; None where it is not known.
    fn cause(self, judged: Judgement) -> Option<usize> {
        let number = usize::from(judged.cause);
        let place = match self {
            Self::NoneFirst => number.checked_sub(1)?,
            Self::NoneLast => number,
        };
        (judged.has_cause != 0 && place < CAUSES).then_some(place)
    }
}

/// Memtables, files of level 0, bytes that compactions have yet to rewrite.
const CAUSES: usize = 3;

/// The row of a judgement by which writes are held back.
fn held_back(judged: Judgement, numbering: Option<Numbering>) -> Option<&'static str> {
    let rows = match judged.held {
        held::DELAYED => row::DELAYED,
        held::STOPPED => row::STOPPED,
        _ => return None,
    };
    let cause = numbering.and_then(|numbering| numbering.cause(judged));
    Some(rows[cause.unwrap_or(CAUSES)])
}

impl Decode for RocksDbHealth {
    fn rows(&self, read: &HealthReading) -> Vec<HealthRow> {
        let numbering = Numbering::of(read);
        let mut rows: Vec<HealthRow> = Vec::new();
        for (key, sums) in &read.rows {
            let lasts = read.lasting == Some(*key);
            rows.extend(counted(key, *sums, lasts, numbering));
        }
        rows.extend(backlogs(&read.families));
        rows.sort_by(|a, b| (&a.row, &a.part).cmp(&(&b.row, &b.part)));
        // Several keys may have one name, such as those of causes that are not known.
        rows.dedup_by(|more, kept| {
            let same = more.row == kept.row && more.part == kept.part;
            if same {
                kept.figures.merge(&more.figures);
            }
            same
        });
        rows
    }

    fn event(&self, seen: &HealthEvent) -> Option<HealthIncident> {
        let key = &seen.key;
        let (row, part) = problem(key)?;
        let said = text::of_padded(&seen.text);
        let mut details = Vec::new();
        let part = match role_of(key)? {
            role::ROOM => {
                let name = super::family_name(part.0, &part.1);
                details.push(("columnFamily", Detail::Named(name)));
                // What is no such line has other numbers.
                if NO_ROOM_LINE.iter().all(|words| said.contains(words)) {
                    let number = |bytes| Detail::Number(i64::try_from(bytes).unwrap_or(i64::MAX));
                    let [free, needed] = seen.numbers.map(number);
                    details.push(("freeBytes", free));
                    details.push(("neededBytes", needed));
                }
                Some(part)
            }
            _ => {
                let error = match said.is_empty() {
                    true => part.1,
                    false => format!("{}: {said}", part.1),
                };
                details.push(("error", Detail::Text(error)));
                if seen.duration_ns > 0 {
                    details.push(("duration", Detail::Nanoseconds(seen.duration_ns)));
                }
                None
            }
        };
        let severity = key.status.severity;
        if role_of(key) == Some(role::ERROR) && severity >= HARD {
            details.push((NOTABLE, Detail::Mark));
        }
        Some(HealthIncident {
            row: row.to_string(),
            part,
            // Calls take no such time: whatever else is told comes after it.
            weight: MOST_WEIGHT - 8 + u64::from(severity & 7),
            details,
        })
    }
}

fn role_of(key: &HealthKey) -> Option<u8> {
    FUNCTIONS.get(key.slot as usize).map(|one| one.role)
}

/// The row and the part of something that went wrong; None where nothing did.
fn problem(key: &HealthKey) -> Option<(&'static str, (u64, String))> {
    let function = FUNCTIONS.get(key.slot as usize)?;
    let status = key.status;
    let part = match function.role {
        role::OUTCOME => {
            let paused = status.subcode == PAUSED;
            if status.is_unknown == 0 && (NO_FAILURES.contains(&status.code) || paused) {
                return None;
            }
            (0, failure(status))
        }
        role::ERROR => {
            let reason = word(&REASONS, key.reason as usize, "reason");
            (0, format!("{reason} {}", failure(status)))
        }
        role::ROOM => family(key),
        _ => return None,
    };
    Some((function.name, part))
}

fn counted(
    key: &HealthKey,
    sums: HealthSums,
    lasts: bool,
    numbering: Option<Numbering>,
) -> Option<HealthRow> {
    let mut figures = Figures::default();
    let mut sum = |measure: Measure, value| figures.sums.insert(measure.key(), value);
    let (row, part) = match role_of(key)? {
        role::JUDGE => {
            sum(STALLS, sums.count);
            sum(STALLED, sums.time_ns);
            (held_back(key.judgement, numbering)?, family(key))
        }
        role::WAIT => {
            sum(STALLS, sums.count);
            sum(STALLED, sums.time_ns);
            (row::STOPPED_BY_WRITE_BUFFERS, (0, row::ALL_FAMILIES.to_string()))
        }
        role => {
            sum(PROBLEMS, sums.count);
            if role == role::ERROR {
                figures.levels.insert(LASTING.key(), lasts.into());
            }
            problem(key)?
        }
    };
    Some(HealthRow {
        row: row.to_string(),
        part,
        figures,
    })
}

/// What families have before them that have any of it.
fn backlogs(families: &[FamilyState]) -> impl Iterator<Item = HealthRow> {
    let behind = families.iter().filter(|family| {
        family.pending_bytes > 0 || family.key.judgement.held != held::NOT
    });
    behind.map(|of| HealthRow {
        row: row::BACKLOG.to_string(),
        part: family(&of.key),
        figures: Figures {
            levels: [
                (MEMTABLES.key(), of.memtables.into()),
                (LEVEL0_FILES.key(), of.level0_files.into()),
                (PENDING.key(), of.pending_bytes),
            ]
            .into(),
            ..Figures::default()
        },
    })
}

fn family(key: &HealthKey) -> (u64, String) {
    (key.family.into(), text::of_padded(&key.name))
}

/// `IOError/NoSpace hard`.
fn failure(status: StatusHead) -> String {
    if status.is_unknown != 0 {
        return "of an unknown layout".to_string();
    }
    let mut words = word(&CODES, status.code.into(), "code");
    if status.subcode > 0 {
        words += "/";
        words += &word(&SUBCODES, status.subcode.into(), "subcode");
    }
    if status.severity > 0 {
        words += " ";
        words += &word(&SEVERITIES, status.severity.into(), "severity");
    }
    words
}

fn word(words: &[&str], number: usize, what: &str) -> String {
    match words.get(number) {
        Some(word) => (*word).to_string(),
        None => format!("{what} {number}"),
    }
}

#[cfg(test)]
mod tests;
