//! Whether a program would load the client's library behind `outboard run`. It is not started.

mod elf;
mod secure;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use outboard_client::target::Target;
use outboard_wire::Code;

use super::finding::Finding;
use super::{LIMIT, child};
use crate::{environment, probe};
use elf::{Elf, Unreadable};

const DRIVER: &str = "libcuda.so.1";
const PROGRAM: &str = "program";
const LOADS: &str = "driver library";
/// How many scripts may name each other as interpreters, as in the kernel.
const SCRIPTS: usize = 4;
/// A message of the CUDA runtime, by which the file is recognised.
const RUNTIME_SAYS: &[u8] = b"CUDA driver version is insufficient for CUDA runtime version";

/// Checks whether the program of this command line would load the client's library, which is in the
/// folder `libraries`.
pub(super) fn check(line: &[OsString], libraries: &Path, servers: &[Target]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some((path, elf)) = executable(line, &mut findings) {
        findings.extend(loading(&path, &elf, libraries, servers));
    }
    findings
}

fn cannot_start(found: String, mend: &str) -> Finding {
    Finding::fail(PROGRAM, Code::CannotStartProgram, found, mend)
}

/// The file that the system would run: of a script, the interpreter.
fn executable(line: &[OsString], findings: &mut Vec<Finding>) -> Option<(PathBuf, Elf)> {
    let mut words = line.to_vec();
    for _ in 0..=SCRIPTS {
        let Some(path) = words.first().and_then(|name| environment::find_in_path(name)) else {
            let name =
                words.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let found = format!("there is no program {name}");
            findings.push(cannot_start(
                found,
                "check the path; a program in this folder is written ./program",
            ));
            return None;
        };
        let shown = path.display();
        let data = match std::fs::read(&path) {
            Ok(data) => data,
            Err(error) => {
                findings.push(cannot_start(
                    format!("{shown} cannot be read: {error}"),
                    "check who may read it",
                ));
                return None;
            }
        };
        match elf::read(&data) {
            Ok(elf) => {
                findings.push(Finding::ok(PROGRAM, shown.to_string()));
                return Some((path, elf));
            }
            Err(Unreadable::Other) => match interpreter(&data) {
                Some(first) => {
                    findings.push(Finding::ok(PROGRAM, format!("{shown} is a script")));
                    words = first;
                }
                None => {
                    findings.push(cannot_start(
                        format!("{shown} is neither a program nor a script"),
                        "name a program",
                    ));
                    return None;
                }
            },
            Err(Unreadable::Narrow) => {
                let mend = "CUDA has had no libraries for 32 bits since release 9: build it for 64";
                findings.push(cannot_start(format!("{shown} is built for 32 bits"), mend));
                return None;
            }
            Err(Unreadable::Damaged(problem)) => {
                findings.push(cannot_start(
                    format!("{shown} is damaged: {problem}"),
                    "build or install it again",
                ));
                return None;
            }
        }
    }
    findings.push(cannot_start(
        "scripts name each other as interpreters".to_owned(),
        "name the program itself",
    ));
    None
}

/// The interpreter that a script names, with its argument; behind `env`, the program that it looks
/// for.
fn interpreter(data: &[u8]) -> Option<Vec<OsString>> {
    let line = data.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let words: Vec<OsString> = words.map(|word| OsStr::from_bytes(word).to_owned()).collect();
    let is_env = Path::new(words.first()?).file_name() == Some(OsStr::new("env"));
    let is_option =
        |word: &&OsString| word.as_bytes().starts_with(b"-") || word.as_bytes().contains(&b'=');
    let behind: Vec<OsString> = words.iter().skip(1).skip_while(is_option).cloned().collect();
    Some(if is_env && !behind.is_empty() { behind } else { words })
}

/// How the loader would load the program.
fn loading(path: &Path, elf: &Elf, libraries: &Path, servers: &[Target]) -> Vec<Finding> {
    if elf.machine != Some(std::env::consts::ARCH) {
        let machine = elf.machine.unwrap_or("another processor");
        let found =
            format!("it is built for {machine}, and Outboard here for {}", std::env::consts::ARCH);
        return vec![cannot_start(found, "use a program that is built for this machine")];
    }
    let Some(interpreter) = &elf.interpreter else {
        let found = "it is linked statically as a whole, and can load no library";
        return vec![Finding::hopeless(
            LOADS,
            found,
            "link it dynamically; the CUDA runtime in it may stay static",
        )];
    };
    if interpreter.contains("musl") {
        let found = format!(
            "its loader is {interpreter}: it is built for musl, and the client's library for glibc"
        );
        return vec![Finding::hopeless(
            LOADS,
            found,
            "use a program, or an image of a container, with glibc",
        )];
    }
    if let Some(reason) = secure::reason(path) {
        let found = format!("{reason}: the loader then ignores LD_LIBRARY_PATH");
        let mend = format!(
            "take that away from a copy of the program, or put {} into /etc/ld.so.conf.d and run ldconfig",
            libraries.display()
        );
        return vec![Finding::hopeless(LOADS, found, mend)];
    }
    let linked = match linked(path, interpreter, libraries) {
        Ok(linked) => linked,
        Err(problem) => {
            let found =
                format!("the loader {interpreter} cannot say what it would load: {problem}");
            return vec![Finding::warn(LOADS, found, "see what `ldd` says of the program")];
        }
    };
    let mut findings = Vec::new();
    for name in
        linked.iter().filter(|(name, at)| at.is_none() && name != DRIVER).map(|(name, _)| name)
    {
        let found = format!(
            "{name} is not found: the program ends with `{name}: cannot open shared object file`"
        );
        findings.push(Finding::hopeless(
            "libraries",
            found,
            "install it, or name its folder in LD_LIBRARY_PATH",
        ));
    }
    findings.push(driver(path, elf, &linked, libraries));
    findings.extend(runtime(path, &linked, servers));
    findings
}

/// A library that is linked against, and where it is found.
type Linked = (String, Option<PathBuf>);

/// Which libraries the loader finds for the program, as `ldd` does.
fn linked(path: &Path, interpreter: &str, libraries: &Path) -> Result<Vec<Linked>, String> {
    let mut list = Command::new(interpreter);
    list.arg("--list").arg(path.canonicalize().map_err(|error| error.to_string())?);
    list.envs(environment::variables(|name| std::env::var_os(name), libraries, None));
    let ended = child::run(&mut list, LIMIT).map_err(|error| error.to_string())?;
    // A missing library changes its exit status and is in the list.
    if ended.stdout.is_empty() {
        return Err(ended.problem(LIMIT).unwrap_or_else(|| "it said nothing".to_owned()));
    }
    Ok(listed(&ended.stdout))
}

fn listed(text: &str) -> Vec<Linked> {
    let entry = |line: &str| {
        let (name, at) = line.trim().split_once(" => ")?;
        let at = at.rsplit_once(" (").map_or(at, |(at, _)| at);
        Some((name.to_owned(), (at != "not found").then(|| PathBuf::from(at))))
    };
    text.lines().filter_map(entry).collect()
}

/// The driver library that it would get.
fn driver(path: &Path, elf: &Elf, linked: &[Linked], libraries: &Path) -> Finding {
    let preloaded = std::env::var("LD_PRELOAD").unwrap_or_default();
    let preloaded = preloaded.split([':', ' ']).find(|entry| names_driver(Path::new(entry)));
    if let Some(preloaded) = preloaded {
        let found = format!("LD_PRELOAD names {preloaded}, which is loaded before any search");
        return Finding::hopeless(LOADS, found, "unset LD_PRELOAD");
    }
    let ours = libraries.join(DRIVER);
    let is_ours = |at: &Path| at.canonicalize().ok() == ours.canonicalize().ok();
    let loaded_by = |who: &str, at: &Path| {
        if is_ours(at) {
            return Finding::ok(LOADS, format!("{who}, and gets Outboard's: {}", at.display()));
        }
        let mend = "have it built without the RPATH (`patchelf --remove-rpath`), or remove that libcuda.so.1: it is the toolkit's stub, perhaps";
        Finding::hopeless(
            LOADS,
            format!("{who}, and gets {}, which is not Outboard's", at.display()),
            mend,
        )
    };
    if let Some((_, at)) = linked.iter().find(|(name, _)| name == DRIVER) {
        return match at {
            Some(at) => loaded_by("it is linked against libcuda.so.1", at),
            None => {
                let found = "it is linked against libcuda.so.1, which is not found: it ends with `libcuda.so.1: cannot open shared object file`";
                Finding::hopeless(
                    LOADS,
                    found,
                    format!("{} is missing: install Outboard again", ours.display()),
                )
            }
        };
    }
    // Who looks for it while it runs: the runtime, in the program or as a library.
    let libraries = linked.iter().filter_map(|(_, at)| at.as_deref());
    let Some(asker) = [path].into_iter().chain(libraries).find(|file| has(file, DRIVER.as_bytes()))
    else {
        let found = "neither it nor a library that it is linked against names libcuda.so.1";
        return Finding::ok(LOADS, found).expect(
            "what it loads while it runs (modules of Python, plug-ins) gets Outboard's, unless it has an RPATH of its own: `outboard run --stats` says whether anything used the device",
        );
    };
    let who = if asker == path {
        "it looks for libcuda.so.1 by itself".to_owned()
    } else {
        format!("{} looks for libcuda.so.1", asker.display())
    };
    let own = std::fs::read(asker).ok().and_then(|data| elf::read(&data).ok()).unwrap_or_default();
    let places = if own.has_runpath {
        Vec::new()
    } else {
        [folders(&own, asker), folders_of_program(elf, path)].concat()
    };
    let first = places.into_iter().map(|folder| folder.join(DRIVER)).find(|file| file.exists());
    loaded_by(&who, first.as_deref().unwrap_or(&ours))
}

fn names_driver(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"libcuda.so"))
}

fn folders_of_program(elf: &Elf, path: &Path) -> Vec<PathBuf> {
    if elf.has_runpath { Vec::new() } else { folders(elf, path) }
}

/// The folders of an RPATH.
fn folders(elf: &Elf, path: &Path) -> Vec<PathBuf> {
    let origin = path
        .canonicalize()
        .ok()
        .and_then(|path| path.parent().map(Path::to_owned))
        .unwrap_or_default();
    let origin = origin.to_string_lossy();
    let expand = |folder: &String| {
        PathBuf::from(folder.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin))
    };
    elf.rpath.iter().map(expand).collect()
}

/// Whether a file has these bytes in it.
fn has(path: &Path, bytes: &[u8]) -> bool {
    std::fs::read(path).is_ok_and(|data| data.windows(bytes.len()).any(|window| window == bytes))
}

/// Whether the CUDA runtime that it is linked against fits the server's driver; of several servers,
/// the oldest.
fn runtime(path: &Path, linked: &[Linked], servers: &[Target]) -> Option<Finding> {
    const CHECK: &str = "CUDA runtime";
    let major = linked
        .iter()
        .find_map(|(name, _)| name.strip_prefix("libcudart.so.")?.split('.').next()?.parse().ok());
    let Some(major) = major else {
        return has(path, RUNTIME_SAYS).then(|| {
            Finding::ok(CHECK, "it is in the program; its release cannot be seen in the file").expect(
                "a release that is newer than the server's driver ends with `CUDA driver version is insufficient for CUDA runtime version`",
            )
        });
    };
    let mut oldest = u32::MAX;
    for server in servers {
        let Ok(offer) = probe::probe(server) else {
            let found = format!("{major}; {server} does not say what its driver can do");
            return Some(Finding::warn(CHECK, found, "`outboard doctor` says why"));
        };
        oldest = oldest.min(offer.platform.driver_version);
    }
    Some(fits(major, oldest))
}

/// Within a major release, a runtime works with an older driver.
fn fits(runtime: u32, driver: u32) -> Finding {
    const CHECK: &str = "CUDA runtime";
    let (major, minor) = (driver / 1000, driver % 1000 / 10);
    if runtime <= major {
        return Finding::ok(
            CHECK,
            format!("{runtime}, and the server's driver has CUDA {major}.{minor}"),
        );
    }
    let found = format!(
        "{runtime}, and the server's driver has CUDA {major}.{minor}: the program ends with `CUDA driver version is insufficient for CUDA runtime version`"
    );
    Finding::hopeless(
        CHECK,
        found,
        "upgrade the driver on the server, or use a program built with an older CUDA",
    )
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn the_loaders_list_is_read() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibcudart.so.12 => /a b/libcudart.so.12 (0x2)\n\tlibcuda.so.1 => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x3)\n";
        let wanted = [
            ("libcudart.so.12".to_owned(), Some(PathBuf::from("/a b/libcudart.so.12"))),
            (DRIVER.to_owned(), None),
        ];
        assert_eq!(listed(text), wanted);
    }

    #[test]
    fn scripts_name_who_runs_them() {
        let named = |text: &str| {
            let words = interpreter(text.as_bytes())?;
            Some(
                words
                    .iter()
                    .map(|word| word.to_string_lossy().into_owned())
                    .collect::<Vec<_>>()
                    .join(" "),
            )
        };
        assert_eq!(named("#!/bin/sh -e\nx").as_deref(), Some("/bin/sh -e"));
        assert_eq!(named("#! /usr/bin/env -S A=1 python3 -u\n").as_deref(), Some("python3 -u"));
        assert_eq!(named("#!/usr/bin/env"), Some("/usr/bin/env".to_owned()));
        assert_eq!([named("#!\n"), named("x"), named("")], [None, None, None]);
    }

    #[test]
    fn a_newer_runtime_of_the_same_major_release_will_do() {
        assert_eq!(
            [fits(12, 12010), fits(13, 13000), fits(11, 12080)].map(|one| one.level),
            [Level::Ok; 3]
        );
        let newer = fits(13, 12080);
        assert!(newer.level == Level::Fail && newer.found.contains("has CUDA 12.8"), "{newer:?}");
    }
}
