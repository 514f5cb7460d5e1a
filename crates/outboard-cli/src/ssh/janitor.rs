//! The process that clears away what is left on this machine once a command with servers behind ssh
//! has ended, however it has: it could not do so itself if it was killed.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};

use miette::{IntoDiagnostic, Result, WrapErr};

use super::connection;
use crate::private_folder::PrivateFolder;

/// What the name of a connection's control socket ends with.
const CONTROL: &str = "ctl";

/// The hidden subcommand.
pub(crate) const NAME: &str = "ssh-janitor";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder with the control sockets, which goes.
    folder: PathBuf,
}

/// A folder for control sockets and tokens, which is cleared away when this is closed.
pub(super) struct Lifeline {
    folder: PathBuf,
    /// Closed, at the latest, by the end of this process.
    _open: ChildStdin,
}

impl Lifeline {
    pub(super) fn start() -> Result<Lifeline> {
        let folder = PrivateFolder::create("ssh")
            .into_diagnostic()
            .wrap_err("cannot make a folder for the sockets of ssh")?;
        let mut janitor = Command::new("/proc/self/exe")
            .args(["--config", "none", NAME])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Signals of the terminal are the program's.
            .process_group(0)
            .spawn()
            .into_diagnostic()
            .wrap_err("cannot start the process that clears away")?;
        let open = janitor.stdin.take();
        let open =
            open.ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe)).into_diagnostic()?;
        let path = folder.path().to_owned();
        folder.keep();
        Ok(Lifeline { folder: path, _open: open })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// What the process does.
pub(crate) fn clean_up(args: &Args) -> Result<()> {
    // Nothing is written: the end is what it waits for.
    let _ = io::stdin().lock().read_to_end(&mut Vec::new());
    for entry in std::fs::read_dir(&args.folder).into_diagnostic()?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|end| end == CONTROL) {
            connection::close(&path);
        }
    }
    std::fs::remove_dir_all(&args.folder).into_diagnostic()
}
