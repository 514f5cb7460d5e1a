//! The packages of Debian's and Red Hat's kinds, made by nfpm of what deploy/packages says.

use std::path::Path;

use anyhow::{Result, bail};

use super::prefix::{self, Distribution};
use super::source::Source;
use super::tools;
use crate::util::{self, root};

const KINDS: [(&str, Distribution); 2] =
    [("deb", Distribution::Debian), ("rpm", Distribution::RedHat)];

/// Makes both for a processor out of an installation. `work` is a folder for what is in between.
pub(super) fn make(
    prefix: &Path,
    processor: &str,
    work: &Path,
    to: &Path,
    source: &Source,
) -> Result<()> {
    for (kind, distribution) in KINDS {
        let below_usr = work.join(format!("{kind}-{processor}"));
        prefix::for_distribution(prefix, distribution, &below_usr)?;
        let mut nfpm = tools::NFPM.command()?;
        nfpm.args(["package", "--packager", kind, "--config", "nfpm.yaml", "--target"]);
        nfpm.arg(to).current_dir(root().join("deploy/packages"));
        nfpm.env("SOURCE_DATE_EPOCH", &source.epoch);
        nfpm.env("PROCESSOR", in_go(processor)?).env("VERSION", source.version);
        util::run(nfpm.env("PREFIX", below_usr))?;
    }
    Ok(())
}

/// What Go calls a processor; Debian has the same words.
fn in_go(processor: &str) -> Result<&'static str> {
    match processor {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("no packages are made for {other}"),
    }
}
