//! Settings: a flag, else the environment, else the configuration file, else the default. And
//! `outboard config`.
//!
//! Nothing here names a setting of the server: keys of the table `[serve]` are the long flags of
//! `outboard serve`, whatever those are.

pub(crate) mod client;
pub(crate) mod context;
pub(crate) mod edit;
mod file;
pub(crate) mod keys;
mod mistakes;
pub(crate) mod servers;
mod show;
pub(crate) mod store;

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::OnceLock;

use clap::{ArgMatches, Command};
use miette::Result;
use outboard_transport::DEFAULT_PORT;
use outboard_wire::Code;

use crate::failure::Failure;
use crate::{failure, output};
use file::File;
pub(crate) use file::{SYSTEM, Setting, Settings, own_file};

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
const WITHOUT: &[&str] = &[
    "bench",
    "completions",
    "config",
    "context",
    "docs",
    "explain",
    "login",
    "logout",
    "man",
    "profile",
];

/// Commands that become or start programs, or read the table `[serve]` by themselves. Other
/// commands administer this machine's server and must find its files.
const PROGRAMS: &[&str] = &["bench", "env", "run", keys::SERVE];

/// The context whose settings this process has.
static CONTEXT: OnceLock<String> = OnceLock::new();

/// Where the fingerprint and the token of this process come from, if a login has put them there.
static LOGIN_PLACE: OnceLock<String> = OnceLock::new();

/// Where the fingerprint of the login in force comes from, as the end of a sentence.
pub(crate) fn login_place() -> Option<&'static str> {
    LOGIN_PLACE.get().map(String::as_str)
}

/// Whether a flag, a variable or the file names a server.
static IS_SERVER_NAMED: OnceLock<bool> = OnceLock::new();

/// Whether a flag, a variable or the file names a server; without one it is this machine's.
pub(crate) fn is_server_named() -> bool {
    IS_SERVER_NAMED.get().copied().unwrap_or(true)
}

/// Commands that reach the server of this machine's user by its socket, if no server is named.
const FOR_OWN_SOCKET: &[&str] = &["devices", "doctor", "run", "smi", "status"];

/// The socket of a server that listens at the usual port of this machine, if this user may connect.
fn own_socket() -> Option<String> {
    let folders = crate::admin::folders();
    let mut sockets = folders.map(|folder| folder.join(format!("{DEFAULT_PORT}.sock")));
    let socket = sockets.find(|socket| UnixStream::connect(socket).is_ok())?;
    Some(format!("unix:{}", socket.to_str()?))
}

/// The context whose settings this process has, if they are one's.
pub(crate) fn context() -> Option<&'static str> {
    CONTEXT.get().map(String::as_str)
}

/// Reads the command line, with what the environment and the file say of settings. Ends the process
/// if it cannot be understood.
pub(crate) fn parse(command: fn() -> Command) -> Result<ArgMatches> {
    let line: Vec<OsString> = std::env::args_os().collect();
    let mut built = keys::with_environment(command());
    if let Some(look) = first_look(&built, &line)
        && reads_configuration(&built, &look.name)
    {
        let settings = context::settings(look.file, &built)?;
        if look.name != keys::SERVE {
            let in_force = context::in_force(settings.as_ref(), &look.line)?;
            client::unset_empty_server();
            if let Some(login) = client::login(settings.as_ref(), &in_force) {
                client::set_login(&login);
                let _ = LOGIN_PLACE.set(login.place);
            }
            client::set(&in_force);
            servers::set(settings.as_ref().map_or(&[], |settings| &settings.servers), &in_force);
            in_force.name.map(|name| CONTEXT.set(name));
            let is_named = look.line.server || std::env::var_os(client::SERVER).is_some();
            let _ = IS_SERVER_NAMED.set(is_named);
            if !is_named
                && FOR_OWN_SOCKET.contains(&look.name.as_str())
                && let Some(socket) = own_socket()
            {
                client::set_server(&socket);
            }
        }
        if let Some(settings) = &settings
            && !PROGRAMS.contains(&look.name.as_str())
        {
            keys::set(&settings.serve);
        }
        // Made anew: it has looked at the environment when it was made.
        built = keys::with_environment(command());
        if let Some(settings) = settings {
            built = settings.as_defaults(built);
        }
    }
    Ok(built.try_get_matches_from(line).unwrap_or_else(|error| failure::bad_usage(&error)))
}

/// The parts of a command line that are needed before it can be parsed.
struct Look {
    /// The configuration file that it names.
    file: Option<PathBuf>,
    /// The command.
    name: String,
    /// The flags that choose a server.
    line: context::Line,
}

/// None if the line only asks for help, or for nothing.
fn first_look(command: &Command, line: &[OsString]) -> Option<Look> {
    let matches = command.clone().ignore_errors(true).try_get_matches_from(line).ok()?;
    let (name, inner) = matches.subcommand()?;
    // An error may have kept a global flag from being passed on.
    let file =
        inner.try_get_one("config").ok().flatten().or_else(|| matches.get_one::<PathBuf>("config"));
    Some(Look { file: file.cloned(), name: name.to_owned(), line: context::Line::of(&matches) })
}

/// The flags of `outboard serve` as they would be in force with these on the command line.
pub(crate) fn of_serve(command: fn() -> Command, flags: Vec<OsString>) -> Result<ArgMatches> {
    let mut built = keys::with_environment(command());
    let line: Vec<OsString> =
        ["outboard", keys::SERVE].map(OsString::from).into_iter().chain(flags).collect();
    let chosen = first_look(&built, &line).and_then(|look| look.file);
    if let Some(file) = File::find(chosen)? {
        built = file.check(&built)?.as_defaults(built);
    }
    let mut matches =
        built.try_get_matches_from(line).unwrap_or_else(|error| failure::bad_usage(&error));
    Ok(matches.remove_subcommand().map(|(_, inner)| inner).unwrap_or_default())
}

/// There is no file that could be written.
pub(crate) fn no_file() -> Failure {
    let help = "name one with --config FILE, or set HOME";
    Failure::new(Code::FileUnusable, "there is no configuration file to write to", help)
}

fn reads_configuration(command: &Command, name: &str) -> bool {
    let hidden = command.find_subcommand(name).is_none_or(Command::is_hide_set);
    !hidden && !WITHOUT.contains(&name)
}

/// `outboard config`. `chosen` is the file that the command line names, `context` the context.
pub(crate) fn config(
    args: &Args,
    chosen: Option<PathBuf>,
    context: Option<String>,
    command: Command,
) -> Result<()> {
    let command = keys::with_environment(command);
    match &args.action {
        Action::Check { file: Some(path) } => check(&File::read(path.clone())?, &command),
        Action::Check { file: None } => match File::find(chosen)? {
            Some(file) => check(&file, &command),
            None => output::print("There is no configuration file; everything has its default.\n"),
        },
        Action::Reference => output::print(&show::reference(&command)),
        Action::Show { json } => {
            let settings = context::settings(chosen, &command)?;
            show::show(&command, settings.as_ref(), context, *json)
        }
    }
}

fn check(file: &File, command: &Command) -> Result<()> {
    let settings = file.check(command)?;
    let of_contexts = settings.contexts.iter().flat_map(|context| &context.settings);
    let of_servers = settings.servers.iter().flat_map(|own| &own.settings);
    let wrong = client::wrong_files(settings.client.iter().chain(of_contexts).chain(of_servers));
    if !wrong.is_empty() {
        let message = format!("the configuration {}: {}", file.path.display(), wrong.join("; "));
        let help = "check the path and whose file it is; `~/` at its beginning is the home folder";
        return Err(Failure::new(Code::FileUnusable, message, help).into());
    }
    let in_contexts: usize = settings.contexts.iter().map(|context| context.settings.len()).sum();
    let in_servers: usize = settings.servers.iter().map(|own| own.settings.len()).sum();
    let count = settings.serve.len() + settings.client.len() + in_contexts + in_servers;
    let noun = if count == 1 { "setting" } else { "settings" };
    output::print(&format!("{} is right: {count} {noun}.\n", file.path.display()))
}
