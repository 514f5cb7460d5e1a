//! `outboard token`: the clients that may use this machine's server.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use miette::{IntoDiagnostic, Result};
use outboard_client::invitation::{self, Invitation};
use outboard_control::identity::Limits;
use outboard_pool::api::Role;
use outboard_supervisor::auth::certificate;
use outboard_supervisor::auth::tokens::{self, Record, TokenError, TokenState};
use outboard_transport::tls::Fingerprint;
use outboard_wire::Code;
use serde::Serialize;

use crate::failure::Failure;
use crate::images::bytes;
use crate::output::print;
use crate::pool::invitation as pool;
use crate::serve::auth::state_folder;
use crate::{broker, time};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server's folder for its tokens; as of `outboard serve`.
    #[arg(long, global = true, env = "OUTBOARD_SERVE_STATE", hide_env = true, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The tokens of a broker, not of a server: its folder is as of `outboard broker`.
    #[arg(long, global = true)]
    broker: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Make a token and print it, this once, with all that its client needs.
    Create(Create),
    /// List the tokens, without what is secret.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token, or all of an owner. A running server ends their sessions at once.
    Revoke {
        /// The token's name, from `list`, or the owner's.
        #[arg(value_name = "ID|OWNER", required = true)]
        names: Vec<String>,
    },
    /// Print the fingerprint by which clients recognise the server.
    Fingerprint {
        /// The certificate of `outboard serve --tls-cert`; without it the server's own.
        #[arg(long, env = "OUTBOARD_SERVE_TLS_CERT", hide_env = true, value_name = "FILE")]
        tls_cert: Option<PathBuf>,
    },
}

#[derive(clap::Args)]
struct Create {
    /// The owner: sessions are counted and shown by owner.
    #[arg(long, value_name = "NAME")]
    owner: String,
    /// What its holder may do at a broker: offer devices (server), ask for leases (client), also
    /// for others (scheduler, admin), look (viewer), or get the leases of a scheduler's jobs on one
    /// node (node; its owner is called NODE@SCHEDULER).
    #[arg(long, value_name = "server|client|scheduler|admin|viewer|node")]
    role: Option<Role>,
    /// When it expires: after 90s, 30m, 12h, 30d or 8w, at a date such as 2027-01-31, or never.
    #[arg(long, default_value = "90d", value_name = "WHEN", value_parser = Expiry::parse)]
    expires: Expiry,
    /// The most device memory of a session, on each device.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory: Option<u64>,
    /// The most sessions of the owner at once.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    sessions: Option<u32>,
    /// The share of a device's multiprocessors, in percent.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    multiprocessors: Option<u8>,
    /// The most bytes a second between client and server, either way.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    bandwidth: Option<u64>,
    /// The address by which clients reach the server, for the string that is printed; without it
    /// this machine's name.
    #[arg(long, value_name = "HOST[:PORT]")]
    address: Option<String>,
    /// The certificate of `outboard serve --tls-cert`, for the same string; without it the server's
    /// own.
    #[arg(long, env = "OUTBOARD_SERVE_TLS_CERT", hide_env = true, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// When a token expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expiry {
    Never,
    At(Timestamp),
}

impl Expiry {
    fn parse(text: &str) -> Result<Expiry, String> {
        Expiry::after(text, Timestamp::now())
    }

    fn after(text: &str, now: Timestamp) -> Result<Expiry, String> {
        if text == "never" {
            return Ok(Expiry::Never);
        }
        let wrong = || {
            format!(
                "`{text}` is no time; write 90s, 30m, 12h, 30d, 8w, a date such as 2027-01-31, or never"
            )
        };
        if let Some(seconds) = time::seconds(text) {
            let at = now
                .as_second()
                .checked_add(seconds)
                .and_then(|second| Timestamp::from_second(second).ok());
            return at.map(Expiry::At).ok_or_else(wrong);
        }
        let day =
            || text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok().map(|day| day.timestamp());
        let at: Timestamp = text.parse().ok().or_else(day).ok_or_else(wrong)?;
        if at <= now { Err(format!("{text} has passed already")) } else { Ok(Expiry::At(at)) }
    }
}

#[derive(Serialize)]
struct Made<'a> {
    token: &'a str,
    id: &'a str,
    owner: &'a str,
    expires: Option<Timestamp>,
    limits: Limits,
    /// `None` if it is not given and the machine has no name.
    server: Option<&'a str>,
    fingerprint: String,
    login: Option<String>,
}

#[derive(Serialize)]
struct Row<'a> {
    id: &'a str,
    owner: &'a str,
    state: TokenState,
    created: Timestamp,
    expires: Option<Timestamp>,
    revoked: Option<Timestamp>,
    limits: Limits,
}

pub(crate) fn token(args: Args) -> Result<()> {
    let usual = if args.broker { broker::usual_state() } else { state_folder(None) };
    let state = args.state.or(usual).ok_or_else(|| {
        let help = "name it with --state DIR, as `outboard serve` is told";
        Failure::new(
            Code::FileUnusable,
            "there is no folder for the server's tokens: HOME is not set",
            help,
        )
    })?;
    match args.what {
        What::Create(wanted) => create(&state, &wanted, args.broker),
        What::List { json } => list(&state, json),
        What::Revoke { names } => revoke(&state, &names),
        What::Fingerprint { tls_cert } => {
            print(&format!("{}\n", fingerprint(&state, tls_cert.as_deref())?))
        }
    }
}

fn failed(error: &TokenError) -> Failure {
    let (code, help) = match error {
        TokenError::File { .. } => (
            Code::FileUnusable,
            "run this as the user who runs the server, or name its folder with --state DIR",
        ),
        TokenError::Owner(_) => (Code::BadUsage, "choose another name for --owner"),
        TokenError::Node(_) => (Code::BadUsage, "write it so behind --owner"),
        TokenError::None(_) => (Code::BadUsage, "`outboard token list` shows them"),
    };
    Failure::new(code, error.to_string(), help)
}

/// The fingerprint of the certificate that the server shows. Its own is made, if it is not there.
fn fingerprint(state: &Path, given: Option<&Path>) -> Result<Fingerprint> {
    let path = match given {
        Some(path) => Ok(path.to_owned()),
        None => certificate::own(state).map(|(certificate, _)| certificate),
    };
    let found = path.and_then(|path| certificate::fingerprint(&path));
    let found = found.map_err(|error| {
        let help = "run this as the user who runs the server, or name its folder with --state DIR";
        Failure::new(error.code(), error.to_string(), help)
    })?;
    Ok(found)
}

fn create(state: &Path, wanted: &Create, is_brokers: bool) -> Result<()> {
    if let Some(role) = wanted.role.filter(|_| !is_brokers) {
        let sentence = format!("the role {role} is one at a broker, and this is a server's token");
        let help = "add --broker for a token of the broker, or leave --role out";
        return Err(Failure::new(Code::BadUsage, sentence, help).into());
    }
    let Create { owner, memory, sessions, multiprocessors, bandwidth, .. } = wanted;
    let expires = match wanted.expires {
        Expiry::Never => None,
        Expiry::At(at) => Some(at),
    };
    let limits = Limits {
        memory: *memory,
        sessions: *sessions,
        multiprocessors: *multiprocessors,
        bandwidth: *bandwidth,
    };
    let name = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let server = wanted.address.clone().unwrap_or_else(name);
    let address = invitation::address(&server);
    if let (None, Some(wrong)) = (&address, &wanted.address) {
        let message = format!("`{wrong}` is no address by which clients could reach the server");
        return Err(
            Failure::new(Code::BadAddress, message, "name it with --address HOST[:PORT]").into()
        );
    }
    let fingerprint = fingerprint(state, wanted.tls_cert.as_deref())?;
    let (token, record) = tokens::create_as(state, owner, wanted.role, expires, limits)
        .map_err(|error| failed(&error))?;
    // A machine need not have a name.
    let login = match is_brokers {
        true => server
            .parse()
            .ok()
            .map(|urls| pool::Invitation { urls, fingerprint, token: token.clone() }.to_string()),
        false => address
            .map(|server| Invitation { server, fingerprint, token: token.clone() }.to_string()),
    };
    let fingerprint = fingerprint.to_string();
    if wanted.json {
        let Record { id, owner, expires, limits, .. } = &record;
        let (expires, limits) = (*expires, *limits);
        let made = Made {
            token: &token,
            id,
            owner,
            expires,
            limits,
            server: login.as_ref().map(|_| server.as_str()),
            fingerprint,
            login,
        };
        return print(&(serde_json::to_string_pretty(&made).into_diagnostic()? + "\n"));
    }
    if is_brokers {
        let text = text_of_broker(&token, &record, &server, &fingerprint, login.as_deref());
        return print(&(text + &name_to_know(wanted, &server)));
    }
    let text = text(&token, &record, &server, &fingerprint, login.as_deref());
    print(&(text + &name_to_know(wanted, &server)))
}

fn text(
    token: &str,
    record: &Record,
    server: &str,
    fingerprint: &str,
    login: Option<&str>,
) -> String {
    let until = record.expires.map_or("for ever".to_owned(), |at| format!("until {at}"));
    let (server, login) = match login {
        Some(login) => (
            server,
            format!(
                "For `outboard login` on the client's machine, which asks for it:\n\n  {login}"
            ),
        ),
        None => {
            ("HOST", "With --address HOST, a string for `outboard login` stands here.".to_owned())
        }
    };
    format!(
        "Token {} of {}, good {until}. This is shown once.\n\n{login}\n\nWithout that command: the token, for a file of its user's alone (paste it, \
         then Ctrl-D), and the variables\nthat name it:\n\n  {token}\n\n  (umask 077; cat > ~/.outboard-token)\n  \
         export OUTBOARD_SERVER={server} OUTBOARD_TLS_FINGERPRINT={fingerprint} OUTBOARD_TOKEN_FILE=~/.outboard-token\n\nOUTBOARD_TOKEN holds the \
         token itself, where nobody else sees the environment.\n",
        record.id, record.owner
    )
}

/// By which name others must reach this machine, if the operator has not said one.
fn name_to_know(wanted: &Create, name: &str) -> String {
    if wanted.address.is_some() || name.is_empty() {
        return String::new();
    }
    format!("\nOthers must know this machine as `{name}`; if they do not: --address HOST[:PORT].\n")
}

/// What whoever gets a broker's token needs.
fn text_of_broker(
    token: &str,
    record: &Record,
    broker: &str,
    fingerprint: &str,
    login: Option<&str>,
) -> String {
    let until = record.expires.map_or("for ever".to_owned(), |at| format!("until {at}"));
    // A machine need not have a name.
    let broker = if broker.is_empty() { "HOST" } else { broker };
    let (id, owner, role) = (&record.id, &record.owner, record.role());
    let head =
        format!("Token {id} of {owner} with the role {role}, good {until}. This is shown once");
    const FILE: &str = "~/.outboard-pool-token";
    if matches!(role, Role::Server | Role::Scheduler | Role::Node) {
        let use_it = match role {
            Role::Server => format!(
                "The server is started with\n\n  outboard serve --pool https://{broker} \\\n    \
                 --pool-fingerprint {fingerprint} \\\n    --pool-token-file {FILE}\n"
            ),
            _ => format!(
                "What uses it is told\n\n  OUTBOARD_POOL=https://{broker} \
                 OUTBOARD_POOL_FINGERPRINT={fingerprint} OUTBOARD_POOL_TOKEN_FILE={FILE}\n"
            ),
        };
        return format!(
            "{head}: paste it into a file of its\nuser's alone (then Ctrl-D):\n\n  {token}\n\n  \
             (umask 077; cat > {FILE})\n\n{use_it}"
        );
    }
    let login = login.map_or(
        "With --address HOST, a string for `outboard login` stands here.".to_owned(),
        |login| {
            format!("For `outboard login` on the client's machine, which asks for it:\n\n  {login}")
        },
    );
    format!(
        "{head}.\n\n{login}\n\nWithout that command: the token, for a file of its user's alone (paste it, \
         then Ctrl-D), and the variables\nthat name it:\n\n  {token}\n\n  (umask 077; cat > {FILE})\n  \
         export OUTBOARD_POOL=https://{broker} OUTBOARD_POOL_FINGERPRINT={fingerprint} \
         OUTBOARD_POOL_TOKEN_FILE={FILE}\n"
    )
}

fn list(state: &Path, json: bool) -> Result<()> {
    let (records, now) = (tokens::list(state).map_err(|error| failed(&error))?, Timestamp::now());
    let rows: Vec<Row<'_>> = records
        .iter()
        .map(|record| {
            let Record { id, owner, created, expires, revoked, limits, .. } = record;
            let state = record.state(now);
            Row {
                id,
                owner,
                state,
                created: *created,
                expires: *expires,
                revoked: *revoked,
                limits: *limits,
            }
        })
        .collect();
    if json {
        return print(&(serde_json::to_string_pretty(&rows).into_diagnostic()? + "\n"));
    }
    print(&table(&rows))
}

fn table(rows: &[Row<'_>]) -> String {
    if rows.is_empty() {
        return "There are no tokens; `outboard token create --owner NAME` makes one.\n".to_owned();
    }
    let mut text =
        String::from("ID        OWNER             STATE    EXPIRES               LIMITS\n");
    for row in rows {
        let expires = row.expires.map_or("never".to_owned(), |at| at.to_string());
        let (id, owner, state) = (row.id, row.owner, row.state.to_string());
        let _ =
            writeln!(text, "{id:<9} {owner:<17} {state:<8} {expires:<21} {}", limits(&row.limits));
    }
    text
}

fn limits(limits: &Limits) -> String {
    let mut said = Vec::new();
    let mebibytes = |bytes: u64| format!("{} MiB", bytes >> 20);
    said.extend(limits.memory.map(|bytes| format!("memory {}", mebibytes(bytes))));
    said.extend(limits.sessions.map(|count| format!("sessions {count}")));
    said.extend(limits.multiprocessors.map(|percent| format!("multiprocessors {percent} %")));
    said.extend(limits.bandwidth.map(|bytes| format!("bandwidth {}/s", mebibytes(bytes))));
    if said.is_empty() { "none".to_owned() } else { said.join(", ") }
}

fn revoke(state: &Path, names: &[String]) -> Result<()> {
    let mut text = String::new();
    for name in names {
        let count = tokens::revoke(state, name).map_err(|error| failed(&error))?;
        let _ = writeln!(
            text,
            "{name}: {}",
            match count {
                0 => "was revoked already".to_owned(),
                1 => "revoked; a running server ends its sessions".to_owned(),
                count => format!("{count} tokens revoked; a running server ends their sessions"),
            }
        );
    }
    print(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_understood() {
        let now: Timestamp = "2026-11-21T20:00:00Z".parse().unwrap();
        let at = |text: &str| Expiry::At(text.parse().unwrap());
        for (text, wanted) in [
            ("never", Expiry::Never),
            ("60", at("2026-11-21T20:01:00Z")),
            ("12h", at("2026-11-22T08:00:00Z")),
            ("30d", at("2026-12-21T20:00:00Z")),
            ("1w", at("2026-11-28T20:00:00Z")),
            ("2027-01-31", at("2027-01-31T00:00:00Z")),
            ("2027-01-31T12:00:00+01:00", at("2027-01-31T11:00:00Z")),
        ] {
            assert_eq!(Expiry::after(text, now), Ok(wanted), "{text}");
        }
        for text in ["", "d", "0d", "-1d", "5y", "tomorrow", "99999999999999999w", "2020-01-01"] {
            assert!(Expiry::after(text, now).is_err(), "{text}");
        }
    }

    #[test]
    fn each_role_is_told_what_it_does_with_a_token_of_a_broker() {
        let folder = tempfile::tempdir().unwrap();
        let text = |role| {
            let made = tokens::create_as(folder.path(), "a", role, None, Limits::default());
            let (token, record) = made.unwrap();
            text_of_broker(&token, &record, "pool1", "sha256:00", Some("outboard+pool://x"))
        };
        let of_server = text(Some(Role::Server));
        assert!(of_server.contains("outboard serve --pool https://pool1 "), "{of_server}");
        assert!(!of_server.contains("export OUTBOARD_POOL"), "{of_server}");
        for role in [None, Some(Role::Client), Some(Role::Admin)] {
            let of_person = text(role);
            assert!(of_person.contains("\n  outboard+pool://x\n"), "{of_person}");
            assert!(of_person.contains("export OUTBOARD_POOL=https://pool1 "), "{of_person}");
        }
    }

    #[test]
    fn a_client_is_told_all_that_it_needs() {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits { memory: Some(20 << 30), sessions: Some(2), ..Limits::default() };
        let (token, record) = tokens::create(folder.path(), "alice", None, limits).unwrap();
        let text = text(&token, &record, "gpu1", "sha256:00", Some("outboard://x"));
        for part in [
            "\n  outboard://x\n",
            "OUTBOARD_SERVER=gpu1 ",
            "OUTBOARD_TLS_FINGERPRINT=sha256:00 ",
            "OUTBOARD_TOKEN_FILE=~/.outboard-token\n",
            &format!("\n  {token}\n"),
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let state = record.state(Timestamp::now());
        let Record { id, owner, created, expires, revoked, limits, .. } = &record;
        let row = Row {
            id,
            owner,
            state,
            created: *created,
            expires: *expires,
            revoked: *revoked,
            limits: *limits,
        };
        let listed = table(&[row]);
        assert!(
            listed.contains("alice") && listed.contains("memory 20480 MiB, sessions 2"),
            "{listed}"
        );
        assert!(!listed.contains(&token));
    }
}
