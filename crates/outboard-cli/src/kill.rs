//! `outboard kill`.

use miette::{IntoDiagnostic, Result};
use outboard_supervisor::admin::Which;
use serde::Serialize;

use crate::admin;

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(false))]
pub(crate) struct Args {
    /// The session: the first digits of its number, at least four.
    #[arg(group = "which")]
    session: Option<String>,
    /// All sessions of an owner.
    #[arg(long, group = "which")]
    owner: Option<String>,
    /// All sessions.
    #[arg(long, group = "which")]
    all: bool,
    #[command(flatten)]
    admin: admin::AdminArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Ended {
    ended: Vec<String>,
}

pub(crate) fn kill(args: Args) -> Result<()> {
    let which = match (args.session, args.owner) {
        (Some(session), _) => Which::Session(session),
        (None, Some(owner)) => Which::Owner(owner),
        (None, None) => Which::All,
    };
    let ended = args.admin.connect()?.kill(which).map_err(|error| admin::failed(&error))?;
    let none = ended.is_empty();
    let text = if args.json {
        serde_json::to_string_pretty(&Ended { ended }).into_diagnostic()? + "\n"
    } else if ended.is_empty() {
        "There is no such session.\n".to_owned()
    } else {
        ended.iter().map(|session| format!("Session {session} ends.\n")).collect()
    };
    crate::output::print(&text)?;
    // As for programs of this kind: the user meant a session and learns that there was none.
    if none {
        std::process::exit(1);
    }
    Ok(())
}
