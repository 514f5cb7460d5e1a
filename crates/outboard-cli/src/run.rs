//! `outboard run`: sets the environment and becomes the program.

mod leased;
mod reached;
mod wanted;

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use miette::{IntoDiagnostic, Result, WrapErr};
use outboard_client::link::queue_patience;
use outboard_client::target::Targets;
use outboard_wire::Code;

use crate::failure::Failure;
use crate::pool::access;
use crate::{chosen, probe, started, watched};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    devices: Devices,
    /// When the program has ended, print what it and its child processes requested of the device,
    /// and what they waited for.
    #[arg(long)]
    stats: bool,
    /// Have servers that share a file read it when the program copies from a mapping of it, as
    /// `torch.load(mmap=True)` and safetensors do, and have loaders use cuFile that ask whether files
    /// reach the device directly (`files` in the configuration).
    #[arg(long)]
    files: bool,
    /// Do not connect to the servers before the program starts: it runs where they are reached, and
    /// this command does not.
    #[arg(long)]
    no_check: bool,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// The flags that say which devices a program has.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Devices {
    #[command(flatten)]
    chosen: chosen::Args,
    #[command(flatten)]
    wanted: wanted::Args,
    #[command(flatten)]
    pool: access::Args,
}

impl Devices {
    /// The servers that they come to, with the environment and the configuration; none for devices
    /// of a pool and for the software device in the program's process.
    pub(crate) fn named_servers(&self) -> Result<Option<Targets>, Failure> {
        if self.wanted.gpus.is_some() { Ok(None) } else { self.chosen.named_servers() }
    }
}

pub(crate) fn run(args: Args) -> Result<()> {
    let mut program = args.program.into_iter();
    let name = program.next().unwrap_or_default();
    let mut command = Command::new(&name);
    command.args(program);
    if args.files {
        command.env("OUTBOARD_FILES", "mapped");
    }
    let Devices { chosen, wanted, pool } = args.devices;
    if let Some(gpus) = wanted.gpus {
        // Before it waits: without libraries it would wait in vain.
        let libraries = chosen::Args::libraries()?;
        let need = leased::Need::new(&wanted, &pool, gpus, chosen.no_wait);
        let leased =
            if args.no_check { need.lease(&[])? } else { reached::acquire(&need, chosen.no_wait)? };
        command.envs(libraries).envs(leased.variables());
        let error = watched::run(command, args.stats, || leased.give_back())?;
        cannot_start(&name, &error);
    }
    if !chosen.names_server() && pool.is_set() {
        let help = "ask for a device of it: `outboard run --gpus 1 -- PROGRAM`; or name a server: --server HOST";
        let sentence = "a pool is set and no server: did you mean --gpus 1?";
        return Err(Failure::new(Code::BadUsage, sentence, help).into());
    }
    if pool.pool.is_some() {
        let help = "ask for some: --gpus N; or name a server: --server HOST";
        let sentence = "--pool names a broker, and it is not said how many devices are needed";
        return Err(Failure::new(Code::BadUsage, sentence, help).into());
    }
    let chosen = chosen.choose(started::start)?;
    if !args.no_check {
        let patience = if chosen.no_wait { Some(Duration::ZERO) } else { queue_patience() };
        probe::reserve_all(&chosen.to_reserve()?, patience)?;
    }
    for (name, value) in chosen.variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let started = &chosen.started;
    if let Some(server) = &started.local {
        server
            .leave_to_programs()
            .into_diagnostic()
            .wrap_err("cannot pass the private server on to the program")?;
    }
    // Servers that were started for the program end with it: this process stays to see it.
    let error = if args.stats || started.local.is_some() || started.ssh.is_some() {
        watched::run(command, args.stats, || ())?
    } else {
        command.exec()
    };
    cannot_start(&name, &error)
}

fn cannot_start(name: &OsStr, error: &std::io::Error) -> ! {
    // The statuses are those of shells.
    let (status, help) = match error.kind() {
        ErrorKind::NotFound if Path::new(name).file_name() == Some(OsStr::new("nvidia-smi")) => (
            127,
            "this machine has none: nvidia-smi is a part of NVIDIA's driver package; `outboard smi` shows its table for the devices of a server, of a list and of a pool",
        ),
        ErrorKind::NotFound => {
            (127, "check the path; a program in this folder is written ./program")
        }
        ErrorKind::PermissionDenied => (126, "is it an executable file?"),
        _ => (126, "it was built for another kind of machine, perhaps"),
    };
    let message = format!("cannot start {}: {error}", name.to_string_lossy());
    Failure::new(Code::CannotStartProgram, message, help).end_with(status)
}
