//! Changes a configuration file and leaves alone what need not change: other settings, their order,
//! comments.

use std::ops::Range;
use std::path::Path;

use clap::Command;
use miette::Result;
use outboard_wire::Code;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::{File, Setting, Settings};
use super::{context, servers};
use crate::failure::Failure;

/// A table of a file.
#[derive(Clone, Copy)]
pub(crate) enum Table<'a> {
    Client,
    /// The context of this name.
    Context(&'a str),
    /// The server of this address.
    Server(&'a str),
}

impl<'a> Table<'a> {
    fn path(self) -> Vec<&'a str> {
        match self {
            Table::Client => vec!["client"],
            Table::Context(name) => vec![context::TABLE, name],
            Table::Server(name) => vec![servers::TABLE, name],
        }
    }

    fn header(self) -> String {
        let is_bare = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
        let written = |name: &str| match name.chars().all(is_bare) {
            true => name.to_owned(),
            false => toml::Value::from(name).to_string(),
        };
        format!("[{}]", self.path().into_iter().map(written).collect::<Vec<_>>().join("."))
    }

    fn settings(self, settings: &Settings) -> &[Setting] {
        match self {
            Table::Client => &settings.client,
            Table::Context(name) => {
                let found = settings.contexts.iter().find(|context| context.name == name);
                found.map_or(&[], |context| &context.settings)
            }
            Table::Server(name) => {
                let found = settings.servers.iter().find(|own| own.name == name);
                found.map_or(&[], |own| &own.settings)
            }
        }
    }
}

/// The edit of a file.
pub(crate) struct Edit {
    /// Its new text.
    pub(crate) text: String,
    /// The changes, a few words each.
    pub(crate) others: Vec<String>,
}

/// Has these keys of a table have these values. A file that is not there is an empty one; one with
/// mistakes is an error.
pub(crate) fn table(
    path: &Path,
    table: Table<'_>,
    wanted: &[(&str, &str)],
    command: &Command,
) -> Result<Edit> {
    let there = if path.exists() { Some(File::read(path.to_owned())?) } else { None };
    let settings = there.as_ref().map(|file| file.check(command)).transpose()?;
    let settings = settings.as_ref().map_or(&[][..], |settings| table.settings(settings));
    let mut wanted = wanted.to_vec();
    // A token would be readable on its way.
    let is_about_server = wanted.iter().any(|(name, _)| ["server", "token-file"].contains(name));
    let is_clear = |setting: &Setting| setting.name == "tls" && setting.text() == "off";
    if is_about_server && settings.iter().any(is_clear) {
        wanted.push(("tls", "auto"));
    }
    let other = settings.iter().filter(|setting| {
        let new = wanted.iter().find(|(name, _)| *name == setting.name);
        new.is_some_and(|(_, value)| setting.text() != *value)
    });
    let others = other.map(|other| {
        format!("`{} = {}` in {}:{}", other.name, other.text(), path.display(), other.line)
    });
    let others = others.collect();
    let text = edited(there.as_ref().map_or("", File::text), table, &wanted).ok_or_else(|| {
        let lines: Vec<String> = wanted.iter().map(|(name, value)| line(name, value)).collect();
        unchangeable(path, format!("write under {} there: {}", table.header(), lines.join(", ")))
    })?;
    Ok(Edit { text, others })
}

/// The text of a file in which a table lacks these keys.
pub(crate) fn without_keys(path: &Path, table: Table<'_>, keys: &[&str]) -> Result<String> {
    let file = File::read(path.to_owned())?;
    let text = lacking(file.text(), table, keys);
    Ok(text.ok_or_else(|| {
        unchangeable(path, format!("remove under {} there: {}", table.header(), keys.join(", ")))
    })?)
}

/// The text of a file without a table that it has.
pub(crate) fn without(path: &Path, table: Table<'_>) -> Result<String> {
    let file = File::read(path.to_owned())?;
    let text = removed(file.text(), table);
    Ok(text.ok_or_else(|| unchangeable(path, format!("remove {} there", table.header())))?)
}

fn unchangeable(path: &Path, help: String) -> Failure {
    let message =
        format!("{} is written in a way that cannot be changed from here", path.display());
    Failure::new(Code::FileUnusable, message, help)
}

fn line(name: &str, value: &str) -> String {
    format!("{name} = {}", toml::Value::from(value))
}

/// A text in which keys of a table have these values. None if nothing but that could not be done.
fn edited(text: &str, table: Table<'_>, wanted: &[(&str, &str)]) -> Option<String> {
    let mut expected: toml::Table = text.parse().ok()?;
    let mut inner = &mut expected;
    for name in table.path() {
        inner = inner.entry(name).or_insert_with(|| toml::Table::new().into()).as_table_mut()?;
    }
    for (name, value) in wanted {
        inner.insert((*name).to_owned(), toml::Value::from(*value));
    }
    let root = DeTable::parse(text).ok()?;
    let found = place_of(root.get_ref(), &table.path());
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    let mut new = String::new();
    for (name, value) in wanted {
        match found.as_ref().and_then(|(_, table)| value_of(table, name)) {
            Some(place) => edits.push((place, toml::Value::from(*value).to_string())),
            None => new += &(line(name, value) + "\n"),
        }
    }
    let place = match &found {
        Some((name, _)) => end_of_line(text, name.end),
        None => {
            let blank = if text.is_empty() { "" } else { "\n" };
            new = format!("{blank}{}\n{new}", table.header());
            text.len()
        }
    };
    if !new.is_empty() && place == text.len() && !text.is_empty() && !text.ends_with('\n') {
        new.insert(0, '\n');
    }
    edits.push((place..place, new));
    edits.sort_by_key(|(place, _)| std::cmp::Reverse(place.start));
    let mut edited = text.to_owned();
    for (place, new) in edits {
        edited.replace_range(place, &new);
    }
    // Tables can be written in other ways, too.
    (edited.parse::<toml::Table>().ok()? == expected).then_some(edited)
}

/// A text without a table, from its header to its last value. None if nothing but that could not be
/// done.
fn removed(text: &str, table: Table<'_>) -> Option<String> {
    let mut expected: toml::Table = text.parse().ok()?;
    match table.path()[..] {
        [outer, name] => {
            let others = expected.get_mut(outer)?.as_table_mut()?;
            others.remove(name)?;
            if others.is_empty() {
                expected.remove(outer);
            }
        }
        _ => drop(expected.remove(table.path().first().copied()?)?),
    }
    let root = DeTable::parse(text).ok()?;
    let (name, values) = place_of(root.get_ref(), &table.path())?;
    let DeValue::Table(values) = values.get_ref() else { return None };
    let last = values.iter().map(|(_, value)| value.span().end).max().unwrap_or(name.end);
    let mut end = end_of_line(text, last);
    if text[end..].starts_with('\n') {
        end += 1;
    }
    let start = text[..name.start].rfind('\n').map_or(0, |before| before + 1);
    let removed = format!("{}{}", &text[..start], &text[end..]);
    (removed.parse::<toml::Table>().ok()? == expected).then_some(removed)
}

/// A text in which a table lacks these keys: their lines go. None if nothing but that could not be
/// done.
fn lacking(text: &str, table: Table<'_>, keys: &[&str]) -> Option<String> {
    let mut expected: toml::Table = text.parse().ok()?;
    let mut inner = &mut expected;
    for name in table.path() {
        inner = inner.get_mut(name)?.as_table_mut()?;
    }
    inner.retain(|name, _| keys.iter().all(|key| *key != name));
    let root = DeTable::parse(text).ok()?;
    let (_, values) = place_of(root.get_ref(), &table.path())?;
    let DeValue::Table(values) = values.get_ref() else { return None };
    let gone = values.iter().filter(|(name, _)| keys.contains(&&**name.get_ref()));
    let mut lines: Vec<Range<usize>> = gone
        .map(|(name, value)| {
            let start = text[..name.span().start].rfind('\n').map_or(0, |before| before + 1);
            start..end_of_line(text, value.span().end)
        })
        .collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.start));
    let mut left = text.to_owned();
    for line in lines {
        left.replace_range(line, "");
    }
    (left.parse::<toml::Table>().ok()? == expected).then_some(left)
}

/// The end of the line at this position, the newline included.
fn end_of_line(text: &str, place: usize) -> usize {
    let rest = &text[place..];
    place + rest.find('\n').map_or(rest.len(), |end| end + 1)
}

/// The position of a path's last name, and its item.
fn place_of<'t, 'a>(
    root: &'t DeTable<'a>,
    path: &[&str],
) -> Option<(Range<usize>, &'t Spanned<DeValue<'a>>)> {
    let (first, rest) = path.split_first()?;
    let (name, value) = root.iter().find(|(name, _)| name.get_ref() == first)?;
    if rest.is_empty() {
        return Some((name.span(), value));
    }
    let DeValue::Table(table) = value.get_ref() else { return None };
    place_of(table, rest)
}

/// The position of a key's value.
fn value_of(table: &Spanned<DeValue<'_>>, name: &str) -> Option<Range<usize>> {
    let DeValue::Table(table) = table.get_ref() else { return None };
    table.iter().find(|(key, _)| key.get_ref() == name).map(|(_, value)| value.span())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: [(&str, &str); 2] = [("server", "gpu1:9470"), ("token-file", "/a \"b\"/token")];

    fn after(text: &str) -> Option<String> {
        edited(text, Table::Client, &WANTED)
    }

    #[test]
    fn a_new_file_is_a_table() {
        let text = after("").unwrap();
        assert_eq!(text, "[client]\nserver = \"gpu1:9470\"\ntoken-file = '/a \"b\"/token'\n");
        assert_eq!(after(&text), Some(text), "a second time nothing changes");
    }

    #[test]
    fn what_need_not_change_stays() {
        let text = "# mine\n[client] # here\nspin-us = 3\nserver = [ \"a/0\",\n \"a/1\" ] # both\n\n[serve]\nwarm = 2";
        assert_eq!(
            after(text).unwrap(),
            "# mine\n[client] # here\ntoken-file = '/a \"b\"/token'\nspin-us = 3\nserver = \"gpu1:9470\" # both\n\n[serve]\nwarm = 2"
        );
        for text in
            ["[serve]\nwarm = 2", "# [client]\n", "[client]", "[ \"client\" ]\r\ntls = 'on'\r\n"]
        {
            let edited = after(text).unwrap();
            assert!(edited.starts_with(text.lines().next().unwrap()), "{edited}");
        }
    }

    #[test]
    fn what_cannot_be_changed_is_left_alone() {
        for text in ["client.tls = 'on'", "client = {}", "client = { tls = \"on\" }", "[client"] {
            assert_eq!(after(text), None, "{text}");
        }
    }

    #[test]
    fn keys_go_with_their_lines() {
        let gone = |text: &str| lacking(text, Table::Client, &["server", "token-file"]);
        let text = "# mine\n[client]\nserver = [ \"a\",\n \"b\" ] # both\nspin-us = 3 # x\ntoken-file = 't'";
        assert_eq!(gone(text).as_deref(), Some("# mine\n[client]\nspin-us = 3 # x\n"));
        assert_eq!(gone("[client]\ntls = 'on'\n").as_deref(), Some("[client]\ntls = 'on'\n"));
        for text in ["client = { server = 'a', tls = 'on' }", "[serve]", "client.server = 1\n["] {
            assert_eq!(gone(text), None, "{text}");
        }
    }

    #[test]
    fn contexts_are_tables_below_another() {
        let add =
            |text: &str, name| edited(text, Table::Context(name), &[("server", name)]).unwrap();
        let one = add("[client]\nspin-us = 3\n", "a");
        assert_eq!(one, "[client]\nspin-us = 3\n\n[contexts.a]\nserver = \"a\"\n");
        let two = add(&one, "b");
        assert!(
            two.ends_with("[contexts.a]\nserver = \"a\"\n\n[contexts.b]\nserver = \"b\"\n"),
            "{two}"
        );
        let again = edited(&two, Table::Context("a"), &[("server", "c"), ("tls", "on")]).unwrap();
        assert!(
            again.contains("[contexts.a]\ntls = \"on\"\nserver = \"c\"\n\n[contexts.b]"),
            "{again}"
        );

        let gone = |text: &str, name| removed(text, Table::Context(name));
        assert_eq!(gone(&two, "b").unwrap(), one.clone() + "\n");
        assert!(
            gone(&two, "a").unwrap().ends_with("spin-us = 3\n\n[contexts.b]\nserver = \"b\"\n")
        );
        assert_eq!(
            gone("# x\n[contexts.a] # y\n# z\n[serve]\n", "a").unwrap(),
            "# x\n# z\n[serve]\n"
        );
        assert_eq!(
            gone("contexts.a = {}\ncontexts.b.server = 'b'\n", "b").unwrap(),
            "contexts.a = {}\n"
        );
        for text in ["[contexts.b]", "[contexts.a]\nserver = 1\n[client]\n[contexts.a.x]\ny = 1"] {
            assert_eq!(gone(text, "a"), None, "{text}");
        }
    }
}
