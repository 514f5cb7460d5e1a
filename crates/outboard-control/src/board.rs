//! The board: memory that the supervisor shares with all its workers, which shows what NVML lists
//! of each session: for which client's process it works, on which devices it has contexts, how much
//! memory they use.
//!
//! The supervisor writes whose session it is. What the session uses is on a page of its own, which
//! its worker maps before it reads a byte of its client; it keeps no descriptor by which it could
//! write anything else. Nothing is decided by it, so that a worker gone wrong can at most make what
//! is listed of its own session wrong.

use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use outboard_wire::handshake::Process;
use rustix::fs::{Mode, OFlags, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::param::page_size;

use crate::sealed;

/// Devices whose use is written down; a server with more does not show that of the others.
const DEVICES: usize = 16;
/// Nobody opens the board for writing by a descriptor for reading.
const READ_ONLY: u32 = 0o400;

/// Whose a session is: only the supervisor writes it. All zero is a valid, free entry.
#[repr(C)]
#[derive(Default)]
struct Identity {
    /// The worker's process; 0 while nobody has the entry.
    worker: AtomicU32,
    process: AtomicU32,
    machine: AtomicU64,
}

/// What a session's worker writes.
#[repr(C)]
#[derive(Default)]
struct Counters {
    /// One bit for each device with a context.
    contexts: AtomicU64,
    used: [AtomicU64; DEVICES],
    /// Bytes of each device's memory that the session has asked for and not given back.
    held: [AtomicU64; DEVICES],
}

/// Where things are in the board's memory: identities, and behind them a page for each.
struct Layout {
    sessions: usize,
    page: usize,
}

impl Layout {
    fn of(sessions: usize) -> Layout {
        Layout { sessions: sessions.max(1), page: page_size().max(size_of::<Counters>()) }
    }

    fn pages_at(&self) -> usize {
        (self.sessions * size_of::<Identity>()).next_multiple_of(self.page)
    }

    fn page_at(&self, index: usize) -> usize {
        self.pages_at() + index * self.page
    }

    fn bytes(&self) -> usize {
        self.page_at(self.sessions)
    }
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
    identities: &'static [Identity],
    counters: Vec<&'static Counters>,
    /// This worker's own entry.
    own: Option<Own>,
}

/// A worker's own entry, whose page it can write to.
#[derive(Clone, Copy)]
struct Own {
    index: usize,
    counters: &'static Counters,
}

/// The board's memory, for the workers.
pub struct Shared {
    readable: OwnedFd,
    writable: OwnedFd,
}

impl Shared {
    /// A worker may have this as long as it likes.
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    /// A worker gets this before its client says anything, maps its page, and closes it.
    pub fn writable(&self) -> BorrowedFd<'_> {
        self.writable.as_fd()
    }
}

impl Board {
    /// Makes one with room for so many sessions.
    ///
    /// # Errors
    /// The system's error if it has no memory, descriptor or mapping to give.
    pub fn create(sessions: usize) -> io::Result<(Board, Shared)> {
        let writable = sealed::create("outboard-board", Layout::of(sessions).bytes())?;
        let readable = open_again(writable.as_fd(), OFlags::RDONLY)?;
        set_mode(readable.as_fd(), READ_ONLY)?;
        Ok((Board::map(writable.as_fd(), sessions, true)?, Shared { readable, writable }))
    }

    /// What it looks like, and which it is. A supervisor takes over only a board that has the name
    /// which was noted: a worker may have kept another one.
    ///
    /// # Errors
    /// The system's error if it does not tell.
    pub fn name(memory: BorrowedFd<'_>, sessions: usize) -> io::Result<String> {
        let Layout { sessions, page } = Layout::of(sessions);
        Ok(format!("2/{}/{sessions}/{page}/{}", size_of::<Counters>(), fstat(memory)?.st_ino))
    }

    /// Goes on with the board of an earlier supervisor, which a worker has kept for reading. The
    /// name must be known to be the same.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the file is not a board for so many sessions, or the
    /// system's error.
    pub fn take_over(readable: OwnedFd, sessions: usize) -> io::Result<(Board, Shared)> {
        sealed::check(readable.as_fd(), Layout::of(sessions).bytes(), "a board")?;
        set_mode(readable.as_fd(), 0o600)?;
        let writable = open_again(readable.as_fd(), OFlags::RDWR);
        set_mode(readable.as_fd(), READ_ONLY)?;
        let writable = writable?;
        Ok((Board::map(writable.as_fd(), sessions, true)?, Shared { readable, writable }))
    }

    /// Maps one that the supervisor has made, to look at it.
    ///
    /// # Errors
    /// The system's error if it cannot be mapped, or [`io::ErrorKind::InvalidData`] if it is none.
    pub fn attach(memory: BorrowedFd<'_>) -> io::Result<Board> {
        let bytes = usize::try_from(fstat(memory)?.st_size).unwrap_or(0);
        // Each session has a page, and a little in front of them all.
        let page = Layout::of(1).page;
        let fits = |sessions: &usize| Layout::of(*sessions).bytes() == bytes;
        let sessions = (1..=bytes / page).rev().find(fits);
        Board::map(memory, sessions.ok_or(io::ErrorKind::InvalidData)?, false)
    }

    fn map(memory: BorrowedFd<'_>, sessions: usize, writes: bool) -> io::Result<Board> {
        let layout = Layout::of(sessions);
        let flags = if writes { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping, wherever there is room.
        let address = unsafe {
            mmap(core::ptr::null_mut(), layout.bytes(), flags, MapFlags::SHARED, memory, 0)
        }?;
        // SAFETY: mapped for ever and never shrunk; an entry is only atomics, for which any bytes
        // are valid; only a supervisor's mapping is written through.
        let identities =
            unsafe { std::slice::from_raw_parts(address.cast::<Identity>(), layout.sessions) };
        // SAFETY: as above; each page lies within the mapping and is longer than what is on it.
        let page = |index| unsafe { &*address.byte_add(layout.page_at(index)).cast::<Counters>() };
        let counters = (0..layout.sessions).map(page).collect();
        Ok(Board { identities, counters, own: None })
    }

    /// The supervisor gives a worker, which works for a client's process, an entry: its index. If
    /// all are taken, the session is not shown.
    pub fn seat(&self, worker: u32, client: Process) -> Option<u32> {
        let free = |entry: &Identity| entry.worker.load(Ordering::Acquire) == 0;
        let index = self.identities.iter().position(free)?;
        let entry = &self.identities[index];
        entry.process.store(client.id, Ordering::Relaxed);
        entry.machine.store(client.machine, Ordering::Relaxed);
        entry.worker.store(worker, Ordering::Release);
        u32::try_from(index).ok()
    }

    /// A worker maps its own page to write to it.
    ///
    /// # Errors
    /// The system's error if it cannot be mapped, or [`io::ErrorKind::InvalidData`] if there is no
    /// such page.
    pub fn enter(&mut self, writable: BorrowedFd<'_>, index: u32) -> io::Result<()> {
        let layout = Layout::of(self.identities.len());
        let index = index as usize;
        if index >= layout.sessions
            || fstat(writable)?.st_size != layout.bytes().cast_signed() as i64
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (flags, at) = (ProtFlags::READ | ProtFlags::WRITE, layout.page_at(index) as u64);
        // SAFETY: a new mapping, wherever there is room.
        let address = unsafe {
            mmap(core::ptr::null_mut(), layout.page, flags, MapFlags::SHARED, writable, at)
        }?;
        // SAFETY: mapped for ever and never shrunk, longer than what is on it, and only atomics.
        let counters = unsafe { &*address.cast::<Counters>() };
        self.own = Some(Own { index, counters });
        Ok(())
    }

    /// The machine of this worker's client; 0 if it is not known.
    pub fn own_machine(&self) -> u64 {
        self.own.map_or(0, |own| self.identities[own.index].machine.load(Ordering::Relaxed))
    }

    /// Writes down on which devices this session has contexts. What it used on others is forgotten.
    pub fn show_contexts(&self, contexts: u64) {
        let Some(Own { counters, .. }) = self.own else { return };
        // Nobody else writes it.
        if counters.contexts.load(Ordering::Relaxed) != contexts {
            counters.contexts.store(contexts, Ordering::Release);
            for (ordinal, used) in counters.used.iter().enumerate() {
                if contexts >> ordinal & 1 == 0 {
                    used.store(0, Ordering::Relaxed);
                }
            }
        }
    }

    /// Writes down how much of a device's memory this session uses.
    pub fn show_used(&self, ordinal: u32, bytes: u64) {
        if let Some(Own { counters, .. }) = self.own
            && let Some(used) = counters.used.get(ordinal as usize)
        {
            used.store(bytes, Ordering::Relaxed);
        }
    }

    /// Writes down how much of a device's memory this session has asked for and not given back.
    pub fn show_held(&self, ordinal: u32, bytes: u64) {
        if let Some(Own { counters, .. }) = self.own
            && let Some(held) = counters.held.get(ordinal as usize)
        {
            held.store(bytes, Ordering::Relaxed);
        }
    }

    /// Of a device's memory, what the sessions hold that this worker's client may know of: those of
    /// its own process, or if that has none, of its machine.
    pub fn held_here(&self, ordinal: u32) -> u64 {
        let Some(own) = self.own else { return 0 };
        let machine = self.own_machine();
        let own = self.identities[own.index].process.load(Ordering::Relaxed);
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
        let all = self.identities.iter().zip(&self.counters);
        all.filter(|(entry, _)| entry.worker.load(Ordering::Acquire) != 0)
            .map(|(entry, counters)| Session {
                worker: entry.worker.load(Ordering::Relaxed),
                process: entry.process.load(Ordering::Relaxed),
                machine: entry.machine.load(Ordering::Relaxed),
                contexts: counters.contexts.load(Ordering::Relaxed),
                used: counters.used.iter().map(|used| used.load(Ordering::Relaxed)).collect(),
                held: counters.held.iter().map(|held| held.load(Ordering::Relaxed)).collect(),
            })
            .collect()
    }

    /// The supervisor frees the entries of all workers but these.
    pub fn retain(&self, workers: &[u32]) {
        for session in self.sessions().iter().filter(|session| !workers.contains(&session.worker)) {
            self.clear(session.worker);
        }
    }

    /// The supervisor frees the entry of a worker that has ended.
    pub fn clear(&self, worker: u32) {
        for (entry, counters) in self.identities.iter().zip(&self.counters) {
            if entry.worker.load(Ordering::Acquire) != worker {
                continue;
            }
            counters.contexts.store(0, Ordering::Relaxed);
            let bytes = counters.used.iter().chain(&counters.held);
            bytes.for_each(|bytes| bytes.store(0, Ordering::Relaxed));
            entry.process.store(0, Ordering::Relaxed);
            entry.machine.store(0, Ordering::Relaxed);
            entry.worker.store(0, Ordering::Release);
        }
    }
}

fn open_again(memory: BorrowedFd<'_>, how: OFlags) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    Ok(rustix::fs::open(path, how | OFlags::CLOEXEC, Mode::empty())?)
}

/// Says who may open the memory anew.
fn set_mode(memory: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    let mode = Permissions::from_mode(mode).mode();
    Ok(rustix::fs::fchmod(memory, Mode::from_raw_mode(mode))?)
}

/// This worker's board.
static BOARD: OnceLock<Board> = OnceLock::new();

/// From now on [`get`] gives this board.
pub fn set(board: Board) {
    // A worker joins once.
    let _ = BOARD.set(board);
}

/// This worker's board, once it has joined.
pub fn get() -> Option<&'static Board> {
    BOARD.get()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    /// What a worker with an entry has.
    fn worker(supervisor: &Board, shared: &Shared, worker: u32, client: Process) -> Board {
        let mut board = Board::attach(shared.readable()).unwrap();
        if let Some(index) = supervisor.seat(worker, client) {
            board.enter(shared.writable(), index).unwrap();
        }
        board
    }

    #[test]
    fn what_one_writes_others_read() {
        let (supervisor, shared) = Board::create(2).unwrap();
        assert!(supervisor.sessions().is_empty());
        let worker = worker(&supervisor, &shared, 3, Process { id: 7, machine: 9 });
        worker.show_contexts(0b10);
        worker.show_used(1, 4096);
        worker.show_used(99, 1);
        worker.show_held(1, 100);
        worker.show_held(99, 1);
        assert_eq!((worker.held_here(1), worker.held_here(0)), (100, 0));
        let seen = supervisor.sessions();
        assert_eq!(seen, Board::attach(shared.readable()).unwrap().sessions());
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].worker, seen[0].process, seen[0].machine), (3, 7, 9));
        assert!(seen[0].has_context(1) && !seen[0].has_context(0) && !seen[0].has_context(64));
        assert_eq!((seen[0].used(1), seen[0].used(0), seen[0].used(99)), (4096, 0, 0));
        worker.show_contexts(0);
        assert_eq!(supervisor.sessions()[0].used(1), 0);
        supervisor.clear(3);
        assert!(supervisor.sessions().is_empty());
    }

    #[test]
    fn the_next_supervisor_goes_on_with_a_board() {
        let (first, shared) = Board::create(2).unwrap();
        let client = Process { id: 7, machine: 9 };
        let old = worker(&first, &shared, 3, client);
        let name = Board::name(shared.readable(), 2).unwrap();
        let kept = shared.readable().try_clone_to_owned().unwrap();
        drop(shared);
        assert_eq!(Board::name(kept.as_fd(), 2).unwrap(), name);
        let (next, shared) = Board::take_over(kept, 2).unwrap();
        assert_eq!(next.sessions(), first.sessions());
        let new = worker(&next, &shared, 4, client);
        old.show_held(1, 100);
        new.show_held(1, 11);
        assert_eq!((old.held_here(1), new.held_here(1)), (111, 111));
        next.retain(&[3]);
        assert_eq!(first.sessions().len(), 1);
        next.retain(&[]);
        assert!(first.sessions().is_empty());
        // Another one, of another size, or memory that could be taken away while it is used.
        let (_, other) = Board::create(2).unwrap();
        assert_ne!(Board::name(other.readable(), 2).unwrap(), name);
        assert!(Board::take_over(other.readable().try_clone_to_owned().unwrap(), 3).is_err());
        let unsealed =
            memfd_create("outboard-test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&unsealed, Layout::of(2).bytes() as u64).unwrap();
        assert!(Board::take_over(unsealed, 2).is_err());
    }

    #[test]
    fn a_full_board_shows_no_more() {
        let (board, shared) = Board::create(1).unwrap();
        for id in [1, 2] {
            worker(&board, &shared, id, Process { id, machine: 1 }).show_contexts(1);
        }
        assert_eq!(board.sessions().iter().map(|session| session.process).collect::<Vec<_>>(), [1]);
    }

    /// What a worker has left once its client may have taken it over.
    #[test]
    fn a_worker_cannot_write_what_is_another_ones() {
        let (supervisor, shared) = Board::create(2).unwrap();
        let client = Process { id: 7, machine: 9 };
        let (one, _other) =
            (worker(&supervisor, &shared, 3, client), worker(&supervisor, &shared, 4, client));
        let kept = shared.readable().try_clone_to_owned().unwrap();
        let bytes = Layout::of(2).bytes();
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, if it were one.
        let mapped =
            unsafe { mmap(core::ptr::null_mut(), bytes, flags, MapFlags::SHARED, &kept, 0) };
        assert_eq!(mapped.err(), Some(rustix::io::Errno::ACCESS));
        assert_eq!(rustix::io::pwrite(&kept, &[1], 0), Err(rustix::io::Errno::BADF));
        assert!(ftruncate(&kept, 0).is_err());
        let opened = open_again(kept.as_fd(), OFlags::RDWR);
        // Root's rights to files are what a worker gives up.
        if !rustix::process::geteuid().is_root() {
            assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        // Its own page begins and ends where no other one does.
        let own = core::ptr::from_ref(one.own.unwrap().counters).addr();
        assert_eq!(own % page_size(), 0);
        one.show_held(0, 5);
        let held: Vec<u64> = supervisor.sessions().iter().map(|session| session.held[0]).collect();
        assert_eq!(held, [5, 0]);
    }
}
