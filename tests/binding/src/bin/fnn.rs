//! Does with RocksDB what `fnn` does, the node of Fiber: on a database that is compressed by lz4.

use ckb_probe_tests_binding::Store;
use ckb_rocksdb::{DBCompressionType, Error, Options};

fn main() -> Result<(), Error> {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_compression_type(DBCompressionType::Lz4);
    Store::open(&options)?.obey(&[
        ("put", Store::put),
        ("get", Store::get),
        ("get-nothing", Store::get_nothing),
        ("delete", Store::delete),
        ("write", Store::write_batch),
        ("iterate", Store::iterate),
    ]);
    Ok(())
}
