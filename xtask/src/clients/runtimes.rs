//! Programs with runtimes that are older than those of the suite.

use std::fs;

use anyhow::{Context, Result, bail};

use super::runs::{Came, count, server};
use crate::compared;
use crate::programs::{self, Case};
use crate::stage::Dist;
use crate::toolchain::{self, Toolchain};
use crate::util::{self, step};

/// Releases of CUDA, and wheels that have their runtimes, and kernels of their time, in them.
const WHEELS: [(&str, &str); 2] = [("8.0", "xgboost==0.80"), ("9.1", "xgboost==0.72.1")];

/// The program that uses such a library.
const PROGRAM: &str = "trees";

pub(super) fn run(_whole: bool) -> Result<Came> {
    let dist = Dist::laid_out()?;
    programs::only(&[PROGRAM])?;
    let cases = WHEELS.map(|(release, wheel)| case(release, wheel));
    let cases: Vec<Case> = cases.into_iter().collect::<Result<_>>()?;
    let server = server(&dist)?;
    let alone = compared::outputs(&cases, |case| Some(compared::alone(&dist, case)))?;
    // Both might fail in the same way.
    if let Some((name, output)) = alone.iter().find(|(_, output)| !output.status.success()) {
        bail!("{name}: {}", String::from_utf8_lossy(&output.stdout).trim());
    }
    let through = |case: &Case| compared::here(&dist, &server, case);
    let outcome = compared::compare_with(&cases, &alone, through)?;
    outcome.check(&[])?;
    Ok(Came { what: count(&outcome), first: None })
}

/// A run with a release.
fn case(release: &str, wheel: &str) -> Result<Case> {
    let unpacked = util::target_dir().join("clients/runtimes").join(release);
    if !unpacked.exists() {
        step(&format!("unpacking {wheel}, which has CUDA {release}'s runtime"));
        let new = unpacked.with_extension("new");
        Toolchain::ensure()?.unpack_wheel(wheel, &new)?;
        fs::rename(&new, &unpacked).context("cannot name the folder of a wheel")?;
    }
    Ok(Case {
        name: format!("{PROGRAM} with {release}"),
        program: programs::dir().join(PROGRAM),
        args: Vec::new(),
        libraries: Some(toolchain::libraries(&unpacked, release)),
    })
}
