//! A user namespace of root's in which Linux starts aarch64 programs by QEMU, and every user is the
//! one outside: packages can be installed there, which give files to other users than root.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use super::REGISTER;
use crate::cross::tools;

/// The namespace, which ends when this is dropped and nothing runs in it any more.
pub(crate) struct Emulation {
    /// Keeps it, and what says by whom programs are run.
    holder: Child,
}

/// Says that it is in the namespace, waits until users are known there, and says when programs can
/// be run.
const HOLD: &str = "echo; read -r _; emulator=$1\nset -e\n";

/// Every user, by the number that it has outside.
const ALL: &str = "0 0 4294967295\n";

impl Emulation {
    /// Makes one; it needs root.
    pub(crate) fn start() -> Result<Emulation> {
        let script = format!("{HOLD}{REGISTER}echo\nexec sleep infinity");
        let mut command = Command::new("unshare");
        command.args(["--user", "--mount", "sh", "-c", &script, "sh"]).arg(tools::emulator()?);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let holder = command.spawn().context("cannot start `unshare`")?;
        let mut emulation = Emulation { holder };
        emulation.prepare().context("aarch64 programs cannot be run here")?;
        Ok(emulation)
    }

    fn prepare(&mut self) -> Result<()> {
        let said = self.holder.stdout.take().context("standard output is piped")?;
        let mut said = BufReader::new(said).lines();
        let mut heard = || -> Result<()> {
            said.next().context("no user namespace can be made")??;
            Ok(())
        };
        heard()?;
        for map in ["uid_map", "gid_map"] {
            let file = format!("/proc/{}/{map}", self.holder.id());
            fs::write(&file, ALL).with_context(|| format!("cannot write {file}"))?;
        }
        let mut go = self.holder.stdin.take().context("standard input is piped")?;
        go.write_all(b"\n").context("the namespace has ended")?;
        heard().context("binfmt_misc of this user namespace takes no emulator (Linux 6.7 does)")
    }

    /// A command whose arguments are run in the namespace, with processes and mounts of their own.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--user=/proc/{}/ns/user", self.holder.id()));
        command.args(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
