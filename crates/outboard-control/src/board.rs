//! The board: memory that the supervisor shares with all its workers, where each writes what NVML
//! lists of a session: for which client's process it works, on which devices it has contexts, how
//! much memory they use.
//!
//! It is for people to look at. Nothing is decided by it, so that a worker gone wrong can at most
//! make a listing wrong.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use outboard_wire::handshake::Process;
use rustix::fs::fstat;
use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::sealed;

/// Devices whose use is written down; a server with more does not show that of the others.
const DEVICES: usize = 16;

/// What a session's worker writes. All zero is a valid, free entry.
#[repr(C)]
#[derive(Default)]
struct Entry {
    /// The worker's process; 0 while nobody has the entry.
    worker: AtomicU32,
    process: AtomicU32,
    machine: AtomicU64,
    /// One bit for each device with a context.
    contexts: AtomicU64,
    used: [AtomicU64; DEVICES],
    /// Bytes of each device's memory that the session has asked for and not given back.
    held: [AtomicU64; DEVICES],
}

/// A session as it stands on the board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Process id of the worker.
    pub worker: u32,
    /// Process id of the client, on its own machine.
    pub process: u32,
    /// The client's machine, by a number that only tells machines apart; see [`Process`].
    pub machine: u64,
    /// One bit for each device with a context, the lowest for ordinal 0.
    pub contexts: u64,
    /// Bytes of memory that the session uses, by the device's ordinal.
    pub used: Vec<u64>,
    /// Bytes of memory that the program has allocated and not freed, by the device's ordinal.
    pub held: Vec<u64>,
}

impl Session {
    /// Whether it has a context on a device.
    pub fn has_context(&self, ordinal: u32) -> bool {
        self.contexts.checked_shr(ordinal).unwrap_or(0) & 1 != 0
    }

    /// Bytes of a device's memory that it uses, where its worker counts them.
    pub fn used(&self, ordinal: u32) -> u64 {
        self.used.get(ordinal as usize).copied().unwrap_or(0)
    }
}

/// The board, mapped.
pub struct Board {
    entries: &'static [Entry],
    /// This worker's own entry and the machine of its client.
    own: Option<(&'static Entry, u64)>,
}

impl Board {
    /// Makes one with room for so many sessions. The descriptor is for the workers.
    ///
    /// # Errors
    /// The system's error if it has no memory, descriptor or mapping to give.
    pub fn create(sessions: usize) -> io::Result<(Board, OwnedFd)> {
        let memory = sealed::create("outboard-board", sessions.max(1) * size_of::<Entry>())?;
        Ok((Board::attach(memory.as_fd())?, memory))
    }

    /// What it looks like: supervisors whose boards look the same can take over each other's.
    pub fn layout(sessions: usize) -> String {
        format!("1/{}/{}", size_of::<Entry>(), sessions.max(1))
    }

    /// Goes on with the board of an earlier supervisor, which a worker has kept. The layout must be
    /// known to be the same.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the file is not a board for so many sessions, or the
    /// system's error.
    pub fn take_over(memory: OwnedFd, sessions: usize) -> io::Result<(Board, OwnedFd)> {
        let bytes = sessions.max(1) * size_of::<Entry>();
        sealed::check(memory.as_fd(), bytes, "a board")?;
        Ok((Board::attach(memory.as_fd())?, memory))
    }

    /// Maps one that another process has made.
    fn attach(memory: BorrowedFd<'_>) -> io::Result<Board> {
        let bytes = usize::try_from(fstat(memory)?.st_size).unwrap_or(0);
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, wherever there is room.
        let address =
            unsafe { mmap(core::ptr::null_mut(), bytes, flags, MapFlags::SHARED, memory, 0) }?;
        // SAFETY: mapped for ever and never shrunk; an entry is only atomics, for which any bytes
        // are valid.
        let entries = unsafe {
            std::slice::from_raw_parts(address.cast::<Entry>(), bytes / size_of::<Entry>())
        };
        Ok(Board { entries, own: None })
    }

    /// Takes an entry for this process, which works for a client's process. If all are taken, it is
    /// not shown.
    fn enter(&mut self, client: Process) {
        let free = |entry: &&Entry| {
            entry
                .worker
                .compare_exchange(0, std::process::id(), Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        let Some(entry) = self.entries.iter().find(free) else { return };
        entry.process.store(client.id, Ordering::Relaxed);
        entry.machine.store(client.machine, Ordering::Release);
        self.own = Some((entry, client.machine));
    }

    /// The machine of this worker's client; 0 if it is not known.
    pub fn own_machine(&self) -> u64 {
        self.own.map_or(0, |(_, machine)| machine)
    }

    /// Writes down on which devices this session has contexts. What it used on others is forgotten.
    pub fn show_contexts(&self, contexts: u64) {
        let Some((entry, _)) = self.own else { return };
        // Nobody else writes it.
        if entry.contexts.load(Ordering::Relaxed) != contexts {
            entry.contexts.store(contexts, Ordering::Release);
            for (ordinal, used) in entry.used.iter().enumerate() {
                if contexts >> ordinal & 1 == 0 {
                    used.store(0, Ordering::Relaxed);
                }
            }
        }
    }

    /// Writes down how much of a device's memory this session uses.
    pub fn show_used(&self, ordinal: u32, bytes: u64) {
        if let Some((entry, _)) = self.own
            && let Some(used) = entry.used.get(ordinal as usize)
        {
            used.store(bytes, Ordering::Relaxed);
        }
    }

    /// Writes down how much of a device's memory this session has asked for and not given back.
    pub fn show_held(&self, ordinal: u32, bytes: u64) {
        if let Some((entry, _)) = self.own
            && let Some(held) = entry.held.get(ordinal as usize)
        {
            held.store(bytes, Ordering::Relaxed);
        }
    }

    /// Of a device's memory, what the sessions hold that this worker's client may know of: those of
    /// its own process, or if that has none, of its machine.
    pub fn held_here(&self, ordinal: u32) -> u64 {
        let Some((own, machine)) = self.own else { return 0 };
        let own = own.process.load(Ordering::Relaxed);
        let near: Vec<Session> =
            self.sessions().into_iter().filter(|session| session.machine == machine).collect();
        let of = |which: &dyn Fn(&Session) -> bool| {
            let held = near.iter().filter(|session| which(session));
            held.filter_map(|session| session.held.get(ordinal as usize))
                .fold(0, |sum: u64, held| sum.saturating_add(*held))
        };
        match of(&|session| session.process == own) {
            0 => of(&|session| machine != 0 || session.worker == std::process::id()),
            held => held,
        }
    }

    /// All sessions.
    pub fn sessions(&self) -> Vec<Session> {
        let taken = self.entries.iter().filter(|entry| entry.worker.load(Ordering::Acquire) != 0);
        taken
            .map(|entry| Session {
                worker: entry.worker.load(Ordering::Relaxed),
                process: entry.process.load(Ordering::Relaxed),
                machine: entry.machine.load(Ordering::Relaxed),
                contexts: entry.contexts.load(Ordering::Relaxed),
                used: entry.used.iter().map(|used| used.load(Ordering::Relaxed)).collect(),
                held: entry.held.iter().map(|held| held.load(Ordering::Relaxed)).collect(),
            })
            .collect()
    }

    /// Frees the entries of all workers but these.
    pub fn retain(&self, workers: &[u32]) {
        for session in self.sessions().iter().filter(|session| !workers.contains(&session.worker)) {
            self.clear(session.worker);
        }
    }

    /// Frees the entry of a worker that has ended.
    pub fn clear(&self, worker: u32) {
        for entry in
            self.entries.iter().filter(|entry| entry.worker.load(Ordering::Acquire) == worker)
        {
            entry.process.store(0, Ordering::Relaxed);
            entry.machine.store(0, Ordering::Relaxed);
            entry.contexts.store(0, Ordering::Relaxed);
            entry
                .used
                .iter()
                .chain(&entry.held)
                .for_each(|bytes| bytes.store(0, Ordering::Relaxed));
            entry.worker.store(0, Ordering::Release);
        }
    }
}

/// This worker's board.
static BOARD: OnceLock<Board> = OnceLock::new();

/// Joins the supervisor's board, on behalf of a client's process.
///
/// # Errors
/// The system's error if the board cannot be mapped.
pub fn join(memory: BorrowedFd<'_>, client: Process) -> io::Result<()> {
    let mut board = Board::attach(memory)?;
    board.enter(client);
    // A worker joins once.
    let _ = BOARD.set(board);
    Ok(())
}

/// Has this process see the supervisor's board, and not stand on it.
///
/// # Errors
/// The system's error if the board cannot be mapped.
pub fn look_on(memory: BorrowedFd<'_>) -> io::Result<()> {
    let _ = BOARD.set(Board::attach(memory)?);
    Ok(())
}

/// This worker's board, once it has joined.
pub fn get() -> Option<&'static Board> {
    BOARD.get()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    #[test]
    fn what_one_writes_others_read() {
        let (supervisor, memory) = Board::create(2).unwrap();
        let mut worker = Board::attach(memory.as_fd()).unwrap();
        assert!(supervisor.sessions().is_empty());
        worker.enter(Process { id: 7, machine: 9 });
        worker.show_contexts(0b10);
        worker.show_used(1, 4096);
        worker.show_used(99, 1);
        worker.show_held(1, 100);
        worker.show_held(99, 1);
        assert_eq!((worker.held_here(1), worker.held_here(0)), (100, 0));
        let seen = supervisor.sessions();
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].worker, seen[0].process, seen[0].machine), (std::process::id(), 7, 9));
        assert!(seen[0].has_context(1) && !seen[0].has_context(0) && !seen[0].has_context(64));
        assert_eq!((seen[0].used(1), seen[0].used(0), seen[0].used(99)), (4096, 0, 0));
        worker.show_contexts(0);
        assert_eq!(supervisor.sessions()[0].used(1), 0);
        supervisor.clear(std::process::id());
        assert!(supervisor.sessions().is_empty());
    }

    #[test]
    fn the_next_supervisor_goes_on_with_a_board() {
        let (first, memory) = Board::create(2).unwrap();
        Board::attach(memory.as_fd()).unwrap().enter(Process { id: 7, machine: 9 });
        let (next, memory) = Board::take_over(memory, 2).unwrap();
        assert_eq!(next.sessions(), first.sessions());
        next.retain(&[std::process::id()]);
        assert_eq!(first.sessions().len(), 1);
        next.retain(&[]);
        assert!(first.sessions().is_empty());
        // Of another size, or memory that could be taken away while it is used.
        assert!(Board::take_over(memory, 3).is_err());
        let unsealed =
            memfd_create("outboard-test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&unsealed, (2 * size_of::<Entry>()) as u64).unwrap();
        assert!(Board::take_over(unsealed, 2).is_err());
    }

    #[test]
    fn a_full_board_shows_no_more() {
        let (board, memory) = Board::create(1).unwrap();
        for id in [1, 2] {
            Board::attach(memory.as_fd()).unwrap().enter(Process { id, machine: 1 });
        }
        assert_eq!(board.sessions().iter().map(|session| session.process).collect::<Vec<_>>(), [1]);
    }
}
