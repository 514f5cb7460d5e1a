//! What copies go through: page-locked memory, and the thread that looks after large ones.

use std::collections::HashMap;
use std::sync::Arc;

use outboard_abi::{CUresult, CUstream};
use outboard_driver::{Table, call};
use outboard_transport::Memory;
use outboard_wire::{ContextId, DevicePtr};

use super::budget::Charge;
use super::contexts::{Context, current};
use super::helpers::Helpers;
use super::io::Bulk;
use super::io::Replier;
use super::objects::Handle;
use super::returning::OnItsWay;
use super::slots::{Parcels, Slot, Slots};
use super::staging::{
    Account, Area, CopySite, FileThreads, PageLocking, Pool, SharedStaging, Unqueued, Warming,
    Watcher,
};

/// The memory of a session's copies.
pub(crate) struct Copies {
    slots: Slots,
    parcels: Parcels,
    /// How the driver locks the memory below.
    locking: PageLocking,
    /// What copies may have of the pools below.
    account: Arc<Account>,
    pools: HashMap<ContextId, Arc<Pool>>,
    shared: SharedStaging,
    /// Whether shared staging memory has been made known to the device ahead.
    shared_warm: bool,
    watcher: Arc<Watcher>,
    /// Memory that workers of other servers share.
    areas: Vec<Arc<Area>>,
    /// The threads of copies from and to files.
    file_threads: Arc<FileThreads>,
    helpers: Helpers,
}

/// Staging memory that a context will need, to be made ready on another thread.
pub(crate) enum Ahead {
    Own(Warming),
    Shared(SharedStaging, Arc<Memory>, ContextId),
}

impl Ahead {
    /// Makes it ready. The context is current.
    pub(crate) fn run(self, table: &Table) {
        match self {
            Ahead::Own(warming) => warming.run(table),
            Ahead::Shared(shared, memory, ctx) => shared.warm(table, &memory, ctx),
        }
    }
}

impl Copies {
    pub(crate) fn new(helpers: Helpers, locking: PageLocking) -> Copies {
        Copies {
            slots: Slots::default(),
            parcels: Parcels::default(),
            locking,
            account: Arc::new(Account::new(locking)),
            pools: HashMap::new(),
            shared: SharedStaging::new(locking),
            shared_warm: false,
            watcher: Watcher::new(helpers.clone()),
            areas: Vec::new(),
            file_threads: Arc::default(),
            helpers,
        }
    }

    /// A buffer for a small copy. The context is current.
    pub(crate) fn slot(&self, table: &Table, ctx: ContextId) -> Result<Slot, CUresult> {
        self.slots.take(table, ctx)
    }

    /// A buffer that holds `data`, for a small copy to the device. The context is current.
    pub(crate) fn pack(
        &mut self,
        table: &Table,
        ctx: ContextId,
        data: &[u8],
    ) -> Result<Slot, CUresult> {
        self.parcels.pack(table, &self.slots, ctx, data)
    }

    /// Keeps that buffer until the stream has come this far.
    pub(crate) fn sent(
        &mut self,
        table: &Table,
        slot: Slot,
        stream: CUstream,
    ) -> Result<(), CUresult> {
        self.parcels.sent(table, slot, stream)
    }

    /// Large copies are to be expected in a context: what is to be made ready for them, if that
    /// takes long and has not been done. `shared`: the memory that the client shares.
    pub(crate) fn expect(&mut self, ctx: ContextId, shared: Option<&Arc<Memory>>) -> Option<Ahead> {
        if !self.locking.is_slow() {
            return None;
        }
        match shared {
            Some(memory) if !std::mem::replace(&mut self.shared_warm, true) => {
                Some(Ahead::Shared(self.shared.clone(), Arc::clone(memory), ctx))
            }
            Some(_) => None,
            None => {
                let pool = self.pools.entry(ctx).or_insert_with(|| Pool::new(&self.account));
                pool.warming().map(Ahead::Own)
            }
        }
    }

    /// Where a large copy of a context runs, in `stream`.
    pub(crate) fn site<'a>(
        &'a mut self,
        table: &'static Table,
        (ctx, context): (ContextId, &Context),
        stream: CUstream,
        replier: &'a Replier,
    ) -> CopySite<'a> {
        let pool = self.pools.entry(ctx).or_insert_with(|| Pool::new(&self.account));
        let watcher = &self.watcher;
        CopySite {
            table,
            context: current(context),
            stream,
            pool,
            replier,
            bulk: replier.bulk(),
            ctx,
            watcher,
            registered: None,
        }
    }

    /// The threads that copies from and to files may have.
    pub(crate) fn file_threads(&self) -> Arc<FileThreads> {
        Arc::clone(&self.file_threads)
    }

    /// Whether the driver does not know yet of all copies that the program has queued.
    pub(crate) fn are_any_unqueued(&self) -> bool {
        self.watcher.unqueued().are_any()
    }

    /// Those copies.
    pub(crate) fn unqueued(&self) -> Arc<Unqueued> {
        Arc::clone(self.watcher.unqueued())
    }

    /// Has the driver free memory in the order of a stream once it knows of all copies before. The
    /// stream ends behind that ([`Copies::end_stream`]). `counts` is dropped then.
    pub(crate) fn free_behind_unqueued(
        &self,
        table: &'static Table,
        context: Context,
        stream: CUstream,
        address: DevicePtr,
        counts: (Option<Charge>, OnItsWay),
    ) {
        let stream = Handle::new(stream);
        self.watcher.unqueued().then(move || {
            let _ = call!(table, cuCtxSetCurrent(current(&context)))
                .and_then(|()| call!(table, cuMemFreeAsync(address.0, stream.get())));
            drop(counts);
        });
    }

    /// The thread that looks after large copies.
    pub(crate) fn watcher(&self) -> Arc<Watcher> {
        Arc::clone(&self.watcher)
    }

    /// What the device knows of the memory that the client shares.
    pub(crate) fn shared(&self) -> SharedStaging {
        self.shared.clone()
    }

    /// The memory that the worker at the other end of a link shares, if it does. Links that
    /// `is_there` does not know any more have none.
    pub(crate) fn area(
        &mut self,
        table: &'static Table,
        (number, link): (u32, &Bulk),
        is_there: impl Fn(u32) -> bool,
    ) -> Option<Arc<Area>> {
        if let Some(area) = self.areas.iter().find(|area| area.link() == number) {
            return Some(Arc::clone(area));
        }
        let area = Arc::new(Area::new(number, link.area()?, table, &self.helpers, self.locking));
        self.areas.retain(|area| is_there(area.link()));
        self.areas.push(Arc::clone(&area));
        Some(area)
    }

    /// Ends a stream, behind what is to be freed in its order. Its context is current.
    pub(crate) fn end_stream(
        &self,
        table: &'static Table,
        (ctx, context): (ContextId, Context),
        stream: CUstream,
    ) -> Result<(), CUresult> {
        if let Some(pool) = self.pools.get(&ctx) {
            pool.stream_destroyed(table, stream);
        }
        let unqueued = self.watcher.unqueued();
        if !unqueued.is_busy() {
            return call!(table, cuStreamDestroy_v2(stream));
        }
        let stream = Handle::new(stream);
        unqueued.then(move || {
            let _ = call!(table, cuCtxSetCurrent(current(&context)))
                .and_then(|()| call!(table, cuStreamDestroy_v2(stream.get())));
        });
        Ok(())
    }

    /// A context is about to end.
    pub(crate) fn forget(&mut self, table: &Table, ctx: ContextId) {
        self.parcels.forget(ctx);
        self.slots.forget(ctx);
        if let Some(pool) = self.pools.remove(&ctx) {
            pool.close(table);
        }
        self.shared.forget(ctx);
        self.areas.iter().for_each(|area| area.forget(ctx));
    }

    /// Ends the thread that looks after large copies, which elsewhere ends with the process.
    #[cfg(fuzzing)]
    pub(crate) fn end(&self) {
        self.watcher.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::{calls, table};

    const ONE: ContextId = ContextId(1);
    const TWO: ContextId = ContextId(2);

    #[test]
    fn staging_memory_is_made_ready_once_for_each_context() {
        let mut copies = Copies::new(Helpers::new(), PageLocking::Pins);
        let one = copies.expect(ONE, None);
        assert!(matches!(one, Some(Ahead::Own(_))));
        assert!(copies.expect(ONE, None).is_none(), "it is being made ready");
        assert!(matches!(copies.expect(TWO, None), Some(Ahead::Own(_))));
        drop(one);
        copies.forget(table(), ONE);
        assert!(copies.expect(ONE, None).is_some(), "a context that gets its name has none");
    }

    #[test]
    fn nothing_is_made_ready_for_a_driver_that_pins_no_pages() {
        let mut copies = Copies::new(Helpers::new(), PageLocking::Nothing);
        assert!(copies.expect(ONE, None).is_none());
    }

    #[test]
    fn buffers_are_used_again_in_their_context_while_it_is_there() {
        let (table, mut copies) = (table(), Copies::new(Helpers::new(), PageLocking::Pins));
        let allocated = |ctx, copies: &Copies| {
            calls();
            drop(copies.slot(table, ctx).unwrap());
            calls().len()
        };
        assert_eq!((allocated(ONE, &copies), allocated(ONE, &copies)), (1, 0));
        assert_eq!(allocated(TWO, &copies), 1, "page-locked memory goes with its context");
        copies.forget(table, ONE);
        assert_eq!((allocated(ONE, &copies), allocated(TWO, &copies)), (1, 0));
    }
}
