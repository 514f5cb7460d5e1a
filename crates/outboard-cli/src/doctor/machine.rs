//! Limits of this machine and of this process, and what its kernel can do.

use std::path::Path;
use std::time::Duration;

use miette::{Result, miette};
use outboard_wire::Code;
use rustix::process::{Resource, getrlimit};

use super::child;
use super::finding::Finding;

/// Descriptors that a client takes: connections, lanes, shared memory, and room for the program's
/// own.
const CLIENT_FILES: u64 = 64;
/// Descriptors that a server takes for its first sessions.
const SERVER_FILES: u64 = 1024;
/// Address space that shared and managed memory is mapped into.
const ADDRESS_SPACE: u64 = 64 << 30;

/// The limits that a client runs into.
pub(super) fn client_limits() -> Vec<Finding> {
    let mut findings = Vec::new();
    let files = getrlimit(Resource::Nofile).current;
    if files.is_some_and(|files| files < CLIENT_FILES) {
        let found = format!(
            "this process may have {} files open; a session takes up to {CLIENT_FILES}",
            number(files)
        );
        findings.push(Finding::warn(
            "limits",
            found,
            "raise it: `ulimit -n 1024`, in a container `--ulimit nofile=1024`",
        ));
    }
    if let Some(bytes) = getrlimit(Resource::As).current.filter(|bytes| *bytes < ADDRESS_SPACE) {
        let found = format!(
            "this process may use {} of address space; managed memory may not fit",
            size(bytes)
        );
        findings.push(Finding::warn("limits", found, "lift it: `ulimit -v unlimited`"));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            "limits",
            format!("{} open files, address space is not short", number(files)),
        ));
    }
    findings
}

/// The limits that a server runs into.
pub(super) fn server_limits() -> Vec<Finding> {
    let mut findings = Vec::new();
    // The server raises the soft limit itself.
    let files = getrlimit(Resource::Nofile).maximum;
    if files.is_some_and(|files| files < SERVER_FILES) {
        let found =
            format!("a process may have {} files open, and each session takes some", number(files));
        let mend = "raise the hard limit: LimitNOFILE= in the systemd unit, `--ulimit nofile=` for a container";
        findings.push(Finding::warn("limits", found, mend));
    }
    let processes = getrlimit(Resource::Nproc).current;
    if let Some(few) = processes.filter(|processes| *processes < 256) {
        let found = format!(
            "this user may have {few} processes and threads; each session is a process with several threads"
        );
        findings.push(Finding::warn(
            "limits",
            found,
            "raise it: LimitNPROC= or TasksMax= in the systemd unit, `ulimit -u`",
        ));
    }
    if let Some(few) = cgroup("pids.max").filter(|few| *few < 256) {
        let found = format!("this container may have {few} processes and threads");
        findings.push(Finding::warn(
            "limits",
            found,
            "raise it: TasksMax= in the systemd unit, `--pids-limit` for a container",
        ));
    }
    if let Some(memory) = cgroup("memory.max").filter(|memory| *memory < 4 << 30) {
        let found = format!(
            "this container may use {} of memory, page-locked memory of sessions included",
            size(memory)
        );
        findings.push(Finding::warn(
            "limits",
            found,
            "raise it: MemoryMax= in the systemd unit, `--memory` for a container",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            "limits",
            format!("{} open files, {} processes", number(files), number(processes)),
        ));
    }
    findings
}

/// The kernel's features for confining workers.
pub(super) fn sandbox(strict: bool) -> Finding {
    let landlock = landlock();
    let seccomp = Path::new("/proc/sys/kernel/seccomp/actions_avail").exists();
    let limit = Duration::from_secs(10);
    let mut trial = child::this_program("doctor-trial");
    let namespace =
        child::run(trial.arg("namespace"), limit).is_ok_and(|ended| ended.problem(limit).is_none());
    let has = |there: bool| if there { "yes" } else { "no" };
    let found = format!(
        "Landlock {}, seccomp {}, user namespaces {}",
        landlock.map_or("no".to_owned(), |version| format!("version {version}")),
        has(seccomp),
        has(namespace)
    );
    match (landlock, seccomp) {
        (Some(_), true) => Finding::ok("sandbox", found),
        _ if strict => {
            let mend = "a kernel of 5.13 or newer has Landlock (`lsm=landlock,…` at boot may be needed); --sandbox on takes what there is";
            Finding::fail("sandbox", Code::SandboxIncomplete, found, mend)
        }
        _ => Finding::warn(
            "sandbox",
            found,
            "workers cannot be confined fully here; Linux 5.13 brings Landlock",
        ),
    }
}

/// The version of Landlock's interface.
fn landlock() -> Option<i64> {
    const VERSION: u32 = 1;
    // SAFETY: with this flag the call takes no pointers and only answers.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION)
    };
    (version > 0).then_some(version)
}

/// The child: tries to make a user namespace.
pub(super) fn make_namespace() -> Result<()> {
    // SAFETY: this process has one thread and ends after this.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER) } == 0 {
        return Ok(());
    }
    Err(miette!("no user namespace: {}", std::io::Error::last_os_error()))
}

/// The kernel's settings for fast networks.
pub(super) fn network() -> Finding {
    const WANTED: u64 = 4 << 20;
    let largest = |name: &str| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
        text.split_whitespace().nth(2)?.parse().ok()
    };
    match (largest("tcp_rmem"), largest("tcp_wmem")) {
        (Some(receive), Some(send)) if receive < WANTED || send < WANTED => {
            let found = format!(
                "TCP buffers grow to {} (receive) and {} (send)",
                size(receive),
                size(send)
            );
            let mend = "far away, copies need more: sysctl net.ipv4.tcp_rmem='4096 131072 16777216' net.ipv4.tcp_wmem='4096 65536 16777216'";
            Finding::warn("network", found, mend)
        }
        (Some(receive), Some(send)) => Finding::ok(
            "network",
            format!("TCP buffers grow to {} (receive) and {} (send)", size(receive), size(send)),
        ),
        _ => Finding::ok("network", "the kernel does not show its TCP settings here"),
    }
}

/// A number of this process' control group, if there is one and it is a limit.
fn cgroup(file: &str) -> Option<u64> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?.to_owned();
    let mut folder = Path::new("/sys/fs/cgroup").join(path);
    let mut least: Option<u64> = None;
    // A group is bound by those above it, too.
    loop {
        let limit = std::fs::read_to_string(folder.join(file))
            .ok()
            .and_then(|text| text.trim().parse().ok());
        least = [least, limit].into_iter().flatten().min();
        if folder == Path::new("/sys/fs/cgroup") || !folder.pop() {
            return least;
        }
    }
}

fn number(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
}

/// Bytes for people.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut rest = bytes as f64;
    let mut unit = 0;
    while rest >= 1024.0 && unit + 1 < UNITS.len() {
        rest /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && rest < 10.0);
    format!("{rest:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        assert_eq!(
            [0, 1023, 1536, 141 << 30, u64::MAX].map(size),
            ["0 B", "1023 B", "1.5 KiB", "141 GiB", "16777216 TiB"]
        );
    }
}
