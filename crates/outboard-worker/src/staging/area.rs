//! The memory that this worker shares with one of another server of the machine.
//!
//! Copies and signals have [places](super::place) in it. The other worker may write there whatever
//! it likes, at any time. It cannot take the memory away, and this worker takes nothing from there
//! but flags and the bytes of copies. Sizes, places and layout come from the client.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use outboard_abi::CUresult;
use outboard_driver::Table;
use outboard_session::groups::BLOCK;
use outboard_transport::segment::Segment;
use outboard_wire::notice::FreePlaces;
use outboard_wire::{ContextId, DevicePtr};
use parking_lot::Mutex;

use super::blocks::KnownBlocks;
use super::deferred::ExclusiveStream;
use super::locking::PageLocking;
use super::transfer::CopySite;
use crate::helpers::Helpers;
use crate::objects::Handle;

/// The client is told of free places when they have so many bytes.
pub(super) const WORTH_TELLING: usize = 4 << 20;

/// The area of a link.
pub(crate) struct Area {
    link: u32,
    segment: Arc<Segment>,
    blocks: Arc<KnownBlocks>,
    table: &'static Table,
    helpers: Helpers,
    free: Mutex<Free>,
    /// Streams of contexts for copies whose slots are there.
    beside: Mutex<HashMap<(ContextId, usize), Weak<ExclusiveStream>>>,
}

/// Places of which the client is to be told that they are free.
#[derive(Default)]
struct Free {
    places: Vec<u64>,
    bytes: usize,
}

impl Area {
    pub(crate) fn new(
        link: u32,
        segment: &Arc<Segment>,
        table: &'static Table,
        helpers: &Helpers,
        locking: PageLocking,
    ) -> Area {
        let (segment, helpers) = (Arc::clone(segment), helpers.clone());
        let (free, beside) = Default::default();
        let blocks = Arc::new(KnownBlocks::new(locking));
        Area { link, segment, blocks, table, helpers, free, beside }
    }

    /// The link that it belongs to.
    pub(crate) fn link(&self) -> u32 {
        self.link
    }

    /// A context is about to go, and what it registered with it.
    pub(crate) fn forget(&self, ctx: ContextId) {
        self.blocks.forget(ctx);
    }

    /// Where a byte of it is.
    pub(super) fn address(&self, at: usize) -> *mut u8 {
        debug_assert!(at < self.segment.bytes());
        // SAFETY: within the segment: those who ask have a place there.
        unsafe { self.segment.as_ptr().add(at) }
    }

    /// By which address the device knows a byte of it. The context of the site is current.
    pub(super) fn device(&self, site: &CopySite<'_>, at: usize) -> Result<DevicePtr, CUresult> {
        let context = (site.ctx, Handle::new(site.context));
        let block = self.blocks.device(site.table, &self.segment, context, at / BLOCK)?;
        Ok(block.offset((at % BLOCK) as u64))
    }

    /// The stream for halves that do not lead of copies whose slots are there.
    pub(super) fn stream_beside(
        &self,
        site: &CopySite<'_>,
        slots: usize,
    ) -> Result<Option<Arc<ExclusiveStream>>, CUresult> {
        let mut beside = self.beside.lock();
        let known = beside.get(&(site.ctx, slots)).and_then(Weak::upgrade);
        if let Some(stream) = known.filter(|stream| !stream.is_abandoned()) {
            return Ok(Some(stream));
        }
        let new = ExclusiveStream::for_waiting(site.table, site.pool)?.map(Arc::new);
        beside.retain(|_, stream| stream.strong_count() > 0);
        if let Some(stream) = &new {
            beside.insert((site.ctx, slots), Arc::downgrade(stream));
        }
        Ok(new)
    }

    /// Nobody uses a place any more, with so many bytes. What the client is to be told, if it is
    /// worth while.
    pub(super) fn is_free(&self, flags: usize, bytes: usize) -> Option<FreePlaces> {
        let mut free = self.free.lock();
        free.places.push(flags as u64);
        free.bytes += bytes;
        if free.bytes < WORTH_TELLING {
            return None;
        }
        let places = std::mem::take(&mut *free).places;
        Some(FreePlaces { link: self.link, places })
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if self.blocks.are_unknown() {
            return;
        }
        let (blocks, segment, table) =
            (Arc::clone(&self.blocks), Arc::clone(&self.segment), self.table);
        // The driver may take its time.
        self.helpers.run(move || {
            if !blocks.unregister(table, &segment) {
                // The device may still know it.
                std::mem::forget(segment);
            }
        });
    }
}
