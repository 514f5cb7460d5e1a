//! Large copies under way: what their bytes wait for, and which waits include their bytes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outboard_front::backend::{ContextId, HostPtr, StreamId};
use parking_lot::{Mutex, MutexGuard};

use crate::link::bulk::HostBytes;
use crate::link::{Before, StagedTicket, Ticket};
use crate::outstanding::{Outstanding, Queued};

/// Asynchronous copies of the process.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    state: Mutex<UnderWayState>,
    /// Whether the device has done copies whose bytes may still be on their way.
    owed: AtomicBool,
}

#[derive(Debug, Default)]
struct UnderWayState {
    downloads: Vec<Copy>,
    uploads: Vec<Copy>,
}

/// A transfer under way, by the way that its bytes take.
#[derive(Debug)]
pub(crate) enum Transfer {
    Lanes(Ticket),
    /// Through memory that the worker shares.
    Staged(StagedTicket),
}

#[derive(Debug, Clone)]
struct Copy {
    host: Range<HostPtr>,
    transfer: Arc<Transfer>,
    /// The program may know that it is done.
    queued: Arc<Queued>,
    /// The last step of a postponed copy, once its bytes have arrived.
    aside: Option<Arc<Mutex<Option<Aside>>>>,
    /// Whether the worker has said that the device has done it.
    done: bool,
}

/// Copies to the host under way that write memory to which another one is to be queued.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    /// Transfers of those of its stream: their bytes must be there first.
    pub(crate) on_lanes: Vec<u64>,
    pub(crate) staged: Vec<Before>,
    /// Whether there are any of another stream, or that put their bytes aside. Which are done first
    /// only the device knows.
    pub(crate) elsewhere: bool,
}

/// Bytes of a copy that are put in their place only when it is known to be done: an earlier copy of
/// another stream to the same memory is under way, and lanes overtake each other.
#[derive(Debug)]
pub(crate) struct Aside {
    bytes: Box<[u8]>,
    place: HostBytes,
}

impl Aside {
    /// Room for the `len` packed bytes that belong to `place`.
    pub(crate) fn new(place: HostBytes, len: u64) -> Aside {
        Aside { bytes: vec![0; len as usize].into(), place }
    }

    /// Where the bytes go first.
    pub(crate) fn first(&mut self) -> HostBytes {
        HostBytes::from(self.bytes.as_mut_ptr())
    }
}

impl Transfer {
    fn has_ended(&self) -> bool {
        match self {
            Transfer::Lanes(ticket) => ticket.has_ended(),
            Transfer::Staged(ticket) => ticket.has_ended(),
        }
    }

    /// Waits for the end; whether all bytes have come.
    fn wait(&self) -> bool {
        match self {
            Transfer::Lanes(ticket) => ticket.wait().is_ok(),
            Transfer::Staged(ticket) => ticket.wait().is_ok(),
        }
    }

    /// Once the program knows that the copy is done, its memory is left alone.
    fn is_known_to_be_done(&self) {
        match self {
            Transfer::Lanes(ticket) => ticket.is_known_to_be_done(),
            Transfer::Staged(ticket) => ticket.is_known_to_be_done(),
        }
    }

    /// Whether it is on lanes, by this number.
    fn is_number(&self, number: u64) -> bool {
        matches!(self, Transfer::Lanes(ticket) if ticket.number() == number)
    }

    /// Whether shared memory says that the device has done it.
    fn is_done_by_device(&self) -> bool {
        matches!(self, Transfer::Staged(ticket) if ticket.is_done_by_device())
    }

    fn is_staged(&self) -> bool {
        matches!(self, Transfer::Staged(_))
    }
}

impl Copy {
    fn new(
        host: Range<HostPtr>,
        transfer: Transfer,
        aside: Option<Aside>,
        (outstanding, ctx, stream): (&Arc<Outstanding>, ContextId, StreamId),
    ) -> Copy {
        let transfer = Arc::new(transfer);
        let own = Arc::clone(&transfer);
        let queued =
            outstanding.begin_with(ctx, stream, Some(Box::new(move || own.is_known_to_be_done())));
        let aside = aside.map(|aside| Arc::new(Mutex::new(Some(aside))));
        Copy { host, transfer, queued: Arc::new(queued), aside, done: false }
    }

    fn overlaps(&self, host: &Range<HostPtr>) -> bool {
        self.host.start < host.end && host.start < self.host.end
    }

    /// Whether its bytes are aside, or come there.
    fn is_aside(&self) -> bool {
        self.aside.as_ref().is_some_and(|aside| aside.lock().is_some())
    }

    fn is_over(&self) -> bool {
        self.transfer.has_ended() && !self.is_aside()
    }

    /// Waits until its bytes are where they belong.
    fn finish(&self) {
        // A cancelled or lost one has ended too; the next caller gets the error.
        let came = self.transfer.wait();
        let Some(aside) = &self.aside else { return };
        let mut aside = aside.lock();
        if let Some(Aside { bytes, place }) = aside.take()
            && came
        {
            // SAFETY: the memory stays the copy's until somebody has waited for it, as every
            // download's does.
            unsafe { place.scatter(bytes.as_ptr(), bytes.len()) };
        }
    }
}

impl Copies {
    fn state(&self) -> MutexGuard<'_, UnderWayState> {
        self.state.lock()
    }

    /// A copy to `host` continues in the background, in this order. Its command's number is to be
    /// told.
    pub(crate) fn download(
        &self,
        host: Range<HostPtr>,
        transfer: Transfer,
        aside: Option<Aside>,
        order: (&Arc<Outstanding>, ContextId, StreamId),
    ) -> Arc<Queued> {
        let mut state = self.state();
        if transfer.is_staged() {
            // No message announces it: a thread with an answer checks.
            self.owed.store(true, Ordering::Release);
        }
        add(&mut state.downloads, Copy::new(host, transfer, aside, order))
    }

    /// A copy from `host` continues in the background, likewise.
    pub(crate) fn upload(
        &self,
        host: Range<HostPtr>,
        transfer: Transfer,
        order: (&Arc<Outstanding>, ContextId, StreamId),
    ) -> Arc<Queued> {
        add(&mut self.state().uploads, Copy::new(host, transfer, None, order))
    }

    /// The device has done the download with this number on lanes. Called by whichever thread reads
    /// the link: it must not wait.
    pub(crate) fn copied(&self, number: u64) {
        let mut state = self.state();
        // What is said of a copy that is not under way is of no use, however often it is said.
        let Some(copy) = state.downloads.iter_mut().find(|copy| copy.transfer.is_number(number))
        else {
            return;
        };
        copy.done = true;
        self.owed.store(true, Ordering::Release);
    }

    /// Waits for the bytes of every copy that the device had done before the answer at hand.
    pub(crate) fn settle(&self) {
        if !self.owed.load(Ordering::Acquire) {
            return;
        }
        loop {
            let next = {
                let mut state = self.state();
                state.downloads.retain(|copy| !copy.is_over());
                let is_done = |copy: &&Copy| copy.done || copy.transfer.is_done_by_device();
                let next = state.downloads.iter().find(is_done).cloned();
                if next.is_none() {
                    let staged = state.downloads.iter().any(|copy| copy.transfer.is_staged());
                    self.owed.store(staged, Ordering::Release);
                }
                next
            };
            match next {
                // Earlier ones come first, so that the bytes of the last one stay.
                Some(copy) => copy.finish(),
                None => return,
            }
        }
    }

    /// Whether any download is under way of which only the worker can tell that the device has done
    /// it.
    pub(crate) fn are_to_be_told_of(&self) -> bool {
        self.state().downloads.iter().any(|copy| !copy.transfer.is_staged() && !copy.is_over())
    }

    /// Whether any download is under way.
    pub(crate) fn are_downloads_under_way(&self) -> bool {
        self.state().downloads.iter().any(|copy| !copy.is_over())
    }

    /// Whether any copy is under way.
    pub(crate) fn are_any_under_way(&self) -> bool {
        let state = self.state();
        state.downloads.iter().chain(&state.uploads).any(|copy| !copy.is_over())
    }

    /// Whether a download writes to `host`.
    pub(crate) fn is_download_under_way(&self, host: &Range<HostPtr>) -> bool {
        self.state().downloads.iter().any(|copy| copy.overlaps(host) && !copy.is_over())
    }

    /// The downloads that write to `host` while one more is queued in a stream.
    pub(crate) fn earlier_downloads(
        &self,
        host: &Range<HostPtr>,
        ctx: ContextId,
        stream: StreamId,
    ) -> Earlier {
        let mut earlier = Earlier::default();
        for copy in
            self.state().downloads.iter().filter(|copy| copy.overlaps(host) && !copy.is_over())
        {
            let (of_ctx, of_stream, _) = copy.queued.place();
            if (of_ctx, of_stream) != (ctx, stream) || copy.is_aside() {
                earlier.elsewhere = true;
                continue;
            }
            match &*copy.transfer {
                Transfer::Lanes(ticket) => earlier.on_lanes.push(ticket.number()),
                Transfer::Staged(ticket) => earlier.staged.push(ticket.before()),
            }
        }
        earlier
    }

    /// Waits until no download writes to `host`: before its bytes are read for a copy that is
    /// queued behind.
    pub(crate) fn wait_for_downloads(&self, host: &Range<HostPtr>) {
        self.wait_where(host, false);
    }

    /// Waits until no copy reads or writes `host`: before the memory is given up.
    pub(crate) fn wait_for_all(&self, host: &Range<HostPtr>) {
        self.wait_where(host, true);
    }

    fn wait_where(&self, host: &Range<HostPtr>, uploads_too: bool) {
        loop {
            let next = {
                let state = self.state();
                let uploads: &[Copy] = if uploads_too { &state.uploads } else { &[] };
                state
                    .downloads
                    .iter()
                    .chain(uploads)
                    .find(|copy| copy.overlaps(host) && !copy.is_over())
                    .cloned()
            };
            match next {
                Some(copy) => copy.finish(),
                None => return,
            }
        }
    }
}

/// Adds a copy to those under way, and forgets those that have ended.
fn add(copies: &mut Vec<Copy>, copy: Copy) -> Arc<Queued> {
    copies.retain(|copy| !copy.is_over());
    let queued = Arc::clone(&copy.queued);
    copies.push(copy);
    queued
}
