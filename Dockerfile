# The image of a release: the programs of its archive, as they are, and a base with the C library. The archive is what it is built of:
#
#   tar -xzf ckb-probe-0.1.0-x86_64-linux-gnu.tar.gz
#   docker build --tag YOUR-REGISTRY/ckb-probe:0.1.0 --build-arg VERSION=0.1.0 ckb-probe-0.1.0
#
# And likewise of the archive for aarch64, with --platform linux/arm64: nothing is run as it is built. `make image-test` builds both with
# buildah, on bases of Debian's packages, and has their programs run.

# Any with glibc 2.35 and libgcc_s: no shell, no packages. TLS is in the programs, the cluster's certificate comes with the service account.
ARG BASE=gcr.io/distroless/cc-debian12
FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=
LABEL org.opencontainers.image.title="ckb-probe" \
  org.opencontainers.image.description="Measures Nervos CKB nodes on Kubernetes with eBPF, from outside the process" \
  org.opencontainers.image.source="https://github.com/ckb-probe/ckb-probe" \
  org.opencontainers.image.documentation="https://github.com/ckb-probe/ckb-probe/blob/main/docs/README.md" \
  org.opencontainers.image.licenses="MIT" \
  org.opencontainers.image.version="${VERSION}" \
  org.opencontainers.image.revision="${REVISION}"
COPY bin/ /usr/local/bin/
# Nobody in particular. The agent's pod asks for root by itself, and drops all of its powers but a few.
USER 65532:65532
# No ENTRYPOINT: the pods name the program they want.
CMD ["/usr/local/bin/ckb-probe", "--help"]
