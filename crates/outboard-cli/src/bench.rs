//! `outboard bench`: how far from native a server on this machine is.

use std::io::{BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use miette::{IntoDiagnostic, Result, WrapErr};
use outboard_bench::page::{self, Texts};
use outboard_bench::results::Results;
use outboard_bench::runner::{self, Progress, Setup};
use outboard_wire::Code;
use tempfile::TempDir;

use crate::driver::Choice;
use crate::failure::Failure;
use crate::install;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The native driver library: `nvidia` for the one that the loader finds, `cpu` for the
    /// software device, or a path.
    #[arg(long, value_name = "nvidia|cpu|PATH", default_value = "nvidia")]
    driver: Choice,
    /// The transports to compare.
    #[arg(long, value_delimiter = ',', default_value = "shm,tcp")]
    transports: Vec<String>,
    /// Only measurements whose names contain one of these, such as `launch,copy.pinned,app.`.
    #[arg(long, value_delimiter = ',', value_name = "PART,…")]
    only: Vec<String>,
    /// Make few and short measurements: a check that the benchmark works.
    #[arg(long)]
    quick: bool,
    /// How many times to repeat all measurements.
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Begin no measurement after this time.
    #[arg(long, value_name = "SECONDS")]
    within: Option<u64>,
    /// The Python interpreter that has the frameworks.
    #[arg(long, default_value = "python3", value_name = "PATH")]
    python: PathBuf,
    /// Leave the applications out.
    #[arg(long)]
    no_apps: bool,
    /// Write all results to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page in Markdown, and plots into a folder of the same name beside it.
    #[arg(long, value_name = "FILE.md")]
    page: Option<PathBuf>,
    /// Measure nothing: make the page from a file written with --json.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "only", "quick", "rounds"])]
    from: Option<PathBuf>,
    /// A file with the reasons for missed targets, for the page.
    #[arg(long, default_value = "benches/notes.toml", value_name = "FILE")]
    notes: PathBuf,
    /// Outboard's revision, for the page.
    #[arg(long, value_name = "TEXT")]
    revision: Option<String>,
    /// Keep logs here instead of in a temporary folder.
    #[arg(long, value_name = "FOLDER")]
    logs: Option<PathBuf>,
}

pub(crate) fn bench(args: &Args) -> Result<()> {
    let mut results = match &args.from {
        Some(file) => read(file)?,
        None => measure(args)?,
    };
    if args.revision.is_some() {
        results.revision.clone_from(&args.revision);
    }
    if let Some(file) = &args.json {
        save(&results, file).map_err(|error| Failure::file("write", file, &error))?;
    }
    let texts = Texts::read(&args.notes).into_diagnostic()?;
    if let Some(file) = &args.page {
        page::write(&results, &texts, file).into_diagnostic()?;
    }
    io::stdout().write_all(page::for_terminal(&results, &texts).as_bytes()).into_diagnostic()
}

/// A participant of `outboard bench`: answers requests on standard input.
pub(crate) fn participant() -> Result<()> {
    outboard_bench::child::take_part(BufReader::new(io::stdin()), io::stdout()).into_diagnostic()
}

fn save(results: &Results, file: &Path) -> io::Result<()> {
    fs::write(file, serde_json::to_string_pretty(results)? + "\n")
}

/// Prints each measurement on standard error, and keeps the results so far in the file.
struct BenchProgress<'a> {
    started: Instant,
    json: Option<&'a Path>,
}

impl Progress for BenchProgress<'_> {
    fn step(&mut self, what: &str) {
        eprintln!("{:>4} s  {what}", self.started.elapsed().as_secs());
    }

    fn so_far(&mut self, results: &Results) {
        // Whether it can be written is seen at the end.
        if let Some(file) = self.json {
            let _ = save(results, file);
        }
    }
}

fn read(file: &Path) -> Result<Results> {
    let text = fs::read_to_string(file).map_err(|error| Failure::file("read", file, &error))?;
    serde_json::from_str(&text)
        .into_diagnostic()
        .wrap_err_with(|| format!("{} is no result of a run", file.display()))
}

fn measure(args: &Args) -> Result<Results> {
    if args.transports.iter().any(|name| name.is_empty() || name.contains(['/', '.'])) {
        let help = "name them, as in --transports shm,tcp";
        return Err(Failure::new(Code::BadUsage, "a transport has no usable name", help).into());
    }
    let scratch = match &args.logs {
        Some(folder) => fs::create_dir_all(folder).map(|()| folder.clone()),
        None => tempfile::Builder::new().prefix("outboard-bench-").tempdir().map(TempDir::keep),
    };
    let scratch = scratch.into_diagnostic().wrap_err("cannot create the folder for logs")?;
    let outcome = set_up(args, &scratch).and_then(|setup| {
        let mut progress = BenchProgress { started: Instant::now(), json: args.json.as_deref() };
        runner::run(&setup, &mut progress).into_diagnostic()
    });
    if args.logs.is_none() && outcome.is_ok() {
        // Nothing is lost if it stays.
        let _ = fs::remove_dir_all(&scratch);
    }
    outcome.map_err(|error| {
        let message = format!("nothing was measured: {error}");
        Failure::new(Code::NotMeasured, message, format!("logs are in {}", scratch.display()))
            .into()
    })
}

fn set_up(args: &Args, scratch: &Path) -> Result<Setup> {
    let native = native(&args.driver, scratch)?;
    // Without the client library nothing can be compared.
    install::client_dir()?;
    let rounds = args.rounds.unwrap_or(if args.quick { 2 } else { 5 }).max(1);
    Ok(Setup {
        outboard: std::env::current_exe()
            .into_diagnostic()
            .wrap_err("cannot find out where this program lies")?,
        driver: match &args.driver {
            Choice::Nvidia => "nvidia".into(),
            Choice::Cpu => "cpu".into(),
            Choice::Path(path) => path.clone().into(),
        },
        native,
        transports: args.transports.clone(),
        only: args.only.clone(),
        quick: args.quick,
        rounds,
        within: args.within.map(Duration::from_secs),
        python: (!args.no_apps).then(|| args.python.clone()),
        scratch: scratch.to_owned(),
        command: command_line(std::env::args()),
        revision: args.revision.clone(),
    })
}

/// The folder where the native driver has the name that programs load. Other libraries of the
/// driver are beside it.
fn native(driver: &Choice, scratch: &Path) -> Result<Option<PathBuf>> {
    let path = match driver {
        Choice::Nvidia => return Ok(None),
        Choice::Cpu => return install::cpu_dir().map(Some),
        Choice::Path(path) => path,
    };
    let path = fs::canonicalize(path).into_diagnostic();
    let path = path.wrap_err("the driver library cannot be found")?;
    let beside = path.parent().map(Path::to_owned).unwrap_or_default();
    if beside.join("libcuda.so.1").exists() {
        return Ok(Some(beside));
    }
    let folder = scratch.join("driver");
    let link = folder.join("libcuda.so.1");
    let _ = fs::remove_file(&link);
    let linked = fs::create_dir_all(&folder).and_then(|()| symlink(&path, &link));
    linked.into_diagnostic().wrap_err("cannot link the driver library")?;
    Ok(Some(folder))
}

/// How this program was called, without what has nothing to do with figures: its own path, and
/// where results and logs went.
fn command_line(words: impl Iterator<Item = String>) -> String {
    let mut line = "outboard".to_owned();
    let mut words = words.skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--json" | "--logs" | "--page" | "--revision" => drop(words.next()),
            word if word.contains(' ') => line += &format!(" '{word}'"),
            word => line += &format!(" {word}"),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::command_line;

    #[test]
    fn the_command_line_is_told_without_places() {
        let words =
            ["/usr/bin/outboard", "bench", "--json", "/tmp/x.json", "--only", "a b", "--quick"];
        assert_eq!(
            command_line(words.into_iter().map(str::to_owned)),
            "outboard bench --only 'a b' --quick"
        );
    }
}
