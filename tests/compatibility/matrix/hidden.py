"""Runs a command as on a machine without a GPU: no device files, no driver of NVIDIA's, whatever this machine has.

    python3 hidden.py [--dir FOLDER]... [--file FILE]... -- COMMAND...

In a mount namespace of its own: /dev holds only what every machine has, the folders named are empty, the files named
have no content. As root; as another user where that may have namespaces of its own.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_RDONLY, MS_NODEV, MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 1, 4, 4096, 8192, 16384, 1 << 18

# What a program may expect of /dev anywhere.
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}

# Libraries that come with NVIDIA's driver.
DRIVER_FILES = re.compile(r"lib(cuda|cudadebugger|nvcuvid|nvoptix|nvidia-[a-z0-9-]+)\.so(\.[0-9.]+)?$")


def plan(driver: str | None) -> tuple[list[Path], list[Path]]:
    """(folders, files) to hide so that nothing of NVIDIA's driver can be reached."""
    folders = [Path("/usr/local/nvidia"), Path("/proc/driver/nvidia")]
    # Newer drivers' user part that a toolkit may bring.
    folders += [path.resolve() for path in Path("/usr/local").glob("cuda*/compat")]
    files: set[Path] = set()
    if driver and os.sep in driver:
        real = Path(driver).resolve()
        if "nvidia" in real.parent.as_posix():
            folders.append(real.parent)
        else:
            files.update(path for path in real.parent.iterdir() if DRIVER_FILES.match(path.name))
    for folder in loader_folders():
        files.update(path for path in folder.iterdir() if DRIVER_FILES.match(path.name))
    # What lies in a hidden folder cannot be reached to be hidden again.
    folders = sorted({folder for folder in folders if folder.is_dir()})
    folders = [folder for folder in folders if not any(above in folder.parents for above in folders)]
    covered = tuple(f"{folder}/" for folder in folders)
    return folders, sorted(path for path in {path.resolve() for path in files} if not str(path).startswith(covered))


def loader_folders() -> list[Path]:
    """Where the loader looks by itself."""
    try:
        listing = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    except OSError:
        listing = ""
    folders = {Path(line.rsplit("=> ", 1)[1]).parent for line in listing.splitlines() if "=> " in line}
    return sorted(folder for folder in folders if folder.is_dir())


def command(folders: list[Path], files: list[Path], wrapped: list[str]) -> list[str]:
    """The command that runs `wrapped` with all that hidden."""
    options = [f"--dir={folder}" for folder in folders] + [f"--file={path}" for path in files]
    return [sys.executable, str(Path(__file__).resolve()), *options, "--", *wrapped]


def possible() -> str | None:
    """None when this process may hide things, else why not."""
    tried = subprocess.run(command([], [], ["true"]), capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else tried.stderr.strip() or f"exit {tried.returncode}"


def without(variable: str, folders: list[Path]) -> str:
    """A search path without the hidden folders."""
    hidden = tuple(f"{folder}/" for folder in folders)
    parts = os.environ.get(variable, "").split(":")
    return ":".join(part for part in parts if part and not f"{Path(part).resolve()}/".startswith(hidden))


libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encode = lambda text: text.encode() if text is not None else None  # noqa: E731
    if libc.mount(encode(source), encode(target), encode(kind), ctypes.c_ulong(flags), encode(data)) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot mount on {target}: {os.strerror(error)}")


def unshare() -> None:
    """A mount namespace of our own, within a user namespace where that is needed for it."""
    if libc.unshare(CLONE_NEWNS) != 0:
        user, group = os.getuid(), os.getgid()
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"no mount namespace is to be had: {os.strerror(error)}")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def hide(folders: list[str], files: list[str]) -> None:
    unshare()
    with tempfile.TemporaryDirectory() as scratch:
        empty = Path(scratch) / "empty"
        empty.touch()
        for path in files:
            mount(str(empty), path, None, MS_BIND)
        for folder in folders:
            mount("none", folder, "tmpfs", MS_RDONLY, "size=4k")
        dev = Path(scratch) / "dev"
        dev.mkdir()
        # Without devices of its own: not even root can make one here that works.
        mount("none", str(dev), "tmpfs", MS_NODEV, "mode=755,size=64k")
        for name in DEVICES:
            if os.path.exists(f"/dev/{name}"):
                (dev / name).touch()
                mount(f"/dev/{name}", str(dev / name), None, MS_BIND)
        for name, target in LINKS.items():
            (dev / name).symlink_to(target)
        (dev / "shm").mkdir()
        mount("none", str(dev / "shm"), "tmpfs", 0, "mode=1777")
        if os.path.isdir("/dev/pts"):
            (dev / "pts").mkdir()
            mount("/dev/pts", str(dev / "pts"), None, MS_BIND)
            (dev / "ptmx").symlink_to("pts/ptmx")
        mount(str(dev), "/dev", None, MS_MOVE)


def main() -> None:
    split = sys.argv.index("--")
    options, wrapped = sys.argv[1:split], sys.argv[split + 1 :]
    try:
        hide(
            [text.removeprefix("--dir=") for text in options if text.startswith("--dir=")],
            [text.removeprefix("--file=") for text in options if text.startswith("--file=")],
        )
    except OSError as error:
        sys.exit(f"hidden: {error}")
    os.execvp(wrapped[0], wrapped)


if __name__ == "__main__":
    main()
