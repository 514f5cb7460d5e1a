//! What a kernel keeps of the command line and the environment by which it was registered: the
//! program that starts it later may have others.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args as _, Command, ValueHint};
use outboard_wire::Code;

use crate::config::{client, context};
use crate::failure::Failure;
use crate::run;

/// Global flags, which stand before the others.
const GLOBAL: [&str; 2] = ["config", context::KEY];
/// The variable of the former.
const CONFIG: &str = "OUTBOARD_CONFIG";
/// Secrets, which no file gets that others may read.
const SECRETS: [&str; 2] = ["OUTBOARD_TOKEN", "OUTBOARD_POOL_TOKEN"];
/// By which the broker of a pool is found and known, and whether they name files.
const POOL: [(&str, bool); 6] = [
    ("OUTBOARD_POOL", false),
    ("OUTBOARD_POOL_FINGERPRINT", false),
    ("OUTBOARD_POOL_CA", true),
    ("OUTBOARD_POOL_TOKEN_FILE", true),
    ("OUTBOARD_POOL_CERT", true),
    ("OUTBOARD_POOL_KEY", true),
];

/// What a kernel keeps.
#[derive(Debug)]
pub(super) struct Kept {
    /// The flags for `outboard run`.
    pub(super) flags: Vec<String>,
    pub(super) variables: BTreeMap<String, String>,
    /// What chooses the devices, in a few letters.
    pub(super) label: Option<String>,
    /// A secret of the environment, which it does not keep.
    pub(super) secret: Option<&'static str>,
}

/// `given` is the environment that this process was started with, `matches` its command line.
pub(super) fn kept(
    given: &BTreeMap<OsString, OsString>,
    matches: &ArgMatches,
) -> Result<Kept, Failure> {
    let mut level = matches;
    while let Some((_, inner)) = level.subcommand() {
        level = inner;
    }
    let run = run::Devices::augment_args(Command::new("run"));
    let mut flags = Vec::new();
    for name in GLOBAL {
        for value in typed(level, name).into_iter().flatten() {
            let is_path = name != context::KEY && value != "none";
            flags.push(format!("--{name}={}", text(&whole(value, is_path)?)?));
        }
    }
    let by_context = typed(level, context::KEY).is_some();
    for argument in run.get_arguments() {
        flags.extend(as_typed(argument, level)?);
    }
    let mut variables = BTreeMap::new();
    // Of another server than the context's, they mean nothing.
    let settings = client::KEYS.iter().filter(|key| !(key.is_of_a_server && by_context));
    let settings = settings.map(|key| (key.variable, key.is_file()));
    for (name, is_path) in settings.chain(POOL).chain([(CONFIG, true)]) {
        let Some(value) = given.get(OsStr::new(name)).filter(|value| !value.is_empty()) else {
            continue;
        };
        let is_path = is_path && !(name == CONFIG && value == "none");
        variables.insert(name.to_owned(), text(&whole(value, is_path)?)?);
    }
    let word = |name| typed(level, name)?.next().and_then(OsStr::to_str).map(str::to_owned);
    let label = word(context::KEY)
        .or_else(|| word("server"))
        .or_else(|| word("gpus").map(|gpus| format!("{gpus} of the pool")))
        .or_else(|| typed(level, "local_cpu").map(|_| "CPU".to_owned()))
        .or_else(|| variables.get(client::SERVER).cloned());
    // The command line has a token of its own, or names a server that does not know this one.
    let without = by_context
        || ["token_file", "local_cpu", "gpus"].iter().any(|id| typed(level, id).is_some());
    let is_set = |name: &&&str| given.get(OsStr::new(name)).is_some_and(|value| !value.is_empty());
    let secret = SECRETS.iter().filter(|_| !without).find(is_set).copied();
    Ok(Kept { flags, variables, label, secret })
}

/// The values of a flag that the command line has.
fn typed<'a>(matches: &'a ArgMatches, id: &str) -> Option<impl Iterator<Item = &'a OsStr>> {
    let there = matches.try_contains_id(id).is_ok_and(|there| there);
    let from_line = there && matches.value_source(id) == Some(ValueSource::CommandLine);
    from_line.then(|| matches.try_get_raw(id).ok().flatten().into_iter().flatten())
}

/// A flag of `outboard run` as it was typed, but for the folder in which that was.
fn as_typed(argument: &Arg, matches: &ArgMatches) -> Result<Vec<String>, Failure> {
    let (Some(values), Some(long)) =
        (typed(matches, argument.get_id().as_str()), argument.get_long())
    else {
        return Ok(Vec::new());
    };
    if !argument.get_action().takes_values() {
        return Ok(vec![format!("--{long}")]);
    }
    let is_path = argument.get_value_hint() == ValueHint::AnyPath;
    let flag = |value| Ok(format!("--{long}={}", text(&whole(value, is_path)?)?));
    values.map(flag).collect()
}

/// A value that does not depend on the current folder.
fn whole(value: &OsStr, is_path: bool) -> Result<OsString, Failure> {
    let absolute = |path: &OsStr| {
        std::path::absolute(path).map_err(|error| Failure::file("find", path.as_ref(), &error))
    };
    if is_path {
        return Ok(absolute(value)?.into_os_string());
    }
    // A list of servers in a file.
    match value.to_str().and_then(|text| text.strip_prefix('@')) {
        Some(file) => {
            let mut list = OsString::from("@");
            list.push(absolute(OsStr::new(file))?);
            Ok(list)
        }
        None => Ok(value.to_owned()),
    }
}

/// As a kernel's file can have it.
pub(super) fn text(value: &OsStr) -> Result<String, Failure> {
    value.to_str().map(str::to_owned).ok_or_else(|| {
        let message = format!(
            "`{}` is not UTF-8, which a kernel's file cannot hold",
            value.to_string_lossy()
        );
        Failure::new(Code::BadUsage, message, "name the file or folder otherwise")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn of(line: &[&str], given: &[(&str, &str)]) -> Kept {
        let line = ["outboard", "jupyter", "install"].iter().chain(line);
        let matches = crate::Cli::command().try_get_matches_from(line).unwrap();
        let given = given.iter().map(|(name, value)| (name.into(), value.into())).collect();
        kept(&given, &matches).unwrap()
    }

    #[test]
    fn flags_are_handed_on_as_they_were_typed() {
        let here = std::env::current_dir().unwrap();
        let here = here.display();
        let kept =
            of(&["--server", "gpu1/2,gpu2", "--token-file", "t", "--no-wait", "--name", "x"], &[]);
        let token = format!("--token-file={here}/t");
        assert_eq!(kept.flags, ["--server=gpu1/2,gpu2", &token, "--no-wait"]);
        assert_eq!(kept.label.as_deref(), Some("gpu1/2,gpu2"));
        let kept = of(&["--gpus", "2", "--memory", "20G", "--for", "8h"], &[]);
        assert_eq!(kept.flags, ["--gpus=2", "--memory=20G", "--for=8h"]);
        let kept = of(&["--context", "lab", "--config", "none"], &[("OUTBOARD_SERVER", "gpu1")]);
        assert_eq!(kept.flags, ["--config=none", "--context=lab"]);
        assert!(kept.variables.is_empty(), "{:?}", kept.variables);
        assert_eq!(of(&["--local-cpu"], &[]).flags, ["--local-cpu"]);
    }

    #[test]
    fn the_environment_is_kept_but_for_secrets() {
        let given = [
            ("OUTBOARD_SERVER", "@/list"),
            ("OUTBOARD_TLS_FINGERPRINT", "sha256:0"),
            ("OUTBOARD_TOKEN", "obt_secret"),
            ("OUTBOARD_TOKEN_FILE", ""),
            ("OUTBOARD_SERVE_WARM", "1"),
            ("OUTBOARD_CONFIG", "none"),
            ("HOME", "/h"),
        ];
        let kept = of(&[], &given);
        assert_eq!((kept.flags.len(), kept.secret), (0, Some("OUTBOARD_TOKEN")));
        let names: Vec<&str> = kept.variables.keys().map(String::as_str).collect();
        assert_eq!(names, ["OUTBOARD_CONFIG", "OUTBOARD_SERVER", "OUTBOARD_TLS_FINGERPRINT"]);
        assert_eq!(kept.variables["OUTBOARD_CONFIG"], "none");
        assert_eq!(kept.label.as_deref(), Some("@/list"));
        assert_eq!(of(&["--token-file", "/t"], &given).secret, None);
    }
}
