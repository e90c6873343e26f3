# The image of all three programs, for where a container engine is at hand:
#
#   docker build --tag YOUR-REGISTRY/ckb-probe:0.1.0 .
#
# (The local cluster of `make demo` needs neither this file nor an engine: see tests/cluster/oci_archive.py.)
# Only x86-64: the BPF programs read that machine's registers.

# Debian 12, because its security updates hold a compiler for BPF with a ready-made core, and because a binary built
# here runs wherever the C library is as new as Debian 12's.
FROM rust:1.95-bookworm AS build
WORKDIR /src

# The tools first, in a layer that stays as long as these two files do.
COPY scripts/lib.sh scripts/setup.sh scripts/
RUN scripts/setup.sh build

# What .dockerignore lets through: sources, and nothing that was built outside.
COPY . .
RUN cargo build --release --locked --package ckb-probe-operator --package ckb-probe-agent --bins \
    && install -D --target-directory /out target/release/ckb-probe-operator target/release/node-agent \
      target/release/ckb-probe

# Nothing but the C library, a shell for `kubectl debug`, and the programs. No package is added: TLS is in the binary,
# and the cluster's certificate comes with the service account.
FROM debian:bookworm-slim
COPY --from=build /out/ /usr/local/bin/
# Nobody in particular. The agent's pod asks for root by itself, and drops all of its powers but a few.
USER 65532:65532
# No ENTRYPOINT: the pods name the program they want.
CMD ["/usr/local/bin/ckb-probe", "--help"]
