//! RocksDB and what it needs, within the program as they are within CKB; and the load of `tests/workload`, whose `main` is a function here.

fn main() {
    let workload = "../workload";
    println!("cargo::rerun-if-changed={workload}");
    cc::Build::new()
        .files(["rocksdb_load.c", "listen.c"].map(|name| format!("{workload}/{name}")))
        .define("main", "rocksdb_load")
        .compile("rocksdb_load");
    // Where Debian's compiler looks anyway, and cargo does not.
    let machine = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    println!("cargo::rustc-link-search=native=/usr/lib/{machine}-linux-gnu");
    for library in ["rocksdb", "snappy", "lz4", "zstd", "bz2", "z"] {
        println!("cargo::rustc-link-lib=static={library}");
    }
    println!("cargo::rustc-link-lib=dylib=stdc++");
}
