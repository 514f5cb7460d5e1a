//! `outboard env`: prints the variables that `outboard run` sets.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::ValueEnum;
use miette::{IntoDiagnostic, Result};
use outboard_wire::Code;

use crate::failure::Failure;
use crate::started::Started;
use crate::{chosen, config, credentials, output, probe, started};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    chosen: chosen::Args,
    /// The format: for a shell, for fish (`outboard env --format fish | source`), for the file
    /// $GITHUB_ENV, as JSON, or for a file .env.
    #[arg(long, value_enum, default_value_t = Format::Shell)]
    format: Format,
    /// Connect to the server first; print nothing if it does not answer.
    #[arg(long, conflicts_with = "local_cpu")]
    check: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Shell,
    Fish,
    Github,
    Json,
    Dotenv,
}

/// Variables with their values, or none for those that are to be gone.
type Variables = BTreeMap<OsString, Option<OsString>>;

/// `given` is the environment that this process was started with.
pub(crate) fn env(args: Args, given: &BTreeMap<OsString, OsString>) -> Result<()> {
    let chosen = args.chosen.choose(|targets| {
        started::refuse(targets.servers())?;
        Ok((targets, Started::default()))
    })?;
    if let (Some(context), Some(servers)) = (config::context(), &chosen.servers) {
        // Standard output is for a shell, or a file.
        eprintln!("outboard: the context {context}, server {servers}");
    }
    for server in chosen.servers().iter().filter(|_| args.check) {
        probe::probe(server)?;
    }
    if chosen.servers.is_some() && !args.check {
        credentials::warn_of_open_files(chosen.servers());
    }
    output::print_bytes(&text(args.format, &changes(chosen.variables, given, std::env::vars_os()))?)
}

/// The chosen variables, and those that the configuration has set in this process (`now`) or
/// removed from it. Variables that were not set need not be removed.
fn changes(
    chosen: BTreeMap<&'static str, Option<OsString>>,
    given: &BTreeMap<OsString, OsString>,
    now: impl Iterator<Item = (OsString, OsString)>,
) -> Variables {
    let now: BTreeMap<OsString, OsString> = now.collect();
    let gone =
        given.keys().filter(|name| !now.contains_key(*name)).map(|name| (name.clone(), None));
    let mut all: Variables = gone.collect();
    all.extend(
        now.into_iter()
            .filter(|(name, value)| given.get(name) != Some(value))
            .map(|(name, value)| (name, Some(value))),
    );
    all.extend(chosen.into_iter().map(|(name, value)| (OsString::from(name), value)));
    all.retain(|name, value| value.is_some() || given.contains_key(name));
    all
}

fn text(format: Format, variables: &Variables) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut object = serde_json::Map::new();
    for (name, value) in variables {
        let value = value.as_deref();
        match format {
            Format::Shell => text.extend(shell(name, value)),
            Format::Fish => text.extend(fish(name, value)),
            Format::Github => {
                text.extend(github(as_text(name)?, value.map(as_text).transpose()?).into_bytes())
            }
            Format::Dotenv => {
                text.extend(dotenv(as_text(name)?, value.map(as_text).transpose()?).into_bytes())
            }
            Format::Json => {
                object.insert(as_text(name)?.to_owned(), value.map(as_text).transpose()?.into());
            }
        }
    }
    if format == Format::Json {
        text = serde_json::to_string_pretty(&object).into_diagnostic()?.into_bytes();
        text.push(b'\n');
    }
    Ok(text)
}

fn as_text(value: &OsStr) -> Result<&str, Failure> {
    value.to_str().ok_or_else(|| {
        let message =
            format!("`{}` is not UTF-8, which this format cannot hold", value.to_string_lossy());
        Failure::new(
            Code::BadUsage,
            message,
            "use --format shell, or name the folder or file otherwise",
        )
    })
}

/// For any shell of POSIX: between single quotes nothing but such a quote means anything.
fn shell(name: &OsStr, value: Option<&OsStr>) -> Vec<u8> {
    let Some(value) = value else { return [b"unset ", name.as_bytes(), b"\n"].concat() };
    let mut line = [b"export ", name.as_bytes(), b"='"].concat();
    for byte in value.as_bytes() {
        match byte {
            b'\'' => line.extend(b"'\\''"),
            _ => line.push(*byte),
        }
    }
    line.extend(b"'\n");
    line
}

/// For fish, which between single quotes knows a backslash before a quote and before itself.
fn fish(name: &OsStr, value: Option<&OsStr>) -> Vec<u8> {
    let Some(value) = value else { return [b"set -e ", name.as_bytes(), b"\n"].concat() };
    let mut line = [b"set -gx ", name.as_bytes(), b" '"].concat();
    for byte in value.as_bytes() {
        if matches!(byte, b'\'' | b'\\') {
            line.push(b'\\');
        }
        line.push(*byte);
    }
    line.extend(b"'\n");
    line
}

/// A file of GitHub's can only set variables; the client treats an empty variable as not set. A
/// value of several lines stands between words that are not in it.
fn github(name: &str, value: Option<&str>) -> String {
    let value = value.unwrap_or_default();
    if !value.contains(['\n', '\r']) {
        return format!("{name}={value}\n");
    }
    let mut end = "OUTBOARD_END".to_owned();
    while value.contains(&end) {
        end.push('_');
    }
    format!("{name}<<{end}\n{value}\n{end}\n")
}

/// Without quotes where no reader could mind; some do not know them.
fn dotenv(name: &str, value: Option<&str>) -> String {
    let value = value.unwrap_or_default();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./:,@%+=".contains(letter);
    if value.chars().all(is_plain) {
        return format!("{name}={value}\n");
    }
    if !value.contains(['\'', '\\']) && !value.contains(char::is_control) {
        return format!("{name}='{value}'\n");
    }
    let mut line = format!("{name}=\"");
    for letter in value.chars() {
        match letter {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '"' | '\\' | '$' | '`' => line.extend(['\\', letter]),
            _ => line.push(letter),
        }
    }
    line + "\"\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(format: Format, value: Option<&str>) -> String {
        let variables = [(OsString::from("A"), value.map(OsString::from))].into();
        String::from_utf8(text(format, &variables).unwrap()).unwrap()
    }

    #[test]
    fn each_format_keeps_what_it_is_given() {
        let cases = [
            (Format::Shell, Some("x"), "export A='x'\n"),
            (Format::Shell, Some("it's $HOME;`id`\n"), "export A='it'\\''s $HOME;`id`\n'\n"),
            (Format::Shell, None, "unset A\n"),
            (Format::Fish, Some("it's $HOME\\"), "set -gx A 'it\\'s $HOME\\\\'\n"),
            (Format::Fish, None, "set -e A\n"),
            (Format::Github, Some("a b='c'"), "A=a b='c'\n"),
            (
                Format::Github,
                Some("a\nB=OUTBOARD_END"),
                "A<<OUTBOARD_END_\na\nB=OUTBOARD_END\nOUTBOARD_END_\n",
            ),
            (Format::Github, None, "A=\n"),
            (Format::Dotenv, Some("/a:[b]"), "A='/a:[b]'\n"),
            (Format::Dotenv, Some("unix:/a/0,unix:/a/1"), "A=unix:/a/0,unix:/a/1\n"),
            (Format::Dotenv, Some("it's $1\n"), "A=\"it's \\$1\\n\"\n"),
            (Format::Json, Some("it's\n"), "{\n  \"A\": \"it's\\n\"\n}\n"),
            (Format::Json, None, "{\n  \"A\": null\n}\n"),
        ];
        for (format, value, wanted) in cases {
            assert_eq!(lines(format, value), wanted);
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_for_shells_only() {
        let value = OsStr::from_bytes(b"\xff").to_owned();
        let variables: Variables = [(OsString::from("A"), Some(value))].into();
        assert_eq!(text(Format::Shell, &variables).unwrap(), b"export A='\xff'\n");
        for format in [Format::Github, Format::Json, Format::Dotenv] {
            assert!(
                text(format, &variables)
                    .is_err_and(|error| error.to_string().contains("not UTF-8"))
            );
        }
    }

    #[test]
    fn what_the_caller_has_already_is_not_said_again() {
        let some = |text: &str| Some(OsString::from(text));
        let given = [("OUTBOARD_TOKEN", "secret"), ("B", "1"), ("GONE", "1")];
        let given: BTreeMap<OsString, OsString> =
            given.map(|(name, value)| (name.into(), value.into())).into();
        let mut now = given.clone();
        now.insert("FROM_FILE".into(), "2".into());
        now.remove(OsStr::new("OUTBOARD_TOKEN"));
        let chosen = [("B", some("1")), ("GONE", None), ("NEVER_THERE", None)].into();
        let wanted =
            [("B", some("1")), ("FROM_FILE", some("2")), ("GONE", None), ("OUTBOARD_TOKEN", None)];
        assert_eq!(
            changes(chosen, &given, now.into_iter()),
            wanted.map(|(name, value)| (name.into(), value)).into()
        );
    }
}
