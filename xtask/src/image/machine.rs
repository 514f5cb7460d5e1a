//! A container that is a whole machine, with systemd: what pages of the documentation say is done
//! there, line by line.

use super::blocks::block;
use super::podman::{Container, podman};
use super::world::SOON;
use crate::apart::within;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// What a machine has that a container lacks: a person who edits, and another one to be.
const SHIMS: [(&str, &str); 2] = [
    (
        "sudo",
        "[ \"$1\" = -u ] || exec \"$@\"\nuser=$2\nshift 2\nexec runuser -u \"$user\" -- \"$@\"",
    ),
    ("sudoedit", "printf '[serve]\\ndriver = \"cpu\"\\nlisten = \"0.0.0.0\"\\n' > \"$1\""),
];

pub(crate) struct Machine {
    container: Container,
    /// In which folder lines are said.
    folder: String,
}

impl Machine {
    /// Starts one whose files are an image, and waits until systemd has started it. `seen` are
    /// folders of this machine, each with its place there.
    pub(crate) fn start(name: &str, image: &str, folder: &str, seen: &[&str]) -> Result<Machine> {
        let shims = Path::new("/run/shims");
        fs::create_dir_all(shims)?;
        for (name, script) in SHIMS {
            let file = shims.join(name);
            fs::write(&file, format!("#!/bin/sh\n{script}\n"))?;
            fs::set_permissions(file, fs::Permissions::from_mode(0o755))?;
        }
        let name_flag = format!("--name={name}");
        let mut args = vec!["run", "--detach", &name_flag, "--systemd=always"];
        // systemd mounts things to confine services, also a /proc of their own, which the kernel
        // allows only where nothing lies over the container's.
        args.extend(["--cap-add=SYS_ADMIN", "--security-opt=unmask=ALL"]);
        let shims = format!("{}:/shims", shims.display());
        let volumes = [&[shims.as_str()], seen].concat();
        let volumes: Vec<_> = volumes.iter().map(|seen| format!("--volume={seen}:ro")).collect();
        args.extend(volumes.iter().map(String::as_str));
        args.extend([image, "/lib/systemd/systemd"]);
        podman(&args)?;
        let container = Container { name: name.into() };
        let machine = Machine { container, folder: folder.into() };
        within(SOON, "systemd has started", || {
            Ok(machine.says("systemctl is-system-running || true")?.trim() == "running")
        })?;
        Ok(machine)
    }

    /// What a line of shell prints in it, which must succeed.
    pub(crate) fn says(&self, line: &str) -> Result<String> {
        let path = "--env=PATH=/shims:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let name = &self.container.name;
        podman(&["exec", path, "--workdir", &self.folder, name, "sh", "-ec", line])
            .with_context(|| self.journal())
    }

    fn journal(&self) -> String {
        self.container
            .exec(&["journalctl", "--no-pager", "--lines=12", "--unit=outboard*"])
            .unwrap_or_default()
    }

    /// Does what a page says in a block behind a heading, the first with number 1, and gives what
    /// it prints.
    pub(crate) fn follow(&self, page: &str, heading: &str, number: usize) -> Result<String> {
        self.says(&block(page, heading, number)?)
    }

    pub(crate) fn is_active(&self, unit: &str) -> Result<()> {
        within(SOON, &format!("{unit} is active"), || {
            Ok(self.says(&format!("systemctl is-active {unit} || true"))?.trim() == "active")
        })
        .with_context(|| self.journal())
    }
}
