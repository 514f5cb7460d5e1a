//! Completion: the candidates for the word at the cursor. The scripts of `outboard completions` ask
//! this program each time, so that they know sessions, servers and contexts as they are at the
//! moment. Errors are not reported: there is nothing to choose from then.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Command;
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use outboard_supervisor::admin::Session;
use outboard_wire::{Code, plain};

use crate::admin::{AdminArgs, sockets};
use crate::config::context::{self, DEFAULT};
use crate::config::{Setting, keys};
use crate::manual::visible;
use crate::sessions::text::short;

/// Asks for completions, with the name of the shell.
pub(crate) const VARIABLE: &str = "OUTBOARD_COMPLETE";

/// The flag, and the key of a context, that names a server.
const SERVER: &str = "server";
/// Completion does not wait for a busy server.
const PATIENCE: Duration = Duration::from_millis(500);

/// Answers a shell and ends the process, if one asks.
pub(crate) fn answer(command: fn() -> Command) {
    CompleteEnv::with_factory(|| with_candidates(visible(&command()))).var(VARIABLE).complete();
}

/// Adds candidates to arguments, by their names.
fn with_candidates(command: Command) -> Command {
    let within = command.get_name().to_owned();
    let command =
        command.mut_args(|argument| match (within.as_str(), argument.get_id().as_str()) {
            (_, SERVER) => argument.add(ArgValueCandidates::new(servers)),
            ("outboard", context::KEY) | ("show" | "use" | "remove", "name") => {
                argument.add(ArgValueCandidates::new(contexts))
            }
            ("kill" | "trace", "session") => argument.add(ArgValueCandidates::new(sessions)),
            ("kill", "owner") => argument.add(ArgValueCandidates::new(owners)),
            ("explain", "code") => argument.add(ArgValueCandidates::new(codes)),
            _ => argument,
        });
    command.mut_subcommands(with_candidates)
}

fn candidate(value: &str, help: impl Into<String>) -> CompletionCandidate {
    let help: String = help.into();
    CompletionCandidate::new(plain(value).to_string())
        .help((!help.is_empty()).then(|| plain(&help).to_string().into()))
}

fn codes() -> Vec<CompletionCandidate> {
    Code::ALL.iter().map(|code| candidate(code.text(), code.title())).collect()
}

/// The value that the command line so far has for a flag.
fn typed(flag: &str) -> Option<String> {
    let words: Vec<OsString> =
        std::env::args_os().skip_while(|word| word != "--").skip(1).collect();
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let behind = words.windows(2).rev().find(|pair| pair[0] == flag).map(|pair| pair[1]);
    let joined = words.iter().rev().find_map(|word| word.strip_prefix(flag)?.strip_prefix('='));
    behind.or(joined).map(str::to_owned)
}

/// The sessions of the server that is meant, or else of all of this machine.
fn listed() -> Vec<Session> {
    let server =
        typed("--server").or_else(|| std::env::var(outboard_client::target::VARIABLE).ok());
    let server = server.and_then(|server| server.parse().ok());
    let places = match (typed("--admin").map(PathBuf::from), server) {
        (Some(path), _) => vec![path],
        (None, Some(server)) => AdminArgs::of(server).candidates().unwrap_or_default(),
        (None, None) => sockets(),
    };
    let admins = places
        .iter()
        .filter_map(|path| outboard_supervisor::admin::Admin::connect_for(path, PATIENCE).ok());
    let listings = admins.filter_map(|mut admin| admin.listing().ok());
    listings
        .flat_map(|listing| listing.sessions)
        .filter(|session| session.kind == "session")
        .collect()
}

fn sessions() -> Vec<CompletionCandidate> {
    let about = |session: &Session| format!("{}: {}", session.owner, session.client);
    listed().iter().map(|session| candidate(short(&session.id), about(session))).collect()
}

fn owners() -> Vec<CompletionCandidate> {
    let mut owners: Vec<String> = listed().into_iter().map(|session| session.owner).collect();
    owners.sort();
    owners.dedup();
    owners.iter().map(|owner| candidate(owner, "")).collect()
}

/// The contexts of the configuration, each with its server.
fn known() -> Vec<(String, String)> {
    let file = typed("--config")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("OUTBOARD_CONFIG").map(PathBuf::from));
    let command = keys::with_environment(<crate::Cli as clap::CommandFactory>::command());
    let settings = context::settings(file, &command).ok().flatten();
    let server = |settings: &[Setting]| {
        settings.iter().find(|setting| setting.name == SERVER).map(Setting::text)
    };
    let of = |context: &context::Context| {
        (context.name.clone(), server(&context.settings).unwrap_or_default())
    };
    settings.map_or_else(Vec::new, |settings| settings.contexts.iter().map(of).collect())
}

fn contexts() -> Vec<CompletionCandidate> {
    let mut all: Vec<CompletionCandidate> =
        known().iter().map(|(name, server)| candidate(name, server.clone())).collect();
    all.push(candidate(DEFAULT, "the settings that have no name"));
    all
}

fn servers() -> Vec<CompletionCandidate> {
    let of_contexts = known().into_iter().filter(|(_, server)| !server.is_empty());
    let mut all: Vec<CompletionCandidate> =
        of_contexts.map(|(name, server)| candidate(&server, name)).collect();
    all.push(candidate("localhost", ""));
    all
}
