//! Host memory in place of device memory.

use std::ffi::{c_int, c_void};

use crate::device::DeviceMemory;
use crate::mpi::{Handle, Span, fail, form, span};

/// What MPI does with a buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Reads,
    /// It writes all of it.
    Fills,
    /// It writes some of it, or reads it before.
    Changes,
}

/// A buffer that MPI gets in place of the program's, if that is device memory.
pub(crate) struct Staged {
    of_program: *mut c_void,
    stand_in: Option<StandIn>,
}

struct StandIn {
    device: DeviceMemory,
    span: Span,
    host: Box<[u8]>,
}

impl Staged {
    /// The elements of a buffer.
    pub(crate) fn new(buffer: *const c_void, count: c_int, datatype: Handle, used: Use) -> Staged {
        let of_program = buffer.cast_mut();
        let count = usize::try_from(count).unwrap_or(0);
        let host_memory = Staged { of_program, stand_in: None };
        if count == 0 || buffer.is_null() || form().is_in_place(buffer) {
            return host_memory;
        }
        let Some(device) = DeviceMemory::of(buffer) else { return host_memory };
        let span = span(datatype, count);
        let mut host = vec![0; span.bytes].into_boxed_slice();
        // What lies between elements stays as it is.
        if used != Use::Fills || span.dense.is_none() {
            device.read(span.offset, &mut host);
        }
        Staged { of_program, stand_in: Some(StandIn { device, span, host }) }
    }

    /// As [`Staged::new`], for as many elements from each of some ranks.
    pub(crate) fn of_ranks(
        buffer: *const c_void,
        count: c_int,
        ranks: c_int,
        datatype: Handle,
        used: Use,
    ) -> Staged {
        let all = count.checked_mul(ranks);
        let Some(all) = all else { fail("a message has more than 2^31 elements") };
        Staged::new(buffer, all, datatype, used)
    }

    pub(crate) fn is_device_memory(&self) -> bool {
        self.stand_in.is_some()
    }

    /// The address of elements without gaps in memory that only the device uses.
    pub(crate) fn on_device(&self) -> Option<u64> {
        let stand_in = self.stand_in.as_ref()?;
        stand_in.span.dense.and_then(|_| stand_in.device.of_device_only())
    }

    /// What MPI gets.
    pub(crate) fn address(&mut self) -> *mut c_void {
        match &mut self.stand_in {
            None => self.of_program,
            Some(StandIn { span, host, .. }) => {
                host.as_mut_ptr().wrapping_offset(-span.offset).cast()
            }
        }
    }

    /// So many bytes have been written, without gaps.
    pub(crate) fn written_from_the_start(self, bytes: usize) {
        if let Some(StandIn { device, span, host }) = self.stand_in {
            device.write(span.offset, host.get(..bytes).unwrap_or(&host));
        }
    }

    /// MPI has written all of it.
    pub(crate) fn written(self) {
        if let Some(StandIn { device, span, host }) = self.stand_in {
            device.write(span.offset, &host);
        }
    }

    /// MPI has written so many elements; it has not said how many if they were no whole number.
    pub(crate) fn written_in_part(self, elements: Option<usize>) {
        let Some(StandIn { device, span, host }) = self.stand_in else { return };
        let Some(element) = span.dense else { return device.write(span.offset, &host) };
        let Some(elements) = elements else {
            fail("a part of an element was received into device memory, which is not supported")
        };
        let bytes = (elements * element).min(host.len());
        if bytes > 0 {
            device.write(span.offset, &host[..bytes]);
        }
    }
}
