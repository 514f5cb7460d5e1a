//! Whether workers make collectives, and with which NCCL.

use std::convert::Infallible;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use outboard_supervisor::Config;
use outboard_wire::Code;

use crate::failure::Failure;

/// The file that packages install.
const FILE: &str = "libnccl.so.2";

/// Whether NCCL answers questions about its state.
const RAS: &str = "NCCL_RAS_ENABLE";

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// The NCCL library with which workers make collectives: a path; `auto` for the one that this
    /// machine's packages or Python's have installed; `none` for no collectives. Workers then
    /// connect to those of other servers, where --peers lets them.
    #[arg(long, default_value = "none", value_name = "PATH|auto|none")]
    nccl: Choice,
    /// The network interface at which workers of other servers reach this one's for collectives.
    /// Without it, the one that has the host of --peer-address, or the address of --listen; else
    /// the one that leads to other networks.
    #[arg(long, value_name = "NAME")]
    peer_interface: Option<String>,
}

/// What `--nccl` says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Choice {
    None,
    Auto,
    Path(PathBuf),
}

impl FromStr for Choice {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Choice, Infallible> {
        Ok(match text {
            "none" => Choice::None,
            "auto" => Choice::Auto,
            path => Choice::Path(path.into()),
        })
    }
}

impl Args {
    /// The library that workers load. One that was named by its path may come later, as a driver
    /// may.
    pub(crate) fn library(&self) -> Result<Option<PathBuf>, Failure> {
        match &self.nccl {
            Choice::None => Ok(None),
            Choice::Path(path) => Ok(Some(path.clone())),
            Choice::Auto => {
                let exe = std::env::current_exe().ok();
                let found = find(Path::new("/"), exe.as_deref(), |name| std::env::var_os(name));
                found.map(Some).ok_or_else(|| {
                    let sentence = format!("this machine has no NCCL where packages put {FILE}");
                    let help = "install it (`pip install nvidia-nccl-cu13`, or `apt install libnccl2`), name it with --nccl PATH, or leave \
                                --nccl out: then there are no collectives";
                    Failure::new(Code::NoNccl, sentence, help)
                })
            }
        }
    }

    pub(crate) fn apply(self, config: &mut Config) {
        config.collectives.allowed = self.nccl != Choice::None;
        config.collectives.interface = self.peer_interface;
        // The workers' NCCL has the operator's own settings. What answers `ncclras` would listen at
        // one port of the machine, which all workers would want.
        if config.collectives.allowed && std::env::var_os(RAS).is_none() {
            config.worker.env.push((RAS.into(), "0".into()));
        }
    }
}

/// The library below `root`, or in an environment of Python's or Conda's: the one that this program
/// belongs to, or the one that is active.
fn find(
    root: &Path,
    program: Option<&Path>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<PathBuf> {
    let around = program.into_iter().flat_map(|program| program.ancestors().skip(1));
    let around = around.filter(|folder| *folder != Path::new("/")).map(Path::to_owned);
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable);
    let active = active.filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let environments: Vec<PathBuf> = around.chain(active).collect();
    let of_machine = ["usr", "usr/local", "usr/local/cuda", "opt/conda"];
    let of_machine: Vec<PathBuf> = of_machine.iter().map(|folder| root.join(folder)).collect();
    let of_conda = environments.iter().map(|prefix| prefix.join("lib"));
    of_conda
        .chain(environments.iter().flat_map(|prefix| packages(prefix)))
        .chain(of_machine.iter().flat_map(|prefix| loader(prefix)))
        .chain(of_machine.iter().flat_map(|prefix| packages(prefix)))
        .map(|folder| folder.join(FILE))
        .find(|file| file.is_file())
}

/// Where the loader looks.
fn loader(prefix: &Path) -> [PathBuf; 3] {
    let of_debian = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
    [of_debian.as_str(), "lib64", "lib"].map(|folder| prefix.join(folder))
}

/// Where the wheel `nvidia-nccl-cu13` has it, for each Python.
fn packages(prefix: &Path) -> Vec<PathBuf> {
    let lib = prefix.join("lib");
    let mut pythons: Vec<PathBuf> = std::fs::read_dir(&lib)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"python3"))
        .map(|entry| entry.path())
        .collect();
    pythons.sort();
    let folders = ["site-packages", "dist-packages"];
    let of = |python: &PathBuf| folders.map(|folder| python.join(folder).join("nvidia/nccl/lib"));
    pythons.iter().rev().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_where_packages_put_it() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path();
        let put = |path: &str| {
            let file = root.join(path).join(FILE);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "").unwrap();
            Some(file)
        };
        let program = root.join("venv/bin/outboard");
        let found = |set: &[&str]| {
            let active = root.join("other").into_os_string();
            find(root, Some(&program), |name| set.contains(&name).then(|| active.clone()))
        };
        assert_eq!(found(&["VIRTUAL_ENV"]), None);
        let of_pip = put("usr/local/lib/python3.11/dist-packages/nvidia/nccl/lib");
        assert_eq!(found(&[]), of_pip);
        let of_debian = put(&format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
        assert_eq!(found(&[]), of_debian);
        let of_conda = put("other/lib");
        assert_eq!(found(&["CONDA_PREFIX"]), of_conda);
        assert_eq!(found(&[]), of_debian);
    }

    #[test]
    fn a_choice_is_a_word_or_a_path() {
        let choice = |text: &str| text.parse::<Choice>().unwrap();
        assert_eq!((choice("none"), choice("auto")), (Choice::None, Choice::Auto));
        assert_eq!(choice("/a/libnccl.so.2"), Choice::Path("/a/libnccl.so.2".into()));
    }
}
