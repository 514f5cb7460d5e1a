//! Handles of transfers, for the threads that start them.

use std::sync::Arc;
use std::time::Instant;

use outboard_session::chunks::Cut;
use outboard_transport::PEER_CHECK;
use outboard_wire::lane::Lent;

use super::super::error::LinkError;
use super::super::locks::lock;
use super::super::shared::Shared;
use super::host_bytes::HostBytes;
use super::lanes;
use super::table::{End, Outcome};

/// A transfer to the worker that has been opened and not started.
///
/// Post the command that announces it, with [`number`](Self::number), [`chunk`](Self::chunk) and
/// [`window`](Self::window), then start it. Dropped without being started, it is forgotten: fine as
/// long as no command has announced it.
#[derive(Debug)]
pub struct Upload<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) transfer: u64,
    pub(super) cut: Cut,
    pub(super) outcome: Arc<Outcome>,
    pub(super) taken: Arc<Outcome>,
    /// Whether it continues after this value is dropped.
    pub(super) goes_on: bool,
}

/// A transfer to the worker that is ready to be started. It must be: a thread that waits for the
/// transfer waits for that, too.
#[derive(Debug)]
pub struct Later {
    shared: Arc<Shared>,
    transfer: u64,
    from: HostBytes,
}

/// A transfer to the worker whose bytes have been sent.
#[derive(Debug)]
#[must_use = "the device has its bytes only when this has been waited for"]
pub struct Sent {
    shared: Arc<Shared>,
    /// Told when the bytes are needed no longer.
    read: Arc<Outcome>,
    taken: Arc<Outcome>,
}

/// Transfers of up to this size are copied when their bytes are not to be waited for, in bytes: to
/// wait until they have arrived takes longer.
const COPIED: u64 = 1 << 20;

/// A transfer under way, in either direction.
#[derive(Debug)]
pub struct Ticket {
    pub(super) shared: Arc<Shared>,
    pub(super) transfer: u64,
    pub(super) cut: Cut,
    pub(super) outcome: Arc<Outcome>,
}

impl Upload<'_> {
    /// The transfer's number, for the command that announces it.
    pub fn number(&self) -> u64 {
        self.transfer
    }

    /// Bytes of each chunk but the last.
    pub fn chunk(&self) -> u32 {
        self.cut.chunk()
    }

    /// Chunks that may come before the worker grants any.
    pub fn window(&self) -> u32 {
        self.cut.window()
    }

    /// Sends the bytes at `from`. Returns when they are needed no longer; whether they are where
    /// they belong, [`Sent::wait`] tells.
    ///
    /// # Safety
    /// The bytes must be valid for reads until this returns.
    pub unsafe fn send(self, from: impl Into<HostBytes>) -> Result<Sent, LinkError> {
        // What was lost on its way is sent again: from a copy, or the bytes are needed until the
        // worker has them.
        let copied = self.cut.len() <= COPIED;
        // SAFETY: by the contract above; a `Sent` that is dropped does not wait once the upload has
        // ended.
        let sent = unsafe { self.send_on(from.into(), copied) }?;
        wait_for(&sent.shared, &sent.read);
        result(&sent.shared, &sent.read)?;
        Ok(sent)
    }

    /// Sends the bytes at `from`. They are needed until what this returns is dropped.
    ///
    /// # Safety
    /// The bytes must be valid for reads until then.
    pub unsafe fn send_and_keep(self, from: impl Into<HostBytes>) -> Result<Sent, LinkError> {
        // SAFETY: by the contract above.
        unsafe { self.send_on(from.into(), false) }
    }

    /// # Safety
    /// The bytes must be valid for reads until what this returns is dropped, if they are not
    /// copied.
    unsafe fn send_on(self, from: HostBytes, copied: bool) -> Result<Sent, LinkError> {
        // The worker does well to know of the transfer before its bytes come. If this fails, so
        // will the transfer.
        let _ = self.shared.flush();
        let (shared, transfer, outcome) = self.start(from, copied);
        lanes::help_with(shared, transfer, &outcome);
        Ok(Sent { shared: Arc::clone(shared), read: outcome, taken: Arc::clone(&self.taken) })
    }

    /// Sends the bytes at `from`, while this thread goes on.
    ///
    /// # Safety
    /// The bytes must be valid for reads until the ticket says that the transfer has ended.
    pub unsafe fn send_in_background(self, from: impl Into<HostBytes>) -> Ticket {
        let cut = self.cut;
        let (shared, transfer, outcome) = self.start(from.into(), false);
        shared.bulk.work.ring_all();
        Ticket { shared: Arc::clone(shared), transfer, cut, outcome }
    }

    /// Gets everything ready to send the bytes at `from`, once [`Later::start`] is called.
    ///
    /// # Safety
    /// The bytes must be valid for reads until the ticket says that the transfer has ended.
    pub unsafe fn later(mut self, from: impl Into<HostBytes>) -> (Ticket, Later) {
        self.goes_on = true;
        let from = from.into();
        let (bulk, len) = (&self.shared.bulk, self.cut.len());
        if let Some(place) = bulk.lent(&from, len)
            && bulk.lending.takes_unstaged(len)
        {
            let lent = Lent { place, bytes: len, chunk: self.cut.chunk() };
            lanes::lend(self.shared, self.transfer, &lent);
        }
        let (shared, transfer, cut) = (Arc::clone(self.shared), self.transfer, self.cut);
        let ticket = Ticket {
            shared: Arc::clone(&shared),
            transfer,
            cut,
            outcome: Arc::clone(&self.outcome),
        };
        (ticket, Later { shared, transfer, from })
    }

    fn start(&self, from: HostBytes, copied: bool) -> (&'_ Arc<Shared>, u64, Arc<Outcome>) {
        if !copied {
            let _ = self.shared.bulk.lent(&from, self.cut.len());
        }
        lock(&self.shared.bulk.table).start_upload(self.transfer, from, copied);
        (self.shared, self.transfer, Arc::clone(&self.outcome))
    }
}

impl Sent {
    /// Waits until the device has the bytes. [`LinkError::Cancelled`] if it never will.
    pub fn wait(self) -> Result<(), LinkError> {
        wait_for(&self.shared, &self.taken);
        result(&self.shared, &self.taken)
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        // Once the device has the bytes, they are not needed any more. Otherwise the worker says so
        // as soon as it has them.
        if self.taken.get() != Some(End::Complete) {
            wait_for(&self.shared, &self.read);
        }
    }
}

impl Later {
    /// The transfer's number.
    pub fn number(&self) -> u64 {
        self.transfer
    }

    /// Sends the bytes, while this thread goes on.
    pub fn start(self) {
        lock(&self.shared.bulk.table).start_upload(self.transfer, self.from, false);
        self.shared.bulk.work.ring_all();
        // The link may be lost, and the transfer with it.
        self.shared.bulk.changed.tell_all();
    }
}

impl Later {
    /// The worker asks for bytes that it cannot need any more: the link ends.
    pub fn refuse(self) {
        self.shared.lose("the server asks for bytes of a copy that it has said to be done");
        // It ends with the link.
        self.start();
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        if self.goes_on {
            return;
        }
        lock(&self.shared.bulk.table).abandon_upload(self.transfer);
        self.shared.bulk.changed.tell_all();
    }
}

impl Ticket {
    /// The transfer's number, for the command that announces it.
    pub fn number(&self) -> u64 {
        self.transfer
    }

    /// Bytes of each chunk but the last.
    pub fn chunk(&self) -> u32 {
        self.cut.chunk()
    }

    /// How many chunks of staging memory the worker may take.
    pub fn window(&self) -> u32 {
        self.cut.window()
    }

    /// The program knows that the device has done the transfer, and its memory is its own again: a
    /// transfer that has not ended by now never will. A worker that keeps to the rules has all
    /// bytes then, or has sent them.
    pub fn is_known_to_be_done(&self) {
        if self.has_ended() {
            return;
        }
        let bulk = &self.shared.bulk;
        let mut table = lock(&bulk.table);
        let can_be = loop {
            match table.known_to_be_done(self.transfer) {
                Some(can_be) => break can_be,
                None => {
                    table = bulk.changed.wait_timeout(table, PEER_CHECK).0;
                }
            }
        };
        drop(table);
        bulk.changed.tell_all();
        if !can_be {
            self.shared.lose("the server says that a copy is done whose bytes it has not moved");
            wait_for(&self.shared, &self.outcome);
        }
    }

    /// Whether the transfer has ended, well or not: the application's memory is its own again.
    pub fn has_ended(&self) -> bool {
        self.outcome.get().is_some()
    }

    /// Waits for the end. An upload has ended well when all bytes have been read from the
    /// application's memory, a download when all have been written to it.
    pub fn wait(&self) -> Result<(), LinkError> {
        if !self.has_ended() {
            // The command that announces the transfer may still be in the queue. If this fails, so
            // does the transfer.
            let _ = self.shared.flush();
        }
        wait_for(&self.shared, &self.outcome);
        result(&self.shared, &self.outcome)
    }
}

/// Waits until there is an outcome: looks at first, then sleeps.
fn wait_for(shared: &Shared, outcome: &Outcome) {
    let bulk = &shared.bulk;
    let start = Instant::now();
    let window = shared.reader.patience().window();
    while outcome.get().is_none() && start.elapsed() < window {
        std::thread::yield_now();
    }
    if outcome.get().is_some() {
        return;
    }
    let mut table = lock(&bulk.table);
    while outcome.get().is_none() {
        let (again, timed_out) = bulk.changed.wait_timeout(table, PEER_CHECK);
        table = again;
        if timed_out && outcome.get().is_none() {
            drop(table);
            bulk.check_lanes();
            shared.check_for_life(PEER_CHECK);
            table = lock(&bulk.table);
        }
    }
    drop(table);
    shared.reader.patience().waited(start.elapsed());
}

fn result(shared: &Shared, outcome: &Outcome) -> Result<(), LinkError> {
    match outcome.get() {
        Some(End::Complete) => Ok(()),
        Some(End::Cancelled) => Err(LinkError::Cancelled),
        Some(End::Lost) | None => Err(shared.lost()),
    }
}
