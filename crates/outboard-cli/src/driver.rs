//! The choice of a server's driver library.

use std::convert::Infallible;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;

use miette::{IntoDiagnostic, Result, WrapErr};
use outboard_client::target::VARIABLE;
use outboard_driver::{Library, call};
use outboard_wire::Code;
use outboard_worker::Setup;
use outboard_worker::sandbox::{self, Sandbox};

use crate::failure::Failure;
use crate::{gpus, install};

/// NVIDIA's driver library, as the loader finds it.
pub(crate) const NVIDIA: &str = "libcuda.so.1";

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
        Some(Choice::Cpu) => install::cpu_driver(),
        Some(Choice::Path(path)) => {
            is_there(&path)?;
            Ok(path)
        }
        Some(Choice::Nvidia) => match nvidia_devices()? {
            Ok(_) => Ok(NVIDIA.into()),
            Err(reason) => {
                let message = format!("there is no NVIDIA GPU to offer: {reason}");
                let help =
                    "install NVIDIA's driver, or offer the software device with --driver cpu";
                Err(Failure::new(Code::NoGpu, message, help).into())
            }
        },
        None => match nvidia_devices()? {
            Ok(devices) => {
                tracing::info!(devices, "using NVIDIA's driver");
                Ok(NVIDIA.into())
            }
            Err(reason) => software_unless(gpus::first(Path::new("/")), &reason),
        },
    }
}

/// The software device, if there is no GPU that its user would expect to be served.
fn software_unless(gpu: Option<String>, reason: &str) -> Result<PathBuf> {
    if let Some(gpu) = gpu {
        let message = format!(
            "this machine has an NVIDIA GPU ({gpu}), and its driver cannot be used: {reason}"
        );
        let help = "mend the driver (`nvidia-smi` says whether it works), or offer the software device with --driver cpu";
        return Err(Failure::new(Code::NoGpu, message, help).into());
    }
    tracing::warn!(reason, "there is no NVIDIA GPU: the software device is served");
    install::cpu_driver()
}

/// Checks that a library that was named by its path is there: without it no worker starts.
fn is_there(library: &Path) -> Result<(), Failure> {
    if library.components().count() < 2 || library.is_file() {
        return Ok(());
    }
    let sentence = format!("there is no driver library {}", library.display());
    Err(Failure::new(
        Code::DriverUnusable,
        sentence,
        "name another one with --driver, or install it",
    ))
}

/// How many devices NVIDIA's driver has, or why it has none. Another process asks it, so that the
/// supervisor itself never loads a driver.
pub(crate) fn nvidia_devices() -> Result<Result<u32, String>> {
    let output = Command::new("/proc/self/exe")
        .arg("check-driver")
        .env_remove(VARIABLE)
        .stdin(Stdio::null())
        .output()
        .into_diagnostic()
        .wrap_err("cannot start the process that looks for NVIDIA's driver")?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(match said.split_once(' ') {
        Some(("devices", count)) if output.status.success() => {
            count.parse().map_err(|_| said.clone())
        }
        _ if said.is_empty() => Err(format!("looking for one ended with {}", output.status)),
        _ => Err(said),
    })
}

/// What the process started by [`nvidia_devices`] does: prints `devices N`, or why there are none.
pub(crate) fn check() -> String {
    // SAFETY: the loader's libcuda.so.1 is a CUDA driver library; that is what its name says.
    let library = match unsafe { Library::load(Path::new(NVIDIA)) } {
        Ok(library) => library,
        Err(error) => return error.to_string(),
    };
    let mut count = 0;
    let asked = call!(library.table, cuInit(0))
        .and_then(|()| call!(library.table, cuDeviceGetCount(&mut count)));
    match asked {
        Ok(()) if count > 0 => format!("devices {count}"),
        Ok(()) => "its driver finds no device".to_owned(),
        Err(status) => format!("its driver fails to start with error {}", status.0),
    }
}

/// The variable with the folder in which NVIDIA's driver caches compiled code.
pub(crate) const COMPUTE_CACHE: &str = "CUDA_CACHE_PATH";

/// The variable that has it keep nothing.
pub(crate) const NO_COMPUTE_CACHE: &str = "CUDA_CACHE_DISABLE";

/// The folder in which NVIDIA's driver caches compiled code, by its documentation; `None` if it
/// keeps nothing.
fn compute_cache(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name: &str| variable(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    if variable(NO_COMPUTE_CACHE).is_some_and(|value| value == "1") {
        return None;
    }
    path(COMPUTE_CACHE).or_else(|| Some(path("HOME")?.join(".nv/ComputeCache")))
}

/// What a worker may access of this machine: it reads its libraries, and writes to the driver's
/// cache and its own.
fn sandbox(mode: sandbox::Mode, libraries: [Option<&Path>; 3], images: Option<&Path>) -> Sandbox {
    let folder = |path: &Path| path.canonicalize().ok()?.parent().map(Path::to_owned);
    let reads = libraries.into_iter().flatten().filter_map(folder).collect();
    let caches = [compute_cache(|name| std::env::var_os(name)), images.map(Path::to_owned)];
    // Without its folder, a cache keeps nothing, and its work is repeated each time.
    let writes =
        caches.into_iter().flatten().filter(|path| std::fs::create_dir_all(path).is_ok()).collect();
    Sandbox::new(mode, reads, writes)
}

/// What people call a driver library.
pub(crate) fn shown(driver: &Path) -> String {
    match driver.file_name().and_then(|name| name.to_str()) {
        Some(install::CPU_DRIVER) => "software device".to_owned(),
        Some(NVIDIA) => "NVIDIA's driver".to_owned(),
        _ => driver.display().to_string(),
    }
}

/// Libraries that a worker loads beside the driver.
pub(crate) struct Beside<'a> {
    /// If it is not the usual one.
    pub(crate) nvml: Option<&'a Path>,
    /// If the server has collectives.
    pub(crate) nccl: Option<&'a Path>,
    /// Whether it loads the one for RDMA adapters, if there are some.
    pub(crate) adapters: bool,
}

/// Serves one client with a driver library and others beside it, and a
/// folder for so many bytes of images, kept from the rest of the machine as `confined` says.
pub(crate) fn work(
    driver: &Path,
    beside: &Beside<'_>,
    images: Option<(&Path, u64)>,
    mode: sandbox::Mode,
    confined: impl FnOnce(Sandbox) -> Sandbox,
) -> ! {
    // SAFETY: the supervisor's user chose the file as a CUDA driver library.
    let setup = unsafe { Setup::new(driver, shown(driver)) };
    let is_software = driver.file_name().is_some_and(|name| name == install::CPU_DRIVER);
    let setup = setup
        .with_nvml(beside.nvml.map(Path::to_owned))
        .with_nccl(beside.nccl.map(Path::to_owned))
        .showing_memory(is_software)
        .pinning_pages(!is_software);
    let libraries = [Some(driver), beside.nvml, beside.nccl];
    let sandbox = confined(sandbox(mode, libraries, images.map(|(folder, _)| folder)));
    let sandbox = if beside.nccl.is_some() { sandbox.making_collectives() } else { sandbox };
    let sandbox = if beside.adapters { sandbox.using_adapters() } else { sandbox };
    let setup = match images {
        Some((folder, limit)) => setup.with_image_cache(folder, limit),
        None => setup,
    };
    outboard_worker::run(&sandbox, setup)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_cannot_be_used_is_not_replaced_in_silence() {
        let error = software_unless(
            Some("/dev/nvidia0".to_owned()),
            "its driver fails to start with error 999",
        );
        let error = error.expect_err("a GPU is there");
        let (said, help) =
            (error.to_string(), error.help().map(|help| help.to_string()).unwrap_or_default());
        assert!(said.contains("/dev/nvidia0") && said.contains("error 999"), "{said}");
        assert!(help.contains("--driver cpu"), "{help}");
    }

    #[test]
    fn a_worker_writes_to_the_drivers_cache_only_if_there_is_one() {
        let cache = |set: &[(&str, &str)]| {
            compute_cache(|name| {
                set.iter().find(|(of, _)| *of == name).map(|(_, value)| value.into())
            })
        };
        assert_eq!(cache(&[("HOME", "/users/a")]), Some("/users/a/.nv/ComputeCache".into()));
        let both = [("HOME", "/users/a"), (COMPUTE_CACHE, "/cache")];
        assert_eq!(cache(&both), Some("/cache".into()));
        assert_eq!(cache(&[both[0], both[1], (NO_COMPUTE_CACHE, "1")]), None);
        assert_eq!(cache(&[(COMPUTE_CACHE, "")]), None);
    }
}
