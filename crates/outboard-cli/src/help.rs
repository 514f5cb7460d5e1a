//! The help that a person reads: commands in groups, `-h` that fits on a screen beside a `--help`
//! that says all, and examples.

use std::fmt::Write as _;

use clap::builder::StyledStr;
use clap::{Arg, Command};

/// The commands, in the order in which people come to need them.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Use GPUs of other machines",
        &["run", "env", "devices", "smi", "login", "logout", "status", "context", "jupyter"],
    ),
    ("See what happens", &["doctor", "sessions", "top", "trace", "profile", "bench"]),
    ("Serve GPUs", &["serve", "token", "kill", "upgrade", "library", "cdi"]),
    ("Share a pool of servers", &["pool", "broker", "slurm"]),
    ("Set up and look up", &["config", "explain", "docs", "completions", "man"]),
];

/// Commands that have more options than a screen has lines, each with those that `-h` shows.
const EVERYDAY: &[(&str, &[&str])] = &[
    ("run", OF_A_PROGRAM),
    ("env", &["server", "local-cpu", "format", "check"]),
    ("jupyter install", OF_A_PROGRAM),
    (
        "serve",
        &[
            "driver",
            "listen",
            "warm",
            "metrics",
            "state",
            "drain",
            "session-memory",
            "sharing",
            "memory",
            "owner-sessions",
            "max-sessions",
            "queue",
            "pool",
            "pool-fingerprint",
            "pool-token-file",
            "pool-address",
            "files",
        ],
    ),
    ("broker", &["listen", "state", "store", "url", "policy", "quotas", "life", "longest"]),
    ("bench", &["driver", "transports", "only", "quick", "json", "page"]),
];
const OF_A_PROGRAM: &[&str] =
    &["server", "local-cpu", "no-wait", "stats", "gpus", "memory", "share", "near", "wait", "name"];

/// Options that most people set by `outboard login`, once; `-h` leaves them to `--help`.
const SET_ONCE: &[&str] =
    &["pool-fingerprint", "pool-ca", "pool-token-file", "pool-cert", "pool-key"];

/// The heading of options by which client and server know each other; also set once.
const WHO_IS_WHO: &str = "Who is who";

/// Lines that people type, each with what it does. The first word of each is `outboard`.
type Examples = &'static [(&'static str, &'static str)];

const EXAMPLES: &[(&str, Examples)] = &[
    (
        "bench",
        &[
            ("outboard bench --quick", "Check that the benchmark works here"),
            ("outboard bench --only launch --json launch.json", "Measure launches, for a program"),
        ],
    ),
    (
        "broker",
        &[
            ("outboard broker --listen 0.0.0.0", "Know the servers of a pool"),
            ("outboard broker --quotas quotas.toml --longest 24h", "Give each owner its share"),
        ],
    ),
    (
        "cdi",
        &[
            (
                "outboard cdi generate --server gpu1",
                "Print what containers need for gpu1's devices",
            ),
            (
                "outboard cdi generate --server gpu1 --output /etc/cdi/outboard.yaml",
                "Write it where podman and docker find it",
            ),
        ],
    ),
    (
        "completions",
        &[
            ("outboard completions bash", "Print what bash needs"),
            ("outboard completions fish", "Print what fish needs"),
        ],
    ),
    (
        "config",
        &[
            ("outboard config show", "Print the settings in force, and where each came from"),
            ("outboard config check outboard.toml", "Report every mistake in a file"),
        ],
    ),
    (
        "context",
        &[
            ("outboard context add lab --server gpu1", "Call gpu1 `lab`"),
            ("outboard context use lab", "Have every command use it"),
        ],
    ),
    (
        "devices",
        &[
            ("outboard devices --server gpu1", "List gpu1's devices"),
            ("outboard devices --server gpu1,gpu2 --json", "Those of two servers, for a program"),
        ],
    ),
    (
        "docs",
        &[
            ("outboard docs", "List the pages"),
            ("outboard docs pool", "Read how servers become a pool"),
        ],
    ),
    (
        "doctor",
        &[
            ("outboard doctor --server gpu1", "Check the way to gpu1, and what to expect of it"),
            ("outboard doctor -- ./program", "Say whether a program would use Outboard"),
            ("outboard doctor serve", "Check this machine as a server"),
        ],
    ),
    (
        "env",
        &[
            ("outboard env --server gpu1", "Print variables for this shell, to be evaluated"),
            ("outboard env --server gpu1 --check", "Only if gpu1 answers"),
        ],
    ),
    (
        "explain",
        &[
            ("outboard explain OB0101", "Say what the code means, and what to do"),
            ("outboard explain", "List the codes"),
        ],
    ),
    (
        "jupyter",
        &[
            ("outboard jupyter install --server gpu1", "Register a kernel that has gpu1's devices"),
            ("outboard jupyter install --gpus 1", "One that gets a device of a pool"),
        ],
    ),
    (
        "kill",
        &[
            ("outboard kill 3f2a", "End the session whose number begins so"),
            ("outboard kill --owner ada", "End all sessions of an owner"),
        ],
    ),
    (
        "library",
        &[
            ("outboard library key signer.pem", "Make a key that signs client libraries"),
            ("outboard library sign --key signer.pem libraries", "Sign those in a folder"),
        ],
    ),
    (
        "login",
        &[
            ("outboard login", "Read a string of `outboard token create`, and keep it"),
            ("outboard login --context lab", "Keep it as the context `lab`"),
        ],
    ),
    (
        "logout",
        &[
            ("outboard logout gpu1", "Forget gpu1 and its token"),
            ("outboard logout", "Forget the only server or pool that a login has kept"),
        ],
    ),
    (
        "man",
        &[
            ("outboard man ~/.local/share/man/man1", "Install the pages for this user"),
            ("outboard man pages", "Write them to the folder `pages`"),
        ],
    ),
    (
        "pool",
        &[
            ("outboard pool", "Show the devices, and what of them is free"),
            ("outboard pool leases", "Show who has which"),
            ("outboard pool why 17", "Say how lease 17 came about"),
        ],
    ),
    (
        "profile",
        &[
            ("outboard profile run.profile", "Say where the time of a program went"),
            ("outboard profile rank0.profile rank1.profile", "The time of several together"),
        ],
    ),
    (
        "run",
        &[
            ("outboard run --server gpu1 -- python train.py", "With all devices of gpu1"),
            ("outboard run --server gpu1/2,gpu2 -- ./program", "Device 2 of gpu1, all of gpu2"),
            ("outboard run --server ssh://gpu1 -- ./program", "With nothing installed on gpu1"),
            ("outboard run --gpus 2 -- ./program", "With two devices of a pool"),
            ("outboard run --local-cpu -- ./program", "Without a GPU, on this processor"),
        ],
    ),
    (
        "serve",
        &[
            ("outboard serve", "Offer this machine's GPUs to programs on this machine"),
            ("outboard serve --listen 0.0.0.0", "To other machines, which need a token"),
            ("outboard serve --driver cpu", "Offer the software device"),
        ],
    ),
    (
        "sessions",
        &[
            ("outboard sessions", "List the sessions of this machine's server"),
            ("outboard sessions --watch", "Again each two seconds"),
        ],
    ),
    (
        "slurm",
        &[
            ("outboard slurm sync", "Let Slurm's licences follow the pool"),
            ("outboard slurm prolog", "Write a job's lease for its tasks; Slurm calls it"),
        ],
    ),
    (
        "smi",
        &[
            ("outboard smi", "Show the devices of the server in use, as `nvidia-smi` does"),
            ("outboard smi --server gpu1,gpu2 --json", "Those of two servers, for a program"),
        ],
    ),
    (
        "status",
        &[
            ("outboard status", "Say who one is where, and until when the tokens are good"),
            ("outboard status --json", "For a program"),
        ],
    ),
    (
        "token",
        &[
            ("outboard token create --owner ada", "Print a string for ada's `outboard login`"),
            ("outboard token list", "List the tokens"),
            ("outboard token --broker create --role client --owner ada", "One for a pool"),
        ],
    ),
    (
        "top",
        &[
            ("outboard top", "Watch the sessions of this machine's server"),
            ("outboard top --pool", "Watch a pool"),
        ],
    ),
    (
        "trace",
        &[
            ("outboard trace 3f2a", "Record what a session does"),
            ("outboard trace 3f2a --seconds 10 --output spans.json", "For ten seconds, to a file"),
        ],
    ),
    (
        "upgrade",
        &[
            ("outboard upgrade", "Have this machine's server become the installed release"),
            ("outboard upgrade --server gpu1:9480", "The server with that address"),
        ],
    ),
];

/// Gives a command, as clap derives it, the help that people read.
pub(crate) fn with_help(command: Command) -> Command {
    let groups = grouped(&command);
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{groups}\nOptions:\n{{options}}\n\n\
         `outboard COMMAND -h` shows a command's usual options, `--help` all of them.\n"
    );
    command.help_template(template).mut_args(brief).mut_subcommands(|below| shaped(below, ""))
}

/// The list of commands.
fn grouped(command: &Command) -> String {
    let mut text = String::new();
    for (heading, names) in GROUPS {
        let _ = write!(text, "\n{heading}:\n");
        for name in *names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {name:11}  {about}");
        }
    }
    text
}

/// A command below `above`, and those below it.
fn shaped(command: Command, above: &str) -> Command {
    let path = format!("{above} {}", command.get_name()).trim_start().to_owned();
    let find = |name: &str| EVERYDAY.iter().find(|(other, _)| *other == name);
    let everyday = find(&path).map(|(_, names)| *names);
    let command = command.mut_args(|argument| brief(usual(argument, everyday)));
    let examples = EXAMPLES.iter().find(|(name, _)| *name == path);
    let command = match examples {
        Some((_, examples)) => command.after_help(listed(examples)),
        None => command,
    };
    command.mut_subcommands(|below| shaped(below, &path))
}

fn listed(examples: Examples) -> StyledStr {
    let mut text = "Examples:\n".to_owned();
    for (line, what) in examples {
        let _ = writeln!(text, "  {line}\n      {what}");
    }
    text.trim_end().to_owned().into()
}

/// Leaves an option to `--help` unless it is an everyday one.
fn usual(argument: Arg, everyday: Option<&[&str]>) -> Arg {
    let Some(long) = argument.get_long() else { return argument };
    let is_set_once = SET_ONCE.contains(&long) || argument.get_help_heading() == Some(WHO_IS_WHO);
    let is_usual = everyday.map_or(!is_set_once, |names| names.contains(&long));
    argument.hide_short_help(!is_usual)
}

/// `-h` says the first sentence of an argument's help, `--help` all of it.
fn brief(argument: Arg) -> Arg {
    let Some(help) = argument.get_help().map(ToString::to_string) else { return argument };
    let whole = argument.get_long_help().map_or_else(|| help.clone(), ToString::to_string);
    let first = first_sentence(&help).to_owned();
    argument.help(first).long_help(whole)
}

/// What is before the first full stop or semicolon.
fn first_sentence(text: &str) -> &str {
    let ends = [". ", "; "].into_iter().filter_map(|end| text.find(end));
    &text[..ends.min().unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn command() -> Command {
        let mut command = with_help(crate::Cli::command());
        command.build();
        command
    }

    fn shown(command: &Command) -> impl Iterator<Item = &Command> {
        let names = |name: &str| name != "help";
        command
            .get_subcommands()
            .filter(move |below| !below.is_hide_set() && names(below.get_name()))
    }

    /// A command and all below it.
    fn each(command: &Command, see: &mut dyn FnMut(&Command)) {
        see(command);
        shown(command).for_each(|below| each(below, see));
    }

    #[test]
    fn each_command_is_in_a_group_and_has_a_line() {
        let command = command();
        let mut named: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let mut there: Vec<&str> = shown(&command).map(Command::get_name).collect();
        named.sort_unstable();
        there.sort_unstable();
        assert_eq!(named, there);
        for line in grouped(&command).lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn each_command_has_two_examples_that_are_commands() {
        for below in shown(&command()) {
            let name = below.get_name();
            let examples = EXAMPLES.iter().find(|(other, _)| *other == name);
            let (_, examples) = examples.unwrap_or_else(|| panic!("{name} has no examples"));
            assert!(examples.len() >= 2, "{name}");
            for (line, _) in *examples {
                let matches = command().try_get_matches_from(line.split(' '));
                let matches = matches.unwrap_or_else(|error| panic!("`{line}`: {error}"));
                assert_eq!(matches.subcommand_name(), Some(name), "{line}");
            }
        }
        assert!(EXAMPLES.is_sorted_by_key(|(name, _)| name));
    }

    #[test]
    fn the_short_help_is_a_screen() {
        each(&command(), &mut |command| {
            let help = command.clone().term_width(100).render_help().to_string();
            let lines = help.lines().count();
            assert!(lines <= 50, "`{}` has {lines} lines:\n{help}", command.get_name());
        });
    }

    #[test]
    fn the_long_help_has_every_option_whole() {
        let plain = crate::Cli::command();
        let serve = command().find_subcommand("serve").unwrap().clone();
        let help = serve.term_width(100_000).render_long_help().to_string();
        let arguments = plain.find_subcommand("serve").unwrap().get_arguments();
        for argument in arguments.filter(|argument| !argument.is_hide_set()) {
            let whole = argument.get_help().unwrap().to_string();
            assert!(help.contains(&whole), "{whole}");
        }
    }

    #[test]
    fn options_that_the_short_help_names_are_there() {
        for (path, names) in EVERYDAY {
            let mut below = command();
            for name in path.split(' ') {
                below = below.find_subcommand(name).unwrap().clone();
            }
            let has = |name: &str| below.get_arguments().any(|one| one.get_long() == Some(name));
            let is_of_programs = std::ptr::eq(*names, OF_A_PROGRAM);
            assert!(is_of_programs || names.iter().all(|name| has(name)), "{path}: {names:?}");
        }
    }

    #[test]
    fn a_first_sentence_ends_at_its_first_end() {
        assert_eq!(first_sentence("One thing. Another"), "One thing");
        assert_eq!(first_sentence("A path, unix:PATH[/N]; or not"), "A path, unix:PATH[/N]");
        assert_eq!(first_sentence("Version 1.2"), "Version 1.2");
    }
}
