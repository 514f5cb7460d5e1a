//! Memory of graphs: a node's address stays the same, launch after launch, so the block stays the
//! graph's and its executables' while those live.

use std::collections::HashMap;
use std::sync::Arc;

use outboard_abi::{CUgraphMem_attribute_enum as Attribute, CUresult};
use outboard_front::backend::{ContextId, ObjectId, Result};
use parking_lot::Mutex;

use crate::context::Context;

struct Block {
    context: Arc<Context>,
    /// `None` once the graph is gone.
    graph: Option<ObjectId>,
    /// Executables that allocate it.
    holders: usize,
    bytes: u64,
    /// A launch has allocated it and nothing has freed it since.
    live: bool,
}

impl Block {
    /// Whether no launch can allocate it any more.
    fn is_orphan(&self) -> bool {
        self.graph.is_none() && self.holders == 0
    }
}

/// The blocks of all graphs.
#[derive(Default)]
pub(crate) struct GraphMemory(Mutex<Blocks>);

#[derive(Default)]
struct Blocks {
    all: HashMap<u64, Block>,
    most_used: u64,
    most_reserved: u64,
}

impl Blocks {
    fn used(&self) -> u64 {
        self.all.values().filter(|block| block.live).map(|block| block.bytes).sum()
    }

    fn reserved(&self) -> u64 {
        self.all.values().map(|block| block.bytes).sum()
    }
}

impl GraphMemory {
    pub(super) fn add(&self, context: Arc<Context>, graph: ObjectId, address: u64, bytes: u64) {
        let mut blocks = self.0.lock();
        blocks
            .all
            .insert(address, Block { context, graph: Some(graph), holders: 0, bytes, live: false });
        blocks.most_reserved = blocks.most_reserved.max(blocks.reserved());
    }

    /// A launch comes to a node that allocates. It fails if the last launch's memory was never
    /// freed, unless it is to be freed now.
    pub(super) fn allocate(&self, address: u64, auto_free: bool) -> Result<()> {
        let mut blocks = self.0.lock();
        let block = blocks.all.get_mut(&address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if block.live && !auto_free {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        block.live = true;
        blocks.most_used = blocks.most_used.max(blocks.used());
        Ok(())
    }

    /// Frees a graph's memory, from a node or from a stream. False if it is not a graph's.
    pub(crate) fn free(&self, address: u64) -> bool {
        let mut blocks = self.0.lock();
        let Some(block) = blocks.all.get_mut(&address) else { return false };
        block.live = false;
        if block.is_orphan() {
            release(&mut blocks, address);
        }
        true
    }

    /// An executable will allocate these blocks.
    pub(super) fn hold(&self, addresses: &[u64]) {
        let mut blocks = self.0.lock();
        for address in addresses {
            if let Some(block) = blocks.all.get_mut(address) {
                block.holders += 1;
            }
        }
    }

    /// An executable is gone. Launches of it may be under way yet, so the blocks stay until they
    /// are freed or trimmed.
    pub(super) fn let_go(&self, addresses: &[u64]) {
        let mut blocks = self.0.lock();
        for address in addresses {
            if let Some(block) = blocks.all.get_mut(address) {
                block.holders = block.holders.saturating_sub(1);
            }
        }
    }

    /// A graph is gone: so is its memory, but what a launch has allocated stays until it is freed.
    pub(super) fn orphan(&self, graph: ObjectId) {
        let mut blocks = self.0.lock();
        let of_graph: Vec<u64> = blocks
            .all
            .iter()
            .filter(|(_, block)| block.graph == Some(graph))
            .map(|(address, _)| *address)
            .collect();
        for address in of_graph {
            if let Some(block) = blocks.all.get_mut(&address) {
                block.graph = None;
            }
        }
    }

    /// Gives back what nobody can use any more.
    pub(super) fn trim(&self) {
        let mut blocks = self.0.lock();
        let idle = |block: &Block| block.is_orphan() && !block.live;
        let idle: Vec<u64> = blocks
            .all
            .iter()
            .filter(|(_, block)| idle(block))
            .map(|(address, _)| *address)
            .collect();
        idle.into_iter().for_each(|address| release(&mut blocks, address));
    }

    pub(super) fn forget(&self, ctx: ContextId) {
        self.0.lock().all.retain(|_, block| block.context.id != ctx);
    }

    pub(super) fn attribute(&self, attribute: u32) -> Result<u64> {
        let blocks = self.0.lock();
        match Attribute(attribute) {
            Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => Ok(blocks.used()),
            Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => Ok(blocks.most_used),
            Attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => Ok(blocks.reserved()),
            Attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => Ok(blocks.most_reserved),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Lets a high-water mark begin anew.
    pub(super) fn reset(&self, attribute: u32) -> Result<()> {
        let mut blocks = self.0.lock();
        match Attribute(attribute) {
            Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => blocks.most_used = blocks.used(),
            Attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => {
                blocks.most_reserved = blocks.reserved()
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }
}

fn release(blocks: &mut Blocks, address: u64) {
    if let Some(block) = blocks.all.remove(&address) {
        // Its context may have ended, and taken it along.
        let _ = block.context.free(address);
    }
}
