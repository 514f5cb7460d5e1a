//! The configuration file: where it is, and what it says.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Command;
use miette::Result;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::context::{self, Context};
use super::mistakes::{Mistake, Mistakes};
use super::servers::{self, Own};
use super::{client, keys};
use crate::failure::Failure;

/// The file of the machine.
pub(crate) const SYSTEM: &str = "/etc/outboard/outboard.toml";
/// The tables that there are.
const TABLES: [&str; 4] = ["serve", "client", context::TABLE, servers::TABLE];

/// A file's text.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    text: String,
}

/// The contents of a file without mistakes.
pub(crate) struct Settings {
    pub(crate) file: PathBuf,
    pub(crate) serve: Vec<Setting>,
    pub(crate) client: Vec<Setting>,
    pub(crate) contexts: Vec<Context>,
    /// Those of single servers.
    pub(crate) servers: Vec<Own>,
}

/// A key and its value.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) name: String,
    /// As a flag takes them, one or several.
    pub(crate) values: Vec<String>,
    /// Counted from 1.
    pub(crate) line: usize,
}

impl Setting {
    pub(crate) fn text(&self) -> String {
        self.values.join(",")
    }
}

impl Settings {
    pub(crate) fn as_defaults(&self, command: Command) -> Command {
        keys::as_defaults(command, &self.serve)
    }
}

impl File {
    /// The file to use: the one named (`none` for none), else the user's, else the machine's.
    pub(crate) fn find(named: Option<PathBuf>) -> Result<Option<File>> {
        match named {
            Some(path) if path == Path::new("none") => Ok(None),
            Some(path) => File::read(path).map(Some),
            None => {
                let usual =
                    user_file(|name| std::env::var_os(name)).into_iter().chain([SYSTEM.into()]);
                let there = usual.into_iter().find(|path| path.exists());
                there.map(File::read).transpose()
            }
        }
    }

    pub(crate) fn read(path: PathBuf) -> Result<File> {
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(File { path, text }),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let mistake = Mistake {
                    message: "it is not text in UTF-8".to_owned(),
                    place: None,
                    help: None,
                };
                Err(Mistakes::new(&path, "", vec![mistake]).into())
            }
            Err(error) => Err(Failure::file("read the configuration", &path, &error).into()),
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Its settings, or all of its mistakes.
    pub(crate) fn check(&self, command: &Command) -> Result<Settings, Mistakes> {
        let (table, errors) = DeTable::parse_recoverable(&self.text);
        let syntax = |error: &toml::de::Error| {
            Mistake::new(error.message(), error.span().unwrap_or(0..0), None)
        };
        let mut mistakes: Vec<Mistake> = errors.iter().map(syntax).collect();
        let mut settings = Settings {
            file: self.path.clone(),
            serve: Vec::new(),
            client: Vec::new(),
            contexts: Vec::new(),
            servers: Vec::new(),
        };
        // After a syntax error, what seems to be there may not be what was meant.
        if mistakes.is_empty() {
            for (name, value) in table.get_ref() {
                let (text, place): (&str, _) = (name.get_ref(), name.span());
                match (text, value.get_ref()) {
                    ("serve", DeValue::Table(table)) => {
                        settings.serve = self.serve(command, table, &mut mistakes)
                    }
                    ("client", DeValue::Table(table)) => {
                        settings.client = self.client(table, &mut mistakes)
                    }
                    (context::TABLE, DeValue::Table(table)) => {
                        settings.contexts = self.contexts(table, &mut mistakes)
                    }
                    (servers::TABLE, DeValue::Table(table)) => {
                        settings.servers = self.servers(table, &mut mistakes)
                    }
                    ("serve" | "client" | context::TABLE | servers::TABLE, _) => {
                        mistakes.push(no_table(text, text, place))
                    }
                    _ => mistakes.push(stray(command, text, place)),
                }
            }
        }
        if let (true, Some(problem)) =
            (mistakes.is_empty(), keys::wrong_together(command, &settings.serve))
        {
            let place = table.get_ref().iter().find(|(name, _)| name.get_ref() == "serve");
            mistakes.push(Mistake::new(problem, place.map_or(0..0, |(name, _)| name.span()), None));
        }
        mistakes.extend(stray_choice(&settings, table.get_ref()));
        mistakes.sort_by_key(|mistake| mistake.place.map(|place| place.offset()));
        if mistakes.is_empty() {
            Ok(settings)
        } else {
            Err(Mistakes::new(&self.path, &self.text, mistakes))
        }
    }

    fn serve(
        &self,
        command: &Command,
        table: &DeTable<'_>,
        mistakes: &mut Vec<Mistake>,
    ) -> Vec<Setting> {
        let flags: Vec<_> = keys::flags(command).collect();
        let names: Vec<&str> = flags.iter().filter_map(|flag| flag.get_long()).collect();
        self.settings(table, &names, "outboard serve --help", mistakes, |name, values| {
            let flag = flags.iter().find(|flag| flag.get_long() == Some(name))?;
            keys::wrong(command, flag, values)
        })
    }

    fn client(&self, table: &DeTable<'_>, mistakes: &mut Vec<Mistake>) -> Vec<Setting> {
        self.of_client(table, &|_| true, mistakes)
    }

    fn contexts(&self, table: &DeTable<'_>, mistakes: &mut Vec<Mistake>) -> Vec<Context> {
        let mut contexts = Vec::new();
        for (name, value) in table {
            let (text, place): (&str, _) = (name.get_ref(), name.span());
            let problem = match text {
                context::DEFAULT => Err("that is the name of the table [client]".to_owned()),
                _ => context::check_name(text),
            };
            match (problem, value.get_ref()) {
                (Err(problem), _) => {
                    mistakes.push(Mistake::new(
                        format!("no context can be named `{text}`"),
                        place,
                        Some(problem),
                    ));
                }
                (Ok(()), DeValue::Table(table)) => {
                    let settings = self.of_client(table, &|name| name != context::KEY, mistakes);
                    contexts.push(Context { name: text.to_owned(), settings });
                }
                (Ok(()), _) => {
                    mistakes.push(no_table(text, &format!("{}.{text}", context::TABLE), place))
                }
            }
        }
        contexts
    }

    fn servers(&self, table: &DeTable<'_>, mistakes: &mut Vec<Mistake>) -> Vec<Own> {
        let mut all = Vec::new();
        for (name, value) in table {
            let (text, place): (&str, _) = (name.get_ref(), name.span());
            match (servers::check_name(text), value.get_ref()) {
                (Err(problem), _) => {
                    let message = format!("`{text}` names no server");
                    mistakes.push(Mistake::new(message, place, Some(problem)));
                }
                (Ok(()), DeValue::Table(table)) => {
                    let settings = self.of_client(table, &servers::has_key, mistakes);
                    all.push(Own { name: text.to_owned(), settings });
                }
                (Ok(()), _) => {
                    let header = format!("{}.\"{text}\"", servers::TABLE);
                    mistakes.push(no_table(text, &header, place))
                }
            }
        }
        all
    }

    /// Keys of the client, those that may stand here.
    fn of_client(
        &self,
        table: &DeTable<'_>,
        may: &dyn Fn(&str) -> bool,
        mistakes: &mut Vec<Mistake>,
    ) -> Vec<Setting> {
        let names: Vec<&str> =
            client::KEYS.iter().map(|key| key.name).filter(|name| may(name)).collect();
        self.settings(table, &names, "outboard config show", mistakes, |name, values| {
            let (key, text) = (client::key(name)?, values.join(","));
            (key.check)(&text)
                .err()
                .map(|problem| format!("`{text}` cannot be used for `{name}`: {problem}"))
        })
    }

    fn settings(
        &self,
        table: &DeTable<'_>,
        names: &[&str],
        list: &str,
        mistakes: &mut Vec<Mistake>,
        wrong: impl Fn(&str, &[String]) -> Option<String>,
    ) -> Vec<Setting> {
        let mut settings = Vec::new();
        for (key, value) in table {
            let name: &str = key.get_ref();
            if !names.contains(&name) {
                let help = meant(name, names).map_or_else(
                    || format!("`{list}` lists the settings there are"),
                    |other| format!("did you mean `{other}`?"),
                );
                mistakes.push(Mistake::new(
                    format!("there is no setting `{name}`"),
                    key.span(),
                    Some(help),
                ));
                continue;
            }
            match texts(value) {
                Err(mistake) => mistakes.push(mistake),
                Ok(values) => match wrong(name, &values) {
                    Some(problem) => mistakes.push(Mistake::new(problem, value.span(), None)),
                    None => settings.push(Setting {
                        name: name.to_owned(),
                        values,
                        line: self.line(key.span().start),
                    }),
                },
            }
        }
        settings
    }

    fn line(&self, offset: usize) -> usize {
        self.text.get(..offset).map_or(0, |before| before.matches('\n').count()) + 1
    }
}

fn no_table(name: &str, header: &str, place: Range<usize>) -> Mistake {
    Mistake::new(format!("`{name}` is a table"), place, Some(format!("write [{header}]")))
}

/// A context is in use that is not there.
fn stray_choice(settings: &Settings, root: &DeTable<'_>) -> Option<Mistake> {
    let setting = settings.client.iter().find(|setting| setting.name == context::KEY)?;
    let name = setting.text();
    if name == context::DEFAULT || settings.contexts.iter().any(|context| context.name == name) {
        return None;
    }
    let (_, client) = root.iter().find(|(name, _)| name.get_ref() == "client")?;
    let DeValue::Table(client) = client.get_ref() else { return None };
    let (_, value) = client.iter().find(|(key, _)| key.get_ref() == context::KEY)?;
    let names: Vec<&str> = settings.contexts.iter().map(|context| context.name.as_str()).collect();
    let help = meant(&name, &names).map_or_else(
        || format!("write [{}.{name}], or `{}`", context::TABLE, context::DEFAULT),
        |other| format!("did you mean `{other}`?"),
    );
    Some(Mistake::new(format!("there is no context `{name}`"), value.span(), Some(help)))
}

/// A key outside of the tables.
fn stray(command: &Command, name: &str, place: Range<usize>) -> Mistake {
    let help = if keys::flags(command).any(|flag| flag.get_long() == Some(name)) {
        "it belongs under [serve]".to_owned()
    } else if client::key(name).is_some() {
        "it belongs under [client]".to_owned()
    } else {
        meant(name, &TABLES).map_or_else(
            || {
                "settings stand under [serve], [client], [contexts.NAME] or [servers.\"HOST\"]"
                    .to_owned()
            },
            |other| format!("did you mean `{other}`?"),
        )
    };
    Mistake::new(format!("there is no table `{name}`"), place, Some(help))
}

/// The known name that resembles `name` most, if one does.
fn meant<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let name = name.replace('_', "-").to_lowercase();
    let likeness = |other: &&str| strsim::jaro_winkler(&name, other);
    let best = names.iter().copied().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(&best) > 0.8).then_some(best)
}

/// A value as a flag takes it.
fn texts(value: &Spanned<DeValue<'_>>) -> Result<Vec<String>, Mistake> {
    match value.get_ref() {
        DeValue::Array(values) => values.iter().map(text).collect(),
        _ => text(value).map(|text| vec![text]),
    }
}

fn text(value: &Spanned<DeValue<'_>>) -> Result<String, Mistake> {
    let wrong =
        |what: &str| Mistake::new(format!("{what} is no value of a setting"), value.span(), None);
    Ok(match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => number.to_string(),
            Err(_) => return Err(wrong("a number as large as this")),
        },
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(_) => return Err(wrong("a date")),
        DeValue::Array(_) => return Err(wrong("a list in a list")),
        DeValue::Table(_) => return Err(wrong("a table")),
    })
}

/// The file to write to: the one named, else the user's. None where there is none, or none is
/// wanted.
pub(crate) fn own_file(named: Option<PathBuf>) -> Option<PathBuf> {
    match named {
        Some(path) if path == Path::new("none") => None,
        Some(path) => std::path::absolute(path).ok(),
        None => user_file(|name| std::env::var_os(name)),
    }
}

/// The user's file.
fn user_file(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute("XDG_CONFIG_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
    Some(folder.join("outboard/outboard.toml"))
}

#[cfg(test)]
mod tests;
