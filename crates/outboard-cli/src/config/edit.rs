//! Changes a configuration file and leaves alone what need not change: other settings, their order, comments.

use std::ops::Range;
use std::path::Path;

use clap::Command;
use miette::Result;
use outboard_wire::Code;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::File;
use crate::failure::Failure;

/// What is to become of a file.
pub(crate) struct Edit {
    /// Its new text.
    pub(crate) text: String,
    /// What it says otherwise now, a few words each.
    pub(crate) others: Vec<String>,
}

/// Has these keys of `[client]` have these values. A file that is not there is an empty one; one with mistakes is an error.
pub(crate) fn client(path: &Path, wanted: &[(&str, &str)], command: &Command) -> Result<Edit> {
    let there = if path.exists() { Some(File::read(path.to_owned())?) } else { None };
    let settings = there.as_ref().map(|file| file.check(command)).transpose()?;
    let settings = settings.map(|settings| settings.client).unwrap_or_default();
    let mut wanted = wanted.to_vec();
    // A token would be readable on its way.
    if settings.iter().any(|setting| setting.name == "tls" && setting.text() == "off") {
        wanted.push(("tls", "auto"));
    }
    let other = settings.iter().filter(|setting| {
        let new = wanted.iter().find(|(name, _)| *name == setting.name);
        new.is_some_and(|(_, value)| setting.text() != *value)
    });
    let others = other.map(|other| format!("`{} = {}` in {}:{}", other.name, other.text(), path.display(), other.line));
    let others = others.collect();
    let text = edited(there.as_ref().map_or("", File::text), &wanted).ok_or_else(|| {
        let lines: Vec<String> = wanted.iter().map(|(name, value)| line(name, value)).collect();
        let message = format!("{} is written in a way that cannot be changed from here", path.display());
        Failure::new(Code::FileUnusable, message, format!("write under [client] there: {}", lines.join(", ")))
    })?;
    Ok(Edit { text, others })
}

fn line(name: &str, value: &str) -> String {
    format!("{name} = {}", toml::Value::from(value))
}

/// A text in which keys of `[client]` have these values. None if nothing but that could not be done.
fn edited(text: &str, wanted: &[(&str, &str)]) -> Option<String> {
    let mut expected: toml::Table = text.parse().ok()?;
    let table = expected.entry("client").or_insert_with(|| toml::Table::new().into()).as_table_mut()?;
    for (name, value) in wanted {
        table.insert((*name).to_owned(), toml::Value::from(*value));
    }
    let root = DeTable::parse(text).ok()?;
    let found = root.get_ref().iter().find(|(name, _)| name.get_ref() == "client");
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    let mut new = String::new();
    for (name, value) in wanted {
        match found.and_then(|(_, table)| value_of(table, name)) {
            Some(place) => edits.push((place, toml::Value::from(*value).to_string())),
            None => new += &(line(name, value) + "\n"),
        }
    }
    let place = match found {
        Some((name, _)) => {
            let rest = &text[name.span().end..];
            name.span().end + rest.find('\n').map_or(rest.len(), |end| end + 1)
        }
        None => {
            let blank = if text.is_empty() { "" } else { "\n" };
            new = format!("{blank}[client]\n{new}");
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

/// Where the value of a key stands.
fn value_of(table: &Spanned<DeValue<'_>>, name: &str) -> Option<Range<usize>> {
    let DeValue::Table(table) = table.get_ref() else { return None };
    table.iter().find(|(key, _)| key.get_ref() == name).map(|(_, value)| value.span())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: [(&str, &str); 2] = [("server", "gpu1:9470"), ("token-file", "/a \"b\"/token")];

    fn after(text: &str) -> Option<String> {
        edited(text, &WANTED)
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
        for text in ["[serve]\nwarm = 2", "# [client]\n", "[client]", "[ \"client\" ]\r\ntls = 'on'\r\n"] {
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
}
