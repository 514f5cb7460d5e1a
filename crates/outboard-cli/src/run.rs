//! `outboard run`: sets the environment and becomes the program.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use miette::Result;
use outboard_client::link::queue_patience;
use outboard_client::target::{Target, VARIABLE};
use outboard_wire::Code;

use crate::failure::Failure;
use crate::{credentials, environment, install, probe, watched};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server and its devices, HOST[:PORT][/INDEX],… or unix:PATH[/INDEX],…; without an index all of its devices.
    /// Without it OUTBOARD_SERVER, or the configuration, or this machine.
    #[arg(long, conflicts_with = "local_cpu")]
    server: Option<Target>,
    #[command(flatten)]
    credentials: credentials::Args,
    /// Use the software device in this process, without any server.
    #[arg(long)]
    local_cpu: bool,
    /// When the program has ended, print what it and the processes it started asked of the device, and what they waited for.
    #[arg(long)]
    stats: bool,
    /// If the server has no room now, fail at once instead of waiting for a place in its queue.
    #[arg(long, conflicts_with = "local_cpu")]
    no_wait: bool,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let mut program = args.program.into_iter();
    let name = program.next().unwrap_or_default();
    let mut command = Command::new(&name);
    command.args(program);
    let given = |name: &str| std::env::var_os(name);
    if args.local_cpu {
        command.envs(environment::variables(given, &install::cpu_dir()?, None)).env_remove(VARIABLE);
    } else {
        let (libraries, modules) = (install::client_dir()?, install::python_dir());
        args.credentials.set();
        let server = probe::server(args.server)?;
        let patience = if args.no_wait { Some(Duration::ZERO) } else { queue_patience() };
        probe::reserve(&server, patience)?;
        if args.no_wait {
            command.env("OUTBOARD_QUEUE_TIMEOUT", "0");
        }
        command.envs(environment::variables(given, &libraries, modules.as_deref()));
        command.env(VARIABLE, server.to_string());
    }
    let error = if args.stats { watched::run(command)? } else { command.exec() };
    // The statuses are those of shells.
    let (status, help) = match error.kind() {
        ErrorKind::NotFound => (127, "check the path; a program in this folder is written ./program"),
        ErrorKind::PermissionDenied => (126, "is it an executable file?"),
        _ => (126, "it was built for another kind of machine, perhaps"),
    };
    let message = format!("cannot start {}: {error}", name.to_string_lossy());
    Failure::new(Code::CannotStartProgram, message, help).end_with(status)
}
