//! The files that a driver needs, and no others; no network.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

/// The newest interface that is asked for; the system gives what it has of it.
const NEWEST: ABI = ABI::V6;

/// Libraries, their configuration, and what a driver and the C library ask about the machine.
const READ: &[&str] = &[
    "/usr",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/etc/localtime",
    "/etc/machine-id",
    "/etc/nvidia",
    "/etc/OpenCL",
    "/sys",
    "/proc/driver",
    "/proc/sys",
    "/proc/cpuinfo",
    "/proc/devices",
    "/proc/filesystems",
    "/proc/meminfo",
    "/proc/modules",
    "/proc/stat",
    "/proc/uptime",
    "/proc/version",
    "/dev/random",
    "/dev/urandom",
];

/// What a process may read of itself. Of its machine it would read in `/proc/self`, too: the
/// network's sockets and addresses, and what is mounted where.
const OF_ITSELF: &[&str] = &[
    "auxv",
    "cgroup",
    "cmdline",
    "comm",
    "coredump_filter",
    "fd",
    "fdinfo",
    "limits",
    "maps",
    "numa_maps",
    "oom_score",
    "oom_score_adj",
    "pagemap",
    "smaps",
    "smaps_rollup",
    "stat",
    "statm",
    "status",
];

/// Devices, and shared memory between workers of one GPU, by which drivers share allocations.
const WRITE: &[&str] = &["/dev/full", "/dev/null", "/dev/zero", "/dev/shm", "/dev/nvidia-caps"];

/// What NCCL reads beside that: the administrator's settings, which it takes before variables.
/// (`/sys`, where it finds out what lies near what, and `/dev/shm`, by which workers of a machine
/// reach each other, are every driver's.)
pub(super) const NCCL_READ: &[&str] = &["/etc/nccl.conf"];

/// RDMA adapters, by which sessions and NCCL reach other machines without the network's sockets;
/// and which library drives which of them.
pub(super) const ADAPTERS_WRITE: &[&str] = &["/dev/infiniband"];
pub(super) const ADAPTERS_READ: &[&str] = &["/etc/libibverbs.d"];

/// The folder with the files by which a process names its threads, as NVIDIA's driver does while it
/// starts. What else it has of them is not read.
const NAMES: &str = "/proc/self/task";

/// The folder of devices whose names begin with `nvidia`.
const DEVICES: &str = "/dev";

/// Confines this thread, and those that it starts from now on. `Err` says what the system lacks.
pub(super) fn confine(reads: &[PathBuf], writes: &[PathBuf]) -> Result<(), String> {
    match rules(reads, writes) {
        Ok(RulesetStatus::FullyEnforced) => Ok(()),
        Ok(RulesetStatus::PartiallyEnforced) => {
            // The rules that the system supports are in force: those for files always are.
            tracing::debug!(
                "the system's Landlock is older than this program: files are confined, not all else"
            );
            Ok(())
        }
        Ok(RulesetStatus::NotEnforced) => {
            Err("the kernel has no Landlock, or it is switched off".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Whether the system confines sockets that a process has been handed: from Linux 6.7 on. `Err`
/// says that it does not.
pub(super) fn confines_sockets() -> Result<(), String> {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let handled = ruleset.handle_access(AccessNet::from_all(ABI::V4));
    handled.and_then(Ruleset::create).map(drop).map_err(|_| {
        "its Landlock has no rules for the network: a worker could connect the sockets that the \
         server makes for it elsewhere than the server does"
            .to_owned()
    })
}

fn rules(reads: &[PathBuf], writes: &[PathBuf]) -> Result<RulesetStatus, RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::Signal)?
        .create()?;
    let read = AccessFs::from_read(NEWEST);
    let itself = OF_ITSELF.iter().map(|name| Path::new("/proc/self").join(name));
    for path in READ.iter().map(PathBuf::from).chain(reads.iter().cloned()).chain(itself) {
        rules = allow(rules, &path, read)?;
    }
    let all = AccessFs::from_all(NEWEST);
    for path in WRITE.iter().map(Path::new).chain(writes.iter().map(PathBuf::as_path)) {
        rules = allow(rules, path, all)?;
    }
    let naming = AccessFs::ReadDir | AccessFs::WriteFile | AccessFs::Truncate;
    rules = allow(rules, Path::new(NAMES), naming)?;
    for entry in std::fs::read_dir(DEVICES).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(b"nvidia") {
            rules = allow(rules, &entry.path(), all)?;
        }
    }
    Ok(rules.restrict_self()?.ruleset)
}

/// Allows what is below a folder, or a file; what is not there needs no rule.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(file) = PathFd::new(path) else { return Ok(rules) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
    let rules = rules.add_rule(PathBeneath::new(&file, access))?;
    if path.starts_with("/proc") {
        // A rule is for an inode. Here the kernel makes another one when it has dropped what it
        // remembers of a path, as under pressure of memory; it drops nothing that is open.
        Box::leak(Box::new(file));
    }
    Ok(rules)
}
