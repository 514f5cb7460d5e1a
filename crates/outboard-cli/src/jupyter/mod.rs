//! `outboard jupyter`: kernels of Jupyter whose programs `outboard run` starts.
//!
//! A kernel is a folder in one of the places where Jupyter looks, with a file that says which
//! program to start. Jupyter, JupyterLab and VS Code read it and start the program for each
//! notebook.

mod flags;
mod folders;
pub(crate) mod parent;
mod spec;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ArgMatches;
use miette::{IntoDiagnostic, Result};
use outboard_wire::Code;
use serde::Serialize;

use crate::config::store;
use crate::failure::Failure;
use crate::{environment, output, probe, run, started};
use folders::Place;
use spec::Spec;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Register a kernel for Python that has the devices of a server, or of a pool. The flags that
    /// choose them are those of `outboard run`, which starts the kernel with them.
    Install(Box<Install>),
    /// List the kernels that this command has registered.
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        place: Place,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove a kernel that this command has registered.
    #[command(visible_alias = "rm")]
    Remove {
        /// The kernel's name, as `list` shows it.
        #[arg(value_parser = name)]
        kernel: String,
        #[command(flatten)]
        place: Place,
    },
}

#[derive(clap::Args)]
struct Install {
    #[command(flatten)]
    devices: run::Devices,
    /// The kernel's name, by which other programs ask for it. One of this name is replaced.
    #[arg(long, default_value = "outboard", value_parser = name, help_heading = "Kernel")]
    name: String,
    /// What people choose it by. Without it the language and the server.
    #[arg(long, value_name = "TEXT", help_heading = "Kernel")]
    display_name: Option<String>,
    /// The interpreter, which has the package ipykernel. Without it the python3 of PATH.
    #[arg(long, value_name = "FILE", help_heading = "Kernel")]
    python: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
}

/// `given` is the environment that this process was started with, `matches` its command line.
pub(crate) fn jupyter(
    args: Args,
    given: &BTreeMap<OsString, OsString>,
    matches: &ArgMatches,
) -> Result<()> {
    match args.action {
        Action::Install(args) => install(&args, given, matches),
        Action::List { place, json } => list(&place, json),
        Action::Remove { kernel, place } => remove(&place, &kernel),
    }
}

fn install(
    args: &Install,
    given: &BTreeMap<OsString, OsString>,
    matches: &ArgMatches,
) -> Result<()> {
    let own = of_interpreter(args.python.as_deref())?;
    let kept = flags::kept(given, matches)?;
    let command = std::env::current_exe().into_diagnostic()?;
    let mut argv = vec![flags::text(command.as_os_str())?, "run".to_owned()];
    argv.extend(kept.flags);
    argv.push("--".to_owned());
    let display_name = args.display_name.clone().unwrap_or_else(|| match &kept.label {
        Some(label) => format!("Python 3 (Outboard: {label})"),
        None => "Python 3 (Outboard)".to_owned(),
    });
    let folder = args.place.folder()?.join(&args.name);
    let file = spec::file(&folder);
    if folder.exists() && Spec::read(&folder).is_none() {
        let message = format!("{} is a kernel that something else has made", folder.display());
        let help = "choose another name: --name NAME";
        return Err(Failure::new(Code::FileUnusable, message, help).into());
    }
    let spec = own.started_by(argv, display_name, kept.variables);
    // For as many as the place is for.
    std::fs::create_dir_all(&folder).map_err(|error| Failure::file("make", &folder, &error))?;
    store::open_to_all(&file, &spec.text().into_diagnostic()?)?;
    if let Some(secret) = kept.secret {
        eprintln!(
            "outboard: {secret} is not written into the kernel, whose file others may read; \
             `outboard login` keeps a token, or name its file with --token-file"
        );
    }
    if let Some(problem) = does_not_answer(&args.devices)? {
        eprintln!("outboard: now the kernel would not start: {problem}");
    }
    output::print(&format!(
        "{}: the kernel {}, `{}`, starts with:\n    {}\n",
        folder.display(),
        args.name,
        spec.display_name(),
        spec.command_line()
    ))
}

/// Why the server would not have the kernel; nothing is known of those that are started for it.
fn does_not_answer(devices: &run::Devices) -> Result<Option<Failure>> {
    let Some(servers) = devices.named_servers()? else { return Ok(None) };
    let there = servers
        .servers()
        .iter()
        .filter(|server| started::refuse(std::slice::from_ref(*server)).is_ok());
    Ok(there.filter_map(|server| probe::probe(server).err()).next())
}

/// The kernel that an interpreter is by itself. It is named by its whole path, since a kernel may
/// start with another `PATH`; a link stays one: by it an interpreter knows its environment.
fn of_interpreter(named: Option<&Path>) -> Result<Spec> {
    let wanted = named.map_or(OsStr::new("python3"), Path::as_os_str);
    let Some(found) = environment::find_in_path(wanted) else {
        let message = format!("there is no interpreter {}", wanted.to_string_lossy());
        let help = "name one that has ipykernel: --python FILE";
        return Err(Failure::new(Code::CannotStartProgram, message, help).into());
    };
    let python = std::path::absolute(found).into_diagnostic()?;
    let problem = match Command::new(&python).args(["-c", spec::ASK]).output() {
        Ok(output) if output.status.success() => {
            match Spec::parse(&String::from_utf8_lossy(&output.stdout)) {
                Ok(spec) => return Ok(spec),
                Err(error) => {
                    format!("what its ipykernel says of itself is not understood: {error}")
                }
            }
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            said.trim().lines().last().unwrap_or("it fails").to_owned()
        }
        Err(error) => error.to_string(),
    };
    let python = python.display();
    let message = format!("{python} cannot be a kernel: {problem}");
    let help = format!("`{python} -m pip install ipykernel`, or name another one: --python FILE");
    Err(Failure::new(Code::CannotStartProgram, message, help).into())
}

#[derive(Serialize)]
struct Row {
    name: String,
    display_name: String,
    folder: PathBuf,
    argv: Vec<String>,
}

fn rows(place: &Place) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for folder in place.searched()? {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let folder = entry.path();
            let Some(spec) = Spec::read(&folder) else { continue };
            rows.push(Row {
                name: entry.file_name().to_string_lossy().into_owned(),
                display_name: spec.display_name().to_owned(),
                argv: spec.argv().to_vec(),
                folder,
            });
        }
    }
    rows.sort_by(|one, other| (&one.name, &one.folder).cmp(&(&other.name, &other.folder)));
    Ok(rows)
}

fn list(place: &Place, json: bool) -> Result<()> {
    let rows = rows(place)?;
    if json {
        return output::print(&(serde_json::to_string_pretty(&rows).into_diagnostic()? + "\n"));
    }
    let width = |text: fn(&Row) -> &str| {
        rows.iter().map(|row| text(row).chars().count()).max().unwrap_or(0)
    };
    let (name, shown) = (width(|row| &row.name), width(|row| &row.display_name));
    let mut text = String::new();
    for row in &rows {
        let folder = row.folder.display();
        let _ = writeln!(text, "{:name$}  {:shown$}  {folder}", row.name, row.display_name);
    }
    if rows.is_empty() {
        text.push_str("There are no kernels; `outboard jupyter install` registers one.\n");
    }
    output::print(&text)
}

fn remove(place: &Place, kernel: &str) -> Result<()> {
    let Some(row) = rows(place)?.into_iter().find(|row| row.name == kernel) else {
        let message = format!("`outboard jupyter` has registered no kernel {kernel} there");
        let help =
            "`outboard jupyter list` shows those that there are; --prefix names another place";
        return Err(Failure::new(Code::FileUnusable, message, help).into());
    };
    std::fs::remove_dir_all(&row.folder)
        .map_err(|error| Failure::file("remove", &row.folder, &error))?;
    output::print(&format!("{} is removed.\n", row.folder.display()))
}

/// Checks a kernel's name as Jupyter has it.
fn name(text: &str) -> Result<String, String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let fits = !text.is_empty() && text.chars().all(is_plain) && !text.starts_with(['.', '-']);
    let mistake = "a kernel's name has letters of ASCII, digits, `-`, `_` and `.`";
    if fits { Ok(text.to_owned()) } else { Err(mistake.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_folders_that_jupyter_finds() {
        for text in ["outboard", "gpu-1.2", "A_b"] {
            assert!(name(text).is_ok(), "{text}");
        }
        for text in ["", "..", ".x", "a/b", "-x", "a b", "ä"] {
            assert!(name(text).is_err(), "{text}");
        }
    }
}
