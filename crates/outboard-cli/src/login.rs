//! `outboard login`: keeps what a server's operator has given this user, so that no command needs a flag.

pub(crate) mod invitation;

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::Command;
use miette::Result;
use outboard_wire::Code;

use crate::config::{self, client};
use crate::failure::Failure;
use crate::output::print;
use invitation::Invitation;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The string; `-`, or none, reads a line of standard input, so that neither the shell's history nor a list of processes shows the token.
    #[arg(value_name = "STRING|-", default_value = "-", hide_default_value = true)]
    string: String,
    /// Replace another server, fingerprint or token that is there.
    #[arg(long)]
    force: bool,
}

/// The file of the token, beside the configuration.
const TOKEN: &str = "token";
/// No string is longer.
const LONGEST: u64 = 4096;

/// `chosen` is the configuration file that the command line names.
pub(crate) fn login(args: &Args, chosen: Option<PathBuf>, command: Command) -> Result<()> {
    let given = if args.string == "-" { read_line()? } else { args.string.clone() };
    let invitation: Invitation = given.parse().map_err(|mistake| {
        let message = format!("this is not the string that `outboard token create` prints: {mistake}");
        Failure::new(Code::BadUsage, message, "copy all of it: outboard://TOKEN@HOST:PORT/sha256:DIGITS")
    })?;
    let file = config::own_file(chosen).ok_or_else(|| {
        let help = "name one with --config FILE, or set HOME";
        Failure::new(Code::FileUnusable, "there is no configuration file to write to", help)
    })?;
    let token_file = file.with_file_name(TOKEN);
    let Some(named) = token_file.to_str().filter(|_| token_file != file) else {
        let message =
            format!("{} cannot be the configuration: it is where the token goes, or no UTF-8", file.display());
        return Err(Failure::new(Code::FileUnusable, message, "name another file with --config FILE").into());
    };
    let (server, fingerprint) = (invitation.server.to_string(), invitation.fingerprint.to_string());
    let wanted = [("server", server.as_str()), ("tls-fingerprint", &fingerprint), ("token-file", named)];
    let edit = config::edit::client(&file, &wanted, &config::keys::with_environment(command))?;
    let mut others = edit.others.clone();
    match std::fs::read_to_string(&token_file) {
        Ok(there) if there.trim() == invitation.token => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        // One that cannot be read is another one, too.
        _ => others.push(format!("another token in {named}")),
    }
    if !others.is_empty() && !args.force {
        let message = format!("nothing was written, since something else is there: {}", others.join("; "));
        let help = "--force replaces it; --config FILE writes to another file";
        return Err(Failure::new(Code::BadUsage, message, help).into());
    }
    let folder = file.parent().unwrap_or(Path::new("."));
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| Failure::file("make", folder, &error))?;
    let is_new = !file.exists();
    let token = format!("{}\n", invitation.token);
    replace(&token_file, token.as_bytes(), 0o600).map_err(|error| Failure::file("write", &token_file, &error))?;
    // A link to a file elsewhere stays one.
    let real = file.canonicalize().unwrap_or_else(|_| file.clone());
    let mode = std::fs::metadata(&real).map_or(0o600, |there| there.permissions().mode() & 0o777);
    replace(&real, edit.text.as_bytes(), mode).map_err(|error| Failure::file("write", &real, &error))?;
    warn(&wanted, is_new);
    print(&format!(
        "The token is in {named}, which only you can read.\nThe server {server}, its fingerprint and the token's file are in {}.\n\
         `outboard devices` shows what there is.\n",
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

/// Says what stands in the way of what was written.
fn warn(wanted: &[(&str, &str)], is_new: bool) {
    let variables = wanted.iter().filter_map(|(name, value)| {
        let variable = client::key(name)?.variable;
        std::env::var_os(variable).filter(|set| set != value).map(|_| variable)
    });
    let token = std::env::var_os("OUTBOARD_TOKEN").map(|_| "OUTBOARD_TOKEN");
    let clear = std::env::var_os("OUTBOARD_TLS").filter(|set| set == "off").map(|_| "OUTBOARD_TLS");
    for variable in variables.chain(token).chain(clear) {
        eprintln!("outboard: {variable} is set, which goes before what was written; `unset {variable}` has it count");
    }
    if is_new && Path::new(config::SYSTEM).exists() {
        eprintln!("outboard: {} is not read for you any more; copy what you need of it", config::SYSTEM);
    }
}

/// Writes a file, all of it or nothing.
fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".unfinished-{}", std::process::id()));
    let unfinished = path.with_file_name(name);
    let write = || {
        let mut file = File::options().write(true).create_new(true).mode(mode).open(&unfinished)?;
        // What it may be allowed more than the process gives to new files.
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&unfinished, path)
    };
    // Left by a process of the same number, which was killed.
    let _ = std::fs::remove_file(&unfinished);
    write().inspect_err(|_| {
        let _ = std::fs::remove_file(&unfinished);
    })
}
