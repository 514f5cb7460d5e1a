//! Slurm's accounts: slurmdbd with a database in memory.

use super::daemons::{Daemon, free_port};
use super::site::{CLUSTER, HOST, SLURM, own};
use crate::apart::within;
use crate::util;
use anyhow::{Context, Result};
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

const STARTUP: Duration = Duration::from_secs(30);
const CONFIGURATION: &str = "/etc/slurm/slurmdbd.conf";
/// The account of those who have one.
pub(super) const ACCOUNT: &str = "vision";
/// What a second of a licence costs, beside one of a processor, which costs 1.
pub(super) const WEIGHT: u32 = 100;

pub(super) struct Accounts {
    port: u16,
    _daemons: [Daemon; 2],
}

impl Accounts {
    /// A database and slurmdbd.
    pub(super) fn start() -> Result<Accounts> {
        for folder in ["/etc/slurm", "/run/slurm", "/run/mysqld", "/run/database"] {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {folder}"))?;
        }
        let mut command = Command::new("mariadbd");
        command.args(["--no-defaults", "--user=root", "--skip-grant-tables", "--skip-networking"]);
        command.args(["--datadir=/run/database", "--socket=/run/mysqld/mysqld.sock"]);
        let database = Daemon::start("mariadbd", command)?;
        within(STARTUP, "the database is ready", || {
            Ok(database.said().contains("ready for connections"))
        })?;
        let port = free_port()?;
        let settings = format!(
            "AuthType=auth/munge\nDbdHost={HOST}\nDbdAddr=127.0.0.1\nDbdPort={port}\n\
             SlurmUser=slurm\nPluginDir=/usr/lib/x86_64-linux-gnu/slurm-wlm\n\
             StorageType=accounting_storage/mysql\nStorageHost=localhost\nStorageUser=root\n\
             PidFile=/run/slurm/slurmdbd.pid\n"
        );
        fs::write(CONFIGURATION, settings).context("cannot write slurmdbd.conf")?;
        fs::set_permissions(CONFIGURATION, fs::Permissions::from_mode(0o600))?;
        for path in [CONFIGURATION, "/run/slurm"] {
            own(path, SLURM)?;
        }
        let mut command = Command::new("slurmdbd");
        command.arg("-D").uid(SLURM.1).gid(SLURM.1);
        let slurmdbd = Daemon::start("slurmdbd", command)?;
        within(
            STARTUP,
            "slurmdbd listens",
            || Ok(TcpStream::connect(("127.0.0.1", port)).is_ok()),
        )?;
        Ok(Accounts { port, _daemons: [database, slurmdbd] })
    }

    /// What slurm.conf says of it.
    pub(super) fn settings(&self) -> String {
        format!(
            "AccountingStorageType=accounting_storage/slurmdbd\n\
             AccountingStorageHost=127.0.0.1\nAccountingStoragePort={}\n\
             AccountingStorageTRES=license/rgpu,gres/rgpu\nPriorityType=priority/multifactor\n",
            self.port
        )
    }
}

/// Opens an account for a user. slurm.conf is there.
pub(super) fn open(user: &str) -> Result<()> {
    for what in [
        &["cluster", CLUSTER][..],
        &["account", ACCOUNT],
        &["user", user, &format!("account={ACCOUNT}")],
    ] {
        util::run(Command::new("sacctmgr").args(["--quiet", "-i", "add"]).args(what))?;
    }
    Ok(())
}
