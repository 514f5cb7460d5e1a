//! `cargo xtask compatibility`: stages an installation, runs the matrix of `tests/compatibility`
//! natively and through a server, and writes `docs/compatibility.md`.

use crate::stage::{Dist, Profile};
use crate::util::{self, root, step};
use anyhow::Result;
use std::path::PathBuf;
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// NVIDIA's driver library, or `cpu` for what the software device can run.
    #[arg(long, default_value = "libcuda.so.1")]
    driver: String,
    /// The interpreter that has the frameworks.
    #[arg(long, default_value = "python3")]
    python: String,
    /// A folder of NVIDIA's samples, built; without it they are left out.
    #[arg(long)]
    samples: Option<PathBuf>,
    /// Where results and logs go; target/compatibility if not said.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Options for tests/compatibility/run.py, such as `--groups torch`. The page is written only
    /// without any.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let dist = Dist::build(Profile::Release)?;
    let out = args.out.clone().unwrap_or_else(|| util::target_dir().join("compatibility"));
    let scripts = root().join("tests/compatibility");
    let script = |name: &str| {
        let mut command = Command::new(&args.python);
        command.arg(scripts.join(name));
        command
    };
    let common = |command: &mut Command| {
        command
            .arg("--dist")
            .arg(&dist.dir)
            .arg("--driver")
            .arg(&args.driver)
            .arg("--out")
            .arg(&out);
    };
    let mut matrix = script("run.py");
    matrix.arg("run");
    common(&mut matrix);
    // Cases that fail are what the page is for: it is written all the same, and then they are an
    // error.
    let outcome = util::run(matrix.args(&args.options));
    let mut page = script("run.py");
    page.args(["page", "--results"]).arg(out.join("results.json"));
    if let Some(built) = &args.samples {
        let mut samples = script("samples.py");
        samples.arg("--build").arg(built);
        common(&mut samples);
        let _ = util::run(&mut samples);
        page.arg("--samples").arg(out.join("samples.json"));
    }
    if args.options.is_empty() && args.driver != "cpu" {
        let path = root().join("docs/compatibility.md");
        util::run(page.arg("--write").arg(&path))?;
        step(&format!("wrote {}", path.display()));
    }
    outcome
}
