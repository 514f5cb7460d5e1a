//! How much kernels may use of what a program sets itself.

/// Sizes that `cuCtxSetLimit` sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Bytes of stack per thread, beyond what a kernel is known to need; used by recursion. Default
    /// 64 KiB.
    Stack,
    /// Bytes of text that the `printf` calls of one launch may leave behind; what is beyond drops
    /// the oldest. Default 1 MiB.
    PrintfFifo,
    /// Bytes of the heap of `malloc` in kernels. Fixed by its first use. Default 8 MiB.
    MallocHeap,
}
