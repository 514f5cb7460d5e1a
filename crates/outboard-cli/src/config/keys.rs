//! The keys of `[serve]`: the long flags of `outboard serve`.

use clap::builder::BoolishValueParser;
use clap::{Arg, ArgAction, Command};

use super::file::Setting;

/// The command whose flags are settings.
pub(crate) const SERVE: &str = "serve";

/// The flags of `outboard serve` that are settings.
pub(crate) fn flags(command: &Command) -> impl Iterator<Item = &Arg> {
    let serve = command.find_subcommand(SERVE);
    serve.into_iter().flat_map(Command::get_arguments).filter(|arg| is_setting(arg))
}

fn is_setting(arg: &Arg) -> bool {
    arg.get_long().is_some_and(|long| !matches!(long, "help" | "version" | "config" | "check"))
        && !arg.is_hide_set()
}

/// The variable that sets a flag.
pub(crate) fn variable(long: &str) -> String {
    format!("OUTBOARD_SERVE_{}", long.replace('-', "_").to_ascii_uppercase())
}

/// Whether a setting is a secret, which is never shown.
pub(crate) fn is_secret(arg: &Arg) -> bool {
    let name = arg.get_long().unwrap_or_default();
    let names_a_place =
        ["-file", "-dir", "-folder", "-path"].iter().any(|ending| name.ends_with(ending));
    let sounds_secret = ["token", "secret", "password"].iter().any(|word| name.ends_with(word));
    arg.is_hide_env_values_set() || (sounds_secret && !names_a_place)
}

/// Takes values of missing flags from the environment, and gives flags without a value an opposite:
/// `--flag=false`.
pub(crate) fn with_environment(command: Command) -> Command {
    command.mut_subcommand(SERVE, |serve| {
        serve.mut_args(|arg| {
            if !is_setting(&arg) {
                return arg;
            }
            let (name, secret) = (variable(arg.get_long().unwrap_or_default()), is_secret(&arg));
            let arg =
                if matches!(arg.get_action(), ArgAction::SetTrue) { switch(arg) } else { arg };
            let arg =
                if arg.get_env().is_some() { arg } else { arg.env(kept(name)).hide_env(true) };
            arg.hide_env_values(secret)
        })
    })
}

fn switch(arg: Arg) -> Arg {
    arg.action(ArgAction::Set)
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
        .default_value("false")
        .value_name("true|false")
        .value_parser(BoolishValueParser::new())
        .hide_possible_values(true)
        .hide_default_value(true)
}

/// The file's values replace defaults.
pub(crate) fn as_defaults(command: Command, settings: &[Setting]) -> Command {
    command.mut_subcommand(SERVE, |serve| {
        serve.mut_args(|arg| {
            match settings.iter().find(|setting| arg.get_long() == Some(setting.name.as_str())) {
                Some(setting) => {
                    let values = values(&arg, &setting.values).into_iter().map(kept);
                    arg.default_values(values.collect::<Vec<_>>())
                }
                None => arg,
            }
        })
    })
}

/// The values as the flag takes them: several values of a flag that may be given once are separated
/// by commas.
pub(crate) fn values(arg: &Arg, values: &[String]) -> Vec<String> {
    match arg.get_action() {
        ArgAction::Append if arg.get_value_delimiter().is_none() => values.to_vec(),
        _ => vec![values.join(",")],
    }
}

/// Sets the variables for what the file says, except those that are set already: commands that
/// share a flag with `outboard serve` read them.
pub(crate) fn set(settings: &[Setting]) {
    for setting in settings {
        let name = variable(&setting.name);
        if std::env::var_os(&name).is_none() {
            // SAFETY: nothing but the main thread exists yet: the command line has not even been
            // understood.
            unsafe { std::env::set_var(name, setting.text()) };
        }
    }
}

/// Returns the mistake in values for a flag of `outboard serve`.
pub(crate) fn wrong(command: &Command, arg: &Arg, given: &[String]) -> Option<String> {
    let long = arg.get_long().unwrap_or_default();
    let line = values(arg, given).into_iter().map(|value| format!("--{long}={value}"));
    let serve = command.find_subcommand(SERVE)?.clone();
    let error = serve.try_get_matches_from(std::iter::once(SERVE.to_owned()).chain(line)).err()?;
    // Flags that this one needs or excludes may come from elsewhere.
    if matches!(
        error.kind(),
        clap::error::ErrorKind::MissingRequiredArgument | clap::error::ErrorKind::ArgumentConflict
    ) {
        return None;
    }
    let text = error.to_string();
    let lines = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim);
    let sentence = lines.collect::<Vec<_>>().join(" ");
    Some(sentence.strip_prefix("error: ").unwrap_or(&sentence).to_owned())
}

/// The mistakes in combinations of settings: one that needs another, or excludes it.
pub(crate) fn wrong_together(command: &Command, settings: &[Setting]) -> Option<String> {
    let flags: Vec<&Arg> = flags(command).collect();
    let line = settings.iter().filter(|setting| setting.text() != "false").flat_map(|setting| {
        let flag = flags.iter().find(|flag| flag.get_long() == Some(setting.name.as_str()));
        let values = flag.map(|flag| values(flag, &setting.values)).unwrap_or_default();
        values.into_iter().map(|value| format!("--{}={value}", setting.name))
    });
    let serve = command.find_subcommand(SERVE)?.clone();
    let error = serve.try_get_matches_from(std::iter::once(SERVE.to_owned()).chain(line)).err()?;
    let text = error.to_string();
    let lines = text
        .lines()
        .take_while(|line| !line.starts_with("Usage") && !line.is_empty())
        .map(str::trim);
    let sentence = lines.collect::<Vec<_>>().join(" ");
    Some(sentence.strip_prefix("error: ").unwrap_or(&sentence).to_owned())
}

/// Clap keeps names and defaults as long as the process lives.
fn kept(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}
