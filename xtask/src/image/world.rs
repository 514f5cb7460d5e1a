//! The images, and what a case does with them.

use super::podman::{self, podman};
use crate::apart::within;
use crate::stage::Dist;
use crate::util::{root, step};
use crate::{programs, util};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Something in a container is ready, or over, in this time.
pub(super) const SOON: Duration = Duration::from_secs(40);
/// The pages that say how images are built.
const PAGES: [&str; 3] = ["docs/containers.md", "docs/broker.md", "docs/kubernetes.md"];

/// As whom the images' programs run.
pub(super) const USER: u32 = 10001;

pub(super) struct World {
    /// The names of the images.
    pub(super) images: Vec<String>,
}

/// Where clients reach a server or a broker, and what they show.
#[derive(Default)]
pub(super) struct Access {
    pub(super) fingerprint: String,
    /// A file.
    pub(super) token: String,
}

impl World {
    /// Builds all images of which the documentation says how, or those whose names contain one of
    /// these.
    pub(super) fn build(only: &[String]) -> Result<World> {
        podman::bases()?;
        let mut images = Vec::new();
        for line in documented()? {
            let image = line.split_whitespace().skip_while(|word| *word != "-t").nth(1);
            let image = image.context("the line names an image")?.to_owned();
            if !only.is_empty() && !only.iter().any(|name| image.contains(name.as_str())) {
                continue;
            }
            let begin = Instant::now();
            podman::build(&line)?;
            let size = podman(&["image", "inspect", "--format={{.Size}}", &image])?;
            let megabytes = size.trim().parse::<f64>().context("a size")? / 1e6;
            let seconds = begin.elapsed().as_secs_f64();
            step(&format!("{image}: {megabytes:.0} MB, built in {seconds:.1} s"));
            images.push(image);
        }
        Ok(World { images })
    }

    /// The image of a target of the recipe.
    pub(super) fn image(&self, target: &str) -> Result<&str> {
        let wanted = format!("outboard-{target}");
        let found = self.images.iter().find(|image| image.split(':').next() == Some(&*wanted));
        Ok(found.with_context(|| format!("no page builds {wanted}"))?)
    }

    /// Runs this machine's own command with some flags.
    pub(super) fn outboard(&self, args: &[&str]) -> Result<Output> {
        self.command(args).output().context("cannot start outboard")
    }

    pub(super) fn command(&self, args: &[&str]) -> Command {
        let outboard = Dist { dir: util::target_dir().join("dist") }.outboard();
        let mut command = Command::new("timeout");
        command.arg("60").arg(outboard).args(args).current_dir(programs::dir());
        command.env("OUTBOARD_CONFIG", "none").stdin(Stdio::null());
        command
    }
}

/// The lines that build images.
fn documented() -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for page in PAGES {
        let text = fs::read_to_string(root().join(page)).with_context(|| format!("no {page}"))?;
        lines.extend(
            text.lines().filter(|line| line.starts_with("podman build")).map(str::to_owned),
        );
    }
    ensure!(!lines.is_empty(), "no page builds an image");
    Ok(lines)
}

/// What a command has said, which must have succeeded.
pub(super) fn succeeded(output: &Output) -> Result<String> {
    let said = podman::said(output);
    if !output.status.success() {
        bail!("{}: {said}", output.status);
    }
    Ok(said)
}

/// Makes a token in a folder of a container's, by what `outboard token create` prints.
pub(super) fn access(name: &str, printed: &str) -> Result<Access> {
    let made: serde_json::Value = serde_json::from_str(printed).context("no token was made")?;
    let text = |key: &str| made[key].as_str().unwrap_or_default().to_owned();
    let token = PathBuf::from(format!("/run/{name}.token"));
    fs::write(&token, text("token")).context("cannot write a token")?;
    // For the user in containers.
    fs::set_permissions(&token, fs::Permissions::from_mode(0o400))?;
    chown(&token, Some(USER), Some(USER))?;
    Ok(Access { fingerprint: text("fingerprint"), token: token.display().to_string() })
}

/// Waits until a container has said something.
pub(super) fn expect_said(container: &podman::Container, text: &str) -> Result<()> {
    within(SOON, "", || Ok(container.log()?.contains(text))).map_err(|_| {
        anyhow::anyhow!("{} has not said `{text}`: {:?}", container.name, container.log())
    })
}
