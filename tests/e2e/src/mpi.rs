//! Programs that an MPI starts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::{dist, programs, within};

/// The MPIs that `cargo xtask mpi` lays out.
pub const MPIS: [&str; 2] = ["openmpi", "mpich"];
/// A run of four ranks.
const LIMIT: Duration = Duration::from_secs(120);

/// Where one of them and its programs are, if they are there.
fn laid_out(mpi: &str) -> Option<PathBuf> {
    let folder = programs().parent()?.join("mpi").join(mpi);
    folder.join("jacobi_mpi").is_file().then_some(folder)
}

/// Tries something with each that is there; how many are.
pub fn each_mpi(what: impl Fn(&Path)) -> usize {
    let there: Vec<PathBuf> = MPIS.iter().filter_map(|mpi| laid_out(mpi)).collect();
    there.iter().for_each(|mpi| what(mpi));
    there.len()
}

/// The command, as a rank is started with it.
#[must_use]
pub fn outboard() -> String {
    dist().join("bin/outboard").display().to_string()
}

/// `mpirun -n RANKS` before a command.
#[must_use]
pub fn mpirun(mpi: &Path, ranks: u32, command: &[&str]) -> Command {
    let mut mpirun = Command::new(mpi.join("mpirun"));
    mpirun.args(["-n", &ranks.to_string()]).args(command).env("OUTBOARD_CONFIG", "none");
    mpirun.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    mpirun
}

/// What a run that ends well has written.
///
/// # Panics
/// If it ends otherwise.
#[track_caller]
#[must_use]
pub fn written(mut command: Command) -> String {
    let mut run = command.spawn().expect("it starts");
    if !within(LIMIT, || run.try_wait().expect("it is a child").is_some()) {
        let _ = run.kill();
    }
    let ended = run.wait_with_output().expect("it has ended");
    assert!(ended.status.success(), "{command:?}: {ended:?}");
    String::from_utf8_lossy(&ended.stdout).into_owned()
}
