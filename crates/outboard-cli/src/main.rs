//! The command `outboard`.

mod bench;
mod devices;
mod driver;
mod environment;
mod images;
mod install;
mod probe;
mod profile;
mod run;
mod serve;
mod watched;

use clap::{Parser, Subcommand};

/// Use the GPUs of other machines, with unchanged programs.
#[derive(Parser)]
#[command(name = "outboard", version, about, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Offer this machine's GPUs, or the software device, to other machines.
    Serve(serve::Args),
    /// Run a program with the devices of a server.
    Run(run::Args),
    /// List the devices that a server offers.
    Devices(devices::Args),
    /// Say where the time of programs went, from the files that OUTBOARD_PROFILE named.
    Profile(profile::Args),
    /// Measure how far from native a server on this machine is.
    Bench(bench::Args),
    /// Measure for `bench`, which starts it.
    #[command(hide = true)]
    BenchParticipant,
    /// Serve one client; started by `serve`.
    #[command(hide = true)]
    Worker(serve::WorkerArgs),
    /// Look for NVIDIA's driver; started by `serve`.
    #[command(hide = true)]
    CheckDriver,
}

fn main() -> miette::Result<()> {
    let theme = miette::MietteHandlerOpts::new().terminal_links(false).unicode(true).width(110);
    // Fails only if a hook is installed already.
    let _ = miette::set_hook(Box::new(move |_| Box::new(theme.clone().build())));
    match Cli::parse().command {
        Command::Serve(args) => serve::serve(args),
        Command::Run(args) => run::run(args),
        Command::Devices(args) => devices::devices(&args),
        Command::Profile(args) => profile::profile(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::BenchParticipant => bench::participant(),
        Command::Worker(args) => serve::worker(&args),
        Command::CheckDriver => serve::check_driver(),
    }
}
