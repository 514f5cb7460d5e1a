//! `outboard login`: stores the string from the operator of a server or of a pool, so that no
//! command needs a flag, and tries it.

mod files;

use std::io::{self, BufRead, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Command;
use miette::Result;
use outboard_broker_client::Settings;
use outboard_client::invitation::Invitation;
use outboard_client::target::{Target, Targets};
use outboard_wire::Code;

use crate::config::edit::Table;
use crate::config::{self, client, context, store};
use crate::failure::Failure;
use crate::output::print;
use crate::pool::{access, invitation as pool};
use crate::whoami;
pub(crate) use files::{kept_tokens, remove_token, token_file_of};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The string. With `-`, or without it, the command reads a line of standard input, which keeps
    /// the token out of the shell's history and of lists of processes.
    #[arg(value_name = "STRING|-", default_value = "-", hide_default_value = true)]
    string: String,
    /// Keep fingerprint and token for this server alone, beside what is there, for lists of several
    /// servers; the list itself stays as it is. So it is without this flag, too, if another server
    /// is there.
    #[arg(long)]
    add: bool,
    /// Replace another server, pool, fingerprint or token of this context without asking.
    #[arg(long)]
    force: bool,
    /// Do not connect: keep what the string says, untried.
    #[arg(long)]
    no_check: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// No string is longer.
const LONGEST: u64 = 4096;

/// What a login is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Server,
    Pool,
}

/// The string that was given.
enum Invited {
    Server(Invitation),
    Pool(pool::Invitation),
}

impl Invited {
    fn read(text: &str) -> Result<Invited, Failure> {
        let read = match text.trim().starts_with(pool::SCHEME) {
            true => text.parse().map(Invited::Pool),
            false => text.parse().map(Invited::Server),
        };
        read.map_err(|mistake| {
            let message =
                format!("this is not the string that `outboard token create` prints: {mistake}");
            let help = "copy all of it: outboard://TOKEN@HOST:PORT/sha256:DIGITS, or outboard+pool://… for a pool";
            Failure::new(Code::BadUsage, message, help)
        })
    }

    fn kind(&self) -> Kind {
        match self {
            Invited::Server(_) => Kind::Server,
            Invited::Pool(_) => Kind::Pool,
        }
    }

    fn token(&self) -> &str {
        match self {
            Invited::Server(Invitation { token, .. })
            | Invited::Pool(pool::Invitation { token, .. }) => token,
        }
    }

    /// The address or addresses, as settings name them.
    fn place(&self) -> String {
        match self {
            Invited::Server(invitation) => invitation.server.to_string(),
            Invited::Pool(invitation) => invitation.urls.to_string(),
        }
    }

    /// The settings that say all of it, the place first.
    fn settings(&self, token_file: &str) -> Vec<(&'static str, String)> {
        let ([place, fingerprint, token], pinned) = match self {
            Invited::Server(invitation) => {
                (["server", "tls-fingerprint", "token-file"], invitation.fingerprint)
            }
            Invited::Pool(invitation) => {
                (["pool", "pool-fingerprint", "pool-token-file"], invitation.fingerprint)
            }
        };
        vec![
            (place, self.place()),
            (fingerprint, pinned.to_string()),
            (token, token_file.to_owned()),
        ]
    }

    /// Connects, and says who the client is there, and what there is.
    fn reach(&self) -> Result<(String, serde_json::Value), Failure> {
        let told = |reached: &dyn Fn() -> (String, String, Option<serde_json::Value>)| {
            let (who, what, json) = reached();
            let text = format!("{} knows you as {who}.\nIt has {what}.\n", self.place());
            (text, json.unwrap_or_default())
        };
        match self {
            Invited::Server(invitation) => {
                let (address, invitation) =
                    (invitation.server.clone(), Some(Arc::new(invitation.clone())));
                let reached = whoami::server(&Target { address, devices: Vec::new(), invitation })?;
                if let Some(warning) = reached.warning(&self.place()) {
                    eprintln!("outboard: {warning}");
                }
                Ok(told(&|| (reached.who(), reached.what(), serde_json::to_value(&reached).ok())))
            }
            Invited::Pool(pool::Invitation { urls, fingerprint, token }) => {
                let settings = Settings {
                    url: Some(urls.to_string()),
                    fingerprint: Some(fingerprint.to_string()),
                    token: Some(token.clone()),
                    ..Settings::default()
                };
                let reached = whoami::pool(&access::to(&settings)?)?;
                Ok(told(&|| (reached.who(), reached.what(), serde_json::to_value(&reached).ok())))
            }
        }
    }
}

/// The status of a login that was kept although nobody answers, or somebody says no.
const NOT_REACHED: i32 = 3;

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
    let is_piped = args.string == "-" && !io::stdin().is_terminal();
    let given = if args.string == "-" { read_line()? } else { args.string.clone() };
    let invited = Invited::read(&given)?;
    let file = config::own_file(chosen).ok_or_else(config::no_file)?;
    let command = config::keys::with_environment(command);
    let place = invited.place();
    let there = if file.exists() { context::settings(Some(file.clone()), &command)? } else { None };
    let is_beside = match &invited {
        Invited::Server(_) if name.is_none() => {
            args.add || (!args.force && is_another(there.as_ref(), &place))
        }
        Invited::Pool(_) if args.add => {
            let message = "--add is for a server of a list, and this is a pool";
            return Err(Failure::new(Code::BadUsage, message, "leave it out").into());
        }
        _ => false,
    };
    let token_file = match is_beside {
        true => files::token_file_of(&file, &place),
        false => files::token_file(&file, invited.kind(), name),
    };
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
    let all = invited.settings(named);
    let all: Vec<(&str, &str)> = all.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let (table, wanted) = match is_beside {
        true => (Table::Server(&place), &all[1..]),
        false => (name.map_or(Table::Client, Table::Context), &all[..]),
    };
    let edit = config::edit::table(&file, table, wanted, &command)?;
    let mut others = edit.others.clone();
    match std::fs::read_to_string(&token_file) {
        Ok(there) if there.trim() == invited.token() => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        // One that cannot be read is another one, too.
        _ => others.push(format!("another token in {named}")),
    }
    if !others.is_empty() && !args.force && (is_piped || !is_wanted(&others)?) {
        let message =
            format!("nothing was written, since something else is there: {}", others.join("; "));
        let help = "--force replaces it; --context NAME keeps it beside what is there; --config FILE writes to another file";
        return Err(Failure::new(Code::BadUsage, message, help).into());
    }
    store::make_folder(&file)?;
    let is_new = !file.exists();
    store::secret(&token_file, &format!("{}\n", invited.token()))?;
    store::configuration(&file, &edit.text)?;
    warn(wanted, is_new);
    let kept = if is_beside {
        format!(
            "Its file and the fingerprint of {place} are in {}, for `--server {place}` and every list that names this server.\n",
            file.display()
        )
    } else {
        let what = match invited.kind() {
            Kind::Server => "server",
            Kind::Pool => "pool",
        };
        format!(
            "The {what} {place}, its fingerprint and the token's file are in {}.\n{}\n",
            file.display(),
            next_step(&invited, &file, name, &command)?
        )
    };
    let kept = format!("The token is in {named}, which only you can read.\n{kept}");
    let reached = if args.no_check { None } else { Some(invited.reach()) };
    if args.json {
        let (answer, problem) = match &reached {
            Some(Ok((_, answer))) => (Some(answer), None),
            Some(Err(failure)) => (None, Some(whoami::problem(failure))),
            None => (None, None),
        };
        print(&whoami::json(&serde_json::json!({
            "place": place,
            "context": name,
            "configuration": file,
            "token_file": token_file,
            "beside": is_beside,
            "answer": answer,
            "problem": problem,
        }))?)?;
    } else {
        let answer = reached.iter().flatten().map(|(text, _)| text.as_str());
        print(&(kept + &answer.collect::<String>()))?;
    }
    match reached {
        Some(Err(failure)) => {
            let message = format!("the login was kept, but it does not work yet: {failure}");
            Failure::new(failure.code(), message, failure.help()).end_with(NOT_REACHED)
        }
        _ => Ok(()),
    }
}

/// Whether the file has another server than this one already, or this one beside another.
fn is_another(settings: Option<&config::Settings>, server: &str) -> bool {
    let Some(settings) = settings else { return false };
    let has_own = settings.servers.iter().any(|own| own.name == server);
    let first = settings.client.iter().find(|setting| setting.name == "server");
    let is_first = |first: &config::Setting| {
        let listed = first.text().parse::<Targets>();
        listed.is_ok_and(|listed| {
            let all = listed.servers();
            all.len() == 1 && all[0].address.to_string() == server
        })
    };
    has_own || first.is_some_and(|first| !is_first(first))
}

/// What a person does now.
fn next_step(
    invited: &Invited,
    file: &Path,
    name: Option<&str>,
    command: &Command,
) -> Result<String> {
    let settings = context::settings(Some(file.to_owned()), command)?;
    let in_use = context::chosen(settings.as_ref(), None);
    Ok(match (name, in_use.as_deref() == name) {
        (_, true) if invited.kind() == Kind::Pool => {
            "`outboard run --gpus 1 -- PROGRAM` has a device of it; `outboard pool` shows what there is.".to_owned()
        }
        (_, true) => "`outboard devices` shows what there is.".to_owned(),
        (Some(name), false) => format!(
            "`outboard context use {name}` has every command use it, `--context {name}` this one."
        ),
        (None, false) => format!(
            "The context {} is in use, though; `outboard context use {}` has this one count.",
            in_use.unwrap_or_default(),
            context::DEFAULT
        ),
    })
}

/// Asks the person at the terminal whether this is to be replaced.
fn is_wanted(others: &[String]) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(false);
    }
    eprint!("This is there already: {}. Replace it? [y/N] ", others.join("; "));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(|error| unreadable(&error))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// A line of standard input.
fn read_line() -> Result<String, Failure> {
    let input = io::stdin();
    if input.is_terminal() {
        eprint!(
            "Paste what `outboard token create` has printed, outboard://... or outboard+pool://..., then Enter: "
        );
    }
    let mut line = String::new();
    match input.lock().take(LONGEST).read_line(&mut line) {
        Ok(_) => Ok(line),
        Err(error) => Err(unreadable(&error)),
    }
}

fn unreadable(error: &io::Error) -> Failure {
    let message = format!("cannot read standard input: {error}");
    Failure::new(Code::BadUsage, message, "give the string as it was printed")
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
