//! `cargo xtask book`: writes the tables of settings anew and makes the documentation a book.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::stage::{Dist, Profile};
use crate::util::{self, root, step};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only write the tables.
    #[arg(long)]
    tables: bool,
}

/// The tables of `docs/configuration.md`: what stands above their rows.
const TABLES: [&str; 2] = [
    "| key | variable | meaning |\n|---|---|---|\n",
    "| key | default | meaning |\n|---|---|---|\n",
];

pub(crate) fn run(args: &Args) -> Result<()> {
    let dist = Dist::build(Profile::Dev)?;
    let output = Command::new(dist.outboard()).args(["config", "reference"]).output()?;
    if !output.status.success() {
        bail!("`outboard config reference`: {}", String::from_utf8_lossy(&output.stderr));
    }
    let page = root().join("docs/configuration.md");
    let text = fs::read_to_string(&page).context("cannot read docs/configuration.md")?;
    let reference = String::from_utf8_lossy(&output.stdout);
    fs::write(&page, with_tables(&text, &reference)?)
        .context("cannot write docs/configuration.md")?;
    if args.tables {
        return Ok(());
    }
    let mut mdbook = Command::new("mdbook");
    mdbook.current_dir(root()).arg("build");
    util::run(&mut mdbook).context("`cargo install mdbook --no-default-features` installs it")?;
    step("the book is in target/book");
    Ok(())
}

/// The page with new rows; they come in parts with an empty line between.
fn with_tables(page: &str, reference: &str) -> Result<String> {
    let mut page = page.to_owned();
    for (head, rows) in TABLES.iter().zip(reference.split("\n\n")) {
        let (before, after) =
            page.split_once(head).with_context(|| format!("the page has no table `{head}`"))?;
        let rest =
            after.split_once("\n\n").map(|(_, rest)| format!("\n{rest}")).unwrap_or_default();
        page = format!("{before}{head}{}\n{rest}", rows.trim_end());
    }
    Ok(page)
}

#[cfg(test)]
mod tests;
