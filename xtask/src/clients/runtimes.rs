//! Programs with runtimes that are older than those of the suite.

use std::fs;
use std::process::Command;

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

/// The same for releases of JCuda, whose natives have them, and the program that uses those.
const NATIVES: [(&str, &str); 4] =
    [("9.2", "0.9.2"), ("10.0", "10.0.0"), ("10.1", "10.1.0"), ("10.2", "10.2.0")];
const OF_NATIVES: &str = "tests/programs/OldRuntime.java";

pub(super) fn run(_whole: bool) -> Result<Came> {
    let dist = Dist::laid_out()?;
    programs::only(&[PROGRAM])?;
    let wheels = WHEELS.iter().map(|(release, wheel)| case(release, wheel));
    let natives = NATIVES.iter().map(|(release, jcuda)| case_of_natives(release, jcuda));
    let cases: Vec<Case> = wheels.chain(natives).collect::<Result<_>>()?;
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

/// A run with a release that JCuda's natives have. It needs Java and Maven.
fn case_of_natives(release: &str, jcuda: &str) -> Result<Case> {
    let folder = util::target_dir().join("clients/runtimes").join(release);
    let jars = [format!("jcuda-{jcuda}.jar"), format!("jcuda-natives-{jcuda}-linux-x86_64.jar")];
    if !jars.iter().all(|jar| folder.join(jar).exists()) {
        step(&format!("getting JCuda {jcuda}, which has CUDA {release}'s runtime"));
        for artifact in ["jcuda:VERSION:jar", "jcuda-natives:VERSION:jar:linux-x86_64"] {
            let artifact = artifact.replace("VERSION", jcuda);
            let mut maven = Command::new("mvn");
            maven.args(["--quiet", "--batch-mode", COPY]);
            maven.arg(format!("-Dartifact=org.jcuda:{artifact}"));
            maven.arg(format!("-DoutputDirectory={}", folder.display()));
            util::run(&mut maven).context("JCuda is not to be had")?;
        }
    }
    // Where it unpacks its libraries, which it leaves there.
    let unpacked = folder.join("unpacked");
    fs::create_dir_all(&unpacked).context("cannot make a folder for JCuda")?;
    let jars = jars.map(|jar| folder.join(jar).display().to_string());
    Ok(Case {
        name: format!("OldRuntime with {release}"),
        program: "java".into(),
        args: vec![
            format!("-Djava.io.tmpdir={}", unpacked.display()),
            "--class-path".into(),
            jars.join(":"),
            util::root().join(OF_NATIVES).display().to_string(),
        ],
        libraries: None,
    })
}

/// Maven's way to copy an artifact.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy";
