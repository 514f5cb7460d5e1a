//! A session's meter: a page of memory in which its worker counts what it does, and which the
//! supervisor reads.
//!
//! Only the session's worker and the supervisor have it, and the supervisor maps it for reading
//! only. It holds nothing but numbers, none of which decides anything: a worker gone wrong can make
//! its own numbers wrong, and nothing else. Counting takes no lock and no system call.

mod class;
mod error;
mod reading;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use outboard_abi::CUresult;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::time::{ClockId, clock_gettime};

use crate::sealed;
pub use class::{CLASSES, Class};
pub use error::{ERRORS, ErrorKind};
pub use reading::Reading;

/// Devices whose memory is counted; a server with more does not show that of the others.
pub const DEVICES: usize = 16;
/// Upper bounds of how long waits lasted, in nanoseconds; longer ones come behind the last.
pub const WAIT_BOUNDS: [u64; 6] =
    [100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000];
/// Names of the ways that bytes take, as [`Way`] numbers them.
pub const WAYS: [&str; 5] = ["commands", "lanes", "shared", "mapped", "files"];
/// So many of them stand where releases before 0.2 have them; the others stand last in the page.
const FIRST_WAYS: usize = 4;
/// Names of states, as [`State`] numbers them.
pub const STATES: [&str; 4] = ["serving", "disconnected", "suspended", ENDING];

/// What a session's state is called whose client has left, until its worker has ended.
pub const ENDING: &str = "ending";

/// Which way bytes go between a client and its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// With commands and answers, heads included.
    Commands,
    /// On lanes.
    Lanes,
    /// Through staging memory that both share.
    Shared,
    /// By the device itself, from and to memory of the client's that it was given.
    Mapped,
    /// From and to files that the server reads and writes itself.
    Files,
}

/// To or from the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the device.
    In,
    /// From the device.
    Out,
}

/// What a session is about. Others than its worker add those of their own, such as waiting for its
/// place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Its client is connected.
    Serving,
    /// It waits for its client to come back.
    Disconnected,
    /// Its memory is elsewhere.
    Suspended,
    /// Its client has left for good.
    Ending,
}

/// How commands travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP without encryption.
    Tcp,
    /// Memory shared with a client on this machine.
    Shm,
    /// TLS 1.3 over TCP or vsock.
    Tls,
    /// A Unix socket, or another stream without a name of its own.
    Other,
    /// vsock without encryption.
    Vsock,
    /// RDMA adapters, without encryption.
    Rdma,
    /// TLS 1.3 between RDMA adapters.
    RdmaTls,
    /// Memory that a virtual machine and its host share, without encryption.
    Ivshmem,
    /// TLS 1.3 through such memory.
    IvshmemTls,
}

/// Names of transports, as [`Transport`] numbers them; the first stands for none yet.
pub const TRANSPORTS: [&str; 10] =
    ["", "tcp", "shm", "tls", "other", "vsock", "rdma", "rdma+tls", "ivshmem", "ivshmem+tls"];

/// What is in the page. All zero is a session that has done nothing.
#[repr(C, align(64))]
pub struct Page {
    /// By class. Only the dispatcher's thread writes these, and the time.
    commands: [AtomicU64; CLASSES.len()],
    /// When the client was last heard, in nanoseconds of the system's clock that never steps.
    heard: AtomicU64,
    received: AtomicU64,
    /// By direction and way.
    bytes: [[AtomicU64; FIRST_WAYS]; 2],
    /// How many waits lasted up to each bound, and longer.
    waits: [AtomicU64; WAIT_BOUNDS.len() + 1],
    wait_ns: AtomicU64,
    errors: [AtomicU64; ERRORS.len()],
    state: AtomicU32,
    transport: AtomicU32,
    contexts: AtomicU64,
    held: [AtomicU64; DEVICES],
    peak: [AtomicU64; DEVICES],
    /// Launches made with others. Only the dispatcher's thread writes it.
    chained: AtomicU64,
    /// By direction and further way.
    more_bytes: [[AtomicU64; WAYS.len() - FIRST_WAYS]; 2],
}

const _: () = assert!(size_of::<Page>() <= BYTES);

/// The size of a page.
const BYTES: usize = 4096;

/// Where a worker counts before its page has come, and where there is none.
static NOWHERE: Page = Page::new();
/// This worker's page.
static PAGE: OnceLock<&'static Page> = OnceLock::new();
/// What this worker's session is about, all of which may be so at once.
static DISCONNECTED: AtomicBool = AtomicBool::new(false);
static SUSPENDED: AtomicBool = AtomicBool::new(false);
static ENDS: AtomicBool = AtomicBool::new(false);

/// This worker's page.
#[inline]
pub fn page() -> &'static Page {
    PAGE.get().copied().unwrap_or(&NOWHERE)
}

/// Takes the page that the supervisor has sent.
///
/// # Errors
/// The system's error if the page cannot be mapped.
pub fn join(memory: BorrowedFd<'_>) -> io::Result<()> {
    let flags = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, wherever there is room.
    let address =
        unsafe { mmap(core::ptr::null_mut(), BYTES, flags, MapFlags::SHARED, memory, 0) }?;
    // SAFETY: mapped for ever, and sealed so that it never shrinks; a page is only atomics, for
    // which any bytes are valid.
    let page = unsafe { &*address.cast::<Page>() };
    page.hear();
    // A worker joins once.
    let _ = PAGE.set(page);
    Ok(())
}

/// The clock of [`Page::hear`], in nanoseconds: cheap, and precise to a few milliseconds.
fn now() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

impl Page {
    const fn new() -> Page {
        Page {
            commands: [const { AtomicU64::new(0) }; CLASSES.len()],
            heard: AtomicU64::new(0),
            received: AtomicU64::new(0),
            bytes: [const { [const { AtomicU64::new(0) }; FIRST_WAYS] }; 2],
            waits: [const { AtomicU64::new(0) }; WAIT_BOUNDS.len() + 1],
            wait_ns: AtomicU64::new(0),
            errors: [const { AtomicU64::new(0) }; ERRORS.len()],
            state: AtomicU32::new(0),
            transport: AtomicU32::new(0),
            contexts: AtomicU64::new(0),
            held: [const { AtomicU64::new(0) }; DEVICES],
            peak: [const { AtomicU64::new(0) }; DEVICES],
            chained: AtomicU64::new(0),
            more_bytes: [const { [const { AtomicU64::new(0) }; WAYS.len() - FIRST_WAYS] }; 2],
        }
    }

    /// Counts a command. Only for the dispatcher's thread: what nobody else writes needs no locked
    /// operation.
    #[inline]
    pub fn command(&self, class: Class) {
        alone(&self.commands[class as usize], 1);
    }

    /// Counts launches that were made as one. Only for the dispatcher's thread.
    #[inline]
    pub fn chained(&self, launches: usize) {
        alone(&self.chained, launches as u64);
    }

    /// Bytes of commands have come. Only for the dispatcher's thread.
    #[inline]
    pub fn heard(&self, bytes: usize) {
        alone(&self.received, bytes as u64);
        self.hear();
    }

    fn hear(&self) {
        self.heard.store(now(), Ordering::Relaxed);
    }

    /// Bytes have gone some way.
    #[inline]
    pub fn moved(&self, direction: Direction, way: Way, bytes: u64) {
        let (first, more) = (&self.bytes[direction as usize], &self.more_bytes[direction as usize]);
        let count = match (way as usize).checked_sub(FIRST_WAYS) {
            None => &first[way as usize],
            Some(further) => &more[further],
        };
        count.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A wait for the device is over.
    pub fn waited(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let bound = WAIT_BOUNDS.iter().position(|bound| ns <= *bound).unwrap_or(WAIT_BOUNDS.len());
        self.waits[bound].fetch_add(1, Ordering::Relaxed);
        self.wait_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// A client is told of an error.
    #[cold]
    pub fn failed(&self, error: CUresult) {
        if let Some(kind) = ErrorKind::of(error) {
            self.errors[kind as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often the client was told of errors, of whatever kind.
    pub fn failures(&self) -> u64 {
        self.errors.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Writes down whether the session's memory is elsewhere.
    pub fn set_suspended(&self, suspended: bool) {
        self.change_state(&SUSPENDED, suspended);
    }

    /// Writes down whether the session waits for its client to come back.
    pub fn set_disconnected(&self, disconnected: bool) {
        self.change_state(&DISCONNECTED, disconnected);
    }

    /// Writes down that the client has left for good.
    pub fn set_ending(&self) {
        self.change_state(&ENDS, true);
    }

    fn change_state(&self, what: &AtomicBool, is_so: bool) {
        // Two threads that change both at once: the later one sees both.
        what.store(is_so, Ordering::SeqCst);
        let is_so = |what: &AtomicBool| what.load(Ordering::SeqCst);
        let state = match (is_so(&ENDS), is_so(&DISCONNECTED), is_so(&SUSPENDED)) {
            (true, ..) => State::Ending,
            // What has its client back soon says more.
            (_, true, _) => State::Disconnected,
            (_, _, true) => State::Suspended,
            _ => State::Serving,
        };
        self.state.store(state as u32, Ordering::SeqCst);
    }

    /// Writes down how commands travel.
    pub fn set_transport(&self, name: &str) {
        let transport = match name {
            "tcp" => Transport::Tcp,
            "shm" => Transport::Shm,
            "tls" | "tcp+tls" | "vsock+tls" => Transport::Tls,
            // Clients of this machine leave a Unix socket for shared memory. Commands that stay on
            // one come from a hypervisor, which forwards vsock to it.
            "vsock" | "unix" => Transport::Vsock,
            "rdma" => Transport::Rdma,
            "rdma+tls" => Transport::RdmaTls,
            "ivshmem" => Transport::Ivshmem,
            "ivshmem+tls" => Transport::IvshmemTls,
            _ => Transport::Other,
        };
        self.transport.store(transport as u32 + 1, Ordering::Relaxed);
    }

    /// Writes down on which devices the session has contexts, by ordinal.
    pub fn set_contexts(&self, contexts: u64) {
        self.contexts.store(contexts, Ordering::Relaxed);
    }

    /// Writes down how much of a device's memory the session holds.
    pub fn set_held(&self, ordinal: usize, bytes: u64) {
        if let (Some(held), Some(peak)) = (self.held.get(ordinal), self.peak.get(ordinal)) {
            held.store(bytes, Ordering::Relaxed);
            peak.fetch_max(bytes, Ordering::Relaxed);
        }
    }
}

/// Adds to what only this thread writes.
#[inline]
fn alone(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// A session's page from the supervisor's side: mapped for reading only.
pub struct Meter {
    page: *const Page,
    memory: OwnedFd,
}

impl Meter {
    /// Makes a page for a worker.
    ///
    /// # Errors
    /// The system's error if it has no memory, descriptor or mapping to give.
    pub fn create() -> io::Result<Meter> {
        Meter::attach(sealed::create("outboard-meter", BYTES)?)
    }

    /// What a page looks like: supervisors whose pages look the same can take over each other's.
    pub fn layout() -> String {
        format!("1/{}/{}/{}/{}", size_of::<Page>(), CLASSES.len(), WAIT_BOUNDS.len(), DEVICES)
    }

    /// Goes on with a page that a worker has kept. The layout must be known to be the same.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the file is not a meter, or the system's error.
    pub fn take_over(memory: OwnedFd) -> io::Result<Meter> {
        sealed::check(memory.as_fd(), BYTES, "a meter")?;
        Meter::attach(memory)
    }

    /// Maps a page that has been made before.
    ///
    /// # Errors
    /// The system's error if the page cannot be mapped.
    pub fn attach(memory: OwnedFd) -> io::Result<Meter> {
        // SAFETY: a new mapping, wherever there is room.
        let address = unsafe {
            mmap(core::ptr::null_mut(), BYTES, ProtFlags::READ, MapFlags::SHARED, memory.as_fd(), 0)
        }?;
        Ok(Meter { page: address.cast(), memory })
    }

    /// What the worker maps for it.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// What the worker has counted so far.
    pub fn read(&self) -> Reading {
        // SAFETY: mapped while this lives, and sealed so that it never shrinks; a page is only
        // atomics, for which any bytes are valid.
        Reading::of(unsafe { &*self.page })
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        // SAFETY: this mapping is its own, and nobody uses it any more.
        let _ = unsafe { munmap(self.page.cast_mut().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_counts_the_supervisor_reads() {
        let meter = Meter::create().unwrap();
        assert_eq!(meter.read(), Reading::default());
        join(meter.memory()).unwrap();
        let page = page();
        page.command(Class::Launch);
        page.command(Class::Launch);
        page.heard(100);
        page.moved(Direction::In, Way::Lanes, 7);
        page.moved(Direction::Out, Way::Commands, 9);
        page.waited(Duration::from_micros(100));
        page.waited(Duration::from_secs(11));
        page.failed(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        page.failed(CUresult::CUDA_ERROR_NOT_READY);
        page.moved(Direction::Out, Way::Files, 5);
        page.set_held(1, 50);
        page.set_held(1, 20);
        page.set_held(99, 20);
        page.set_transport("tcp+tls");
        assert_eq!(meter.read().transport(), "tls");
        page.set_transport("shm");
        page.set_suspended(true);
        assert_eq!(meter.read().state(), "suspended");
        page.set_disconnected(true);
        assert_eq!(meter.read().state(), "disconnected");
        page.set_suspended(false);
        page.set_disconnected(false);
        assert_eq!(meter.read().state(), "serving");
        page.set_suspended(true);
        let seen = meter.read();
        assert_eq!(seen.commands[Class::Launch as usize], 2);
        assert_eq!(seen.bytes, [[100, 7, 0, 0, 0], [9, 0, 0, 0, 5]]);
        assert_eq!((seen.waits[0], seen.waits[6], seen.waits.iter().sum::<u64>()), (1, 1, 2));
        assert_eq!(seen.wait_ns, 11_000_100_000);
        assert_eq!(seen.errors, [1, 0, 0, 0, 0]);
        assert_eq!((seen.held[1], seen.peak[1]), (20, 50));
        assert_eq!((seen.transport(), seen.state()), ("shm", "suspended"));
        assert!(seen.idle() < Duration::from_secs(60));
        page.set_ending();
        assert_eq!(meter.read().state(), "ending", "of a suspended session, too");
        // Whatever a worker writes, it is numbers.
        page.state.store(u32::MAX, Ordering::Relaxed);
        page.transport.store(u32::MAX, Ordering::Relaxed);
        page.heard.store(u64::MAX, Ordering::Relaxed);
        let seen = meter.read();
        assert_eq!(
            (seen.transport(), seen.state(), seen.idle()),
            ("other", "unknown", Duration::ZERO)
        );
    }
}
