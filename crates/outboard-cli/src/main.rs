//! The command `outboard`.

mod admin;
mod at_once;
mod bench;
mod broker;
mod cdi;
mod chosen;
mod completion;
mod config;
mod context;
mod credentials;
mod devices;
mod docs;
mod doctor;
mod driver;
mod env;
mod environment;
mod explain;
mod failure;
mod folders;
mod gauges;
mod gpus;
mod help;
mod images;
mod install;
mod jupyter;
mod kill;
mod library;
mod local;
mod login;
mod logout;
mod manual;
mod output;
mod pool;
mod private_folder;
mod probe;
mod profile;
mod progress;
mod run;
mod serve;
mod sessions;
mod slurm;
mod smi;
mod ssh;
mod stack;
mod started;
mod status;
mod suspend;
mod time;
mod token;
mod top;
mod trace;
mod upgrade;
mod watched;
mod whoami;

use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Use the GPUs of other machines, with unchanged programs.
#[derive(Parser)]
#[command(name = "outboard", version)]
struct Cli {
    /// The configuration file, or `none`. Without it, the user's outboard/outboard.toml in
    /// $XDG_CONFIG_HOME, else /etc/outboard/outboard.toml.
    #[arg(
        long,
        global = true,
        display_order = 900,
        env = "OUTBOARD_CONFIG",
        hide_env_values = true,
        value_name = "FILE|none"
    )]
    config: Option<PathBuf>,
    /// Use the server that has this name in the configuration (`outboard context list`), whatever
    /// the environment says. Also OUTBOARD_CONTEXT.
    #[arg(long, global = true, display_order = 901, value_name = "NAME")]
    context: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Offer this machine's GPUs, or the software device.
    Serve(Box<serve::Args>),
    /// Know the servers of a pool, and say who gets which devices.
    Broker(Box<broker::Args>),
    /// Show a pool's devices, who has them and who waits.
    Pool(pool::Args),
    /// Give a pool's devices to the jobs of Slurm; called by Slurm.
    Slurm(Box<slurm::Args>),
    /// Run a program with devices of a server or of a pool.
    Run(Box<run::Args>),
    /// Print the variables that `outboard run` sets, for a shell.
    Env(env::Args),
    /// List the devices that a server offers.
    #[command(visible_alias = "ls")]
    Devices(devices::Args),
    /// Show the table of `nvidia-smi`, of servers or of a pool.
    Smi(smi::Args),
    /// Keep a server or a pool, and a token, as this user's settings.
    ///
    /// They stand, with a fingerprint, in the string that `outboard token create` prints. The
    /// command tries them.
    Login(login::Args),
    /// Forget a server or a pool that a login has kept, and its token.
    Logout(logout::Args),
    /// Say which servers and pool are in use, and who one is there.
    ///
    /// It also says until when the tokens are good.
    Status(status::Args),
    /// Give servers names, and choose the one that every command uses.
    Context(context::Args),
    /// List the sessions of a server on this machine.
    Sessions(sessions::Args),
    /// Show the sessions of a server on this machine, live.
    Top(top::Args),
    /// Record what a session does for a while, as spans.
    Trace(trace::Args),
    /// End sessions of a server on this machine.
    Kill(kill::Args),
    /// Replace a running server by the installed release.
    ///
    /// It is the one that now has the path of the server's program. Sessions go on.
    Upgrade(upgrade::Args),
    /// Make, list and revoke the tokens of a server or a broker.
    ///
    /// By them it knows its clients; a broker its servers and administrators, too.
    Token(token::Args),
    /// Say where the time of programs went.
    ///
    /// It reads the files that OUTBOARD_PROFILE named while they ran.
    Profile(profile::Args),
    /// Measure how far from native a server on this machine is.
    Bench(bench::Args),
    /// Say what is wrong, how to mend it and what to expect.
    ///
    /// It checks this machine as a client or as a server.
    Doctor(doctor::Args),
    /// Check the configuration, or show what is in force.
    Config(config::Args),
    /// Sign client libraries, so that servers can hand them out.
    Library(library::Args),
    /// Let containers use a server's devices (CDI).
    ///
    /// It writes specifications of the Container Device Interface.
    Cdi(cdi::Args),
    /// Register kernels of Jupyter that have a server's devices.
    ///
    /// VS Code uses them, too.
    Jupyter(jupyter::Args),
    /// Print the completions for a shell.
    Completions(manual::CompletionsArgs),
    /// Write the manual pages to a folder.
    Man(manual::ManArgs),
    /// Say what an error code means and what to do about it.
    Explain(explain::Args),
    /// Read the documentation.
    Docs(docs::Args),
    /// Print the release.
    #[command(hide = true)]
    Version,
    /// Measure for `bench`, which starts it.
    #[command(hide = true)]
    BenchParticipant,
    /// Serve one client; started by `serve`.
    #[command(hide = true)]
    Worker(serve::WorkerArgs),
    /// Try something for `doctor`, which starts it.
    #[command(hide = true)]
    DoctorTrial(doctor::TrialArgs),
    /// Clear away behind servers that ssh leads to; started by `run`.
    #[command(hide = true)]
    SshJanitor(ssh::JanitorArgs),
    /// Suspend or resume a worker; started by `serve`.
    #[command(hide = true)]
    SuspendHelper(suspend::Args),
    /// Look for NVIDIA's driver; started by `serve`.
    #[command(hide = true)]
    CheckDriver,
}

fn main() -> miette::Result<()> {
    stack::with_enough(obey)
}

/// The command line, with its help.
fn command() -> clap::Command {
    help::with_help(Cli::command())
}

/// Does what the command line says.
fn obey() -> miette::Result<()> {
    completion::answer(Cli::command);
    failure::install_hook();
    let given = std::env::vars_os().collect();
    let matches = config::parse(command)?;
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| failure::bad_usage(&error));
    match cli.command {
        Command::Serve(args) => serve::serve(*args),
        Command::Broker(args) => broker::broker(*args),
        Command::Pool(args) => pool::pool(&args),
        Command::Slurm(args) => slurm::slurm(*args),
        Command::Run(args) => run::run(*args),
        Command::Env(args) => env::env(args, &given),
        Command::Devices(args) => devices::devices(&args),
        Command::Smi(args) => smi::smi(&args),
        Command::Login(args) => {
            login::login(&args, cli.config, cli.context.as_deref(), Cli::command())
        }
        Command::Logout(args) => {
            logout::logout(&args, cli.config, cli.context.as_deref(), Cli::command())
        }
        Command::Status(args) => status::status(&args, cli.config, Cli::command()),
        Command::Context(args) => context::context(args, cli.config, cli.context, Cli::command()),
        Command::Sessions(args) => sessions::sessions(&args),
        Command::Top(args) => top::top(&args),
        Command::Trace(args) => trace::trace(args),
        Command::Kill(args) => kill::kill(args),
        Command::Upgrade(args) => upgrade::upgrade(&args),
        Command::Token(args) => token::token(args),
        Command::Profile(args) => profile::profile(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Doctor(args) => doctor::doctor(args),
        Command::DoctorTrial(args) => doctor::attempt(args),
        Command::Cdi(args) => cdi::cdi(args),
        Command::Library(args) => library::library(args),
        Command::Jupyter(args) => jupyter::jupyter(args, &given, &matches),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::man(&args, command()),
        Command::Config(args) => config::config(&args, cli.config, cli.context, Cli::command()),
        Command::Explain(args) => explain::explain(&args),
        Command::Docs(args) => docs::docs(&args),
        Command::Version => output::print(&Cli::command().render_version()),
        Command::BenchParticipant => bench::participant(),
        Command::Worker(args) => serve::worker(&args),
        Command::SshJanitor(args) => ssh::clean_up(&args),
        Command::SuspendHelper(args) => suspend::suspend(&args),
        Command::CheckDriver => serve::check_driver(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flattened structs of flags are groups by their names, so two of one name are found out here.
    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }
}
