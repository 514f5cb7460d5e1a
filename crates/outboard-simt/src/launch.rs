//! What a launch is made of.

use std::collections::VecDeque;

/// Where text written by a kernel belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// `printf`.
    Stdout,
    /// The message of a failed `assert`.
    Stderr,
}

/// Receives what a grid wrote, once it has ended: in the order of blocks, and within a block in the
/// order written.
pub type OutputSink<'a> = &'a (dyn Fn(OutputStream, &[u8]) + Sync);

/// Configuration and arguments of one launch.
#[derive(Clone, Copy)]
pub struct Launch<'a> {
    /// Blocks in each dimension, each at least 1.
    pub grid: [u32; 3],
    /// Threads of a block in each dimension, each at least 1, 1024 in all.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// Contents of the parameter buffer, laid out as
    /// [`KernelInfo::params`](crate::KernelInfo::params) says. A shorter buffer is filled with
    /// zeros.
    pub params: &'a [u8],
    /// All blocks must be resident at once, because they wait for each other
    /// (`cuLaunchCooperativeKernel`).
    pub cooperative: bool,
    /// How many of the engine's threads may run it, the launching one among them.
    pub processors: u32,
    /// Value of `%gridid`.
    pub grid_id: u64,
    /// Where `printf` goes; without one it is dropped.
    pub output: Option<OutputSink<'a>>,
}

impl<'a> Launch<'a> {
    /// A launch of `grid` blocks of `block` threads without dynamic shared memory or output.
    pub fn new(grid: [u32; 3], block: [u32; 3], params: &'a [u8]) -> Launch<'a> {
        let (cooperative, processors) = (false, u32::MAX);
        Launch {
            grid,
            block,
            dynamic_shared: 0,
            params,
            cooperative,
            processors,
            grid_id: 0,
            output: None,
        }
    }
}

impl std::fmt::Debug for Launch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Launch")
            .field("grid", &self.grid)
            .field("block", &self.block)
            .field("dynamic_shared", &self.dynamic_shared)
            .field("params", &self.params.len())
            .field("cooperative", &self.cooperative)
            .finish_non_exhaustive()
    }
}

/// Texts that kernels wrote, bounded: when full, the oldest go.
pub(crate) struct Fifo {
    limit: u64,
    bytes: u64,
    entries: VecDeque<(OutputStream, Vec<u8>)>,
}

impl Fifo {
    pub(crate) fn new(limit: u64) -> Fifo {
        Fifo { limit, bytes: 0, entries: VecDeque::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn push(&mut self, stream: OutputStream, text: Vec<u8>) {
        // What an entry costs beyond its text is counted too, or empty texts would be unbounded.
        self.bytes += text.len() as u64 + 32;
        self.entries.push_back((stream, text));
        while self.bytes > self.limit {
            let Some((_, text)) = self.entries.pop_front() else { break };
            self.bytes -= text.len() as u64 + 32;
        }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &(OutputStream, Vec<u8>)> {
        self.entries.iter()
    }
}
