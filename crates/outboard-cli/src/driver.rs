//! Which driver library a server uses.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use miette::Result;
use outboard_server::worker::{self, Worker};

use crate::install;

/// What `--driver` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Nvidia,
    Cpu,
    Path(PathBuf),
}

impl FromStr for Choice {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Choice, Infallible> {
        Ok(match text {
            "nvidia" => Choice::Nvidia,
            "cpu" => Choice::Cpu,
            path => Choice::Path(path.into()),
        })
    }
}

/// The library to load.
pub(crate) fn choose(choice: Option<Choice>) -> Result<PathBuf> {
    match choice {
        Some(Choice::Cpu) | None => install::cpu_driver(),
        Some(Choice::Path(path)) => Ok(path),
        Some(Choice::Nvidia) => Ok(PathBuf::from("libcuda.so.1")),
    }
}

/// Serves one client with a driver library.
pub(crate) fn work(driver: &Path) -> ! {
    let name = driver.display().to_string();
    // SAFETY: the supervisor's user chose the file as a CUDA driver library.
    worker::run(|start| unsafe { Worker::new(driver, &name, start) })
}
