//! The launch interface of before CUDA 4: a function keeps the shape and the parameters of its next
//! launch.

/// The shape and parameters of a function's next launch.
#[derive(Clone, Debug)]
pub(crate) struct Configured {
    /// Threads of a block along x, y, z.
    pub(crate) block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub(crate) shared: u32,
    /// The parameter buffer.
    pub(crate) params: Vec<u8>,
}

impl Default for Configured {
    fn default() -> Configured {
        Configured { block: [1; 3], shared: 0, params: Vec::new() }
    }
}
