//! `outboard run`: sets the environment and becomes the program.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use miette::{Result, miette};
use outboard_client::target::{Target, VARIABLE};

use crate::{install, probe};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server and its devices, HOST[:PORT][/INDEX],…; without an index all of its devices.
    #[arg(long, env = VARIABLE, default_value = "localhost", conflicts_with = "local_cpu")]
    server: Target,
    /// Use the software device in this process, without any server.
    #[arg(long)]
    local_cpu: bool,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let mut program = args.program.into_iter();
    let name = program.next().unwrap_or_default();
    let mut command = Command::new(&name);
    command.args(program);
    if args.local_cpu {
        command.env("LD_LIBRARY_PATH", library_path(&install::cpu_dir()?)).env_remove(VARIABLE);
    } else {
        let libraries = install::client_dir()?;
        probe::probe(&args.server)?;
        command.env("LD_LIBRARY_PATH", library_path(&libraries)).env(VARIABLE, args.server.to_string());
    }
    let error = command.exec();
    let help = match error.kind() {
        ErrorKind::NotFound => "check the path; a program in this folder is written ./program",
        ErrorKind::PermissionDenied => "is it an executable file?",
        _ => "it was built for another kind of machine, perhaps",
    };
    Err(miette!(help = help, "cannot start {}: {error}", name.to_string_lossy()))
}

/// Our folder first, then what was there.
fn library_path(ours: &Path) -> OsString {
    let mut path = ours.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_LIBRARY_PATH").filter(|others| !others.is_empty()) {
        path.push(":");
        path.push(others);
    }
    path
}
