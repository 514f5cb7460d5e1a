//! Settings: a flag, else the environment, else the configuration file, else the default. And `outboard config`.
//!
//! Nothing here names a setting of the server: keys of the table `[serve]` are the long flags of `outboard serve`, whatever those are.

pub(crate) mod client;
pub(crate) mod edit;
mod file;
pub(crate) mod keys;
mod mistakes;
mod show;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, Command};
use miette::Result;
use outboard_wire::Code;

use crate::failure::Failure;
use crate::{failure, output};
use file::File;
pub(crate) use file::{SYSTEM, own_file};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Report every mistake in a configuration file.
    Check {
        /// The file; without it the one that would be used.
        file: Option<PathBuf>,
    },
    /// Print the tables of the documentation.
    #[command(hide = true)]
    Reference,
    /// Print the settings in force, and where each came from.
    Show {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Commands that work whatever the configuration is, or do not look at it.
const WITHOUT: &[&str] = &["bench", "completions", "config", "explain", "login", "man", "profile"];

/// Commands that become or start programs, or read the table `[serve]` by themselves. Others look after the server of this machine, and have to find
/// what it has.
const PROGRAMS: &[&str] = &["bench", "env", "run", keys::SERVE];

/// Reads the command line, with what the environment and the file say of settings. Ends the process if it cannot be understood.
pub(crate) fn parse(command: fn() -> Command) -> Result<ArgMatches> {
    let line: Vec<OsString> = std::env::args_os().collect();
    let mut built = keys::with_environment(command());
    if let Some((chosen, name)) = first_look(&built, &line)
        && reads_configuration(&built, &name)
        && let Some(file) = File::find(chosen)?
    {
        let settings = file.check(&built)?;
        if name != keys::SERVE {
            client::set(&settings.client);
        }
        if !PROGRAMS.contains(&name.as_str()) {
            keys::set(&settings.serve);
        }
        // Made anew: it has looked at the environment when it was made.
        built = settings.as_defaults(keys::with_environment(command()));
    }
    Ok(built.try_get_matches_from(line).unwrap_or_else(|error| failure::bad_usage(&error)))
}

/// Which file the command line names, and which command. None if it only asks for help, or for nothing.
fn first_look(command: &Command, line: &[OsString]) -> Option<(Option<PathBuf>, String)> {
    let matches = command.clone().ignore_errors(true).try_get_matches_from(line).ok()?;
    let (name, inner) = matches.subcommand()?;
    // An error may have kept a global flag from being passed on.
    let chosen = inner.try_get_one("config").ok().flatten().or_else(|| matches.get_one::<PathBuf>("config"));
    Some((chosen.cloned(), name.to_owned()))
}

/// The flags of `outboard serve` as they would be in force with these on the command line.
pub(crate) fn of_serve(command: fn() -> Command, flags: Vec<OsString>) -> Result<ArgMatches> {
    let mut built = keys::with_environment(command());
    let line: Vec<OsString> = ["outboard", keys::SERVE].map(OsString::from).into_iter().chain(flags).collect();
    let chosen = first_look(&built, &line).and_then(|(chosen, _)| chosen);
    if let Some(file) = File::find(chosen)? {
        built = file.check(&built)?.as_defaults(built);
    }
    let mut matches = built.try_get_matches_from(line).unwrap_or_else(|error| failure::bad_usage(&error));
    Ok(matches.remove_subcommand().map(|(_, inner)| inner).unwrap_or_default())
}

fn reads_configuration(command: &Command, name: &str) -> bool {
    let hidden = command.find_subcommand(name).is_none_or(Command::is_hide_set);
    !hidden && !WITHOUT.contains(&name)
}

/// `outboard config`. `chosen` is the file that the command line names.
pub(crate) fn config(args: &Args, chosen: Option<PathBuf>, command: Command) -> Result<()> {
    let command = keys::with_environment(command);
    match &args.action {
        Action::Check { file: Some(path) } => check(&File::read(path.clone())?, &command),
        Action::Check { file: None } => match File::find(chosen)? {
            Some(file) => check(&file, &command),
            None => output::print("There is no configuration file; everything has its default.\n"),
        },
        Action::Reference => output::print(&show::reference(&command)),
        Action::Show { json } => {
            let settings = File::find(chosen)?.map(|file| file.check(&command)).transpose()?;
            show::show(&command, settings.as_ref(), *json)
        }
    }
}

fn check(file: &File, command: &Command) -> Result<()> {
    let settings = file.check(command)?;
    let wrong = client::wrong_files(&settings.client);
    if !wrong.is_empty() {
        let message = format!("the configuration {}: {}", file.path.display(), wrong.join("; "));
        let help = "check the path and whose file it is; `~/` at its beginning is the home folder";
        return Err(Failure::new(Code::FileUnusable, message, help).into());
    }
    let count = settings.serve.len() + settings.client.len();
    let noun = if count == 1 { "setting" } else { "settings" };
    output::print(&format!("{} is right: {count} {noun}.\n", file.path.display()))
}
