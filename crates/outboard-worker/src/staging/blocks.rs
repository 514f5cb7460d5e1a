//! Blocks of memory that another process shares with this one: the device knows each from its first
//! use on.

use std::collections::{HashMap, HashSet};

use outboard_abi::{CUctx_st, CUresult};
use outboard_driver::{Table, call};
use outboard_session::groups::BLOCK;
use outboard_transport::segment::Segment;
use outboard_wire::{ContextId, DevicePtr};
use parking_lot::Mutex;

use super::locking::PageLocking;
use super::memory::REGISTER;
use crate::objects::Handle;

/// Which blocks of a segment the device knows.
#[derive(Default)]
pub(super) struct KnownBlocks {
    locking: PageLocking,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    blocks: HashMap<usize, Block>,
    /// Those that a context has registered which is gone: the driver may know them still.
    left: HashSet<usize>,
}

/// The context that registered a block, and the block's address there.
#[derive(Clone, Copy)]
struct Block {
    ctx: ContextId,
    context: Handle<CUctx_st>,
    device: DevicePtr,
}

impl KnownBlocks {
    /// Of a driver that locks pages in this way.
    pub(super) fn new(locking: PageLocking) -> KnownBlocks {
        KnownBlocks { locking, known: Mutex::default() }
    }

    /// By which address the device knows a block. The context is current.
    pub(super) fn device(
        &self,
        table: &Table,
        segment: &Segment,
        (ctx, context): (ContextId, Handle<CUctx_st>),
        block: usize,
    ) -> Result<DevicePtr, CUresult> {
        // Held while one is registered: a thread that needs the same block has to wait in any case.
        let mut known = self.known.lock();
        if let Some(block) = known.blocks.get(&block) {
            return Ok(block.device);
        }
        if block >= segment.bytes() / BLOCK {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the block lies within the segment.
        let address = unsafe { segment.as_ptr().add(block * BLOCK) };
        self.locking.prepare(address, BLOCK);
        match call!(table, cuMemHostRegister_v2(address.cast(), BLOCK, REGISTER)) {
            Ok(()) => {}
            Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
                if known.left.contains(&block) => {}
            Err(error) => return Err(error),
        }
        let mut device = DevicePtr::NULL;
        call!(table, cuMemHostGetDevicePointer_v2(&raw mut device.0, address.cast(), 0))?;
        known.left.remove(&block);
        known.blocks.insert(block, Block { ctx, context, device });
        Ok(device)
    }

    /// A context is about to go, and what it registered with it.
    pub(super) fn forget(&self, ctx: ContextId) {
        let mut known = self.known.lock();
        let Known { blocks, left } = &mut *known;
        left.extend(blocks.extract_if(|_, block| block.ctx == ctx).map(|(number, _)| number));
    }

    /// Whether the device knows no block, or no longer does.
    pub(super) fn are_unknown(&self) -> bool {
        let known = self.known.lock();
        known.blocks.is_empty() && known.left.is_empty()
    }

    /// Has the device forget all blocks, which it does not use any more; whether it has.
    pub(super) fn unregister(&self, table: &Table, segment: &Segment) -> bool {
        let mut known = self.known.lock();
        let Known { blocks, left } = &mut *known;
        for (number, block) in blocks.drain() {
            // SAFETY: the block lies within the segment.
            let address = unsafe { segment.as_ptr().add(number * BLOCK) };
            let outcome = call!(table, cuCtxSetCurrent(block.context.get()))
                .and_then(|()| call!(table, cuMemHostUnregister(address.cast())));
            if outcome.is_err() {
                left.insert(number);
            }
        }
        left.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::{calls, table};

    const ONE: ContextId = ContextId(1);
    const TWO: ContextId = ContextId(2);

    #[test]
    fn each_block_is_registered_once_for_as_long_as_its_context_is_there() {
        let segment = Segment::create("test", 2 * BLOCK).unwrap();
        let (table, blocks) = (table(), KnownBlocks::default());
        let context = |ctx| (ctx, Handle::new(core::ptr::null_mut()));
        let registered = |ctx, block| {
            calls();
            blocks.device(table, &segment, context(ctx), block).unwrap();
            calls().iter().filter(|call| call.starts_with("cuMemHostRegister")).count()
        };
        assert!(blocks.are_unknown());
        assert_eq!((registered(ONE, 0), registered(TWO, 0), registered(TWO, 1)), (1, 0, 1));
        let none = blocks.device(table, &segment, context(ONE), 2);
        assert_eq!(none, Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        blocks.forget(ONE);
        // The driver may know it still.
        calls();
        assert!(!blocks.unregister(table, &segment) && !blocks.are_unknown());
        assert_eq!(calls().len(), 2, "of the other one");
        assert_eq!((registered(TWO, 0), registered(TWO, 1)), (1, 1));
        assert!(blocks.unregister(table, &segment) && blocks.are_unknown());
    }
}
