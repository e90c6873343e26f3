//! Does with RocksDB what `ckb-light-client` does: it deletes in batches alone, and has reads that copy nothing.

use ckb_probe_tests_binding::Store;
use ckb_rocksdb::{Error, Options};

fn main() -> Result<(), Error> {
    let mut options = Options::default();
    options.create_if_missing(true);
    Store::open(&options)?.obey(&[
        ("put", Store::put),
        ("get", Store::get),
        ("get-nothing", Store::get_nothing),
        ("get-pinned", Store::get_pinned),
        ("write", Store::write_batch),
        ("iterate", Store::iterate),
    ]);
    Ok(())
}
