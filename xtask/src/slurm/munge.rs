//! munge, by which Slurm's daemons and commands know who speaks.

use super::daemons::Daemon;
use super::site::{MUNGE, own};
use crate::apart::within;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const STARTUP: Duration = Duration::from_secs(30);
/// Where its library looks for it.
const FOLDER: &str = "/run/munge";
const KEY_BYTES: usize = 128;

/// Starts it as a user of its own, which alone reads its key.
pub(super) fn start() -> Result<Daemon> {
    fs::create_dir_all(FOLDER).context("cannot make munge's folder")?;
    let key = format!("{FOLDER}/munge.key");
    let mut bytes = vec![0; KEY_BYTES];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    fs::write(&key, bytes)?;
    fs::set_permissions(&key, fs::Permissions::from_mode(0o400))?;
    for path in [FOLDER, &*key] {
        own(path, MUNGE)?;
    }
    let mut command = Command::new("munged");
    let socket = format!("{FOLDER}/munge.socket.2");
    command.arg("--foreground").arg(format!("--key-file={key}")).arg(format!("--socket={socket}"));
    command.arg(format!("--pid-file={FOLDER}/munged.pid"));
    command.arg(format!("--seed-file={FOLDER}/munge.seed"));
    command.uid(MUNGE.1).gid(MUNGE.1);
    let daemon = Daemon::start("munged", command)?;
    within(STARTUP, "munge listens", || Ok(Path::new(&socket).exists()))?;
    Ok(daemon)
}
