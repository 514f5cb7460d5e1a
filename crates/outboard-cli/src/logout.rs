//! `outboard logout`: removes what a login has kept.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Command;
use miette::Result;
use outboard_client::target::{Target, Targets};
use outboard_wire::Code;

use crate::config::edit::{self, Table};
use crate::config::{self, Setting, context, store};
use crate::failure::Failure;
use crate::login;
use crate::output::print;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server, HOST[:PORT], or the pool, https://HOST[:PORT]; without it the server and the
    /// pool of the context in use.
    #[arg(value_name = "SERVER|POOL")]
    place: Option<String>,
}

/// Settings of a server, as a login makes them.
const SERVER: [&str; 3] = ["server", "tls-fingerprint", "token-file"];
/// The same of a pool.
const POOL: [&str; 3] = ["pool", "pool-fingerprint", "pool-token-file"];

/// `chosen` is the configuration file that the command line names, `flag` its context.
pub(crate) fn logout(
    args: &Args,
    chosen: Option<PathBuf>,
    flag: Option<&str>,
    command: Command,
) -> Result<()> {
    let command = config::keys::with_environment(command);
    let file = config::own_file(chosen).ok_or_else(config::no_file)?;
    let Some(settings) = Some(&file).filter(|file| file.exists()) else {
        return Err(nothing(&format!("there is no {}", file.display())).into());
    };
    let settings = context::settings(Some(settings.clone()), &command)?;
    let Some(settings) = settings else { return Err(nothing("the file is gone").into()) };
    if let Some(own) = args.place.as_deref().and_then(|place| of_its_own(&settings, place)) {
        let token = login::token_file_of(&file, &own.name);
        let is_kept = own.settings.iter().any(|one| {
            one.name == "token-file" && Path::new(&one.text()) == token && token.exists()
        });
        let text = edit::without(&file, Table::Server(&own.name))?;
        store::configuration(&file, &text)?;
        let mut said = format!("There is no login for {} any more.\n", own.name);
        if is_kept {
            let _ = writeln!(said, "{}", login::remove_token(&token)?);
        }
        return print(&said);
    }
    let name = context::chosen(Some(&settings), flag);
    let (table, found) = match &name {
        Some(name) => (
            Table::Context(name.as_str()),
            context::find(Some(&settings), name)?.settings.as_slice(),
        ),
        None => (Table::Client, settings.client.as_slice()),
    };
    let value = |key: &str| found.iter().find(|one| one.name == key).map(Setting::text);
    let of = [(value(SERVER[0]), SERVER), (value(POOL[0]), POOL)];
    let meant = of.into_iter().filter_map(|(there, keys)| {
        let there = there?;
        let is_meant = args.place.as_deref().is_none_or(|place| is_same(&there, place));
        is_meant.then_some((there, keys))
    });
    let meant: Vec<(String, [&str; 3])> = meant.collect();
    if meant.is_empty() {
        let place = args.place.as_deref().unwrap_or("any server or pool");
        return Err(nothing(&format!("{} has none for {place}", file.display())).into());
    }
    let keys: Vec<&str> = meant.iter().flat_map(|(_, keys)| *keys).collect();
    let gone: Vec<Setting> =
        found.iter().filter(|one| keys.contains(&one.name.as_str())).cloned().collect();
    let tokens = login::kept_tokens(&file, name.as_deref(), &gone);
    store::configuration(&file, &edit::without_keys(&file, table, &keys)?)?;
    let mut said = String::new();
    for (place, _) in &meant {
        let _ = writeln!(said, "There is no login for {place} any more.");
    }
    for token in tokens {
        let _ = writeln!(said, "{}", login::remove_token(&token)?);
    }
    print(&said)
}

fn nothing(why: &str) -> Failure {
    let help = "`outboard status` shows the logins that there are";
    Failure::new(Code::BadUsage, format!("there is no such login: {why}"), help)
}

/// The table of a server alone.
fn of_its_own<'a>(settings: &'a config::Settings, place: &str) -> Option<&'a config::servers::Own> {
    settings.servers.iter().find(|own| is_same(&own.name, place))
}

/// Whether both name the same server, or the same pool.
fn is_same(there: &str, place: &str) -> bool {
    let server = |text: &str| text.parse::<Target>().ok().map(|target| target.address);
    let servers = |text: &str| text.parse::<Targets>().ok().map(|all| all.to_string());
    let pool = |text: &str| text.parse::<outboard_broker_client::Urls>().ok();
    let is_pool = there.starts_with("https://");
    there == place
        || (is_pool && pool(there).is_some() && pool(there) == pool(place))
        || (!is_pool && server(there).is_some() && server(there) == server(place))
        || (!is_pool && servers(there).is_some() && servers(there) == servers(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_may_be_written_in_several_ways() {
        for (there, place, is) in [
            ("gpu1:9470", "gpu1", true),
            ("gpu1:9470", "gpu1:80", false),
            ("gpu1:9470,gpu2:9470", "gpu1,gpu2", true),
            ("gpu1:9470,gpu2:9470", "gpu1", false),
            ("https://pool1:9472", "https://pool1", true),
            ("https://pool1:9472", "pool1", true),
            ("pool1:9470", "https://pool1", false),
        ] {
            assert_eq!(is_same(there, place), is, "{there} {place}");
        }
    }
}
