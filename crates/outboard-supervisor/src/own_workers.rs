//! Whether a process at a Unix socket of the server's is a worker of its own. Workers may be of the
//! server's user, and have no business there.

use std::fs;

use tokio::net::UnixStream;

use super::supervisor::Supervisor;

impl Supervisor {
    /// Whether a worker is at the other end: the process that connected, as the kernel noted it
    /// then. One that has ended since is nobody's peer.
    pub(crate) fn is_workers(&self, stream: &UnixStream) -> bool {
        let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
        peer.and_then(|pid| u32::try_from(pid).ok()).is_some_and(|process| self.is_worker(process))
    }

    /// Whether a process is a worker of this server's.
    pub(crate) fn is_worker(&self, process: u32) -> bool {
        // Those of an earlier server have another parent, and may not have answered yet.
        let noted = || {
            let noted = self.sessions.records().map(|records| records.all()).unwrap_or_default();
            noted.iter().any(|(_, record)| record.worker == process)
        };
        parent(process) == Some(std::process::id())
            || self.sessions.has_worker(process)
            || (self.unanswered.get() > 0 && noted())
    }
}

/// The parent of a process.
fn parent(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Its name is in brackets, and may have some.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_parent() {
        assert_eq!(parent(std::process::id()), Some(std::os::unix::process::parent_id()));
        assert_eq!(parent(u32::MAX), None);
    }
}
