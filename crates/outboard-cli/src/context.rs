//! `outboard context`: servers by name, and the one that every command uses.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Command;
use miette::{IntoDiagnostic, Result};
use outboard_client::target::Targets;
use outboard_wire::Code;
use serde::Serialize;

use crate::config::context::{self, DEFAULT};
use crate::config::edit::{self, Table};
use crate::config::{self, client, store};
use crate::failure::Failure;
use crate::output::print;
use crate::{credentials, login};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// List the contexts; an asterisk marks the one in use.
    #[command(visible_alias = "ls")]
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print the settings of a context.
    Show {
        /// The context; without it the one in use.
        name: Option<String>,
    },
    /// Have every command use this context.
    Use {
        /// The context; `default` for the settings that have none.
        name: String,
    },
    /// Add a server that needs no token, or whose token is in a file already;
    /// `outboard login --context NAME` adds one from its string.
    Add(Box<Add>),
    /// Remove a context, and the token that a login has kept for it.
    #[command(visible_alias = "rm")]
    Remove {
        /// The context.
        name: String,
    },
}

#[derive(clap::Args)]
struct Add {
    /// What to call it.
    name: String,
    /// The servers and their devices, HOST[:PORT][/INDEX],…, unix:PATH[/INDEX],… or @FILE
    #[arg(long)]
    server: Targets,
    #[command(flatten)]
    credentials: credentials::Args,
    /// Replace a context of this name.
    #[arg(long)]
    force: bool,
}

/// What this command works on.
struct Files {
    chosen: Option<PathBuf>,
    /// The flag `--context`.
    flag: Option<String>,
    command: Command,
}

/// `chosen` is the configuration file that the command line names, `flag` its context.
pub(crate) fn context(
    args: Args,
    chosen: Option<PathBuf>,
    flag: Option<String>,
    command: Command,
) -> Result<()> {
    let files = Files { chosen, flag, command: config::keys::with_environment(command) };
    match args.action {
        Action::List { json } => files.list(json),
        Action::Show { name } => files.show(name),
        Action::Use { name } => files.choose(&name),
        Action::Add(add) => files.add(&add),
        Action::Remove { name } => files.remove(&name),
    }
}

#[derive(Serialize)]
struct Row {
    name: String,
    server: Option<String>,
    in_use: bool,
}

impl Files {
    fn settings(&self) -> Result<Option<config::Settings>> {
        context::settings(self.chosen.clone(), &self.command)
    }

    /// The file that is written: the one in use, which must be the user's own or be named.
    fn own(&self) -> Result<PathBuf, Failure> {
        config::own_file(self.chosen.clone()).ok_or_else(config::no_file)
    }

    fn list(&self, json: bool) -> Result<()> {
        let settings = self.settings()?;
        let in_use = context::chosen(settings.as_ref(), self.flag.as_deref())
            .unwrap_or_else(|| DEFAULT.to_owned());
        let row = |name: &str, settings: &[config::Setting]| Row {
            name: name.to_owned(),
            server: settings
                .iter()
                .find(|setting| setting.name == "server")
                .map(config::Setting::text),
            in_use: name == in_use,
        };
        let mut rows =
            vec![row(DEFAULT, settings.as_ref().map_or(&[][..], |settings| &settings.client))];
        let contexts = settings.iter().flat_map(|settings| &settings.contexts);
        rows.extend(contexts.map(|context| row(&context.name, &context.settings)));
        if let Some(server) = std::env::var_os(client::SERVER).filter(|_| self.flag.is_none()) {
            eprintln!(
                "outboard: {} is set to {}, which goes before contexts",
                client::SERVER,
                server.to_string_lossy()
            );
        }
        if !rows.iter().any(|row| row.in_use) {
            // A flag or a variable names none of them.
            context::find(settings.as_ref(), &in_use)?;
        }
        if json {
            return print(&(serde_json::to_string_pretty(&rows).into_diagnostic()? + "\n"));
        }
        let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        let mut text = String::new();
        for Row { name, server, in_use } in &rows {
            let server = server.as_deref().unwrap_or(if name == DEFAULT {
                "this machine"
            } else {
                "no server"
            });
            let _ = writeln!(text, "{} {name:width$}  {server}", if *in_use { '*' } else { ' ' });
        }
        print(&text)
    }

    fn show(&self, name: Option<String>) -> Result<()> {
        let settings = self.settings()?;
        let name = name.or_else(|| context::chosen(settings.as_ref(), self.flag.as_deref()));
        let shown = match name.filter(|name| name != DEFAULT) {
            Some(name) => &context::find(settings.as_ref(), &name)?.settings,
            None => settings.as_ref().map_or(&[][..], |settings| &settings.client),
        };
        let lines = shown
            .iter()
            .map(|one| format!("{} = {}\n", one.name, toml::Value::from(one.text().as_str())));
        print(&lines.collect::<String>())
    }

    fn choose(&self, name: &str) -> Result<()> {
        let settings = self.settings()?;
        if name != DEFAULT {
            context::find(settings.as_ref(), name)?;
        }
        let file = self.own()?;
        self.must_be_read(&file, settings.as_ref())?;
        let edit = edit::table(&file, Table::Client, &[(context::KEY, name)], &self.command)?;
        store::make_folder(&file)?;
        store::configuration(&file, &edit.text)?;
        for variable in [context::VARIABLE, client::SERVER] {
            if std::env::var_os(variable).is_some_and(|set| !set.is_empty() && set != name) {
                eprintln!(
                    "outboard: {variable} is set, which goes before this; `unset {variable}` has it count"
                );
            }
        }
        print(&format!("The context {name} is in use.\n"))
    }

    /// A choice in one file means nothing to contexts of another one.
    fn must_be_read(
        &self,
        file: &Path,
        settings: Option<&config::Settings>,
    ) -> Result<(), Failure> {
        let Some(settings) = settings.filter(|settings| settings.file != file && !file.exists())
        else {
            return Ok(());
        };
        let message =
            format!("the configuration is {}, which is not yours", settings.file.display());
        let help = format!("copy it to {}, or name it with --config FILE", file.display());
        Err(Failure::new(Code::FileUnusable, message, help))
    }

    fn add(&self, add: &Add) -> Result<()> {
        if let Some(problem) = context::check_name(&add.name).err().or((add.name == DEFAULT)
            .then(|| format!("`{DEFAULT}` is the name of the settings that have no context")))
        {
            return Err(Failure::new(Code::BadUsage, problem, "choose another name").into());
        }
        let server = add.server.to_string();
        let mut wanted = vec![("server", server.clone())];
        for (variable, value) in add.credentials.changes() {
            let key = client::KEYS.iter().find(|key| key.variable == variable);
            let (Some(key), Some(value)) = (key, value) else { continue };
            let value = value.into_string().map_err(|value| {
                let message = format!(
                    "`{}` is not UTF-8, which the file cannot hold",
                    value.to_string_lossy()
                );
                Failure::new(Code::BadUsage, message, "name the file otherwise")
            })?;
            if let Err(problem) = (key.check)(&value) {
                let message = format!("`{value}` cannot be used for `{}`: {problem}", key.name);
                return Err(Failure::new(
                    Code::BadUsage,
                    message,
                    "`outboard context add --help` says what it takes",
                )
                .into());
            }
            wanted.push((key.name, value));
        }
        let file = self.own()?;
        let wanted: Vec<(&str, &str)> =
            wanted.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let edit = edit::table(&file, Table::Context(&add.name), &wanted, &self.command)?;
        if !edit.others.is_empty() && !add.force {
            let message = format!(
                "nothing was written, since something else is there: {}",
                edit.others.join("; ")
            );
            return Err(Failure::new(Code::BadUsage, message, "--force replaces it").into());
        }
        let is_new = !file.exists();
        store::make_folder(&file)?;
        store::configuration(&file, &edit.text)?;
        // Variables count only where no context is named.
        login::warn(&[], is_new);
        print(&format!(
            "The context {0} is {server}; `outboard context use {0}` has every command use it.\n",
            add.name
        ))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let file = self.own()?;
        let settings = if file.exists() {
            context::settings(Some(file.clone()), &self.command)?
        } else {
            None
        };
        let found = context::find(settings.as_ref(), name)?;
        let of_file = settings
            .iter()
            .flat_map(|settings| &settings.client)
            .find(|one| one.name == context::KEY);
        if of_file.is_some_and(|setting| setting.text() == name) {
            let help = format!("`outboard context use {DEFAULT}`, or another one, first");
            return Err(Failure::new(
                Code::BadUsage,
                format!("the context {name} is in use"),
                help,
            )
            .into());
        }
        let kept = login::kept_tokens(&file, Some(name), &found.settings);
        store::configuration(&file, &edit::without(&file, Table::Context(name))?)?;
        let mut text = format!("The context {name} is gone.\n");
        for token in kept {
            let _ = writeln!(text, "{}", login::remove_token(&token)?);
        }
        print(&text)
    }
}
