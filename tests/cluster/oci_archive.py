#!/usr/bin/env python3
"""Makes an OCI image archive out of local files, without a container engine: one layer, the same bytes every time.

    oci_archive.py [OPTIONS] OUT NAME ENTRYPOINT SRC[:DEST]...

OUT         the archive to write
NAME        the image's name with its tag, e.g. registry.local/pause:1
ENTRYPOINT  a JSON list, e.g. '["/pause"]'
SRC[:DEST]  a file or folder, and where it goes in the image (default: /NAME-OF-SRC); a symbolic link is followed

    --libs           add the shared libraries and the loader that the given programs need, where ldd finds them
    --user UID[:GID] whom the container runs as; also the owner of the folders made with --dir
    --env NAME=VALUE one more environment variable; may be repeated
    --dir PATH       an empty folder; may be repeated; anyone may write to /tmp and /var/tmp, --user to the others
"""

import argparse
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
EVERYONES_DIRS = {"tmp", "var/tmp"}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("name")
    parser.add_argument("entrypoint", type=json.loads)
    parser.add_argument("files", nargs="+", metavar="SRC[:DEST]")
    parser.add_argument("--libs", action="store_true")
    parser.add_argument("--user", default="")
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--dir", action="append", default=[], dest="dirs")
    return parser.parse_args()


def expand(arguments):
    """Yields (path in the image, local file) for each file that is asked for by name, folders taken apart."""
    for argument in arguments:
        source, _, destination = argument.partition(":")
        destination = (destination or os.path.basename(source)).strip("/")
        if not os.path.isdir(source):
            yield destination, source
            continue
        for folder, _, names in os.walk(source, followlinks=True):
            for name in names:
                path = os.path.join(folder, name)
                yield os.path.join(destination, os.path.relpath(path, source)), path


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def libraries(program):
    """The paths of the shared libraries and the loader of a program; none when it is linked statically."""
    ldd = subprocess.run(["ldd", program], capture_output=True, text=True)
    output = ldd.stdout + ldd.stderr
    if "not a dynamic executable" in output or "statically linked" in output:
        return []
    if ldd.returncode != 0 or "not found" in output:
        sys.exit(f"ldd {program}: {output.strip()}")
    # "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)" or "/lib64/ld-linux-x86-64.so.2 (0x…)"
    return re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", output, re.MULTILINE)


def write_layer(tar, files, dirs, owner):
    """Writes the files, the asked for folders and all folders above them, in the order of their names."""
    parents = set()
    for path in [*files, *dirs]:
        while path := os.path.dirname(path):
            parents.add(path)
    for path in sorted({*files, *dirs, *parents}):
        entry = tarfile.TarInfo(path)
        if path in files:
            with open(files[path], "rb") as content:
                entry.size = os.fstat(content.fileno()).st_size
                entry.mode = 0o755 if os.access(files[path], os.X_OK) else 0o644
                tar.addfile(entry, content)
            continue
        entry.type = tarfile.DIRTYPE
        entry.mode = 0o1777 if path in EVERYONES_DIRS else 0o755
        if path in dirs:
            entry.uid, entry.gid = owner
        tar.addfile(entry)


def numeric_owner(user):
    uid, _, gid = user.partition(":")
    if not uid:
        return 0, 0
    if not (uid + gid).isdigit():
        sys.exit(f"--user {user}: give numbers, since the image has no list of users")
    return int(uid), int(gid or 0)


def digest_and_size(file):
    file.seek(0)
    digest, size = hashlib.sha256(), 0
    while block := file.read(1 << 20):
        digest.update(block)
        size += len(block)
    return digest.hexdigest(), size


class Archive:
    """An OCI layout inside a tar file, being written."""

    def __init__(self, out):
        self.tar = tarfile.open(out, "w")

    def add(self, name, file, size):
        file.seek(0)
        entry = tarfile.TarInfo(name)
        entry.size = size
        self.tar.addfile(entry, file)

    def add_json(self, name, value):
        content = json.dumps(value).encode()
        self.add(name, io.BytesIO(content), len(content))

    def add_blob(self, media_type, file):
        """Returns the descriptor by which others refer to it."""
        digest, size = digest_and_size(file)
        self.add(f"blobs/sha256/{digest}", file, size)
        return {"mediaType": f"application/vnd.oci.image.{media_type}", "digest": f"sha256:{digest}", "size": size}

    def add_json_blob(self, media_type, value):
        return self.add_blob(media_type, io.BytesIO(json.dumps(value).encode()))


def main():
    arguments = parse_arguments()
    files = dict(expand(arguments.files))
    if arguments.libs:
        for program in [path for path in files.values() if is_elf(path)]:
            for library in libraries(program):
                files.setdefault(library.lstrip("/"), library)
    dirs = {path.strip("/") for path in arguments.dirs}
    target = {"architecture": ARCHITECTURES[platform.machine()], "os": "linux"}

    partial = f"{arguments.out}.partial"
    with tempfile.TemporaryFile(dir=os.path.dirname(os.path.abspath(arguments.out))) as layer_file:
        with tarfile.open(fileobj=layer_file, mode="w") as tar:
            write_layer(tar, files, dirs, numeric_owner(arguments.user))
        archive = Archive(partial)
        layer = archive.add_blob("layer.v1.tar", layer_file)
    config = archive.add_json_blob("config.v1+json", {
        **target,
        "config": {
            "Entrypoint": arguments.entrypoint,
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/", *arguments.env],
            "User": arguments.user,
        },
        # Uncompressed, the layer's digest is also the digest of its content.
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    })
    manifest = archive.add_json_blob("manifest.v1+json", {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
    })
    archive.add_json("index.json", {"schemaVersion": 2, "manifests": [{
        **manifest,
        "platform": target,
        "annotations": {
            "io.containerd.image.name": arguments.name,
            "org.opencontainers.image.ref.name": arguments.name.rpartition(":")[2],
        },
    }]})
    archive.add_json("oci-layout", {"imageLayoutVersion": "1.0.0"})
    archive.tar.close()
    shutil.move(partial, arguments.out)


if __name__ == "__main__":
    main()
