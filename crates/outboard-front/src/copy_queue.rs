//! The one way that every copy takes: told apart by where its sides are, and queued.

use outboard_abi::CUresult;
use outboard_abi::CUstream;

use crate::backend::{Backend, BoxCopy, CopyMode, Extent, Memory, Rect, Result, Side, StreamId};
use crate::border::require;
use crate::capture;
use crate::context::Here;
use crate::copy::path::Copy;
use crate::memory::{check_for, find, is_synchronous};
use crate::process::{Front, Process};
use crate::stream::{DefaultStream, resolve_default};

/// Whether a call returns before its copy is done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Synchronous,
    Asynchronous,
    /// As [`Wait::Asynchronous`], but whatever the source is, the program may change it as soon as the call returns.
    SourceTaken,
}

/// A synchronous copy from pageable memory that is not larger may return before its bytes have reached the device, as CUDA documents.
const EARLY: u64 = 64 << 10;

/// Whether a side is managed memory.
fn is_managed(front: &'static Front, side: &Side) -> bool {
    match side.memory {
        Memory::Device(address) => {
            find(front, address.unified()).is_some_and(|(_, _, allocation)| allocation.kind.is_managed())
        }
        _ => false,
    }
}

/// Where a copy is queued.
pub(crate) struct Queue {
    pub(crate) here: Here,
    pub(crate) stream: StreamId,
    pub(crate) wait: Wait,
}

impl Queue {
    /// Queues a copy. Everything that copies comes through here.
    ///
    /// # Safety
    /// Host memory that the copy names is the program's to read and write, for as long as CUDA says.
    pub(crate) unsafe fn submit<B: Backend>(&self, process: &'static Process<B>, copy: &Copy) -> Result<()> {
        if copy.extent.is_empty() {
            return Ok(());
        }
        let mut sides = copy.sides(process, self.here.id)?;
        if let Some(outcome) = capture::copy(process, &self.here, self.stream, &sides) {
            return outcome;
        }
        if matches!(sides.dst.memory, Memory::Host(_)) {
            self.here.pay()?;
        }
        let bytes = sides.extent.bytes().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let in_pieces = |side: &Side| !matches!(side.memory, Memory::Array(_)) && side.layout.is_packed(copy.extent);
        if in_pieces(&sides.dst) && in_pieces(&sides.src) {
            sides.extent = Extent::row(bytes);
        }
        // SAFETY: by the contract above.
        unsafe {
            match (sides.dst.memory, sides.src.memory) {
                (Memory::Host(_), Memory::Host(_)) => return self.on_host(process, &sides),
                _ if sides.extent == Extent::row(bytes) => self.row(process, &sides, bytes)?,
                _ => self.boxed(process, &sides)?,
            }
        }
        // The program's other streams may use at once what a synchronous copy has brought.
        match sides.src.memory {
            // What is larger the backend has waited for.
            Memory::Host(_) if self.wait == Wait::Synchronous && bytes <= EARLY && self.is_pinned(process, &sides) => {
                self.here.note(process.backend.stream_synchronize(self.here.id, self.stream))
            }
            // The program may look at managed memory as soon as the call returns.
            _ if self.wait == Wait::Synchronous
                && (is_managed(process, &sides.dst)
                    || is_managed(process, &sides.src)
                    || always_waits(process, &sides)) =>
            {
                self.here.note(process.backend.stream_synchronize(self.here.id, self.stream))
            }
            _ => Ok(()),
        }
    }

    /// Whether the host's side lies in page-locked memory.
    fn is_pinned(&self, front: &'static Front, copy: &BoxCopy) -> bool {
        let (host, side) = match (copy.dst.memory, copy.src.memory) {
            (Memory::Host(host), _) => (host, &copy.dst),
            (_, Memory::Host(host)) => (host, &copy.src),
            _ => return true,
        };
        let span = side.layout.span(copy.extent).unwrap_or(u64::MAX);
        find(front, host.unified())
            .is_some_and(|(base, len, a)| a.kind.is_host() && span <= len - host.unified().since(base))
    }

    /// What a copy from or to this host memory may assume about it.
    fn mode(&self, front: &'static Front, copy: &BoxCopy) -> CopyMode {
        match self.wait {
            Wait::Synchronous => CopyMode::Synchronous,
            Wait::SourceTaken if matches!(copy.src.memory, Memory::Host(_)) => CopyMode::Pageable,
            Wait::Asynchronous | Wait::SourceTaken if self.is_pinned(front, copy) => CopyMode::Pinned,
            Wait::Asynchronous | Wait::SourceTaken => CopyMode::Pageable,
        }
    }

    /// Copies one row of bytes.
    ///
    /// # Safety
    /// As [`Queue::submit`].
    unsafe fn row<B: Backend>(&self, process: &'static Process<B>, copy: &BoxCopy, bytes: u64) -> Result<()> {
        let (device, ctx, stream) = (process.backend, self.here.id, self.stream);
        // SAFETY: by the contract above.
        self.here.note(unsafe {
            match (copy.dst.memory, copy.src.memory) {
                (Memory::Device(dst), Memory::Host(src)) => {
                    check_for(process, self.here.id, dst, bytes)?;
                    device.copy_to_device(ctx, dst, src.pointer(), bytes, stream, self.mode(process, copy))
                }
                (Memory::Host(dst), Memory::Device(src)) => {
                    check_for(process, self.here.id, src, bytes)?;
                    device.copy_to_host(ctx, dst.pointer(), src, bytes, stream, self.mode(process, copy))
                }
                (Memory::Device(dst), Memory::Device(src)) => {
                    check_for(process, self.here.id, dst, bytes)?;
                    check_for(process, self.here.id, src, bytes)?;
                    let rect = Rect { width: bytes, height: 1, dst_pitch: bytes, src_pitch: bytes };
                    device.copy_on_device(ctx, dst, src, rect, stream)
                }
                _ => device.copy_box(ctx, copy, stream, self.mode(process, copy)),
            }
        })
    }

    /// Copies a box that is more than a row.
    ///
    /// # Safety
    /// As [`Queue::submit`].
    unsafe fn boxed<B: Backend>(&self, process: &'static Process<B>, copy: &BoxCopy) -> Result<()> {
        for side in [&copy.dst, &copy.src] {
            let span = side.layout.span(copy.extent).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
            if let Memory::Device(address) = side.memory {
                check_for(process, self.here.id, address, span)?;
            }
        }
        let (device, ctx, stream) = (process.backend, self.here.id, self.stream);
        self.here.note(match (copy.dst.memory, copy.src.memory) {
            (Memory::Device(dst), Memory::Device(src)) if copy.extent.depth == 1 => {
                let (width, height) = (copy.extent.width, copy.extent.height);
                let rect = Rect { width, height, dst_pitch: copy.dst.layout.pitch, src_pitch: copy.src.layout.pitch };
                device.copy_on_device(ctx, dst, src, rect, stream)
            }
            // SAFETY: by the contract above.
            _ => unsafe { device.copy_box(ctx, copy, stream, self.mode(process, copy)) },
        })
    }

    /// Both sides are host memory: the stream's work comes first.
    ///
    /// # Safety
    /// As [`Queue::submit`].
    unsafe fn on_host<B: Backend>(&self, process: &'static Process<B>, copy: &BoxCopy) -> Result<()> {
        let (Memory::Host(dst), Memory::Host(src)) = (copy.dst.memory, copy.src.memory) else { return Ok(()) };
        for side in [&copy.dst, &copy.src] {
            require(side.layout.span(copy.extent).is_some())?;
        }
        self.here.note(process.backend.stream_synchronize(self.here.id, self.stream))?;
        let rows = copy.extent.rows(copy.dst.layout).zip(copy.extent.rows(copy.src.layout));
        for ((to, bytes), (from, _)) in rows {
            // SAFETY: by the contract above; the regions may overlap.
            unsafe { core::ptr::copy::<u8>(src.offset(from).pointer(), dst.offset(to).pointer(), bytes as usize) };
        }
        Ok(())
    }
}

/// Whether the program has asked that synchronous operations on one of the sides always wait.
fn always_waits(front: &'static Front, copy: &BoxCopy) -> bool {
    [copy.dst.memory, copy.src.memory]
        .iter()
        .any(|memory| matches!(memory, Memory::Device(address) if is_synchronous(front, *address)))
}

/// Queues a copy in the stream that a call names.
///
/// # Safety
/// As [`Queue::submit`].
pub(crate) unsafe fn queue<B: Backend>(process: &'static Process<B>, stream: CUstream, copy: &Copy) -> Result<()> {
    let (here, stream) = crate::stream::find(process, stream)?;
    // SAFETY: by the contract above.
    unsafe { Queue { here, stream, wait: Wait::Asynchronous }.submit(process, copy) }
}

/// Queues a copy in the default stream that a call means, and waits as far as CUDA says.
///
/// # Safety
/// As [`Queue::submit`].
pub(crate) unsafe fn queue_default<B: Backend>(
    process: &'static Process<B>,
    default: DefaultStream,
    copy: &Copy,
) -> Result<()> {
    let (here, stream) = resolve_default(process, default)?;
    // SAFETY: by the contract above.
    unsafe { Queue { here, stream, wait: Wait::Synchronous }.submit(process, copy) }
}
