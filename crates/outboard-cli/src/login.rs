//! `outboard login`: stores the string from a server's operator, so that no command needs a flag.

use std::io::{self, BufRead, IsTerminal, Read};
use std::path::{Path, PathBuf};

use clap::Command;
use miette::Result;
use outboard_client::invitation::Invitation;
use outboard_wire::Code;
use ring::digest;

use crate::config::edit::Table;
use crate::config::{self, client, context, store};
use crate::failure::Failure;
use crate::output::print;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The string. With `-`, or without it, the command reads a line of standard input, which keeps
    /// the token out of the shell's history and of lists of processes.
    #[arg(value_name = "STRING|-", default_value = "-", hide_default_value = true)]
    string: String,
    /// Keep fingerprint and token for this server alone, beside what is there, for lists of several
    /// servers; the list itself stays as it is.
    #[arg(long)]
    add: bool,
    /// Replace another server, fingerprint or token of this context.
    #[arg(long)]
    force: bool,
}

/// No string is longer.
const LONGEST: u64 = 4096;

/// The file of the token that a login keeps for a context, or without one, beside the
/// configuration.
pub(crate) fn token_file(configuration: &Path, context: Option<&str>) -> PathBuf {
    configuration
        .with_file_name(context.map_or_else(|| "token".to_owned(), |name| format!("token-{name}")))
}

/// The same for a server that has a token of its own. Letters that a name of a file may lack are
/// replaced, so a digest keeps the files of two servers apart.
fn token_file_of(configuration: &Path, server: &str) -> PathBuf {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let plain: String = server.chars().map(plain).collect();
    let digest = digest::digest(&digest::SHA256, server.as_bytes());
    let digits: String = digest.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    configuration.with_file_name(format!("token.{plain}-{digits}"))
}

/// `chosen` is the configuration file that the command line names, `name` the context.
pub(crate) fn login(
    args: &Args,
    chosen: Option<PathBuf>,
    name: Option<&str>,
    command: Command,
) -> Result<()> {
    let name = name.filter(|name| *name != context::DEFAULT);
    if args.add && name.is_some() {
        let message = "--add keeps what is one server's, and --context names a context";
        return Err(Failure::new(Code::BadUsage, message, "leave one of them out").into());
    }
    if let Some(Err(problem)) = name.map(context::check_name) {
        return Err(Failure::new(Code::BadUsage, problem, "choose another name").into());
    }
    let given = if args.string == "-" { read_line()? } else { args.string.clone() };
    let invitation: Invitation = given.parse().map_err(|mistake| {
        let message =
            format!("this is not the string that `outboard token create` prints: {mistake}");
        Failure::new(
            Code::BadUsage,
            message,
            "copy all of it: outboard://TOKEN@HOST:PORT/sha256:DIGITS",
        )
    })?;
    let file = config::own_file(chosen).ok_or_else(config::no_file)?;
    let (server, fingerprint) = (invitation.server.to_string(), invitation.fingerprint.to_string());
    let token_file = if args.add { token_file_of(&file, &server) } else { token_file(&file, name) };
    let Some(named) = token_file.to_str().filter(|_| token_file != file) else {
        let message = format!(
            "{} cannot be the configuration: it is where the token goes, or no UTF-8",
            file.display()
        );
        return Err(Failure::new(
            Code::FileUnusable,
            message,
            "name another file with --config FILE",
        )
        .into());
    };
    let all =
        [("server", server.as_str()), ("tls-fingerprint", &fingerprint), ("token-file", named)];
    let (table, wanted) = match args.add {
        true => (Table::Server(&server), &all[1..]),
        false => (name.map_or(Table::Client, Table::Context), &all[..]),
    };
    let command = config::keys::with_environment(command);
    let edit = config::edit::table(&file, table, wanted, &command)?;
    let mut others = edit.others.clone();
    match std::fs::read_to_string(&token_file) {
        Ok(there) if there.trim() == invitation.token => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        // One that cannot be read is another one, too.
        _ => others.push(format!("another token in {named}")),
    }
    if !others.is_empty() && !args.force {
        let message =
            format!("nothing was written, since something else is there: {}", others.join("; "));
        let help = "--force replaces it; --context NAME keeps it beside what is there; --config FILE writes to another file";
        return Err(Failure::new(Code::BadUsage, message, help).into());
    }
    store::make_folder(&file)?;
    let is_new = !file.exists();
    store::secret(&token_file, &format!("{}\n", invitation.token))?;
    store::configuration(&file, &edit.text)?;
    if args.add {
        return print(&format!(
            "The token is in {named}, which only you can read.\nIts file and the fingerprint of {server} are in {}, for every list that names this server.\n",
            file.display()
        ));
    }
    warn(wanted, is_new);
    let settings = context::settings(Some(file.clone()), &command)?;
    let in_use = context::chosen(settings.as_ref(), None);
    let is_used = in_use.as_deref() == name;
    let what = match (name, is_used) {
        (_, true) => "`outboard devices` shows what there is.".to_owned(),
        (Some(name), false) => {
            format!(
                "`outboard context use {name}` has every command use it, `--context {name}` this one."
            )
        }
        (None, false) => format!(
            "The context {} is in use, though; `outboard context use {}` has this one count.",
            in_use.unwrap_or_default(),
            context::DEFAULT
        ),
    };
    print(&format!(
        "The token is in {named}, which only you can read.\nThe server {server}, its fingerprint and the token's file are in {}.\n{what}\n",
        file.display()
    ))
}

/// A line of standard input.
fn read_line() -> Result<String, Failure> {
    let input = io::stdin();
    if input.is_terminal() {
        eprint!("Paste what `outboard token create` has printed, outboard://..., then Enter: ");
    }
    let mut line = String::new();
    match input.lock().take(LONGEST).read_line(&mut line) {
        Ok(_) => Ok(line),
        Err(error) => {
            let message = format!("cannot read standard input: {error}");
            Err(Failure::new(Code::BadUsage, message, "give the string as it was printed"))
        }
    }
}

/// Warns of variables that override what was written.
pub(crate) fn warn(wanted: &[(&str, &str)], is_new: bool) {
    let variables = wanted.iter().filter_map(|(name, value)| {
        let variable = client::key(name)?.variable;
        std::env::var_os(variable).filter(|set| set != value).map(|_| variable)
    });
    let token = std::env::var_os("OUTBOARD_TOKEN").map(|_| "OUTBOARD_TOKEN");
    let clear = std::env::var_os("OUTBOARD_TLS").filter(|set| set == "off").map(|_| "OUTBOARD_TLS");
    for variable in variables.chain(token).chain(clear) {
        eprintln!(
            "outboard: {variable} is set, which goes before what was written; `unset {variable}` has it count"
        );
    }
    if is_new && Path::new(config::SYSTEM).exists() {
        eprintln!(
            "outboard: {} is not read for you any more; copy what you need of it",
            config::SYSTEM
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_servers_have_two_files_of_tokens() {
        let file = |server| token_file_of(Path::new("config.toml"), server);
        assert_ne!(file("gpu-1:1"), file("gpu.1:1"));
        let name = file("gpu-1:1").file_name().unwrap().to_string_lossy().into_owned();
        assert!(name.starts_with("token.gpu-1-1-"), "{name}");
    }
}
