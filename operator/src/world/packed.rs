//! What orders and reports say, kept small: one that is taken apart is twenty times as large as its text, and its text is three times
//! as large as it must be. There may be thousands of them, each of which is looked at only when there is news of it.

use std::{cell::RefCell, marker::PhantomData};

use ckb_probe_crds::{ProbeReport, RowReport};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use serde::{Serialize, de::DeserializeOwned};

/// Something, as deflated JSON. The same is packed the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed<T> {
    deflated: Box<[u8]>,
    /// Bytes of its text.
    length: u32,
    of: PhantomData<T>,
}

thread_local! {
    /// Their tables are some hundred kilobytes, and made once.
    static TOOLS: RefCell<(Compress, Decompress)> =
        RefCell::new((Compress::new(Compression::fast(), false), Decompress::new(false)));
}

impl<T: Serialize + DeserializeOwned + Default> Packed<T> {
    /// Packs the value.
    pub fn of(value: &T) -> Self {
        // What was read can be written.
        let text = serde_json::to_vec(value).unwrap_or_default();
        Self {
            deflated: deflate(&text).into(),
            length: u32::try_from(text.len()).unwrap_or(u32::MAX),
            of: PhantomData,
        }
    }

    /// Takes it apart.
    pub fn open(&self) -> T {
        let text = inflate(&self.deflated, self.length as usize);
        serde_json::from_slice(&text).unwrap_or_default()
    }
}

/// What was reported of a target's probes, as far as a status is made of it: of all that a target ever did it tells how often, not
/// how it was distributed. Their rows, which are most of it, are kept by themselves.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedReport {
    pub probes: Packed<Vec<ProbeReport>>,
    pub rows: Packed<Rows>,
}

/// The rows of each probe of a report.
pub type Rows = Vec<Vec<RowReport>>;

impl PackedReport {
    /// Packs a report's probes, their rows apart.
    pub fn of(mut probes: Vec<ProbeReport>) -> Self {
        // An agent of the version before sends it all.
        probes
            .iter_mut()
            .for_each(ProbeReport::forget_distributions);
        let rows = probes.iter_mut();
        let rows: Rows = rows.map(|probe| std::mem::take(&mut probe.rows)).collect();
        Self {
            probes: Packed::of(&probes),
            rows: Packed::of(&rows),
        }
    }
}

fn deflate(text: &[u8]) -> Vec<u8> {
    TOOLS.with_borrow_mut(|(tool, _)| {
        tool.reset();
        let mut deflated = Vec::with_capacity(text.len() / 2 + 64);
        loop {
            let from = text.get(tool.total_in() as usize..).unwrap_or_default();
            match tool.compress_vec(from, &mut deflated, FlushCompress::Finish) {
                Ok(Status::Ok | Status::BufError) => deflated.reserve(text.len() / 4 + 64),
                // There is no other error of memory to memory.
                Ok(Status::StreamEnd) | Err(_) => return deflated,
            }
        }
    })
}

fn inflate(deflated: &[u8], length: usize) -> Vec<u8> {
    TOOLS.with_borrow_mut(|(_, tool)| {
        tool.reset(false);
        let mut text = Vec::with_capacity(length);
        match tool.decompress_vec(deflated, &mut text, FlushDecompress::Finish) {
            Ok(_) => text,
            Err(_) => Vec::new(),
        }
    })
}

#[cfg(test)]
mod tests {
    use ckb_probe_crds::Distribution;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{measuring, row};

    #[test]
    fn counts_and_the_last_interval_are_kept_and_take_little_room() {
        let mut get = row("Get", 100, "119:60,40");
        let ever: ckb_probe_crds::Histogram = (100..160).map(|bucket| (bucket, 12_345)).collect();
        let calls = ever.count();
        get.total.distributions = [(
            "duration".into(),
            Distribution {
                histogram: ever,
                sum: 7,
                unmeasured: 3,
            },
        )]
        .into();
        let reports = vec![measuring("storage", vec![get.clone()])];
        let packed = PackedReport::of(reports.clone());
        let bytes = packed.probes.deflated.len() + packed.rows.deflated.len();
        assert!(bytes < 400, "{bytes} bytes");

        let (opened, rows) = (packed.probes.open(), packed.rows.open());
        let [opened] = &opened[..] else {
            panic!("{opened:?}");
        };
        assert!(opened.rows.is_empty());
        let row = &rows[0][0];
        assert_eq!(row.window, get.window);
        assert_eq!(row.total.sums, get.total.sums);
        let total = &row.total.distributions["duration"];
        assert_eq!((total.count(), total.sum), (calls + 3, 7));
        assert_eq!(opened.firing, reports[0].firing);
    }

    proptest! {
        #[test]
        fn what_is_packed_is_what_is_taken_out(texts in prop::collection::vec("\\PC{0,60}", 0..60)) {
            let packed = Packed::of(&texts);
            prop_assert_eq!(&packed, &Packed::of(&texts));
            prop_assert_eq!(packed.open(), texts);
        }
    }
}
