//! Programs in containers that get no flag for them, and in containers that have less than that.

use super::podman::{ADDRESS, output, podman, said};
use super::server::Server;
use super::world::{World, succeeded};
use crate::first::First;
use crate::programs;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// What needs something of the system: pages that fault, memory that is pinned and shared, threads,
/// child processes.
pub(super) const PROGRAMS: [&str; 8] = [
    "attributes",
    "vector_add",
    "managed_memory",
    "mapped_memory",
    "registered_memory",
    "host_functions",
    "fork",
    "ipc",
];

/// Containers by what is taken from them.
const KINDS: [(&str, &[&str]); 8] = [
    ("no flag", &[]),
    ("a read-only root", &["--read-only", "--read-only-tmpfs=false"]),
    ("another user, who has no name and no home", &["--user=1000:1000", "--env=HOME="]),
    ("no capability", &["--cap-drop=all", "--security-opt=no-new-privileges"]),
    ("256 MiB of memory", &["--memory=256m"]),
    // podman would raise the numbers of files and processes, which only root outside may.
    (
        "no memory may be locked",
        &["--ulimit=memlock=0:0", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"],
    ),
    ("a pod", &["--pod=apart"]),
    (
        "no network, the server's socket",
        &["--network=none", "--env=OUTBOARD_SERVER=unix:/shared/s"],
    ),
];

/// The folder in which the server and its clients have the socket.
const SHARED: &str = "/run/shared";

pub(super) fn without_flags(world: &mut World) -> Result<()> {
    fs::create_dir_all(SHARED)?;
    fs::set_permissions(SHARED, fs::Permissions::from_mode(0o777))?;
    let shared = format!("--volume={SHARED}:/shared");
    let socket =
        ["--env=OUTBOARD_SERVE_SOCKET=/shared/s", "--env=OUTBOARD_SERVE_SOCKET_ACCESS=all"];
    let server = Server::start(world, &[&[&*shared], &socket[..]].concat())?;
    let flags = server.flags();
    let wanted = PROGRAMS.map(|program| {
        let mut args = vec!["run"];
        args.extend(flags.iter().map(String::as_str));
        let program = format!("./{program}");
        args.extend(["--", &program]);
        succeeded(&world.outboard(&args)?)
    });
    let wanted: Vec<String> = wanted.into_iter().collect::<Result<_>>()?;
    podman(&["pod", "create", "--infra=false", "--name=apart"])?;
    let token = fs::read_to_string(&server.access.token).context("there is a token")?;
    let told = [
        // Whose server it is, and what the programs are: a container of any kind is told that.
        format!("--env=OUTBOARD_SERVER={ADDRESS}"),
        format!("--env=OUTBOARD_TLS_FINGERPRINT={}", server.access.fingerprint),
        format!("--env=OUTBOARD_TOKEN={}", token.trim()),
        format!("--volume={}:/programs:ro", programs::dir().display()),
        shared.clone(),
    ];
    let image = world.image("client")?;
    let mut wrong = String::new();
    for (kind, flags) in KINDS {
        for (program, wanted) in PROGRAMS.iter().zip(&wanted) {
            let mut args = vec!["run", "--rm"];
            args.extend(told.iter().map(String::as_str));
            args.extend(flags);
            let program = format!("/programs/{program}");
            args.extend([image, "outboard", "run", "--", &program]);
            let output = output(&args)?;
            if !output.status.success() || said(&output) != *wanted {
                let _ = writeln!(wrong, "{kind}: {program}, {}: {}", output.status, said(&output));
            }
        }
    }
    ensure!(wrong.is_empty(), "{wrong}");
    let outside = || {
        let mut args = vec!["run"];
        args.extend(flags.iter().map(String::as_str));
        args.extend(["--", "./vector_add"]);
        Ok(world.command(&args))
    };
    let inside = || {
        let mut command = Command::new("podman");
        command.args(["run", "--rm"]).args(&told);
        command.args([image, "outboard", "run", "--", "/programs/vector_add"]);
        Ok(command)
    };
    let first = First::of(outside, inside)?;
    let came = Came { same: KINDS.len() * PROGRAMS.len(), first };
    fs::write(report(), serde_json::to_string(&came)?).context("cannot write what came of it")
}

/// What came of it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Came {
    /// How many runs have printed the same as outside: all of them.
    pub(crate) same: usize,
    /// The container's own start is part of it.
    pub(crate) first: First,
}

/// What the case has written.
pub(super) fn came() -> Result<Came> {
    let text = fs::read(report()).context("no program was run in containers")?;
    serde_json::from_slice(&text).context("what came of containers cannot be read")
}

fn report() -> PathBuf {
    super::APART.folder().join("bare.json")
}
