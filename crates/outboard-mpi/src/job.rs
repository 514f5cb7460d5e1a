//! The ranks of the program's `MPI_COMM_WORLD`, and the links between their workers.
//!
//! The ranks introduce themselves to each other when `MPI_Init` ends: each tells all where its
//! worker is, and gives each other one a ticket for one link, in one direction. A rank calls
//! another one's worker when it has its first large message of device memory for it.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use outboard_wire::handshake::peers::MESSAGES;

use crate::header::{Header, Mark};
use crate::mpi::{self, Handle, real};
use crate::worker::{Worker, worker};

/// Smaller messages go through MPI, in bytes: they take less time there.
const SMALLEST: u64 = 64 << 10;
/// Bytes in which a rank says where its worker is.
const ENTRY: usize = 512;
/// Ranks of which a link's number has room for two.
const MOST_RANKS: usize = 1 << 15;

/// The ranks of a job.
pub(crate) struct Job {
    mark: Mark,
    rank: usize,
    /// None if this rank takes no part.
    worker: Option<&'static Worker>,
    ranks: Vec<Rank>,
    /// By rank of the receiver. None: its worker cannot be called.
    links: Mutex<HashMap<usize, Option<Link>>>,
    /// A communicator that the program does not know.
    own: Handle,
    world: Handle,
}

/// What another rank has said.
struct Rank {
    /// Of its worker; empty if it has none, or cannot read headers.
    whereabouts: Vec<u8>,
    ticket: [u8; 16],
}

/// A link to another rank's worker.
struct Link {
    /// The last number that was given out.
    last: u64,
}

static JOB: OnceLock<Option<Job>> = OnceLock::new();

/// The ranks, if some of them have workers.
pub(crate) fn job() -> Option<&'static Job> {
    JOB.get()?.as_ref()
}

/// Whether workers may carry messages of so many bytes.
pub(crate) fn is_for_workers(bytes: u64) -> bool {
    bytes >= SMALLEST && job().is_some()
}

/// The number of the link from one rank to another.
fn link(from: usize, to: usize) -> u32 {
    MESSAGES | (from as u32) << 15 | to as u32
}

/// The rank at the sending end of a link.
pub(crate) fn sender(link: u32) -> u32 {
    (link & !MESSAGES) >> 15
}

/// Has the ranks introduce themselves. All of them call this.
pub(crate) fn meet() {
    JOB.get_or_init(|| {
        // The same in all ranks, as `outboard run` hands it on.
        if std::env::var_os("OUTBOARD_MPI").is_some_and(|how| how == "staged") {
            return None;
        }
        let world = mpi::form().world;
        let (rank, size) = (mpi::rank(world), mpi::size(world));
        let (rank, size) = (usize::try_from(rank).ok()?, usize::try_from(size).ok()?);
        if !(2..=MOST_RANKS).contains(&size) {
            return None;
        }
        Job::among((rank, size), world)
    });
}

/// All ranks have received what they were going to receive.
pub(crate) fn part() {
    if let Some(job) = job() {
        // SAFETY: a communicator of this library's.
        unsafe { real!(c"PMPI_Barrier", fn(Handle))(job.own) };
    }
}

/// Where this rank's worker is, unless the program may receive by functions that do not pass
/// through this library.
fn own_entry() -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    let speaks_fortran =
        [c"mpi_recv_", c"mpi_recv__"].iter().any(|it| mpi::optional_symbol(it).is_some());
    if speaks_fortran {
        return entry;
    }
    if let Some(found) = worker().and_then(|worker| worker.whereabouts(ENTRY - 2)) {
        entry[..2].copy_from_slice(&(found.len() as u16).to_ne_bytes());
        entry[2..2 + found.len()].copy_from_slice(&found);
    }
    entry
}

impl Job {
    fn among((rank, size): (usize, usize), world: Handle) -> Option<Job> {
        let byte = mpi::form().byte();
        // Nobody's, if the system has no random bytes.
        let mut mark = Mark::default();
        // SAFETY: the buffer has so many bytes.
        unsafe { libc::getrandom(mark.as_mut_ptr().cast(), mark.len(), 0) };
        let entry = own_entry();
        let mut entries = vec![0_u8; size * ENTRY];
        // SAFETY: the buffers have so many bytes as the calls say.
        unsafe {
            let tell = real!(c"PMPI_Bcast", fn(*mut c_void, c_int, Handle, c_int, Handle));
            tell(mark.as_mut_ptr().cast(), 16, byte, 0, world);
            let gather = real!(
                c"PMPI_Allgather",
                fn(*const c_void, c_int, Handle, *mut c_void, c_int, Handle, Handle)
            );
            let (from, to) = (entry.as_ptr().cast(), entries.as_mut_ptr().cast());
            gather(from, ENTRY as c_int, byte, to, ENTRY as c_int, byte, world);
        }
        if mark == Mark::default() {
            return None;
        }
        let whereabouts = |entry: &[u8]| {
            let len = usize::from(u16::from_ne_bytes([entry[0], entry[1]]));
            entry.get(2..2 + len).unwrap_or_default().to_vec()
        };
        let all: Vec<Vec<u8>> = entries.chunks(ENTRY).map(whereabouts).collect();
        // All see the same, and go on or not.
        if all.iter().filter(|one| !one.is_empty()).count() < 2 {
            return None;
        }
        let worker = worker().filter(|_| !all[rank].is_empty());
        let ticket = |from| worker.and_then(|worker| worker.ticket(link(from, rank)));
        let given: Vec<u8> = (0..size).flat_map(|from| ticket(from).unwrap_or_default()).collect();
        let mut tickets = vec![0_u8; size * 16];
        let mut own = 0;
        // SAFETY: as above, and a place for a communicator.
        unsafe {
            let exchange = real!(
                c"PMPI_Alltoall",
                fn(*const c_void, c_int, Handle, *mut c_void, c_int, Handle, Handle)
            );
            let (from, to) = (given.as_ptr().cast(), tickets.as_mut_ptr().cast());
            exchange(from, 16, byte, to, 16, byte, world);
            real!(c"PMPI_Comm_dup", fn(Handle, *mut Handle))(world, &raw mut own);
        }
        let ranks = all.into_iter().zip(tickets.as_chunks::<16>().0);
        let ranks = ranks.map(|(whereabouts, ticket)| Rank { whereabouts, ticket: *ticket });
        let (ranks, links) = (ranks.collect(), Mutex::default());
        Some(Job { mark, rank, worker, ranks, links, own, world })
    }

    /// This rank's worker, if it takes part.
    pub(crate) fn worker(&self) -> Option<&'static Worker> {
        self.worker
    }

    /// Has this rank's worker keep a message for another rank of a communicator. None if MPI has to
    /// carry it.
    pub(crate) fn offer(
        &self,
        address: u64,
        bytes: u64,
        (to, comm): (c_int, Handle),
    ) -> Option<Header> {
        if bytes < SMALLEST {
            return None;
        }
        self.offer_to(self.rank_in_world(to, comm)?, address, bytes)
    }

    /// The same for a rank of the world, however short the message is.
    pub(crate) fn offer_to(&self, to: usize, address: u64, bytes: u64) -> Option<Header> {
        let worker = self.worker.filter(|_| to != self.rank)?;
        let (link, number) = (link(self.rank, to), self.next_number(worker, to)?);
        worker.offer((link, number), address, bytes).then_some(Header { link, number, bytes })
    }

    /// A number for a message to a rank, whose worker is called if it has not been yet.
    fn next_number(&self, worker: &Worker, to: usize) -> Option<u64> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let open = || {
            let Rank { whereabouts, ticket } = self.ranks.get(to)?;
            if whereabouts.is_empty() {
                return None;
            }
            let opened = worker.link(link(self.rank, to), whereabouts, ticket);
            opened.ok().map(|()| Link { last: 0 })
        };
        let link = links.entry(to).or_insert_with(open).as_mut()?;
        link.last += 1;
        Some(link.last)
    }

    /// The ranks of a communicator, if messages of so many bytes may go among their workers: all of
    /// them find the same.
    pub(crate) fn circle(&self, comm: Handle, bytes: u64) -> Option<Vec<usize>> {
        if bytes < SMALLEST || mpi::is_between_groups(comm) {
            return None;
        }
        let size = mpi::size(comm);
        if size < 2 {
            return None;
        }
        let ranks: Vec<usize> = if mpi::form().same(comm, self.world) {
            (0..self.ranks.len()).collect()
        } else {
            let (group, world) = (mpi::Group::of(comm), mpi::Group::of(self.world));
            (0..size).map(|rank| group.rank_in(rank, &world)).collect::<Option<_>>()?
        };
        // Calls of a rank without one may not pass through this library.
        ranks.iter().all(|rank| !self.ranks[*rank].whereabouts.is_empty()).then_some(ranks)
    }

    /// Which rank of the world a rank of a communicator is.
    fn rank_in_world(&self, rank: c_int, comm: Handle) -> Option<usize> {
        let place = usize::try_from(rank).ok()?;
        if mpi::form().same(comm, self.world) {
            return (place < self.ranks.len()).then_some(place);
        }
        if mpi::is_between_groups(comm) || rank >= mpi::size(comm) {
            return None;
        }
        let (group, world) = (mpi::Group::of(comm), mpi::Group::of(self.world));
        group.rank_in(rank, &world)
    }

    /// The communicator that the program does not know. It has the world's ranks.
    pub(crate) fn own(&self) -> Handle {
        self.own
    }

    pub(crate) fn rank_in_own(&self) -> c_int {
        self.rank as c_int
    }

    pub(crate) fn encode(&self, header: &Header) -> [u8; crate::header::BYTES] {
        header.encode(&self.mark)
    }

    /// What a message of a header's length says, if it is one.
    pub(crate) fn header(&self, all: &[u8; crate::header::BYTES]) -> Option<Header> {
        Header::of(all, &self.mark)
    }
}
