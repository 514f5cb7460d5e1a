//! Functions of the program that a stream calls: `cuLaunchHostFunc`, `cuStreamAddCallback`.

use core::cell::Cell;
use core::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use outboard_abi::{CUhostFn, CUresult, CUstream, CUstreamCallback};

use crate::gone;

type Result<T> = std::result::Result<T, CUresult>;

/// A function of the program that is to be called once, in a stream's order.
#[derive(Debug)]
pub struct HostCall {
    function: Function,
    data: *mut c_void,
}

#[derive(Debug)]
enum Function {
    /// Called with its data, if all went well before.
    Plain(unsafe extern "C" fn(*mut c_void)),
    /// Called with the stream as the program named it and what became of the work before, even
    /// after an error.
    WithStatus(unsafe extern "C" fn(CUstream, CUresult, *mut c_void), CUstream),
}

// SAFETY: the program gave the function and its data to be used on a thread of the driver's.
unsafe impl Send for HostCall {}

/// Whether any such function was ever queued: before the first one, no call checks whether one is
/// running.
static USED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

impl HostCall {
    /// A function of `cuLaunchHostFunc`, or of a host node.
    ///
    /// # Safety
    /// The program gave the function and its data for this.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` without a function.
    pub unsafe fn plain(function: CUhostFn, data: *mut c_void) -> Result<HostCall> {
        let function = function.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        prepare();
        Ok(HostCall { function: Function::Plain(function), data })
    }

    /// A function of `cuStreamAddCallback`.
    ///
    /// # Safety
    /// As of [`HostCall::plain`].
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` without a function.
    pub unsafe fn with_status(
        function: CUstreamCallback,
        stream: CUstream,
        data: *mut c_void,
    ) -> Result<HostCall> {
        let function = function.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        prepare();
        Ok(HostCall { function: Function::WithStatus(function, stream), data })
    }

    /// Whether it is called after an error too.
    pub fn is_always_called(&self) -> bool {
        matches!(self.function, Function::WithStatus(..))
    }

    /// Calls the function on this thread, which must be one of ours. `status` is what became of the
    /// work before it. Once the process exits, nothing is called any more: what the function needs
    /// may be gone.
    pub fn run(self, status: CUresult) {
        self.call(status);
    }

    /// As [`HostCall::run`], for a function that is called again and again, such as a graph's.
    pub fn call(&self, status: CUresult) {
        if gone::is_exiting() {
            return;
        }
        let before = INSIDE.replace(true);
        // SAFETY: the program gave the function to be called so.
        unsafe {
            match self.function {
                Function::Plain(function) if status == CUresult::CUDA_SUCCESS => {
                    function(self.data)
                }
                Function::Plain(_) => {}
                Function::WithStatus(function, stream) => function(stream, status, self.data),
            }
        }
        INSIDE.set(before);
    }
}

fn prepare() {
    USED.store(true, Ordering::Relaxed);
}

/// `CUDA_ERROR_NOT_PERMITTED` within a function that a stream calls: it must not use CUDA.
#[inline]
pub(crate) fn outside() -> Result<()> {
    if is_inside() { Err(CUresult::CUDA_ERROR_NOT_PERMITTED) } else { Ok(()) }
}

/// Whether this thread is in a function that a stream calls.
#[inline]
pub(crate) fn is_inside() -> bool {
    USED.load(Ordering::Relaxed) && INSIDE.try_with(Cell::get).unwrap_or(false)
}

/// Does something that uses CUDA, even in a function that a stream calls: what it does must not
/// wait for that stream.
pub(crate) fn apart<T>(what: impl FnOnce() -> T) -> T {
    let before = INSIDE.try_with(|inside| inside.replace(false));
    let result = what();
    if let Ok(before) = before {
        let _ = INSIDE.try_with(|inside| inside.set(before));
    }
    result
}
