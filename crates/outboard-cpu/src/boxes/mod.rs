//! Copies of boxes: between memory with rows, arrays, and the host.

mod calls;

use std::ptr;
use std::sync::Arc;

use outboard_front::backend::{Extent, Layout};

use crate::array::Array;

/// One side: where its rows lie, and what must live until they have been copied.
#[derive(Clone)]
struct Rows {
    address: u64,
    layout: Layout,
    _array: Option<Arc<Array>>,
}

/// A copy of a box in a stream.
pub(crate) struct BoxWork {
    dst: Rows,
    src: Rows,
    extent: Extent,
    /// The source's bytes, packed, if the program may have changed them meanwhile.
    staged: Option<Box<[u8]>>,
}

impl BoxWork {
    pub(crate) fn run(&self) {
        let packed = Layout::packed(self.extent);
        let (source, layout) = match &self.staged {
            Some(bytes) => (bytes.as_ptr() as u64, packed),
            None => (self.src.address, self.src.layout),
        };
        let rows = self.extent.rows(self.dst.layout).zip(self.extent.rows(layout));
        for ((to, bytes), (from, _)) in rows {
            // SAFETY: device addresses of the box were checked to lie in allocated or registered
            // memory, or in an array that lives as long as this; host addresses are the program's,
            // which promised that they are valid until the copy is done.
            unsafe {
                ptr::copy(
                    (source + from) as *const u8,
                    (self.dst.address + to) as *mut u8,
                    bytes as usize,
                )
            };
        }
    }
}
