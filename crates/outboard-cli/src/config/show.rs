//! `outboard config show`: the settings in force, and where each came from.

use std::fmt::Write as _;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use miette::{IntoDiagnostic, Result};
use outboard_client::own_settings;
use serde::Serialize;

use super::context::{InForce, Line, in_force};
use super::file::{Setting, Settings};
use super::{client, context, keys, servers};
use crate::failure;
use crate::output::print;

/// In place of a secret.
const SECRET: &str = "(set, not shown)";

#[derive(Serialize)]
struct Row {
    table: String,
    key: String,
    value: Option<String>,
    #[serde(rename = "from")]
    source: String,
}

pub(super) fn show(
    command: &Command,
    settings: Option<&Settings>,
    context: Option<String>,
    json: bool,
) -> Result<()> {
    let mut rows = serve(command, settings);
    rows.extend(of_client(settings, &in_force(settings, &Line::with(context))?));
    rows.extend(of_servers(settings));
    if json {
        return print(&(serde_json::to_string_pretty(&rows).into_diagnostic()? + "\n"));
    }
    let mut text = match settings {
        Some(settings) => format!("# {}\n", settings.file.display()),
        None => "# There is no configuration file.\n".to_owned(),
    };
    let mut tables: Vec<&str> = rows.iter().map(|row| row.table.as_str()).collect();
    tables.dedup();
    for table in tables {
        let rows: Vec<(String, &Row)> =
            rows.iter().filter(|row| row.table == table).map(|row| (line(row), row)).collect();
        let width = rows
            .iter()
            .map(|(line, _)| line.chars().count())
            .filter(|width| *width < 50)
            .max()
            .unwrap_or(0);
        let _ = writeln!(text, "\n[{table}]");
        for (line, row) in rows {
            let _ = writeln!(text, "{line:width$}  # {}", row.source);
        }
    }
    print(&text)
}

/// As it would stand in a file; settings without a value are comments.
fn line(row: &Row) -> String {
    let Some(value) = &row.value else { return format!("# {}", row.key) };
    let bare = value.parse::<i64>().is_ok() || value == "true" || value == "false";
    if bare {
        format!("{} = {value}", row.key)
    } else {
        format!("{} = {}", row.key, toml::Value::from(value.as_str()))
    }
}

fn from_file(settings: Option<&Settings>, setting: &Setting) -> String {
    settings.map_or_else(String::new, |settings| {
        format!("{}:{}", settings.file.display(), setting.line)
    })
}

fn serve(command: &Command, settings: Option<&Settings>) -> Vec<Row> {
    let command = match settings {
        Some(settings) => settings.as_defaults(command.clone()),
        None => command.clone(),
    };
    let matches = command.clone().try_get_matches_from(["outboard", keys::SERVE]);
    let matches = matches.unwrap_or_else(|error| failure::bad_usage(&error));
    let Some(serve) = matches.subcommand_matches(keys::SERVE) else { return Vec::new() };
    let row = |flag: &clap::Arg| {
        let (long, id) = (flag.get_long().unwrap_or_default(), flag.get_id().as_str());
        let setting = settings
            .and_then(|settings| settings.serve.iter().find(|setting| setting.name == long));
        let source = match (serve.value_source(id), setting) {
            (Some(ValueSource::EnvVariable), _) => {
                flag.get_env().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
            }
            (Some(_), Some(setting)) => from_file(settings, setting),
            (Some(_), None) => "default".to_owned(),
            (None, _) => "not set".to_owned(),
        };
        let value = raw(serve, id)
            .map(|value| if keys::is_secret(flag) { SECRET.to_owned() } else { value });
        Row { table: "serve".to_owned(), key: long.to_owned(), value, source }
    };
    keys::flags(&command).map(row).collect()
}

fn raw(matches: &ArgMatches, id: &str) -> Option<String> {
    let values = matches.get_raw(id)?.map(|value| value.to_string_lossy().into_owned());
    Some(values.collect::<Vec<_>>().join(","))
}

fn of_client(settings: Option<&Settings>, in_force: &InForce) -> Vec<Row> {
    let row = |key: &client::Key| {
        let (value, source) = match (in_force.variable(key), in_force.setting(key)) {
            _ if key.name == context::KEY && in_force.by_flag => {
                (in_force.name.clone(), "--context".to_owned())
            }
            (Some(value), _) => {
                (Some(value.to_string_lossy().into_owned()), key.variable.to_owned())
            }
            (None, Some(setting)) => (Some(setting.text()), from_file(settings, setting)),
            (None, None) => (None, format!("not set: {}", key.meaning)),
        };
        Row { table: "client".to_owned(), key: key.name.to_owned(), value, source }
    };
    client::KEYS.iter().map(row).collect()
}

/// Settings of single servers: the variable's, or the file's.
fn of_servers(settings: Option<&Settings>) -> Vec<Row> {
    if let Some(value) = std::env::var_os(own_settings::VARIABLE) {
        return vec![Row {
            table: servers::TABLE.to_owned(),
            key: "all".to_owned(),
            value: Some(value.to_string_lossy().into_owned()),
            source: own_settings::VARIABLE.to_owned(),
        }];
    }
    let row = |own: &servers::Own, setting: &Setting| Row {
        table: format!("{}.{}", servers::TABLE, toml::Value::from(own.name.as_str())),
        key: setting.name.clone(),
        value: Some(setting.text()),
        source: from_file(settings, setting),
    };
    let all = settings.map_or(&[][..], |settings| &settings.servers);
    all.iter().flat_map(|own| own.settings.iter().map(|setting| row(own, setting))).collect()
}

/// Rows of tables for the documentation: the client's keys, an empty line, the server's.
pub(super) fn reference(command: &Command) -> String {
    let mut text = String::new();
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    for key in client::KEYS {
        let _ = writeln!(text, "| `{}` | `{}` | {} |", key.name, key.variable, cell(key.meaning));
    }
    text.push('\n');
    for flag in keys::flags(command) {
        let default: Vec<_> =
            flag.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        let default =
            if default.is_empty() { String::new() } else { format!("`{}`", default.join(",")) };
        let help =
            flag.get_long_help().or(flag.get_help()).map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(
            text,
            "| `{}` | {default} | {} |",
            flag.get_long().unwrap_or_default(),
            cell(&help)
        );
    }
    text
}
