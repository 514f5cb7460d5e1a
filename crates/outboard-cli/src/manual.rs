//! `outboard completions` and `outboard man`: what a packager installs for the shell.

use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;
use clap_complete::env::Shells;
use miette::{IntoDiagnostic, Result};

use crate::completion::VARIABLE;
use crate::failure::Failure;
use crate::output;

#[derive(clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

#[derive(clap::Args)]
pub(crate) struct ManArgs {
    /// The folder to write to; it is made.
    folder: PathBuf,
}

/// The command as people see it: without what is hidden.
pub(crate) fn visible(command: &Command) -> Command {
    let shown = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    Command::new("outboard").args(command.get_arguments()).subcommands(shown)
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<()> {
    let (mut script, shell) = (Vec::new(), args.shell.to_string());
    let shells = Shells::builtins();
    let known = shells.completer(&shell).expect("both lists are clap_complete's");
    known
        .write_registration(VARIABLE, "outboard", "outboard", "outboard", &mut script)
        .into_diagnostic()?;
    if args.shell == Shell::Zsh {
        // In a folder of functions it is the function, and called for the first key already.
        script.extend(
            b"[[ $funcstack[1] == _outboard ]] && _clap_dynamic_completer_outboard \"$@\"\n",
        );
    }
    output::print(&String::from_utf8_lossy(&script))
}

pub(crate) fn man(args: &ManArgs, command: Command) -> Result<()> {
    std::fs::create_dir_all(&args.folder)
        .map_err(|error| Failure::file("make", &args.folder, &error))?;
    let mut command = command.disable_help_subcommand(true).mut_subcommands(with_other_names);
    command.build();
    let written = pages(command, &args.folder);
    Ok(written.map_err(|error| Failure::file("write to", &args.folder, &error))?)
}

/// Says the other names of a command where it is described: pages do not show them by themselves.
fn with_other_names(command: Command) -> Command {
    let names: Vec<String> =
        command.get_visible_aliases().map(|name| format!("`outboard {name}`")).collect();
    match command.get_about() {
        Some(about) if !names.is_empty() => {
            let about = format!("{about}; also {}", names.join(", "));
            command.about(about)
        }
        _ => command,
    }
}

/// Writes the pages of a command and of what is below it. Only the command itself knows a version;
/// it is that of all of them.
fn pages(command: Command, folder: &Path) -> io::Result<()> {
    // With the names of the commands above it.
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages(below.clone(), folder)?;
        for other in below.get_visible_aliases() {
            let page = format!(".so man1/{name}-{}.1\n", below.get_name());
            std::fs::write(folder.join(format!("{name}-{other}.1")), page)?;
        }
    }
    clap_mangen::Man::new(command)
        .source(concat!("outboard ", env!("CARGO_PKG_VERSION")))
        .generate_to(folder)
        .map(drop)
}
