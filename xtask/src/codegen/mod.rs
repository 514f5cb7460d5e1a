//! `cargo xtask codegen`: turns the descriptions in `api/` into code that is checked in.
//!
//! `api/facts/*.toml` say what the headers say; `api/driver/*.toml` say what each function means;
//! `api/wire/*.toml` say which messages cross the wire and which methods of the back ends send
//! them, `api/control.toml` those between supervisor and worker; `api/nvml/*.toml` say what each
//! function of NVML means. See `api/README.md`. The book's lists of pages are made here, too.

mod backend;
mod book;
mod chains;
mod control;
mod coverage;
mod cufile;
mod forms;
mod front;
mod model;
mod nccl;
mod nvml;
mod stand_in;
#[cfg(test)]
mod tests;
mod wire;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

#[cfg(test)]
pub(crate) use wire::camel;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only check that the checked-in output is up to date.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let root = crate::util::root();
    let api = model::Api::read(&root)?;
    let messages = wire::Messages::read(&root)?;
    let control = control::Control::read(&root)?;
    let backends = backend::Backends::read(&root, &messages)?;
    let (nccl, nvml) = (nccl::Nccl::read(&root)?, nvml::Nvml::read(&root)?);
    let cufile = cufile::Cufile::read(&root)?;
    let outputs = [
        ("crates/outboard-front/src/generated/symbols.rs", rustfmt(&front::symbol_names(&api))?),
        ("crates/outboard-front/src/generated/exports.rs", rustfmt(&front::exports(&api))?),
        ("crates/outboard-front/src/generated/backend.rs", rustfmt(&backends.traits())?),
        ("crates/outboard-front/src/several/generated/forward.rs", rustfmt(&backends.several())?),
        ("crates/outboard-front/src/generated/recorder.rs", rustfmt(&backends.recorder())?),
        ("crates/outboard-client/src/remote/generated/forward.rs", rustfmt(&backends.forward())?),
        ("crates/outboard-wire/src/generated/messages.rs", rustfmt(&messages.codec())?),
        ("crates/outboard-worker/src/generated/dispatch.rs", rustfmt(&messages.dispatch())?),
        ("crates/outboard-control/src/generated/messages.rs", rustfmt(&control.code())?),
        ("crates/outboard-driver/src/generated/table.rs", rustfmt(&front::driver_table(&api))?),
        ("crates/outboard-nvml/src/generated.rs", rustfmt(&nvml.descriptions()?)?),
        ("crates/outboard-libnvml/src/exports.rs", rustfmt(&nvml.exports())?),
        ("crates/outboard-front/src/generated/collectives.rs", rustfmt(&nccl.table())?),
        ("crates/outboard-libnccl/src/exports.rs", rustfmt(&nccl.exports())?),
        ("docs/coverage-nccl.md", nccl.page()),
        ("crates/outboard-libcufile/src/exports.rs", rustfmt(&cufile.exports()?)?),
        ("docs/coverage-cufile.md", cufile.page()),
        ("api/wire.lock", messages.lock()),
        ("api/wire-forms.lock", messages.forms()),
        ("api/control.lock", control.lock()),
        ("docs/coverage-nvml.md", nvml.page()),
        ("docs/coverage.md", coverage::page(&api, &messages)),
        ("api/errors.lock", book::lock(&root)?),
        ("docs/errors/README.md", book::errors(&root)?),
        ("docs/SUMMARY.md", book::summary(&root)?),
        ("README.md", book::readme(&root)?),
        ("crates/outboard-cli/src/docs/pages.rs", book::embedded(&root)?),
    ];
    let mut stale: Vec<PathBuf> = Vec::new();
    for (path, text) in outputs {
        let path = root.join(path);
        if std::fs::read_to_string(&path).ok().as_deref() == Some(&text) {
            continue;
        }
        if args.check {
            stale.push(path);
        } else {
            write(&path, &text)?;
        }
    }
    if !stale.is_empty() {
        bail!(
            "out of date, run `cargo xtask codegen`: {}",
            stale.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
        );
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn rustfmt(code: &str) -> Result<String> {
    let config = crate::util::root().join("rustfmt.toml");
    let mut child = Command::new("rustfmt")
        .args(["--edition", "2024", "--config-path"])
        .arg(config)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("rustfmt is missing: `rustup component add rustfmt`")?;
    let mut stdin = child.stdin.take().context("rustfmt takes no input")?;
    let code = code.to_owned();
    let feeder = std::thread::spawn(move || std::io::Write::write_all(&mut stdin, code.as_bytes()));
    let out = child.wait_with_output()?;
    feeder.join().map_err(|_| anyhow::anyhow!("rustfmt's feeder died"))??;
    if !out.status.success() {
        bail!("rustfmt refuses the generated code");
    }
    Ok(String::from_utf8(out.stdout)?)
}
