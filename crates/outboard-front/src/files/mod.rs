//! Files: their bytes go to memory of devices and come from there, for Outboard's `libcufile.so.0`.
//!
//! [`File::read`] and [`File::write`] find out where the memory is and choose the way: host memory
//! is the file's directly (`host`), device memory is reached through this process
//! (`through_client`), or by a server that has the file as well (`by_reference`).

mod by_reference;
mod descriptor;
mod host;
mod lane;
pub(crate) mod mapped;
mod mappings;
mod pieces;
mod tensors;
mod through_client;

use std::os::fd::RawFd;

use outboard_abi::CUresult;

use crate::backend::{Backend, DevicePtr, HostPtr, UnifiedPtr};
use crate::context::{self, Here};
use crate::host_call;
use crate::memory::{check_found, context_of, find};
use crate::process::{Front, Process};

pub(crate) use crate::parts::files::File;
use crate::parts::memory::Kind;

/// Why no bytes were moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The error number of the file.
    File(i32),
    /// What the device or its memory has.
    Device(CUresult),
}

impl From<CUresult> for Failure {
    fn from(error: CUresult) -> Failure {
        Failure::Device(error)
    }
}

/// Bytes that were moved.
pub(crate) type Outcome = Result<usize, Failure>;

/// Where the memory of a transfer is.
enum Place {
    /// In this process. `shared`: a device may use it, too.
    Host { address: HostPtr, shared: bool },
    /// On a device.
    Device(Memory),
}

/// Device memory, and the context to which it belongs.
struct Memory {
    here: Here,
    address: DevicePtr,
    /// Nothing but the device has it: no page of it is here.
    plain: bool,
}

/// Opens a file for transfers, by a descriptor that stays the caller's.
pub(crate) fn open(front: &'static Front, fd: RawFd, writable: bool) -> Result<u64, i32> {
    let descriptor = descriptor::open_again(fd)?;
    let make = |handle| File {
        handle,
        descriptor,
        writable,
        read: Default::default(),
        written: Default::default(),
        served: Default::default(),
    };
    let file = front.files.table.insert(make).ok_or(libc::ENFILE)?;
    Ok(file.handle)
}

impl File {
    /// Reads `bytes` from `offset` on into memory of any kind. Fewer are moved at the end of the
    /// file. All of them have arrived when this returns; no stream of the program waits, and none
    /// is waited for. It may be called in a function that a stream calls.
    pub(crate) fn read<B: Backend>(
        &self,
        process: &'static Process<B>,
        to: UnifiedPtr,
        bytes: usize,
        offset: u64,
    ) -> Outcome {
        let mut referred = false;
        let moved = host_call::apart(|| match place(process, to, bytes)? {
            Place::Host { address, shared } => host::read(self, address, shared, bytes, offset),
            Place::Device(memory) => {
                let served = by_reference::read(process, self, &memory, bytes, offset);
                referred = served.is_some();
                let here = || through_client::read(process, self, &memory, bytes, offset);
                served.unwrap_or_else(here)
            }
        })?;
        self.read.count(moved, referred);
        process.files.read.count(moved, referred);
        Ok(moved)
    }

    /// Writes `bytes` of memory of any kind to `offset` and behind. What the program has queued in
    /// the default stream before comes first, except in a function that a stream calls: that stream
    /// may be one for which the default stream waits.
    pub(crate) fn write<B: Backend>(
        &self,
        process: &'static Process<B>,
        from: UnifiedPtr,
        bytes: usize,
        offset: u64,
    ) -> Outcome {
        if !self.writable {
            return Err(Failure::File(libc::EBADF));
        }
        let (in_order, mut referred) = (!host_call::is_inside(), false);
        let moved = host_call::apart(|| match place(process, from, bytes)? {
            Place::Host { address, shared } => host::write(self, address, shared, bytes, offset),
            Place::Device(memory) => {
                let served = by_reference::write(process, self, (&memory, in_order), bytes, offset);
                referred = served.is_some();
                let here =
                    || through_client::write(process, self, (&memory, in_order), bytes, offset);
                served.unwrap_or_else(here)
            }
        })?;
        self.written.count(moved, referred);
        process.files.written.count(moved, referred);
        Ok(moved)
    }

    /// Has what was written stored for good, wherever it was written.
    pub(crate) fn sync<B: Backend>(&self, process: &'static Process<B>) -> Result<(), i32> {
        by_reference::sync(process, self)?;
        descriptor::sync(&self.descriptor)
    }

    /// Has servers close it, too.
    pub(crate) fn close<B: Backend>(&self, process: &'static Process<B>) {
        by_reference::close(process, self);
    }
}

/// Whether nothing but a device has such memory: no page of it is here.
fn is_plain(kind: Kind) -> bool {
    matches!(kind, Kind::Device | Kind::Pooled(_) | Kind::Global | Kind::Mapped { .. })
}

/// Where `bytes` from `address` on are. Memory that is not known is the program's own.
fn place(front: &'static Front, address: UnifiedPtr, bytes: usize) -> Result<Place, CUresult> {
    let Some(found) = find(front, address) else {
        return Ok(Place::Host { address: address.host(), shared: false });
    };
    check_found(front, &found, address, bytes as u64)?;
    let allocation = &found.2;
    if allocation.kind.is_host() {
        return Ok(Place::Host { address: address.host(), shared: true });
    }
    let ctx = context_of(front, allocation)?;
    let context = context::by_id(front, ctx).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    let plain = is_plain(allocation.kind);
    Ok(Place::Device(Memory { here: context.live()?, address: address.device(), plain }))
}
