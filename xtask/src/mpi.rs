//! `cargo xtask mpi`: Open MPI and MPICH out of Debian's packages, a UCX that knows device memory,
//! and the MPI programs of `tests/programs/mpi`, for the end-to-end tests.

use crate::debian;
use crate::programs;
use crate::test::Count;
use crate::toolchain::Toolchain;
use crate::util::{root, step, target_dir};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Both, and those of their libraries without which they do not start.
const PACKAGES: [&str; 17] = [
    "openmpi-bin",
    "openmpi-common",
    "libopenmpi3",
    "libopenmpi-dev",
    "mpich",
    "libmpich12",
    "libmpich-dev",
    "libfabric1",
    "libpsm-infinipath1",
    "libpsm2-2",
    "librdmacm1",
    "libibverbs1",
    "libnl-3-200",
    "libnl-route-3-200",
    "libucx0",
    "libhwloc15",
    "libpmix2",
];
/// Libraries of theirs that are on many machines, and not on all.
const LIBRARIES: [&str; 6] = [
    "libevent-core-2.1-7",
    "libevent-pthreads-2.1-7",
    "libmunge2",
    "libslurm38",
    "libgfortran5",
    "libnuma1",
];

/// What moves the bytes of both MPIs, if they are told so, in a build that knows device memory.
const UCX: &str = "libucx-cu13==1.22.0";

/// An MPI: how its programs are compiled and started.
struct Mpi {
    name: &'static str,
    /// Its headers and its library for linking, below `usr`.
    include: &'static str,
    library: [&'static str; 2],
    /// What starts its programs, below `usr/bin`, with the flags that a test needs.
    launcher: &'static str,
    /// The variables by which it finds itself in another folder than Debian's; `$usr` stands for
    /// that.
    variables: &'static [(&'static str, &'static str)],
}

const MPIS: [Mpi; 2] = [
    Mpi {
        name: "openmpi",
        include: "lib/x86_64-linux-gnu/openmpi/include",
        library: ["lib/x86_64-linux-gnu/openmpi/lib", "mpi"],
        launcher: "mpirun.openmpi --oversubscribe",
        variables: &[
            ("OPAL_PREFIX", "$usr"),
            ("OPAL_LIBDIR", "$usr/lib/x86_64-linux-gnu/openmpi/lib"),
            ("PMIX_INSTALL_PREFIX", "$usr/lib/x86_64-linux-gnu/pmix2"),
            // Networks that a machine for tests need not have.
            ("OMPI_MCA_mca_base_component_show_load_errors", "0"),
            ("PMIX_MCA_pcompress_base_silence_warning", "1"),
            ("OMPI_MCA_btl", "self,vader,tcp"),
            ("OMPI_MCA_pml", "${OMPI_MCA_pml:-ob1}"),
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ],
    },
    Mpi {
        name: "mpich",
        include: "include/x86_64-linux-gnu/mpich",
        library: ["lib/x86_64-linux-gnu", "mpich"],
        // A machine for tests need not have a name.
        launcher: "mpiexec.hydra -localhost 127.0.0.1",
        variables: &[],
    },
];

fn folder() -> PathBuf {
    target_dir().join("mpi")
}

fn usr() -> PathBuf {
    folder().join("debian/usr")
}

/// Lays out both and compiles the programs that are older than their sources.
pub(crate) fn ensure() -> Result<()> {
    packages()?;
    let toolchain = Toolchain::ensure()?;
    if let Err(error) = ucx(&toolchain) {
        step(&format!("no UCX for the test that needs it: {error:#}"));
    }
    for mpi in &MPIS {
        let folder = folder().join(mpi.name);
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let launcher = folder.join("mpirun");
        fs::write(&launcher, mpi.script())
            .and_then(|()| fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)))
            .with_context(|| format!("cannot write {}", launcher.display()))?;
        for source in sources("cu")? {
            mpi.compile(&toolchain, &source, &folder)?;
        }
    }
    Ok(())
}

/// A step of `cargo xtask test`. Without them, the tests that need them say that they are skipped.
pub(crate) fn attempt() -> Result<Count> {
    match packages() {
        Ok(()) => ensure().map(|()| Count::ONE),
        Err(error) => {
            Ok(Count::skipped(format!("mpi: Debian's packages cannot be had: {error:#}")))
        }
    }
}

fn packages() -> Result<()> {
    let laid_out = folder().join("debian");
    if laid_out.exists() {
        return Ok(());
    }
    step("taking Open MPI and MPICH out of Debian's packages (25 MB)");
    debian::whole(&laid_out, |new| {
        let wanted: Vec<&str> = PACKAGES.iter().chain(&LIBRARIES).copied().collect();
        debian::unpack(&debian::download(&wanted, new)?, new)
    })
}

fn ucx(toolchain: &Toolchain) -> Result<()> {
    let laid_out = folder().join("ucx");
    if laid_out.exists() {
        return Ok(());
    }
    step(&format!("installing {UCX} (43 MB)"));
    debian::whole(&laid_out, |new| toolchain.unpack_wheel(UCX, new))
}

/// The files of `tests/programs/mpi` with this ending.
fn sources(ending: &str) -> Result<Vec<PathBuf>> {
    let folder = root().join("tests/programs/mpi");
    let listed = fs::read_dir(&folder).context("cannot list tests/programs/mpi")?;
    let paths = listed.flatten().map(|file| file.path());
    Ok(paths.filter(|path| path.extension().is_some_and(|end| end == ending)).collect())
}

impl Mpi {
    /// What tests call as `mpirun`.
    fn script(&self) -> String {
        let mut text =
            "#!/bin/sh\nusr=$(cd \"$(dirname \"$0\")/../debian/usr\" && pwd)\n".to_owned();
        for (name, value) in self.variables {
            text += &format!("export {name}={value}\n");
        }
        let libraries = format!(
            "$usr/{}:$usr/lib/x86_64-linux-gnu:$usr/../lib/x86_64-linux-gnu",
            self.library[0]
        );
        text +=
            &format!("export LD_LIBRARY_PATH={libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\n");
        text += &format!("exec \"$usr\"/bin/{} \"$@\"\n", self.launcher);
        text
    }

    fn compile(&self, toolchain: &Toolchain, source: &Path, folder: &Path) -> Result<()> {
        let out = folder.join(source.file_stem().unwrap_or_default());
        let changed = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
        let mut read = sources("h")?;
        read.extend([source.to_owned(), root().join("tests/programs/check.h")]);
        if read.iter().all(|file| changed(&out) > changed(file)) {
            return Ok(());
        }
        let [library, name] = self.library;
        let mut nvcc = Command::new(toolchain.nvcc());
        nvcc.args(programs::USUAL).arg("-o").arg(&out).arg(source);
        nvcc.arg("-I").arg(usr().join(self.include)).arg("-L").arg(usr().join(library));
        // Its own libraries are found when it runs.
        nvcc.arg(format!("-l{name}")).args(["-Xlinker", "--allow-shlib-undefined", "-L"]);
        programs::run_quietly(nvcc.arg(toolchain.lib()))
    }
}
