//! A driver for unit tests of parts: its functions do nothing but note that they were called.

use core::ffi::CStr;
use std::cell::RefCell;

use outboard_driver::Table;

thread_local! {
    static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// The calls of this thread since it last asked.
pub(crate) fn calls() -> Vec<String> {
    CALLS.take()
}

/// Functions that note their first argument, and succeed.
macro_rules! functions {
    ($find:ident: $($name:ident)*) => {
        $(
            #[expect(non_snake_case, reason = "the driver's name")]
            extern "C" fn $name(first: usize) -> i32 {
                CALLS.with_borrow_mut(|calls| {
                    calls.push(format!(concat!(stringify!($name), "({:#x})"), first))
                });
                0
            }
        )*

        fn $find(name: &CStr) -> *const core::ffi::c_void {
            match name.to_str() {
                $(Ok(stringify!($name)) => $name as extern "C" fn(usize) -> i32 as *const _,)*
                _ => core::ptr::null(),
            }
        }
    };
}

functions!(find:
    cuCtxSetCurrent
    cuEventCreate
    cuEventDestroy_v2
    cuEventRecord
    cuGraphDestroy
    cuGraphExecDestroy
    cuMemHostAlloc
    cuMemHostGetDevicePointer_v2
    cuMemHostRegister_v2
    cuMemHostUnregister
    cuMemPoolDestroy
    cuMemPoolGetAttribute
    cuMemPoolSetAttribute
    cuMemPoolTrimTo
    cuModuleLoadDataEx
    cuStreamIsCapturing
    cuStreamQuery
    cuStreamWaitEvent
);

/// The driver.
pub(crate) fn table() -> &'static Table {
    calls();
    // SAFETY: the functions take one argument or more, of which they only look at the first, and
    // none writes to memory of its caller.
    let table = unsafe { Table::load(find) };
    Box::leak(Box::new(table))
}
