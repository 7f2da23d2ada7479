# Builds the gateway's image: one static binary, the trusted roots, and nothing else.
#
#   docker build -t leadgate .          (or: buildah build -t leadgate .)
#
# BUILDER_IMAGE needs cargo in the version of rust-toolchain.toml, a C compiler, make and ca-certificates. PROFILE is the cargo profile.
# scripts/test-image builds this file with a builder image made from Debian packages, and runs what comes out.

ARG BUILDER_IMAGE=docker.io/library/rust:1.95.0-bookworm

FROM ${BUILDER_IMAGE} AS build
ARG PROFILE=release
WORKDIR /src
COPY . .
# The allocator fixes the largest page that it can live on when it is built: Arm kernels have pages of 4 to 64 KiB.
# Static with the builder's own C library. The explicit target keeps the flag away from build scripts and macros, which cannot be
# static. The toolchain file is for developers; a builder image brings its toolchain.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/target \
    set -eu; \
    rm -f rust-toolchain.toml; \
    triple=$(rustc -vV | sed -n 's/^host: //p'); \
    case $triple in aarch64-*) export JEMALLOC_SYS_WITH_LG_PAGE=16 ;; esac; \
    RUSTFLAGS='-C target-feature=+crt-static' CARGO_HOME=/usr/local/cargo CARGO_TARGET_DIR=/target \
      cargo build --locked --profile "$PROFILE" --package gateway --bin leadgate --target "$triple"; \
    folder=$PROFILE; \
    if [ "$PROFILE" = dev ]; then folder=debug; fi; \
    mkdir -p /rootfs/usr/bin /rootfs/etc/ssl/certs; \
    cp "/target/$triple/$folder/leadgate" /rootfs/usr/bin/leadgate; \
    cp /etc/ssl/certs/ca-certificates.crt /rootfs/etc/ssl/certs/ca-certificates.crt; \
    echo 'hosts: files dns' > /rootfs/etc/nsswitch.conf; \
    echo 'leadgate:x:65532:65532::/:/sbin/nologin' > /rootfs/etc/passwd; \
    echo 'leadgate:x:65532:' > /rootfs/etc/group

FROM scratch
LABEL org.opencontainers.image.title="leadgate" \
      org.opencontainers.image.description="Leader-routing inference gateway" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /rootfs/ /
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
USER 65532:65532
EXPOSE 8080 9090
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/leadgate"]
CMD ["serve"]
