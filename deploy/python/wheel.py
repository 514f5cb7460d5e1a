"""Makes a wheel of an installation: `wheel.py DIST VERSION LICENCES OUTPUT`. `cargo xtask wheel` calls it.

The command becomes a script of the wheel and the libraries its data, so that pip lays them out as any installation is: PREFIX/bin/outboard and
PREFIX/lib/outboard. The Python modules are modules of the interpreter, too.
"""

import base64
import configparser
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import zipfile

# What every system with a C library of this kind has, by PEP 600.
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def floor(files):
    """The oldest C library that has everything the files need, and nothing else may they need."""
    newest = (2, 17)
    for file in files:
        text = subprocess.run(["objdump", "-p", file], check=True, capture_output=True, text=True).stdout
        needed = set(re.findall(r"NEEDED\s+(\S+)", text))
        if needed - SYSTEM:
            sys.exit(f"{file} needs {', '.join(sorted(needed - SYSTEM))}, which a wheel may not expect")
        for version in re.findall(r"\bGLIBC_(\d+)\.(\d+)", text):
            newest = max(newest, tuple(map(int, version)))
    return newest


def machine(file):
    """The name of the processor that a file is for."""
    header = pathlib.Path(file).read_bytes()[:20]
    return {62: "x86_64", 183: "aarch64"}[int.from_bytes(header[18:20], "little")]


class Wheel:
    def __init__(self, path):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.record = []

    def add(self, name, content, executable=False):
        info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        info.external_attr = (0o100755 if executable else 0o100644) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(info, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(content)}")

    def close(self, folder):
        record = "\n".join([*self.record, f"{folder}/RECORD,,"]) + "\n"
        self.zip.writestr(zipfile.ZipInfo(f"{folder}/RECORD", (1980, 1, 1, 0, 0, 0)), record)
        self.zip.close()


def main(dist, version, licences, output):
    dist, licences, output = map(pathlib.Path, (dist, licences, output))
    command = dist / "bin/outboard"
    libraries = sorted(path for path in (dist / "lib/outboard").rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    programs = [command] + [path for path in libraries if ".so" in path.name and not path.is_symlink()]
    major, minor = floor(programs)
    name = f"manylinux_{major}_{minor}_{machine(command)}"
    # Old installers know the oldest C library by its first name alone.
    tag = f"py3-none-{name}" if (major, minor) > (2, 17) else f"py3-none-manylinux2014_{machine(command)}.{name}"
    output.mkdir(parents=True, exist_ok=True)
    path = output / f"outboard-{version}-{tag}.whl"
    data, info = f"outboard-{version}.data", f"outboard-{version}.dist-info"
    wheel = Wheel(path)
    wheel.add(f"{data}/scripts/outboard", command.read_bytes(), executable=True)
    for library in libraries:
        # Names without a version are for those who link: a wheel has no links, and a copy of each
        # would double it.
        if library.is_symlink() and not library.name.endswith(".so.1"):
            continue
        wheel.add(f"{data}/data/{library.relative_to(dist)}", library.read_bytes(), ".so" in library.name)
    modules = dist / "lib/outboard/python"
    for module in (path for path in libraries if modules in path.parents):
        wheel.add(str(module.relative_to(modules)), module.read_bytes())
    wheel.add(f"{info}/entry_points.txt", entry_points(licences / "python/pyproject.toml").encode())
    texts = [licences / name for name in ("LICENSE-APACHE", "LICENSE-MIT")]
    # Those of others' crates are there when a release is made.
    texts += (dist / "share/doc/outboard").glob("THIRD-PARTY.txt")
    wheel.add(f"{info}/METADATA", metadata(version, licences, texts).encode())
    wheel.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: outboard\nRoot-Is-Purelib: false\n{tags(tag)}".encode())
    for text in texts:
        wheel.add(f"{info}/licenses/{text.name}", text.read_bytes())
    wheel.close(info)
    print(path)


def tags(name):
    """The lines of a file WHEEL for the kinds of machines in a name."""
    *head, machines = name.split("-")
    return "".join(f"Tag: {'-'.join([*head, machine])}\n" for machine in machines.split("."))


def entry_points(project):
    """Those of the modules alone, as a wheel says them."""
    parser = configparser.ConfigParser()
    parser.read(project)
    prefix = "project.entry-points."
    groups = [(name[len(prefix) :], parser[name]) for name in parser.sections() if name.startswith(prefix)]
    return "\n".join(f"[{name}]\n" + "".join(f"{key} = {value.strip(chr(34))}\n" for key, value in group.items()) for name, group in groups)


def metadata(version, folder, texts):
    head = [
        "Metadata-Version: 2.4",
        "Name: outboard",
        f"Version: {version}",
        "Summary: Use the GPUs of other machines, with unchanged CUDA programs",
        "License-Expression: Apache-2.0 OR MIT",
        *(f"License-File: {text.name}" for text in texts),
        "Requires-Python: >=3.8",
        "Classifier: Environment :: GPU :: NVIDIA CUDA",
        "Classifier: Operating System :: POSIX :: Linux",
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(head) + "\n\n" + (folder / "deploy/python/README.md").read_text()


if __name__ == "__main__":
    os.umask(0o022)
    main(*sys.argv[1:])
