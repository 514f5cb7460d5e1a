//! Contexts: servers by name, each a table `[contexts.NAME]` with keys of the client, and which of
//! them is in force.

use std::ffi::OsStr;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use miette::Result;
use outboard_wire::Code;

use super::client::{self, Key};
use super::file::{File, Setting, Settings};
use crate::failure::Failure;

/// Names a context.
pub(crate) const VARIABLE: &str = "OUTBOARD_CONTEXT";
/// The key of `[client]` that does.
pub(crate) const KEY: &str = "context";
/// The table of contexts.
pub(crate) const TABLE: &str = "contexts";
/// The context that is the table `[client]` by itself.
pub(crate) const DEFAULT: &str = "default";

/// A server's name among contexts.
pub(crate) struct Context {
    pub(crate) name: String,
    pub(crate) settings: Vec<Setting>,
}

/// The client's settings that count.
#[derive(Default)]
pub(crate) struct InForce {
    /// The context that they come from, unless it is the table `[client]` alone.
    pub(crate) name: Option<String>,
    pub(crate) settings: Vec<Setting>,
    /// Whether a flag chose it; it then overrides the environment's server and credentials.
    pub(crate) by_flag: bool,
}

impl InForce {
    /// The value of a key's variable, unless a flag has made it void.
    pub(crate) fn variable(&self, key: &Key) -> Option<std::ffi::OsString> {
        if self.by_flag && key.is_of_a_server { None } else { std::env::var_os(key.variable) }
    }

    /// The setting of a key.
    pub(crate) fn setting(&self, key: &Key) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.name == key.name)
    }
}

/// The flags of the command line that choose a server.
#[derive(Clone, Default)]
pub(crate) struct Line {
    /// `--context`.
    pub(crate) context: Option<String>,
    /// Whether `--server` is there.
    pub(super) server: bool,
}

impl Line {
    /// A line with this flag `--context`, or none.
    pub(crate) fn with(context: Option<String>) -> Line {
        Line { context, server: false }
    }

    /// Reads the flags, wherever among the commands they stand.
    pub(super) fn of(matches: &ArgMatches) -> Line {
        let mut line = Line::default();
        let mut level = Some(matches);
        while let Some(matches) = level {
            let given = |id| {
                matches.try_contains_id(id).is_ok_and(|there| there)
                    && matches.value_source(id) == Some(ValueSource::CommandLine)
            };
            if given(KEY) {
                line.context = matches.try_get_one::<String>(KEY).ok().flatten().cloned();
            }
            line.server |= given("server");
            level = matches.subcommand().map(|(_, inner)| inner);
        }
        line
    }
}

/// Returns the mistake in a name.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    let fits = !name.is_empty()
        && name.len() <= 64
        && name.chars().all(is_plain)
        && !name.starts_with('-');
    if fits {
        Ok(())
    } else {
        Err("a context's name has letters of ASCII, digits, `-` and `_`, 64 at most".to_owned())
    }
}

/// The name of the context that a flag, the environment or the file chooses.
pub(crate) fn chosen(settings: Option<&Settings>, flag: Option<&str>) -> Option<String> {
    let of_file = || {
        settings
            .and_then(|settings| settings.client.iter().find(|one| one.name == KEY))
            .map(Setting::text)
    };
    let name = flag.map(str::to_owned).or_else(|| set(VARIABLE)).or_else(of_file);
    name.filter(|name| name != DEFAULT)
}

/// The context in use: a server that `--server` or `OUTBOARD_SERVER` names is no context's.
pub(crate) fn in_force(settings: Option<&Settings>, line: &Line) -> Result<InForce, Failure> {
    if line.server && line.context.is_some() {
        let message = "--context names a server, and so does --server";
        return Err(Failure::new(Code::BadUsage, message, "leave one of them out"));
    }
    let by_flag = line.context.is_some();
    let own = settings.map_or(&[][..], |settings| &settings.client);
    let is_named = line.server || set(client::SERVER).is_some();
    let name = if is_named && !by_flag { None } else { chosen(settings, line.context.as_deref()) };
    let Some(name) = name else {
        return Ok(InForce { name: None, settings: own.to_vec(), by_flag });
    };
    let context = find(settings, &name)?;
    let mut all = context.settings.clone();
    // Another server's token or fingerprint is nothing to this one.
    let others = own.iter().filter(|setting| {
        let is_general = client::key(&setting.name).is_some_and(|key| !key.is_of_a_server);
        is_general && !context.settings.iter().any(|other| other.name == setting.name)
    });
    all.extend(others.cloned());
    Ok(InForce { name: Some(name), settings: all, by_flag })
}

/// The context of this name.
pub(crate) fn find<'a>(settings: Option<&'a Settings>, name: &str) -> Result<&'a Context, Failure> {
    let contexts = settings.map_or(&[][..], |settings| &settings.contexts);
    contexts.iter().find(|context| context.name == name).ok_or_else(|| {
        let place = settings.map_or_else(
            || "there is no configuration file".to_owned(),
            |settings| format!("{} has {}", settings.file.display(), listed(contexts)),
        );
        let help = "`outboard context list` shows what there is, `outboard login --context NAME` and `outboard context add` make one";
        Failure::new(Code::NoSuchContext, format!("there is no context `{name}`: {place}"), help)
    })
}

fn listed(contexts: &[Context]) -> String {
    let names: Vec<&str> = contexts.iter().map(|context| context.name.as_str()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn set(variable: &str) -> Option<String> {
    std::env::var_os(variable)
        .as_deref()
        .and_then(OsStr::to_str)
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}

/// The settings of the file that would be used, if there is one.
pub(crate) fn settings(
    file: Option<std::path::PathBuf>,
    command: &Command,
) -> Result<Option<Settings>> {
    Ok(File::find(file)?.map(|file| file.check(command)).transpose()?)
}
