//! The client's end: memory that the server's adapter reads and writes.

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use outboard_rdma::{Access, Borrowed, Channel, Domain, Error, Queue, QueuePair, Remote};

use super::Prepared;
use crate::descriptor;
use crate::locks::lock;

/// Lends memory to the adapter of one server, as long as their connection is there.
pub struct Lender {
    domain: Arc<Domain>,
    /// Nothing comes to them, but the pair needs them.
    queues: ManuallyDrop<(Arc<Channel>, Arc<Queue>)>,
    /// None once it has ended.
    pair: Mutex<Option<QueuePair>>,
    descriptors: [RawFd; 3],
    abandoned: AtomicBool,
}

/// Memory that is lent.
pub struct Loan(Borrowed);

impl Lender {
    pub(super) fn new(prepared: Prepared) -> Lender {
        let Prepared { domain, channel, queue, pair, .. } = prepared;
        let [commands, events] = pair.device().descriptors();
        let descriptors = [commands, events, channel.descriptor()];
        Lender {
            domain,
            queues: ManuallyDrop::new((channel, queue)),
            pair: Mutex::new(Some(pair)),
            descriptors,
            abandoned: AtomicBool::new(false),
        }
    }

    /// Whether what is lent can still be used.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        !self.abandoned.load(Ordering::Relaxed) && lock(&self.pair).is_some()
    }

    /// Lends memory: the server may read and write it if it is told.
    ///
    /// # Safety
    /// The memory stays mapped until [`take_back`](Self::take_back) has returned.
    ///
    /// # Errors
    /// Why the adapter does not take it.
    pub unsafe fn lend(&self, start: *mut u8, bytes: usize) -> Result<Loan, Error> {
        self.domain.check_forks()?;
        // SAFETY: by the contract above; where the adapter does not forget it, `take_back` ends the
        // only pair of the domain.
        unsafe { Borrowed::create(&self.domain, start, bytes, Access::RemoteReadWrite) }.map(Loan)
    }

    /// Takes memory back: nobody reads or writes it from here on. If the adapter does not forget
    /// it, the connection ends.
    pub fn take_back(&self, Loan(memory): Loan) {
        if self.abandoned.load(Ordering::Relaxed) {
            return memory.abandon();
        }
        if let Err((memory, _)) = memory.end() {
            self.end();
            drop(memory);
        }
    }

    /// Ends the connection: the server's adapter reads and writes nothing from here on.
    pub fn end(&self) {
        if !self.abandoned.load(Ordering::Relaxed) {
            drop(lock(&self.pair).take());
        }
    }

    /// In a forked child: leaves all to the parent. Makes only calls that are safe in a signal
    /// handler.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
        // The child has no one to tell of an error.
        let _ = self.descriptors.into_iter().try_for_each(descriptor::abandon);
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        if self.abandoned.load(Ordering::Relaxed) {
            std::mem::forget(self.pair.get_mut().unwrap_or_else(PoisonError::into_inner).take());
            return;
        }
        self.end();
        // SAFETY: dropped here once, and the pair does not use them any more.
        unsafe { ManuallyDrop::drop(&mut self.queues) };
    }
}

impl Loan {
    /// Its addresses.
    #[must_use]
    pub fn addresses(&self) -> Range<u64> {
        self.0.addresses()
    }

    /// What the server must be told to use it from one of its addresses on.
    #[must_use]
    pub fn remote(&self, address: u64) -> Option<Remote> {
        self.0.remote(address)
    }
}

impl std::fmt::Debug for Loan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Loan").field(&self.addresses()).finish()
    }
}

impl std::fmt::Debug for Lender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lender").field("connected", &self.is_connected()).finish_non_exhaustive()
    }
}
