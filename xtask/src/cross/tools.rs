//! What builds for other kinds of machines: Rust's standard library for each, and Zig, which brings
//! a C compiler, a linker and the C libraries of every age.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::targets::{Target, folder};
use crate::debian;
use crate::util::{self, step};

/// From PyPI, pinned.
const WHEELS: [&str; 2] = ["ziglang==0.17.1", "cargo-zigbuild==0.24.1"];

/// Where they are.
fn venv() -> PathBuf {
    folder().join("tools")
}

/// Installs what is missing for these kinds.
pub(crate) fn ensure(targets: &[&Target]) -> Result<()> {
    for target in targets {
        if let Some(why) = lacks_standard_library(target) {
            step(&format!("installing Rust's standard library for {}", target.triple));
            let mut rustup = Command::new("rustup");
            rustup.args(["target", "add", target.triple]).current_dir(util::root());
            util::run(&mut rustup).with_context(|| why)?;
        }
    }
    let venv = venv();
    let stamp = venv.join("wheels.txt");
    let wanted = WHEELS.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(());
    }
    step("installing Zig from PyPI, whose compiler and linker know other machines (90 MB)");
    fs::create_dir_all(folder()).context("cannot create target/cross")?;
    util::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args(["-m", "pip", "--disable-pip-version-check", "--quiet", "install"]).args(WHEELS);
    util::run(&mut pip)?;
    fs::write(stamp, wanted).context("cannot write the stamp of the tools")
}

/// Why nothing can be built for a kind as things are.
fn lacks_standard_library(target: &Target) -> Option<String> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", target.triple]).current_dir(util::root());
    let output = rustc.output().ok()?;
    let there = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()).is_dir();
    (!there).then(|| {
        format!(
            "Rust's standard library for {0} is missing; install it with:\n    \
             rustup target add {0}",
            target.triple
        )
    })
}

/// Cargo, by way of Zig: builds the source in a folder for a kind, below `built`.
pub(crate) fn build(target: &Target, source: &Path, built: &Path) -> Result<Command> {
    let mut paths = vec![venv().join("bin")];
    paths.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let path = std::env::join_paths(paths).context("PATH cannot be put together")?;
    let mut command = util::cargo();
    command.env("PATH", path).current_dir(source).arg("zigbuild");
    command.arg("--target-dir").arg(built).arg("--target");
    command.arg(format!("{}{}", target.triple, target.oldest));
    command.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", same_anywhere()?);
    Ok(command)
}

/// Flags of the compiler by which what is built does not depend on where things lie.
fn same_anywhere() -> Result<String> {
    let cargo = match std::env::var_os("CARGO_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cargo"),
    };
    // The last that fits counts.
    let names = [(util::root(), "/outboard"), (folder(), "/target"), (cargo, "/cargo")];
    let flags = names.map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()));
    Ok(flags.join("\x1f"))
}

/// Zig's compiler of C++ for machines of this kind.
pub(crate) fn compiler(target: &Target) -> Vec<String> {
    let python = venv().join("bin/python").display().to_string();
    let name = target.triple.replace("-unknown", "") + target.oldest;
    [&python, "-m", "ziglang", "c++", "-target", &name].map(str::to_owned).into()
}

/// Debian's compiler for aarch64, in a form that nvcc can use: nvcc asks for 64 bits, of which that
/// one knows nothing, as it has no others.
pub(crate) fn arm_compiler_beside_nvcc() -> Result<PathBuf> {
    const COMPILER: &str = "aarch64-linux-gnu-g++";
    let mut version = Command::new(COMPILER);
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    if version.status().is_err() {
        util::install(&["g++-aarch64-linux-gnu"])?;
    }
    let script = folder().join("aarch64-g++");
    let text = format!(
        "#!/bin/sh\nfor word do\n    shift\n    [ \"$word\" = -m64 ] || set -- \"$@\" \"$word\"\n\
         done\nexec {COMPILER} \"$@\"\n"
    );
    fs::write(&script, text).with_context(|| format!("cannot write {}", script.display()))?;
    util::run(Command::new("chmod").arg("+x").arg(&script))?;
    Ok(script)
}

/// The release from which emulators and the newest systems come.
pub(crate) const NEW: &str = "trixie";

/// QEMU's emulator of aarch64 programs. Those of before 8 keep a record of each page, and are lost
/// in the address space that the client reserves; those of before 8.2 do not say whether a fault
/// was a write.
pub(crate) fn emulator() -> Result<PathBuf> {
    let dir = folder().join("qemu");
    let program = dir.join("usr/bin/qemu-aarch64");
    if !program.exists() {
        step("taking QEMU out of Debian's package (70 MB)");
        let architecture = host_architecture()?;
        let release = debian::Release { name: NEW, architecture, components: debian::MAIN };
        debian::whole(&dir, |new| {
            debian::unpack(&release.download(&["qemu-user"], new)?, new)?;
            // The emulators of other processors are half a gigabyte.
            let bin = new.join("usr/bin");
            for file in fs::read_dir(&bin).context("the package has programs")?.flatten() {
                if file.file_name() != "qemu-aarch64" {
                    fs::remove_file(file.path()).context("cannot remove an emulator")?;
                }
            }
            Ok(())
        })?;
    }
    Ok(program)
}

/// Debian's word for this machine's processor.
pub(crate) fn host_architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        other => bail!("other machines are emulated on x86-64, and this one is {other}"),
    }
}
