//! How a server ends, and what outlives it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outboard_supervisor::Config;
use outboard_supervisor::standing::{Folder, Program};

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// After SIGTERM or SIGINT, how many seconds sessions may continue before the server ends them.
    /// It accepts no new ones meanwhile; a second signal ends all at once.
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = crate::serve::seconds())]
    drain: u64,
    /// The folder for records by which the next server at this address adopts the sessions of one
    /// that was killed or replaced; `none`: sessions end with their server. Without it the folder
    /// outboard of $XDG_RUNTIME_DIR or /run.
    #[arg(long, value_name = "DIR|none")]
    records: Option<PathBuf>,
    /// For how many seconds a session whose server is gone waits for the next one. Without it, as
    /// long as its client is connected.
    #[arg(long, value_name = "SECONDS", value_parser = crate::serve::seconds())]
    outlive: Option<u64>,
    /// Only check whether the server could start with these settings. Before an upgrade, a server
    /// runs the new release with this flag.
    #[arg(long, hide = true)]
    check: bool,
}

/// How this program was started, so that another release of it can be started in its place: by the
/// path that it was called by, which may lead elsewhere by then, and with the same arguments.
fn program() -> Option<Program> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let called = Path::new(arguments.first()?);
    let path = if called.components().count() > 1 {
        std::path::absolute(called).ok()?
    } else {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&folders)
            .map(|folder| folder.join(called))
            .find(|path| path.is_file());
        found.or_else(|| std::env::current_exe().ok())?
    };
    let check = arguments.iter().cloned().chain(["--check".into()]).collect();
    Some(Program { path, arguments, check })
}

impl Args {
    /// Whether nothing is to be served.
    pub(crate) fn only_checks(&self) -> bool {
        self.check
    }

    pub(crate) fn apply(&self, config: &mut Config) {
        config.standing.program = program();
        config.standing.drain = Duration::from_secs(self.drain);
        config.standing.outlive = self.outlive.map(Duration::from_secs);
        config.standing.records = match &self.records {
            None => Folder::Usual,
            Some(path) if path.as_os_str() == "none" => Folder::Off,
            Some(path) => Folder::At(path.clone()),
        };
    }
}
