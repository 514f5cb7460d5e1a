//! What MPI sends in place of device memory: a header, or the bytes.

use std::ffi::{c_int, c_void};

use crate::device::DeviceMemory;
use crate::header;
use crate::job::job;
use crate::mpi::{Handle, Span, form, span};
use crate::staged::{Staged, Use};

/// What MPI sends.
pub(crate) enum Sending {
    Header(Box<[u8; header::BYTES]>),
    Elements { memory: Staged, count: c_int, datatype: Handle },
    Copy { bytes: Box<[u8]>, offset: isize, count: c_int, datatype: Handle },
}

impl Sending {
    /// The elements of a buffer, for a rank of a communicator.
    pub(crate) fn new(
        buffer: *const c_void,
        (count, datatype): (c_int, Handle),
        receiver: (c_int, Handle),
    ) -> Sending {
        if let Some(header) = offer(buffer, (count, datatype), receiver) {
            return Sending::Header(Box::new(header));
        }
        let memory = Staged::new(buffer, count, datatype, Use::Reads);
        Sending::Elements { memory, count, datatype }
    }

    /// A copy of elements of the host.
    ///
    /// # Safety
    /// They are there.
    pub(crate) unsafe fn copy_of(
        buffer: *const c_void,
        (count, datatype): (c_int, Handle),
    ) -> Sending {
        let Span { offset, bytes, .. } = span(datatype, usize::try_from(count).unwrap_or(0));
        let first = buffer.cast::<u8>().wrapping_offset(offset);
        // SAFETY: as the caller says.
        let bytes = unsafe { std::slice::from_raw_parts(first, bytes) }.into();
        Sending::Copy { bytes, offset, count, datatype }
    }

    /// Whether MPI is to be done with this before it is dropped.
    pub(crate) fn is_needed(&self) -> bool {
        match self {
            Sending::Header(_) | Sending::Copy { .. } => true,
            Sending::Elements { memory, .. } => memory.is_device_memory(),
        }
    }

    pub(crate) fn address(&mut self) -> *mut c_void {
        match self {
            Sending::Header(header) => header.as_mut_ptr().cast(),
            Sending::Elements { memory, .. } => memory.address(),
            Sending::Copy { bytes, offset, .. } => {
                bytes.as_mut_ptr().wrapping_offset(-*offset).cast()
            }
        }
    }

    pub(crate) fn count(&self) -> c_int {
        match self {
            Sending::Header(_) => header::BYTES as c_int,
            Sending::Elements { count, .. } | Sending::Copy { count, .. } => *count,
        }
    }

    pub(crate) fn datatype(&self) -> Handle {
        match self {
            Sending::Header(_) => form().byte(),
            Sending::Elements { datatype, .. } | Sending::Copy { datatype, .. } => *datatype,
        }
    }
}

/// Has the worker keep the elements for the receiver, if both can do so.
fn offer(
    buffer: *const c_void,
    (count, datatype): (c_int, Handle),
    receiver: (c_int, Handle),
) -> Option<[u8; header::BYTES]> {
    let job = job()?;
    let count = usize::try_from(count).ok().filter(|count| *count > 0 && !buffer.is_null())?;
    let address = DeviceMemory::of(buffer)?.of_device_only()?;
    let bytes = (span(datatype, count).dense? * count) as u64;
    Some(job.encode(&job.offer(address, bytes, receiver)?))
}
