//! Running grids: what compiled code sees of its block and thread, the scheduler of a block, and
//! the pool.

pub(crate) mod barrier;
pub(crate) mod block;
pub(crate) mod context;
pub(crate) mod grid;
pub(crate) mod mbarrier;
pub(crate) mod pool;
pub(crate) mod slot;
pub(crate) mod warp;
