//! The server's end: its adapter writes into the client's memory, and reads from there.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use outboard_rdma::{
    Access, Borrowed, Channel, Completion, Domain, Error, Queue, QueuePair, Remote, WorkError,
};
use rustix::event::{PollFd, PollFlags};

use super::{Prepared, WORKS};
use crate::descriptor::poll_until;
use crate::locks::lock;

/// Bytes of one work. Adapters take at least so many.
const LARGEST: usize = 4 << 20;
/// How long a thread looks for what the adapter has done before it sleeps.
const LOOK: Duration = Duration::from_micros(50);
/// How long works of a connection that has ended may take to say so.
const FLUSH: Duration = Duration::from_secs(5);
/// Why there are no more works if nothing has failed.
const ENDED: &str = "it was ended";

/// Memory here that the adapter knows, until [`Mover::remove_memory`].
pub struct Own(Arc<Borrowed>);

/// Moves bytes between memory here and memory that the client lends.
pub struct Mover {
    domain: Arc<Domain>,
    /// None once its works have been withdrawn.
    pair: Mutex<Option<QueuePair>>,
    queue: Arc<Queue>,
    channel: Arc<Channel>,
    /// Memory here that the adapter knows, by its first address.
    own: Mutex<BTreeMap<u64, Arc<Borrowed>>>,
    works: Mutex<Works>,
    changed: Condvar,
    /// Bytes that were written, and read.
    moved: [AtomicU64; 2],
    heeds: bool,
}

#[derive(Default)]
struct Works {
    /// How many there have been.
    begun: u64,
    /// How many the adapter is done with.
    over: u64,
    /// Those that were done, of which their threads do not know yet.
    done: HashSet<u64>,
    /// Whether a thread looks for what the adapter has done.
    is_watched: bool,
    /// Why there are no more.
    failed: Option<String>,
}

impl Mover {
    pub(super) fn new(prepared: Prepared, heeds: bool) -> Mover {
        let Prepared { domain, channel, queue, pair, .. } = prepared;
        Mover {
            domain,
            pair: Mutex::new(Some(pair)),
            queue,
            channel,
            own: Mutex::default(),
            works: Mutex::default(),
            changed: Condvar::new(),
            moved: Default::default(),
            heeds,
        }
    }

    /// Has the adapter know memory here.
    ///
    /// # Safety
    /// The memory stays mapped until [`remove_memory`](Self::remove_memory) has returned.
    ///
    /// # Errors
    /// Why the adapter does not take it.
    pub unsafe fn add_memory(&self, start: *mut u8, bytes: usize) -> Result<Own, Error> {
        // SAFETY: by the contract above.
        let memory = unsafe { Borrowed::create(&self.domain, start, bytes, Access::Own) }?;
        Ok(self.add(memory))
    }

    fn add(&self, memory: Borrowed) -> Own {
        let memory = Arc::new(memory);
        lock(&self.own).insert(memory.addresses().start, Arc::clone(&memory));
        Own(memory)
    }

    /// Has the adapter know memory of a device of this machine: `bytes` from the address `start`
    /// on, by the device's own driver, or by a `dma-buf` that begins there.
    ///
    /// # Safety
    /// As of [`add_memory`](Self::add_memory), without a `dma_buf`.
    ///
    /// # Errors
    /// Why the adapter does not take it.
    pub unsafe fn add_device_memory(
        &self,
        (start, bytes): (u64, usize),
        dma_buf: Option<BorrowedFd<'_>>,
    ) -> Result<Own, Error> {
        let memory = match dma_buf {
            Some(buffer) => {
                Borrowed::of_dma_buf(&self.domain, (buffer, 0), (start, bytes), Access::Own)
            }
            // SAFETY: by the contract above.
            None => unsafe { Borrowed::create(&self.domain, start as *mut u8, bytes, Access::Own) },
        }?;
        Ok(self.add(memory))
    }

    /// The adapter forgets memory, which no thread has it use.
    pub fn remove_memory(&self, Own(memory): Own) {
        let mut own = lock(&self.own);
        let start = memory.addresses().start;
        // There may be other memory by now.
        if own.get(&start).is_some_and(|there| Arc::ptr_eq(there, &memory)) {
            own.remove(&start);
        }
    }

    /// Whether the client heeds what it is told of device memory.
    #[must_use]
    pub fn heeds(&self) -> bool {
        self.heeds
    }

    fn knows(&self, address: u64, bytes: usize) -> Option<Arc<Borrowed>> {
        let own = lock(&self.own);
        let (_, memory) = own.range(..=address).next_back()?;
        (address + bytes as u64 <= memory.addresses().end).then(|| Arc::clone(memory))
    }

    /// Writes bytes here into the client's memory; whether it could be tried: the adapter must know
    /// the memory here, and the connection be there. Returns when they are there.
    ///
    /// # Safety
    /// The bytes are valid for reads.
    ///
    /// # Errors
    /// If the connection has failed: some of the bytes may be there, and others may still come
    /// until the client has ended the connection, too.
    pub unsafe fn write(&self, from: *const u8, bytes: usize, to: Remote) -> io::Result<bool> {
        let Some(memory) = self.knows(from as u64, bytes) else { return Ok(false) };
        if !self.is_connected() {
            return Ok(false);
        }
        self.in_parts(bytes, |pair, work, offset, bytes| {
            let to = Remote { address: to.address + offset, ..to };
            pair.write(work, (&memory, from as u64 + offset), bytes, to)
        })?;
        self.moved[0].fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(true)
    }

    /// Reads bytes of the client's memory to a place here.
    ///
    /// # Safety
    /// The place is valid for writes, and nobody else uses it until this returns.
    ///
    /// # Errors
    /// If the connection has failed.
    pub unsafe fn read(&self, to: *mut u8, bytes: usize, from: Remote) -> io::Result<()> {
        // SAFETY: by the contract above.
        if unsafe { self.read_to_known(to as u64, bytes, from) }? {
            return Ok(());
        }
        let read = self.read_apart(bytes, from)?;
        // SAFETY: by the contract above.
        unsafe { to.copy_from_nonoverlapping(read.as_ptr(), bytes) };
        Ok(())
    }

    /// The same for memory that may be a device's; whether it could be tried: the adapter must know
    /// it.
    ///
    /// # Safety
    /// As of [`read`](Self::read).
    ///
    /// # Errors
    /// If the connection has failed.
    pub unsafe fn read_to_known(&self, to: u64, bytes: usize, from: Remote) -> io::Result<bool> {
        let Some(memory) = self.knows(to, bytes) else { return Ok(false) };
        // SAFETY: by the contract above; `in_parts` returns when the adapter is done.
        unsafe { self.read_known(&memory, to, bytes, from) }.map(|()| true)
    }

    /// Reads bytes of the client's memory into memory of their own.
    ///
    /// # Errors
    /// If the connection has failed, or the adapter does not take the memory.
    pub fn read_apart(&self, bytes: usize, from: Remote) -> io::Result<Vec<u8>> {
        let mut read = vec![0; bytes];
        let start = read.as_mut_ptr();
        // SAFETY: the bytes stay where they are until the adapter has forgotten them.
        let memory = unsafe { Borrowed::create(&self.domain, start, bytes, Access::Own) }?;
        // SAFETY: nobody else has these bytes.
        let done = unsafe { self.read_known(&memory, start as u64, bytes, from) };
        if let Err((memory, error)) = memory.end() {
            // The adapter may go on to use them.
            std::mem::forget((memory, read));
            return Err(error.into());
        }
        done.map(|()| read)
    }

    /// # Safety
    /// As of [`Mover::read`].
    unsafe fn read_known(
        &self,
        memory: &Borrowed,
        to: u64,
        bytes: usize,
        from: Remote,
    ) -> io::Result<()> {
        self.in_parts(bytes, |pair, work, offset, bytes| {
            let from = Remote { address: from.address + offset, ..from };
            // SAFETY: by the contract above.
            unsafe { pair.read(work, (memory, to + offset), bytes, from) }
        })?;
        self.moved[1].fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the connection is there, as far as known.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        lock(&self.works).failed.is_none()
    }

    /// How many bytes were written, and read.
    #[must_use]
    pub fn moved(&self) -> [u64; 2] {
        [0, 1].map(|way| self.moved[way].load(Ordering::Relaxed))
    }

    /// Ends the connection: threads that wait for the adapter find out.
    pub fn end(&self, why: &str) {
        let mut works = lock(&self.works);
        let is_new = works.failed.is_none();
        works.failed.get_or_insert_with(|| why.to_owned());
        drop(works);
        if is_new {
            self.flush();
        }
    }

    /// Has the adapter give up its works.
    fn flush(&self) {
        if let Some(pair) = &*lock(&self.pair) {
            // Where even that fails, the works are withdrawn after a while.
            let _ = pair.fail();
        }
    }

    /// Keeps the adapter from works that it does not give up: without their pair it uses no memory.
    pub(super) fn withdraw(&self) {
        drop(lock(&self.pair).take());
    }

    /// Has `post` post works for so many bytes, by the numbers of the works, and the place and size
    /// of each one's bytes. Returns when the adapter is done with all of them.
    fn in_parts(
        &self,
        bytes: usize,
        post: impl Fn(&QueuePair, u64, u64, usize) -> Result<(), Error>,
    ) -> io::Result<()> {
        for offset in (0..bytes).step_by(LARGEST) {
            let work = self.begin()?;
            let len = LARGEST.min(bytes - offset);
            let posted = match &*lock(&self.pair) {
                Some(pair) => post(pair, work, offset as u64, len).map_err(|e| e.to_string()),
                None => Err(ENDED.to_owned()),
            };
            if let Err(why) = posted {
                lock(&self.works).over += 1;
                self.end(&why);
                return Err(self.failure());
            }
            self.wait_for(work)?;
        }
        Ok(())
    }

    /// The number of a new work, once the adapter has a place for it.
    fn begin(&self) -> io::Result<u64> {
        let mut works = lock(&self.works);
        loop {
            if works.failed.is_some() {
                drop(works);
                return Err(self.failure());
            }
            if works.begun - works.over < u64::from(WORKS) {
                works.begun += 1;
                return Ok(works.begun);
            }
            works = self.changed.wait(works).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn failure(&self) -> io::Error {
        let works = lock(&self.works);
        let why = works.failed.as_deref().unwrap_or(ENDED);
        io::Error::new(
            io::ErrorKind::ConnectionReset,
            format!("the RDMA connection for page-locked memory has failed: {why}"),
        )
    }

    /// Waits until the adapter is done with a work, as one of the threads that look, or because
    /// another one does.
    fn wait_for(&self, work: u64) -> io::Result<()> {
        let mut works = lock(&self.works);
        loop {
            if works.done.remove(&work) {
                return Ok(());
            }
            if works.failed.is_some() && works.over >= works.begun {
                drop(works);
                return Err(self.failure());
            }
            if works.is_watched {
                works = self.changed.wait(works).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            works.is_watched = true;
            let ends_by = works.failed.is_some().then(|| Instant::now() + FLUSH);
            drop(works);
            let found = self.watch(ends_by);
            works = lock(&self.works);
            works.is_watched = false;
            self.take_in(&mut works, found, ends_by);
            self.changed.notify_all();
        }
    }

    /// What the adapter is done with since, once there is some, or after a while.
    fn watch(&self, ends_by: Option<Instant>) -> Result<Vec<Done>, Error> {
        let mut found = Vec::new();
        let began = Instant::now();
        loop {
            self.queue.poll_all(&mut |done| found.push(done))?;
            if !found.is_empty() {
                return Ok(found);
            }
            if began.elapsed() < LOOK {
                std::thread::yield_now();
                continue;
            }
            self.queue.arm()?;
            self.queue.poll_all(&mut |done| found.push(done))?;
            if !found.is_empty() {
                return Ok(found);
            }
            // SAFETY: the descriptor is the channel's, which lives as long as this value.
            let completions = unsafe { BorrowedFd::borrow_raw(self.channel.descriptor()) };
            let mut fds = [PollFd::from_borrowed_fd(completions, PollFlags::IN)];
            let woken = poll_until(&mut fds, Some(ends_by.unwrap_or(began + FLUSH)));
            let _ = self.channel.take_events();
            if !woken.is_ok_and(|count| count > 0) {
                return Ok(found);
            }
        }
    }

    fn take_in(
        &self,
        works: &mut Works,
        found: Result<Vec<Done>, Error>,
        ends_by: Option<Instant>,
    ) {
        let why = match found {
            Ok(found) => {
                works.over += found.len() as u64;
                let mut why = None;
                for done in found {
                    match done {
                        Ok(done) => {
                            works.done.insert(done.work);
                        }
                        Err(error) => why = why.or(Some(describe(error).to_owned())),
                    }
                }
                why
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = why
            && works.failed.is_none()
        {
            works.failed = Some(why);
            self.flush();
        }
        if ends_by.is_some_and(|end| Instant::now() > end) {
            self.withdraw();
            works.over = works.begun;
        }
    }
}

type Done = Result<Completion, WorkError>;

fn describe(error: WorkError) -> &'static str {
    match error {
        WorkError::NoAnswer => "the client's adapter no longer answers",
        WorkError::Flushed => ENDED,
        WorkError::Other(why) => why,
    }
}

impl std::fmt::Debug for Mover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mover").field("moved", &self.moved()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Own").field(&self.0.addresses()).finish()
    }
}
