//! The transfers under way and what each may do next. No input or output happens here; all of it
//! runs under one lock.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use outboard_session::chunks::Cut;
use outboard_wire::limits::UPLOADS;

use super::direction::Direction;
use super::downloads::Downloads;
use super::host_bytes::HostBytes;

/// How a transfer ended; shared with the thread that waits for it.
#[derive(Debug, Default)]
pub(super) struct Outcome(AtomicU8);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Complete = 1,
    Lost = 2,
    Cancelled = 3,
}

impl Outcome {
    pub(super) fn get(&self) -> Option<End> {
        match self.0.load(Ordering::Acquire) {
            1 => Some(End::Complete),
            2 => Some(End::Lost),
            3 => Some(End::Cancelled),
            _ => None,
        }
    }

    pub(super) fn set(&self, end: End) {
        self.0.store(end as u8, Ordering::Release);
    }
}

/// One chunk to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub(super) transfer: u64,
    pub(super) index: u32,
    pub(super) from: HostBytes,
    pub(super) len: u32,
    /// Its bytes are to be copied: they are not needed once it has been written.
    pub(super) copied: bool,
}

#[derive(Debug)]
struct Upload {
    cut: Cut,
    /// Unknown until the application starts it; grants may come before.
    from: Option<HostBytes>,
    next: u32,
    granted: u32,
    writing: u32,
    /// Chunks whose bytes are needed no longer.
    done: u32,
    copied: bool,
    outcome: Arc<Outcome>,
}

#[derive(Debug)]
struct Reserved {
    bytes: usize,
    /// Told when the device has taken the upload.
    taken: Arc<Outcome>,
    cut: Cut,
    /// When its first byte could go.
    since: Option<Instant>,
}

/// How long a successful transfer took, from its first byte on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    pub(super) direction: Direction,
    pub(super) cut: Cut,
    pub(super) time: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    last: u64,
    uploads: HashMap<u64, Upload>,
    /// Uploads that have chunks left to start, in turn.
    turns: VecDeque<u64>,
    pub(super) downloads: Downloads,
    /// The part of the worker's staging memory that each upload has.
    reserved: HashMap<u64, Reserved>,
    used: usize,
    /// How many uploads have returned their staging memory, and how many had when one last waited
    /// without success.
    released: u64,
    stuck_at: Option<u64>,
    measured: Vec<Measured>,
    lost: bool,
}

impl Table {
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether a transfer that goes this way is under way.
    pub(super) fn is_busy(&self, direction: Direction) -> bool {
        match direction {
            Direction::Up => !self.uploads.is_empty(),
            Direction::Down => self.downloads.is_any(),
        }
    }

    fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The worker's staging memory for an upload is free again; its bytes are where they belong if
    /// it ended `well`.
    pub(super) fn release(&mut self, transfer: u64, well: bool) {
        let Some(reserved) = self.reserved.remove(&transfer) else { return };
        self.used -= reserved.bytes;
        self.released += u64::from(reserved.bytes > 0);
        if let (true, Some(since)) = (well, reserved.since) {
            self.measured.push(Measured {
                direction: Direction::Up,
                cut: reserved.cut,
                time: since.elapsed(),
            });
        }
        if well && let Some(upload) = self.uploads.get_mut(&transfer) {
            // All has come, whether or not every lane has said so.
            upload.done = upload.cut.count();
            self.settle_upload(transfer);
        }
        reserved.taken.set(if well { End::Complete } else { End::Cancelled });
    }

    /// Opens an upload, if there is staging memory for it. `outcome` is told when its bytes have
    /// been read, `taken` when the device has them.
    pub(super) fn open_upload(
        &mut self,
        cut: Cut,
        outcome: &Arc<Outcome>,
        taken: &Arc<Outcome>,
    ) -> Option<u64> {
        let fits = self.used + cut.staging() <= UPLOADS;
        fits.then(|| self.open_counted(cut, cut.staging(), outcome, taken))
    }

    /// Opens an upload to which the worker gives staging memory by itself, before it asks for the
    /// bytes.
    pub(super) fn open_queued_upload(
        &mut self,
        cut: Cut,
        outcome: &Arc<Outcome>,
        taken: &Arc<Outcome>,
    ) -> u64 {
        self.open_counted(cut, 0, outcome, taken)
    }

    fn open_counted(
        &mut self,
        cut: Cut,
        staging: usize,
        outcome: &Arc<Outcome>,
        taken: &Arc<Outcome>,
    ) -> u64 {
        self.used += staging;
        let transfer = self.next_number();
        self.reserved.insert(
            transfer,
            Reserved { bytes: staging, taken: Arc::clone(taken), cut, since: None },
        );
        let upload = Upload {
            cut,
            from: None,
            next: 0,
            granted: cut.window(),
            writing: 0,
            done: 0,
            copied: false,
            outcome: Arc::clone(outcome),
        };
        self.uploads.insert(transfer, upload);
        transfer
    }

    /// How many uploads have given staging memory back.
    pub(super) fn released(&self) -> u64 {
        self.released
    }

    /// Whether an upload has waited for staging memory without success, and none has been returned
    /// since.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck_at == Some(self.released)
    }

    /// An upload has waited for staging memory without success.
    pub(super) fn set_stuck(&mut self) {
        self.stuck_at = Some(self.released);
    }

    /// Opens a download behind those of `behind` that are under way. `outcome` is told when its
    /// bytes have been written.
    pub(super) fn open_download(
        &mut self,
        cut: Cut,
        to: HostBytes,
        behind: Vec<u64>,
        outcome: &Arc<Outcome>,
    ) -> u64 {
        let transfer = self.next_number();
        self.downloads.open(transfer, cut, to, behind, outcome);
        transfer
    }

    /// The application's bytes are at `from`: the upload takes its turns from now on.
    pub(super) fn start_upload(&mut self, transfer: u64, from: HostBytes, copied: bool) {
        let Some(upload) = self.uploads.get_mut(&transfer) else { return };
        (upload.from, upload.copied) = (Some(from), copied);
        if let Some(reserved) = self.reserved.get_mut(&transfer) {
            reserved.since = Some(Instant::now());
        }
        if self.lost || upload.cut.is_empty() {
            self.settle_upload(transfer);
        } else {
            self.turns.push_back(transfer);
        }
    }

    /// Forgets an upload that was never started.
    pub(super) fn abandon_upload(&mut self, transfer: u64) {
        if self.uploads.get(&transfer).is_some_and(|upload| upload.from.is_none()) {
            self.uploads.remove(&transfer);
            self.release(transfer, false);
        }
    }

    /// The next chunk to write: of `only`, or of whichever upload's turn it is.
    pub(super) fn next_job(&mut self, only: Option<u64>) -> Option<Job> {
        if self.lost {
            return None;
        }
        for _ in 0..self.turns.len() {
            let transfer = self.turns.pop_front()?;
            let Some(upload) = self.uploads.get_mut(&transfer) else { continue };
            let job = upload
                .from
                .filter(|_| upload.next < upload.granted && only.is_none_or(|id| id == transfer));
            let job = job.map(|from| {
                let index = upload.next;
                upload.next += 1;
                upload.writing += 1;
                let from = from.at(upload.cut.offset(index));
                Job { transfer, index, from, len: upload.cut.len_of(index), copied: upload.copied }
            });
            if upload.next < upload.cut.count() {
                self.turns.push_back(transfer);
            }
            if job.is_some() {
                return job;
            }
        }
        None
    }

    /// Whether [`next_job`](Self::next_job) would find one.
    pub(super) fn has_job(&self) -> bool {
        let ready = |upload: &Upload| upload.from.is_some() && upload.next < upload.granted;
        self.turns.iter().any(|transfer| self.uploads.get(transfer).is_some_and(ready))
    }

    /// Whether an upload has more than one chunk left to start.
    pub(super) fn has_more_than_one(&self, transfer: u64) -> bool {
        self.uploads.get(&transfer).is_some_and(|upload| upload.cut.count() - upload.next > 1)
    }

    /// Whether all chunks of an upload have been written.
    pub(super) fn is_written(&self, transfer: u64) -> bool {
        self.uploads
            .get(&transfer)
            .is_none_or(|upload| upload.next >= upload.cut.count() && upload.writing == 0)
    }

    /// A chunk is about to be written again, if its bytes are still there.
    pub(super) fn begin_again(&mut self, job: &Job) -> bool {
        let upload = self.uploads.get_mut(&job.transfer).filter(|_| !self.lost);
        upload.map(|upload| upload.writing += 1).is_some()
    }

    /// A chunk has been written, or never will be; `done` if its bytes are not needed for longer.
    /// Whether all of its upload have been.
    pub(super) fn job_written(&mut self, job: &Job, done: bool) -> bool {
        if let Some(upload) = self.uploads.get_mut(&job.transfer) {
            upload.writing -= 1;
            upload.done += u32::from(done);
            self.settle_upload(job.transfer);
        }
        self.is_written(job.transfer)
    }

    /// The worker has a chunk. Whether that ends its upload.
    pub(super) fn job_has_come(&mut self, job: &Job) -> bool {
        if let Some(upload) = self.uploads.get_mut(&job.transfer) {
            upload.done += 1;
            self.settle_upload(job.transfer);
        }
        !self.uploads.contains_key(&job.transfer)
    }

    pub(super) fn grant(&mut self, transfer: u64, granted: u32) {
        if let Some(upload) = self.uploads.get_mut(&transfer) {
            upload.granted = upload.granted.max(granted.min(upload.cut.count()));
        }
    }

    /// The program knows that the device has done a transfer: whether the worker can have done it.
    /// `None` while a thread still writes its last chunk.
    pub(super) fn known_to_be_done(&mut self, transfer: u64) -> Option<bool> {
        if self.lost {
            return Some(true);
        }
        if let Some(upload) = self.uploads.get_mut(&transfer) {
            // An abandoned one continues until its bytes have been sent.
            if upload.from.is_none() || upload.next < upload.cut.count() {
                return Some(false);
            }
            if upload.writing > 0 {
                return None;
            }
            // All has come, whether or not every lane has said so.
            upload.done = upload.cut.count();
            self.settle_upload(transfer);
        }
        Some(!self.downloads.is_under_way(transfer))
    }

    /// Ends an upload whose end has come.
    fn settle_upload(&mut self, transfer: u64) {
        let Some(upload) = self.uploads.get(&transfer) else { return };
        // A thread may not have come back from writing what has arrived.
        if upload.writing > 0 {
            return;
        }
        let end = if upload.done >= upload.cut.count() {
            End::Complete
        } else if self.lost {
            End::Lost
        } else {
            return;
        };
        upload.outcome.set(end);
        self.uploads.remove(&transfer);
    }

    /// How long the transfers took that have ended since the last call.
    pub(super) fn take_measured(&mut self) -> Vec<Measured> {
        let mut measured = std::mem::take(&mut self.measured);
        measured.append(&mut self.downloads.take_measured());
        measured
    }

    /// The lanes are gone. Transfers that no thread works on end now, the others when their threads
    /// are done.
    pub(super) fn lose(&mut self) {
        self.lost = true;
        self.turns.clear();
        for transfer in self.uploads.keys().copied().collect::<Vec<_>>() {
            self.settle_upload(transfer);
        }
        self.downloads.lose();
        for reserved in self.reserved.values() {
            reserved.taken.set(End::Lost);
        }
    }
}

#[cfg(test)]
mod tests;
