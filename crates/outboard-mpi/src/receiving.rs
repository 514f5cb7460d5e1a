//! What MPI has received in place of device memory, or in place of the program's message.

use std::ffi::{c_int, c_void};

use crate::device::DeviceMemory;
use crate::header::{self, Header};
use crate::job::{Job, job, sender};
use crate::mpi::{
    Handle, SUCCESS, Status, fail, is_truncated, payload, real, received, received_bytes,
    set_received, span,
};
use crate::probing::{Origin, Wanted, redirect};
use crate::staged::{Staged, Use};
use crate::worker::Worker;

/// The buffer for a message.
pub(crate) struct Receiving {
    memory: Staged,
    count: c_int,
    datatype: Handle,
    comm: Handle,
    /// If MPI may write a header there.
    job: Option<&'static Job>,
    /// The message that the program has probed, if it is going to receive that one.
    origin: Option<Origin>,
}

impl Receiving {
    pub(crate) fn new(
        buffer: *mut c_void,
        (count, datatype): (c_int, Handle),
        comm: Handle,
    ) -> Receiving {
        let memory = Staged::new(buffer, count, datatype, Use::Fills);
        let job = job().filter(|_| payload(datatype, count) >= header::BYTES as u64);
        Receiving { memory, count, datatype, comm, job, origin: None }
    }

    /// As [`Receiving::new`], for a message that the program may have asked about; which one MPI is
    /// to receive then.
    pub(crate) fn wanted(
        buffer: *mut c_void,
        elements: (c_int, Handle),
        wanted: Wanted,
    ) -> (Receiving, Wanted) {
        let buffer = Receiving::new(buffer, elements, wanted.comm);
        let (here, origin) = redirect(wanted);
        (buffer.from(origin), here)
    }

    /// The buffer is for a message that the program has probed.
    pub(crate) fn from(self, origin: Option<Origin>) -> Receiving {
        Receiving { origin, ..self }
    }

    /// Whether there is something to do when MPI has received.
    pub(crate) fn is_watched(&self) -> bool {
        self.memory.is_device_memory() || self.job.is_some() || self.origin.is_some()
    }

    /// What the program calls it.
    pub(crate) fn elements(&self) -> (c_int, Handle) {
        (self.count, self.datatype)
    }

    pub(crate) fn address(&mut self) -> *mut c_void {
        self.memory.address()
    }

    /// MPI has received, and written a status, which is made to say what the program expects. The
    /// result is that of the program's call.
    pub(crate) fn finish(mut self, status: Status) -> c_int {
        let found = self.header(status);
        if let Some(origin) = &self.origin {
            origin.tell(status);
        }
        if let Some((worker, header)) = found {
            return self.take(worker, header, status);
        }
        if self.memory.is_device_memory() {
            let elements = received(status, self.datatype);
            self.memory.written_in_part(elements);
        }
        SUCCESS
    }

    /// MPI has received, and the program asks whether it has: has a status say what the program
    /// expects.
    pub(crate) fn tell(&mut self, status: Status) {
        let header = self.header(status);
        if let Some(origin) = &self.origin {
            origin.tell(status);
        } else if let Some((_, header)) = header {
            set_received(status, header.bytes);
        }
    }

    /// The header that has come, if one has.
    fn header(&mut self, status: Status) -> Option<(&'static Worker, Header)> {
        let job = self.job?;
        let worker = job.worker()?;
        if received_bytes(status) != Some(header::BYTES) {
            return None;
        }
        let mut all = [0_u8; header::BYTES];
        match self.lies_dense() {
            // SAFETY: MPI has written so many bytes there.
            true => unsafe {
                std::ptr::copy_nonoverlapping(self.address().cast(), all.as_mut_ptr(), all.len());
            },
            false => all.copy_from_slice(self.packed()?.get(..header::BYTES)?),
        }
        Some((worker, job.header(&all)?))
    }

    /// Whether the elements have no gaps.
    fn lies_dense(&self) -> bool {
        span(self.datatype, 1).dense.is_some()
    }

    /// The first elements, without gaps: at least a header's.
    fn packed(&mut self) -> Option<Vec<u8>> {
        let element = payload(self.datatype, 1).max(1);
        let count = (header::BYTES as u64).div_ceil(element) as c_int;
        let mut all = vec![0_u8; (element * count as u64) as usize];
        let (mut place, room) = (0, c_int::try_from(all.len()).ok()?);
        // SAFETY: the buffer has more elements, and there is room for these.
        let result = unsafe {
            real!(
                c"PMPI_Pack",
                fn(*mut c_void, c_int, Handle, *mut c_void, c_int, *mut c_int, Handle)
            )(
                self.address(),
                count,
                self.datatype,
                all.as_mut_ptr().cast(),
                room,
                &mut place,
                self.comm,
            )
        };
        (result == SUCCESS).then_some(all)
    }

    /// Has the worker fetch what the header stands for.
    fn take(mut self, worker: &Worker, header: Header, status: Status) -> c_int {
        let Header { link, number, bytes } = header;
        if bytes > payload(self.datatype, self.count) {
            worker.refuse((link, number));
            return is_truncated(self.comm);
        }
        set_received(status, bytes);
        if let Some(address) = self.memory.on_device() {
            fetch(worker, &header, address);
            return SUCCESS;
        }
        let len = bytes as usize;
        if self.lies_dense() {
            // SAFETY: the buffer has room for so many bytes.
            let to = unsafe { std::slice::from_raw_parts_mut(self.address().cast(), len) };
            fetch_to_host(worker, &header, to);
            self.memory.written_from_the_start(len);
            return SUCCESS;
        }
        let mut packed = vec![0; len];
        fetch_to_host(worker, &header, &mut packed);
        self.unpack(&packed);
        self.memory.written();
        SUCCESS
    }

    /// Puts bytes where a type with gaps has them.
    fn unpack(&mut self, packed: &[u8]) {
        let element = payload(self.datatype, 1).max(1) as usize;
        let (Ok(len), Ok(count)) =
            (c_int::try_from(packed.len()), c_int::try_from(packed.len() / element))
        else {
            fail("a message with gaps has more than 2^31 bytes, which is not supported");
        };
        if !packed.len().is_multiple_of(element) {
            fail("a part of an element with gaps was received, which is not supported");
        }
        let mut place = 0;
        // SAFETY: the bytes are there, and the buffer has room for so many elements.
        unsafe {
            real!(
                c"PMPI_Unpack",
                fn(*const c_void, c_int, *mut c_int, *mut c_void, c_int, Handle, Handle)
            )(
                packed.as_ptr().cast(),
                len,
                &mut place,
                self.address(),
                count,
                self.datatype,
                self.comm,
            )
        };
    }
}

/// Has the worker fetch a message to device memory.
fn fetch(worker: &Worker, header: &Header, address: u64) {
    let Header { link, number, bytes } = *header;
    if let Err(why) = worker.take((link, number), address, bytes, 0) {
        fail(&format!("a message of rank {} is lost: {why}", sender(link)));
    }
}

/// The same to host memory, by way of device memory.
fn fetch_to_host(worker: &Worker, header: &Header, to: &mut [u8]) {
    let memory = match DeviceMemory::allocate(header.bytes) {
        Ok(memory) => memory,
        Err(error) => fail(&format!(
            "there is no device memory to receive a message of {} bytes: CUDA's error {}",
            header.bytes, error.0
        )),
    };
    let there = memory.memory();
    if let Some(address) = there.of_device_only() {
        fetch(worker, header, address);
        there.read(0, to);
    }
}
