//! Control groups of workers: limits on the machine's memory and on tasks, the same for every
//! worker.
//!
//! Version 2 only. The server needs a group that was delegated to it (`Delegate=yes` in a systemd
//! unit, a container's own, or one that an administrator made for it). The server itself moves to a
//! group `server` below, as a group with groups below has no processes of its own; each worker gets
//! `worker-PID` beside it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A worker's limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shares {
    /// Bytes of memory, page-locked memory and files in memory included.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub tasks: Option<u32>,
}

/// The group that workers' groups are made in.
#[derive(Debug, Clone)]
pub struct Cgroup {
    folder: PathBuf,
    shares: Shares,
}

/// Why there are no groups.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// Nobody has given the server a group.
    #[error("the server has no control group of its own (version 2) to divide: {0}")]
    None(String),
    /// Other processes are in the group.
    #[error(
        "the control group {} has processes beside the server, and a group that is divided may have none: start the server in one of its own",
        .0.display()
    )]
    Shared(PathBuf),
    /// A file of the group cannot be used.
    #[error("the control group cannot be used: {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The group lacks what a limit needs.
    #[error("the control group {} cannot limit {what}: its controller is not delegated", folder.display())]
    Controller {
        /// The group.
        folder: PathBuf,
        /// The resource that was to be limited.
        what: &'static str,
    },
}

/// A worker's group. It is removed once its processes have ended.
#[derive(Debug)]
pub(crate) struct Member {
    folder: PathBuf,
}

/// Bytes of memory that this process may have: the machine's, or those of its control group.
pub fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    let machine = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
    // Version 2, then version 1; within a container, its own group is the root.
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let own = limits.iter().find_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    own.map_or(machine, |own: u64| own.min(machine))
}

const PREFIX: &str = "worker-";
const SERVER: &str = "server";

impl Cgroup {
    /// The group that this process is in, if it is there for it to divide.
    pub fn own(shares: Shares) -> Result<Cgroup, CgroupError> {
        let none = |reason: &str| CgroupError::None(reason.to_owned());
        let read = |path: &str| {
            fs::read_to_string(path)
                .map_err(|error| CgroupError::File { path: PathBuf::from(path), error })
        };
        let groups = read("/proc/self/cgroup")?;
        let within = groups.lines().find_map(|line| line.strip_prefix("0::"));
        let within = within.ok_or_else(|| none("the system has no version 2"))?;
        let mounts = read("/proc/self/mountinfo")?;
        let mount =
            mounts.lines().find_map(mounted).ok_or_else(|| none("version 2 is not mounted"))?;
        // A server that was replaced by a newer one has moved below its group already.
        let within = within
            .strip_suffix(&format!("/{SERVER}"))
            .map_or(within, |above| if above.is_empty() { "/" } else { above });
        let folder = mount.join(within.trim_start_matches('/'));
        // Whose group it is: a service manager marks those that it has given away, and a
        // container's root is the container's.
        let given = within == "/"
            || ["user.delegate", "trusted.delegate"]
                .into_iter()
                .any(|mark| is_marked(&folder, mark));
        if !given {
            return Err(none(
                "the one it is in belongs to others; a systemd unit gets one with Delegate=yes",
            ));
        }
        Cgroup::at(folder, shares)
    }

    /// This group, which is the server's from now on.
    pub fn at(folder: impl Into<PathBuf>, shares: Shares) -> Result<Cgroup, CgroupError> {
        let cgroup = Cgroup { folder: folder.into(), shares };
        let server = cgroup.folder.join(SERVER);
        if let Err(error) = fs::create_dir(&server)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(CgroupError::File { path: server, error });
        }
        cgroup.write(&server.join("cgroup.procs"), &std::process::id().to_string())?;
        let path = cgroup.folder.join("cgroup.controllers");
        let there = fs::read_to_string(&path).map_err(|error| CgroupError::File { path, error })?;
        for (wanted, controller, what) in [
            (shares.memory.is_some(), "memory", "memory"),
            (shares.tasks.is_some(), "pids", "processes and threads"),
        ] {
            if !there.split_whitespace().any(|name| name == controller) {
                if wanted {
                    return Err(CgroupError::Controller { folder: cgroup.folder, what });
                }
                continue;
            }
            let path = cgroup.folder.join("cgroup.subtree_control");
            fs::write(&path, format!("+{controller}")).map_err(|error| match error.kind() {
                io::ErrorKind::ResourceBusy => CgroupError::Shared(cgroup.folder.clone()),
                _ => CgroupError::File { path, error },
            })?;
        }
        cgroup.sweep();
        Ok(cgroup)
    }

    /// Puts a process that has just been started into a group of its own.
    pub(crate) fn place(&self, process: u32) -> Result<Member, CgroupError> {
        self.sweep();
        let folder = self.folder.join(format!("{PREFIX}{process}"));
        fs::create_dir(&folder)
            .map_err(|error| CgroupError::File { path: folder.clone(), error })?;
        let member = Member { folder };
        if let Some(memory) = self.shares.memory {
            self.write(&member.folder.join("memory.max"), &memory.to_string())?;
            let swap = member.folder.join("memory.swap.max");
            // A system without swap need not have the file.
            if swap.exists() {
                self.write(&swap, "0")?;
            }
            // The worker ends as one; a driver without some of its threads would hang.
            self.write(&member.folder.join("memory.oom.group"), "1")?;
        }
        if let Some(tasks) = self.shares.tasks {
            self.write(&member.folder.join("pids.max"), &tasks.to_string())?;
        }
        self.write(&member.folder.join("cgroup.procs"), &process.to_string())?;
        Ok(member)
    }

    /// Removes groups whose processes have ended since: of workers that were still ending, or of an
    /// earlier server.
    fn sweep(&self) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            // One whose process is about to be placed there stays, though it is another server's.
            if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
                let _ = fs::remove_dir(entry.path());
            }
        }
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), CgroupError> {
        fs::write(path, text).map_err(|error| CgroupError::File { path: path.to_owned(), error })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // If one of its processes is still ending, the next sweep removes it.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Where a line of mountinfo mounts version 2.
fn mounted(line: &str) -> Option<PathBuf> {
    let (mount, source) = line.split_once(" - ")?;
    let place = mount.split(' ').nth(4)?;
    source.starts_with("cgroup2 ").then(|| PathBuf::from(place))
}

fn is_marked(folder: &Path, mark: &str) -> bool {
    let mut value = [0; 8];
    rustix::fs::getxattr(folder, mark, &mut value[..]).is_ok_and(|length| value[..length] == *b"1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_2_is_found_among_mounts() {
        let hybrid = "30 24 0:26 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw";
        assert_eq!(mounted(hybrid), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(
            mounted("31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"),
            None
        );
        assert_eq!(mounted("nonsense"), None);
    }

    #[test]
    fn a_folder_that_is_no_group_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = Cgroup::at(folder.path(), Shares::default()).unwrap_err().to_string();
        assert!(error.contains("cgroup"), "{error}");
    }

    #[test]
    fn groups_are_removed_once_their_processes_have_ended() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path();
        let of = |process: u32| folder.join(format!("{PREFIX}{process}"));
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let (own, other) = (of(std::process::id()), of(ended.id()));
        for group in [&own, &other, &folder.join(SERVER)] {
            fs::create_dir_all(group).unwrap();
        }
        Cgroup { folder: folder.to_owned(), shares: Shares::default() }.sweep();
        assert!(own.exists() && !other.exists() && folder.join(SERVER).exists());
    }
}
