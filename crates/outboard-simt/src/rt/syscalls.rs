//! The functions that CUDA's device runtime leaves to the driver: `vprintf`, `malloc`, `free`,
//! `__assertfail`.
//!
//! They take the argument and result areas of a call, as compiled functions do.

use crate::exec::context::{BlockContext, STATUS_DONE, STATUS_FAULT, ThreadContext};
use crate::exec::pool::Core;
use crate::fault::{FaultKind, Space};
use crate::launch::OutputStream;
use crate::memory::Memory;
use crate::rt::access::{Stop, stop};
use crate::rt::format;
use std::sync::atomic::{AtomicU32, Ordering};

/// Longest string that is read from device memory.
const STRING_MAX: usize = 1 << 16;

/// Reads device memory for the runtime.
pub(crate) struct Reader<'a>(pub(crate) &'a Memory);

impl Reader<'_> {
    /// The byte at `addr`, if memory is there.
    pub(crate) fn byte(&self, addr: u64) -> Option<u8> {
        if !self.0.is_valid(addr) && !self.0.is_registered_host(addr, 1) {
            return None;
        }
        // SAFETY: the address lies in allocated device memory or in host memory that is registered
        // as readable.
        Some(unsafe { (addr as *const u8).read_volatile() })
    }

    /// The `N` bytes at `addr`.
    pub(crate) fn bytes<const N: usize>(&self, addr: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = self.byte(addr.wrapping_add(i as u64))?;
        }
        Some(bytes)
    }

    /// The string at `addr` up to its NUL.
    pub(crate) fn string(&self, addr: u64) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        while text.len() < STRING_MAX {
            match self.byte(addr.wrapping_add(text.len() as u64))? {
                0 => break,
                byte => text.push(byte),
            }
        }
        Some(text)
    }
}

/// Reads an argument.
///
/// # Safety
/// `args + offset` must be eight readable bytes.
unsafe fn argument(args: u64, offset: u64) -> u64 {
    // SAFETY: the caller says so.
    unsafe { ((args + offset) as *const u64).read_unaligned() }
}

/// Reads an argument of four bytes.
///
/// # Safety
/// `args + offset` must be four readable bytes.
unsafe fn argument_word(args: u64, offset: u64) -> u32 {
    // SAFETY: the caller says so.
    unsafe { ((args + offset) as *const u32).read_unaligned() }
}

fn core(thread: &ThreadContext) -> &Core {
    thread.state().grid().core()
}

type Block = *const BlockContext;
type Thread = *const ThreadContext;

/// `int vprintf(const char *format, const void *arguments)`
pub(crate) unsafe extern "C" fn vprintf(
    _: Block,
    thread: Thread,
    _: u64,
    args: u64,
    rets: u64,
) -> u32 {
    // SAFETY: compiled code passes its own context, and argument and result areas as large as the
    // declaration says.
    let (thread, format, values) = unsafe { (&*thread, argument(args, 0), argument(args, 8)) };
    let reader = Reader(&core(thread).memory);
    let result = if format == 0 {
        -1
    } else {
        match reader.string(format).and_then(|text| format::format(&reader, &text, values)) {
            Some((text, count)) => {
                thread.state().output.borrow_mut().push(OutputStream::Stdout, text);
                count as i32
            }
            None => {
                let kind =
                    FaultKind::IllegalAddress { addr: format, size: 1, space: Space::Generic };
                return thread.state().record_fault(thread, 0, kind);
            }
        }
    };
    if rets != 0 {
        // SAFETY: the result area has room for the declared `int`.
        unsafe { (rets as *mut i32).write_unaligned(result) };
    }
    STATUS_DONE
}

/// `void *malloc(size_t)`
pub(crate) unsafe extern "C" fn malloc(
    _: Block,
    thread: Thread,
    _: u64,
    args: u64,
    rets: u64,
) -> u32 {
    // SAFETY: as in `vprintf`.
    let (thread, bytes) = unsafe { (&*thread, argument(args, 0)) };
    let addr = core(thread).heap.malloc(core(thread), bytes);
    if rets != 0 {
        // SAFETY: the result area has room for the declared pointer.
        unsafe { (rets as *mut u64).write_unaligned(addr) };
    }
    STATUS_DONE
}

/// `void free(void *)`
pub(crate) unsafe extern "C" fn free(_: Block, thread: Thread, _: u64, args: u64, _: u64) -> u32 {
    // SAFETY: as in `vprintf`.
    let (thread, addr) = unsafe { (&*thread, argument(args, 0)) };
    if addr == 0 || core(thread).heap.free(addr) {
        return STATUS_DONE;
    }
    // SAFETY: the context is this thread's.
    unsafe { stop(thread, Stop::HeapCorruption as u64, addr, 0) }
}

/// `void __assertfail(const char *message, const char *file, unsigned line, const char *function, size_t char_size)`
pub(crate) unsafe extern "C" fn assertfail(
    block: Block,
    thread: Thread,
    _: u64,
    args: u64,
    _: u64,
) -> u32 {
    // SAFETY: as in `vprintf`; the offsets are those of the declared parameters.
    let (block, thread, [message, file, line, function]) =
        unsafe { (&*block, &*thread, [0, 8, 16, 24].map(|offset| argument(args, offset))) };
    let reader = Reader(&core(thread).memory);
    let text =
        |addr| String::from_utf8_lossy(&reader.string(addr).unwrap_or_default()).into_owned();
    let ([bx, by, bz], [tx, ty, tz]) = (block.ctaid, thread.tid);
    let text = format!(
        "{}:{}: {}: block: [{bx},{by},{bz}], thread: [{tx},{ty},{tz}] Assertion `{}` failed.",
        text(file),
        line as u32,
        text(function),
        text(message),
    );
    thread.state().output.borrow_mut().push(OutputStream::Stderr, format!("{text}\n").into_bytes());
    thread.state().record_fault(thread, 0, FaultKind::Assert(text));
    STATUS_FAULT
}

/// `void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned value)`: a handle is
/// the address of the value.
pub(crate) unsafe extern "C" fn set_conditional(
    _: Block,
    thread: Thread,
    _: u64,
    args: u64,
    _: u64,
) -> u32 {
    // SAFETY: as in `vprintf`.
    let (thread, handle, value) = unsafe { (&*thread, argument(args, 0), argument_word(args, 8)) };
    if !handle.is_multiple_of(4)
        || !core(thread).memory.is_valid(handle)
        || !core(thread).memory.is_valid(handle + 3)
    {
        let kind = FaultKind::IllegalAddress { addr: handle, size: 4, space: Space::Global };
        return thread.state().record_fault(thread, 0, kind);
    }
    // SAFETY: aligned, and in allocated device memory; others that access it at the same time do so
    // with whole words.
    unsafe { AtomicU32::from_ptr(handle as *mut u32) }.store(value, Ordering::SeqCst);
    STATUS_DONE
}

/// The device runtime's way to launch kernels from kernels, which there is not.
pub(crate) unsafe extern "C" fn device_launch(
    _: Block,
    thread: Thread,
    _: u64,
    _: u64,
    _: u64,
) -> u32 {
    // SAFETY: compiled code passes its own context.
    unsafe { stop(thread, Stop::DeviceLaunch as u64, 0, 0) }
}
