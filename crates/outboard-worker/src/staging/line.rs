//! The copies of one stream that start when the stream reaches them, in order.
//!
//! NVIDIA's driver blocks a caller whose stream holds 1,020 calls, so each of these copies is one
//! call, of two operations: the stream writes how many copies it has reached, and waits until that
//! many are done.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use outboard_abi::{CUctx_st, CUresult, CUstream_st};
use outboard_driver::{Table, call};
use parking_lot::Mutex;

use super::memory::{Piece, View};
use super::transfer::CopySite;
use crate::memops::{self, Operation};
use crate::objects::Handle;

/// Words of a line's flags: the number of the copy to which the stream has come, and of the last
/// copy that is done.
const REACHED: usize = 0;
const DONE: usize = 1;
/// The stream has passed all of them: written when the program destroys it.
const PASSED_ALL: usize = 2;

/// The copies of a stream.
pub(super) struct Line {
    context: Handle<CUctx_st>,
    stream: Handle<CUstream_st>,
    flags: Piece,
    /// The number of the last copy, from 1 on; 0 if there was none yet.
    last: Mutex<u64>,
    ended: Mutex<Ended>,
}

/// Which copies of a line have ended: all up to one, and some beyond.
#[derive(Default)]
struct Ended {
    all: u64,
    beyond: BTreeSet<u64>,
}

impl Ended {
    /// One more has: up to which all have now, if that has changed.
    fn add(&mut self, number: u64) -> Option<u64> {
        self.beyond.insert(number);
        let before = self.all;
        while self.beyond.remove(&(self.all + 1)) {
            self.all += 1;
        }
        (self.all > before).then_some(self.all)
    }
}

// SAFETY: a handle is a name; see `Handle`.
unsafe impl Sync for Line {}

/// A copy's place in a line.
pub(super) struct Turn {
    line: Arc<Line>,
    number: u64,
}

impl Line {
    pub(super) fn new(site: &CopySite<'_>, flags: Piece) -> Arc<Line> {
        let (context, stream) = (Handle::new(site.context), Handle::new(site.stream));
        let (last, ended) = (Mutex::default(), Mutex::default());
        Arc::new(Line { context, stream, flags, last, ended })
    }

    pub(super) fn view(&self) -> View {
        self.flags.view()
    }

    fn flag(&self, index: usize) -> &AtomicU32 {
        self.flags.flag(index)
    }

    /// Has the stream stand still, behind all that is in it, until the copy is done.
    pub(super) fn queue(self: &Arc<Line>, site: &CopySite<'_>) -> Result<Turn, CUresult> {
        let mut last = self.last.lock();
        let number = *last + 1;
        let view = self.view();
        let come = Operation::Write(view.device_flag(REACHED), number as u32);
        let wait = Operation::WaitAtLeast(view.device_flag(DONE), number as u32);
        memops::queue(site.table, site.stream, &[come, wait])?;
        *last = number;
        Ok(Turn { line: Arc::clone(self), number })
    }

    /// Whether the stream has passed all copies. Nobody queues another one meanwhile.
    fn is_passed(&self, table: &Table) -> bool {
        // A default stream is that of the current context.
        let Ok(()) = call!(table, cuCtxPushCurrent_v2(self.context.get())) else { return false };
        let passed = call!(table, cuStreamQuery(self.stream.get())).is_ok();
        let mut context = core::ptr::null_mut();
        call!(table, cuCtxPopCurrent_v2(&raw mut context)).is_ok() && passed
    }

    /// The context is about to go: the flags stay for good, unless the stream has passed all
    /// copies.
    pub(super) fn close(&self, table: &Table) {
        if !self.is_passed(table) {
            self.leak();
        }
    }

    /// The device may go on to use the flags: nobody else ever will.
    pub(super) fn leak(&self) {
        self.flags.leak();
    }

    /// The program destroys the stream, whose work continues.
    pub(super) fn stream_destroyed(&self, table: &Table) {
        let left = Operation::Write(self.view().device_flag(PASSED_ALL), 1);
        if memops::queue(table, self.stream.get(), &[left]).is_err() {
            self.leak();
            self.flag(PASSED_ALL).store(1, Ordering::Release);
        }
    }

    /// Whether a stream that was destroyed has passed all copies.
    pub(super) fn has_passed_all(&self) -> bool {
        self.flag(PASSED_ALL).load(Ordering::Acquire) != 0
    }

    /// Whether no copy of the line is under way, and the stream has passed the last one.
    pub(super) fn is_idle(self: &Arc<Line>, table: &Table) -> bool {
        Arc::strong_count(self) == 1 && self.is_passed(table)
    }
}

impl Turn {
    /// Whether the stream has come to the copy.
    pub(super) fn is_reached(&self) -> bool {
        is_at_least(self.line.flag(REACHED), self.number as u32)
    }

    /// Lets the stream go on, once it may with all copies before this one.
    pub(super) fn end(&self) {
        let mut ended = self.line.ended.lock();
        if let Some(all) = ended.add(self.number) {
            self.line.flag(DONE).store(all as u32, Ordering::Release);
        }
    }
}

fn is_at_least(flag: &AtomicU32, number: u32) -> bool {
    !is_later(number, flag.load(Ordering::Acquire))
}

/// Whether one number comes after another, as the device compares them: they start anew behind the
/// largest.
fn is_later(number: u32, than: u32) -> bool {
    number.wrapping_sub(than) as i32 > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_passes_copies_in_their_order() {
        let mut ended = Ended::default();
        assert_eq!(ended.add(2), None);
        assert_eq!(ended.add(4), None);
        assert_eq!(ended.add(1), Some(2));
        assert_eq!(ended.add(3), Some(4));
        assert_eq!(ended.add(5), Some(5));
    }

    #[test]
    fn numbers_start_anew() {
        assert!(is_later(1, 0) && !is_later(1, 1) && !is_later(0, 1));
        assert!(is_later(0, u32::MAX) && is_later(5, u32::MAX - 5) && !is_later(u32::MAX, 3));
        assert!(is_at_least(&AtomicU32::new(2), u32::MAX));
    }
}
