#!/usr/bin/env python3
"""Prints a CycloneDX list of what is in programs: the crates that cargo-auditable wrote into them as they were linked, and no others.

    sbom.py [--bpf MANIFEST] NAME VERSION PROGRAM...

NAME VERSION what is released
PROGRAM      an executable that `cargo auditable build` made

    --bpf MANIFEST  the Cargo.toml of the BPF programs that executables carry: these are compiled by themselves, and no linker wrote
                    their crates into anything

The same programs have the same list: its number is made of their digests, its time is SOURCE_DATE_EPOCH.
"""

import argparse
import datetime
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import uuid
import zlib

# Where cargo-auditable puts it, compressed JSON: github.com/rust-secure-code/cargo-auditable/blob/master/PARSING.md
SECTION = ".dep-v0"

# What binutils call the machines that programs are for, by the number that ELF has for each.
MACHINES = {62: "x86_64", 183: "aarch64"}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("version")
    parser.add_argument("programs", nargs="+", metavar="PROGRAM")
    parser.add_argument("--bpf")
    return parser.parse_args()


def objcopy(program):
    """The name of the objcopy that knows programs of that machine."""
    with open(program, "rb") as file:
        machine = MACHINES.get(int.from_bytes(file.read(20)[18:], "little"), platform.machine())
    return "objcopy" if machine == platform.machine() else f"{machine}-linux-gnu-objcopy"


def packages(program):
    """The packages that a program was made of: [{name, version, source, kind, dependencies, root}]."""
    with tempfile.NamedTemporaryFile() as section:
        dump = [objcopy(program), "--dump-section", f"{SECTION}={section.name}", program, "/dev/null"]
        done = subprocess.run(dump, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{program} does not say which crates it is made of: build it with cargo auditable ({done.stderr.strip()})")
        return json.loads(zlib.decompress(section.read()))["packages"]


def reference(package):
    """What names a package in the list. Those of the repository are in no registry, where another may have the name."""
    kind = "local" if package["source"] == "local" else "pkg:cargo"
    return f"{kind}/{package['name']}@{package['version']}"


def component(package):
    entry = {"type": "library", "bom-ref": reference(package), "name": package["name"], "version": package["version"]}
    if package["source"] != "local":
        entry["purl"] = reference(package)
    return entry


def bpf_packages(manifest):
    """What runs in the kernel: no procedural macro does."""
    tree = ["cargo", "tree", "--quiet", "--locked", "--manifest-path", manifest, "--edges", "normal,no-proc-macro", "--target", "all",
            "--no-dedupe", "--prefix", "none", "--format", "{p}"]
    lines = set(subprocess.run(tree, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines())
    for line in sorted(lines):
        # "aya-ebpf v0.2.1", or "ckb-probe-common v0.1.0 (/its/folder)"
        name, version, *folder = line.split()
        yield {"name": name, "version": version.removeprefix("v"), "source": "local" if folder else "crates.io"}


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def main():
    arguments = parse_arguments()
    # By reference: what it is, and what it depends on. A crate may be in several programs, with other features in each.
    components, depends = {}, {}
    digests = []
    bpf = list(bpf_packages(arguments.bpf)) if arguments.bpf else []
    for program in arguments.programs:
        made_of = packages(program)
        digests.append(sha256(program))
        own = os.path.basename(program)
        components[own] = {
            "type": "application", "bom-ref": own, "name": own, "version": arguments.version,
            "hashes": [{"alg": "SHA-256", "content": digests[-1]}],
        }
        depends[own] = {reference(package) for package in made_of if package.get("root")}
        for package in made_of:
            entry = components.setdefault(reference(package), component(package))
            # It ran as this was compiled, and is in no program, unless another says that it is.
            runs = package.get("kind", "runtime") == "runtime"
            entry["scope"] = "required" if runs or entry.get("scope") == "required" else "excluded"
            on = {reference(made_of[index]) for index in package.get("dependencies", [])}
            depends.setdefault(reference(package), set()).update(on)
        # Who loads programs into the kernel carries them.
        if any(package["name"] == "ckb-probe-bpf" for package in made_of):
            depends[own].update(map(reference, bpf))
    for package in bpf:
        entry = components.setdefault(reference(package), component(package))
        entry["scope"] = "required"
        entry["properties"] = [{"name": "ckb-probe:runs-in", "value": "the kernel, as BPF"}]
        depends.setdefault(reference(package), set())

    released = {"type": "application", "bom-ref": arguments.name, "name": arguments.name, "version": arguments.version}
    depends[arguments.name] = {os.path.basename(program) for program in arguments.programs}
    time = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), datetime.timezone.utc)
    json.dump({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, ' '.join(digests))}",
        "version": 1,
        "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": released},
        "components": [components[name] for name in sorted(components)],
        "dependencies": [{"ref": name, "dependsOn": sorted(depends[name])} for name in sorted(depends)],
    }, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
