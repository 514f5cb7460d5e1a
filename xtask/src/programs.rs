//! `cargo xtask programs`: compiles `tests/programs/` into `target/programs/`.
//!
//! A program is compiled again only when its sources, its options or the compiler have changed.
//! Beside the programs, `suite.tsv` lists what the suite runs, for readers without this tool
//! (`tests/gpu/run.sh`).

use crate::toolchain::{self, Toolchain};
use crate::util::{self, root, step};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these programs.
    names: Vec<String>,
    /// How many compilers run at once.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.names.is_empty() {
        return ensure();
    }
    let toolchain = Toolchain::ensure()?.with_releases()?;
    build(&toolchain, &Platform::own(), &named(&args.names)?, args.jobs)
}

fn named(names: &[impl AsRef<str>]) -> Result<Vec<Program>> {
    let mut programs = list()?;
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    programs.retain(|program| names.contains(&program.name.as_str()));
    if programs.len() < names.len() {
        bail!("no such program among {}; see tests/programs/", names.join(", "));
    }
    Ok(programs)
}

/// Compiles some programs, where they have changed. They need no other release of CUDA's.
pub(crate) fn only(names: &[&str]) -> Result<()> {
    build(&Toolchain::ensure()?, &Platform::own(), &named(names)?, 2)
}

/// Compiles all programs that have changed and writes the list of the suite.
pub(crate) fn ensure() -> Result<()> {
    let toolchain = Toolchain::ensure()?.with_releases()?;
    build(&toolchain, &Platform::own(), &list()?, 2)?;
    copy_libraries(&toolchain, &dir())?;
    write_suite(&dir())
}

/// A kind of machines for which programs are compiled.
pub(crate) struct Platform {
    /// Where they go.
    pub(crate) dir: PathBuf,
    /// The compiler of plain C++, and what it always gets.
    pub(crate) compiler: Vec<String>,
    /// What nvcc compiles host code with, if it is not the one that it finds.
    pub(crate) beside_nvcc: Option<PathBuf>,
    /// Folders of runtimes by release, if they are not this machine's.
    pub(crate) runtimes: Option<PathBuf>,
}

impl Platform {
    /// This machine's kind.
    fn own() -> Platform {
        Platform { dir: dir(), compiler: vec!["g++".into()], beside_nvcc: None, runtimes: None }
    }

    fn runtime(&self, toolchain: &Toolchain, release: &str) -> PathBuf {
        match &self.runtimes {
            Some(runtimes) => toolchain::libraries(&runtimes.join(release), release),
            None => toolchain.runtime(release),
        }
    }
}

/// Compiles programs for another kind of machines: those with these names, or all of the suite
/// whose runtimes are there.
pub(crate) fn for_platform(platform: &Platform, names: Option<&[&str]>) -> Result<Vec<Case>> {
    let toolchain = Toolchain::ensure()?.with_releases()?;
    let mut programs = names.map_or_else(list, named)?;
    programs.retain(|program| {
        let needed = program.runtime().map(|(_, release)| platform.runtime(&toolchain, release));
        program.entry.suite != Some(false) && needed.is_ok_and(|folder| folder.exists())
    });
    build(&toolchain, platform, &programs, 2)?;
    Ok(programs
        .into_iter()
        .flat_map(|program| cases(program, &platform.dir))
        .filter(Case::has_libraries)
        .collect())
}

/// Where the compiled programs are.
pub(crate) fn dir() -> PathBuf {
    util::target_dir().join("programs")
}

/// An entry of `programs.toml`; its head explains the fields.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Entry {
    source: Option<String>,
    with: Vec<String>,
    kernels: Option<String>,
    flags: Vec<String>,
    args: Vec<String>,
    code: Option<String>,
    runtime: Option<String>,
    libraries: Vec<String>,
    suite: Option<bool>,
}

struct Program {
    name: String,
    entry: Entry,
}

impl Program {
    fn sources(&self) -> Vec<PathBuf> {
        let main = self.entry.source.clone().unwrap_or_else(|| format!("{}.cu", self.name));
        std::iter::once(&main).chain(&self.entry.with).map(|file| source_dir().join(file)).collect()
    }

    /// Whether its sources, or headers of this folder that they include, need CUDA's own compiler.
    fn has_device_code(&self) -> Result<bool> {
        const SIGNS: [&str; 7] = [
            "__global__",
            "__device__",
            "__managed__",
            "__constant__",
            "<<<",
            "<thrust/",
            "<cooperative_groups",
        ];
        let mut files = self.sources();
        let mut next = 0;
        while let Some(file) = files.get(next) {
            let text = fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            if SIGNS.iter().any(|sign| text.contains(sign)) {
                return Ok(true);
            }
            let headers = text.lines().filter_map(|line| {
                line.strip_prefix("#include \"")?
                    .split('"')
                    .next()
                    .map(|name| source_dir().join(name))
            });
            let new: Vec<PathBuf> =
                headers.filter(|header| header.exists() && !files.contains(header)).collect();
            files.extend(new);
            next += 1;
        }
        // Its meaning for streams is an option of CUDA's compiler.
        Ok(self.entry.flags.iter().any(|flag| flag == "--default-stream"))
    }

    /// (is it the static one, of which release)
    fn runtime(&self) -> Result<(bool, &str)> {
        let text = self.entry.runtime.as_deref().unwrap_or("static");
        let (kind, release) = text.split_once(':').unwrap_or((text, "13.0"));
        match kind {
            "static" => Ok((true, release)),
            "shared" => Ok((false, release)),
            _ => bail!("{}: the runtime is \"static\" or \"shared\", not \"{kind}\"", self.name),
        }
    }
}

fn source_dir() -> PathBuf {
    root().join("tests/programs")
}

fn list() -> Result<Vec<Program>> {
    let path = source_dir().join("programs.toml");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut entries: BTreeMap<String, Entry> =
        toml::from_str(&text).with_context(|| format!("cannot understand {}", path.display()))?;
    let parts: BTreeSet<String> = entries
        .values()
        .flat_map(|entry| entry.with.iter().chain(&entry.kernels))
        .cloned()
        .collect();
    for file in fs::read_dir(source_dir()).context("cannot list tests/programs")? {
        let file =
            file.context("cannot list tests/programs")?.file_name().to_string_lossy().into_owned();
        if let Some(name) = file.strip_suffix(".cu")
            && !parts.contains(&file)
        {
            entries.entry(name.to_owned()).or_default();
        }
    }
    Ok(entries.into_iter().map(|(name, entry)| Program { name, entry }).collect())
}

fn build(
    toolchain: &Toolchain,
    platform: &Platform,
    programs: &[Program],
    jobs: usize,
) -> Result<()> {
    let dir = &platform.dir;
    fs::create_dir_all(dir.join("stamps"))
        .with_context(|| format!("cannot create {}", dir.display()))?;
    let mut outdated = Vec::new();
    for program in programs {
        let commands = commands(toolchain, platform, program)?;
        let stamp = stamp(program, &commands)?;
        let path = dir.join("stamps").join(&program.name);
        if !dir.join(&program.name).exists()
            || !fs::read_to_string(&path).is_ok_and(|old| old == stamp)
        {
            outdated.push((program, commands, stamp, path));
        }
    }
    if !outdated.is_empty() {
        step(&format!("compiling {} of {} test programs", outdated.len(), programs.len()));
    }
    util::for_each(&outdated, jobs, |(program, commands, stamp, path)| {
        eprintln!("    {}", program.name);
        commands.iter().try_for_each(run_quietly)?;
        fs::write(path, stamp).with_context(|| format!("cannot write {}", path.display()))
    })
    .context("some programs do not compile")
}

/// What programs are compiled with and for, unless they say otherwise.
pub(crate) const USUAL: [&str; 4] =
    ["-std=c++17", "-O2", "-gencode", "arch=compute_75,code=compute_75"];

/// The commands that build a program.
fn commands(toolchain: &Toolchain, platform: &Platform, program: &Program) -> Result<Vec<Command>> {
    let out = platform.dir.join(&program.name);
    let (is_static, release) = program.runtime()?;
    let [standard, level, code_of, usual] = USUAL;
    let code = program.entry.code.as_deref().unwrap_or(usual);
    let lib = platform.runtime(toolchain, release);
    let runtime = match (is_static, release.split_once('.').map_or(release, |(major, _)| major)) {
        (true, _) => {
            vec![
                lib.join("libcudart_static.a").display().to_string(),
                "-ldl".into(),
                "-lrt".into(),
                "-lpthread".into(),
            ]
        }
        // The last name before the major version alone was it.
        (false, "11") => vec![lib.join("libcudart.so.11.0").display().to_string()],
        (false, major) => vec![format!("-L{}", lib.display()), format!("-l:libcudart.so.{major}")],
    };

    let mut nvcc = Command::new(toolchain.nvcc());
    nvcc.args([standard, level, code_of, code]);
    if let Some(compiler) = &platform.beside_nvcc {
        nvcc.arg("-ccbin").arg(compiler).arg("-L").arg(platform.runtime(toolchain, "13.0"));
    }
    let Some(kernels) = &program.entry.kernels else {
        if !program.has_device_code()? {
            // One pass of a compiler instead of three.
            nvcc.args(["-x", "c++"]);
        }
        nvcc.arg("-o").arg(&out).args(program.sources()).args(&program.entry.flags);
        nvcc.args(["-Xcompiler", "-Wall", "-Xlinker", "-s", "-L"]).arg(toolchain.lib());
        if program.entry.runtime.is_some() {
            // With "none" nvcc links no device code, so it is not for every program.
            nvcc.args(["-cudart", "none"]).args(runtime);
        }
        return Ok(vec![nvcc]);
    };
    let fat_binary = platform.dir.join(format!("{}.fatbin", program.name));
    nvcc.arg("-fatbin").arg("-o").arg(&fat_binary).arg(source_dir().join(kernels));
    let mut host = Command::new(&platform.compiler[0]);
    host.args(&platform.compiler[1..]);
    host.args(["-std=c++17", "-O2", "-Wall", "-s", "-I"]).arg(toolchain.include());
    host.arg(format!("-DFAT_BINARY=\"{}\"", fat_binary.display()));
    host.arg("-o").arg(&out).args(program.sources()).args(runtime);
    Ok(vec![nvcc, host])
}

/// What the result depends on: the commands and the text of all sources and headers.
fn stamp(program: &Program, commands: &[Command]) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    let mut files = program.sources();
    files.extend(program.entry.kernels.as_ref().map(|file| source_dir().join(file)));
    for file in fs::read_dir(source_dir()).context("cannot list tests/programs")? {
        let path = file.context("cannot list tests/programs")?.path();
        if path.extension().is_some_and(|extension| extension == "h") {
            files.push(path);
        }
    }
    files.sort();
    for file in files {
        fs::read(&file)
            .with_context(|| format!("cannot read {}", file.display()))?
            .hash(&mut hasher);
    }
    let commands: Vec<String> = commands.iter().map(util::show).collect();
    // Where the checkout and its build folder lie changes nothing in a program.
    let commands = commands
        .join("\n")
        .replace(&*util::target_dir().to_string_lossy(), "TARGET")
        .replace(&*util::root().to_string_lossy(), ".");
    Ok(format!("{commands}\n{:016x}\n", hasher.finish()))
}

/// Runs a compiler; what it says is shown when it fails.
pub(crate) fn run_quietly(command: &Command) -> Result<()> {
    let mut command_again = Command::new(command.get_program());
    command_again.args(command.get_args());
    let output = command_again
        .output()
        .with_context(|| format!("cannot start `{}`", util::show(command)))?;
    if !output.status.success() {
        bail!(
            "`{}` failed:\n{}{}",
            util::show(command),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// The libraries that programs are run with, in `lib/<release>`, so that the folder can be moved to
/// another machine.
fn copy_libraries(toolchain: &Toolchain, dir: &Path) -> Result<()> {
    for release in ["9.1", "11.8", "12.0", "12.4", "12.9", "13.0", "13.5"] {
        if !toolchain.runtime(release).exists() {
            // There is none for this kind of processor.
            continue;
        }
        let to = dir.join("lib").join(release);
        fs::create_dir_all(&to).with_context(|| format!("cannot create {}", to.display()))?;
        copy_runtime(&toolchain.runtime(release), &to)?;
    }
    Ok(())
}

/// Copies what programs load of a release's libraries.
pub(crate) fn copy_runtime(from: &Path, to: &Path) -> Result<()> {
    for file in fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let file = file.context("cannot list the runtimes")?;
        let name = file.file_name().to_string_lossy().into_owned();
        let wanted = ["libcudart.so.", "libnvrtc.so.", "libnvrtc-builtins.so.", "libxgboost.so"];
        if wanted.iter().any(|prefix| name.starts_with(prefix)) && !to.join(&name).exists() {
            fs::copy(file.path(), to.join(&name)).with_context(|| format!("cannot copy {name}"))?;
        }
    }
    Ok(())
}

/// A run of a program in the suite.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The program, and the release when it runs with several.
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    /// Folder of libraries, if it needs one.
    pub(crate) libraries: Option<PathBuf>,
}

impl Case {
    /// Not all libraries are there for all kinds of processors.
    fn has_libraries(&self) -> bool {
        self.libraries.as_ref().is_none_or(|folder| folder.exists())
    }
}

/// All runs of the suite.
pub(crate) fn suite() -> Result<Vec<Case>> {
    let programs = list()?.into_iter().filter(|program| program.entry.suite != Some(false));
    Ok(programs.flat_map(|program| cases(program, &dir())).filter(Case::has_libraries).collect())
}

/// The runs of a program in a folder.
fn cases(Program { name, entry }: Program, dir: &Path) -> Vec<Case> {
    let program = dir.join(&name);
    let case = |name: String, release: Option<&String>| Case {
        name,
        program: program.clone(),
        args: entry.args.clone(),
        libraries: release.map(|release| dir.join("lib").join(release)),
    };
    match entry.libraries.as_slice() {
        [] => vec![case(name, None)],
        [one] => vec![case(name, Some(one))],
        several => several
            .iter()
            .map(|release| case(format!("{name}_{}", release.replace('.', "_")), Some(release)))
            .collect(),
    }
}

/// Writes `suite.tsv`: name, program, folder of libraries or `-`, arguments; paths relative to the
/// folder.
fn write_suite(dir: &Path) -> Result<()> {
    let mut text = String::new();
    for case in suite()? {
        let relative = |path: &Path| path.strip_prefix(dir).unwrap_or(path).display().to_string();
        let libraries = case.libraries.as_deref().map_or("-".to_owned(), relative);
        text.push_str(&format!(
            "{}\t{}\t{libraries}\t{}\n",
            case.name,
            relative(&case.program),
            case.args.join(" ")
        ));
    }
    fs::write(dir.join("suite.tsv"), text).context("cannot write suite.tsv")
}
