//! Transfers in the order of a stream: functions that the stream calls make them. Sizes and places
//! are read when the stream comes to them, unless the stream was registered with those that are
//! known before.

use core::ffi::c_void;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use outboard_abi::CUstream;
use parking_lot::Mutex;

use crate::files::File;
use crate::status::{Failure, INVALID, Result, code, require};
use crate::table::{self, Way};
use crate::transfer::Transfer;

/// `CU_FILE_STREAM_FIXED_BUF_OFFSET`, `_FILE_OFFSET` and `_FILE_SIZE`.
const FIXED_BASE_OFFSET: u32 = 1;
const FIXED_FILE_OFFSET: u32 = 2;
const FIXED_BYTES: u32 = 4;
/// These, and `CU_FILE_STREAM_PAGE_ALIGNED_INPUTS`.
const FLAGS: u32 = 15;

/// A value that is known, or where it will be.
#[derive(Clone, Copy)]
enum Later<T> {
    Known(T),
    At(*const T),
}

impl<T: Copy> Later<T> {
    /// # Safety
    /// `at` can be read now.
    unsafe fn of(at: *const T, known: bool) -> Later<T> {
        // SAFETY: by the contract above.
        if known { Later::Known(unsafe { at.read() }) } else { Later::At(at) }
    }

    /// # Safety
    /// What it stands for can be read now.
    unsafe fn value(self) -> T {
        match self {
            Later::Known(value) => value,
            // SAFETY: by the contract above.
            Later::At(at) => unsafe { at.read() },
        }
    }
}

/// A transfer that a stream will come to.
struct Queued {
    stream: usize,
    way: Way,
    file: Arc<File>,
    base: u64,
    bytes: Later<usize>,
    file_offset: Later<i64>,
    base_offset: Later<i64>,
    result: *mut isize,
}

// SAFETY: the program has given the addresses to be used when the stream comes to them.
unsafe impl Send for Queued {}

struct Streams {
    /// Flags by stream.
    registered: BTreeMap<usize, u32>,
    queued: BTreeMap<usize, Queued>,
    last: usize,
}

static STREAMS: Mutex<Streams> =
    Mutex::new(Streams { registered: BTreeMap::new(), queued: BTreeMap::new(), last: 0 });

/// Registers a stream, or changes its flags.
pub(crate) fn register(stream: CUstream, flags: u32) -> Result<()> {
    require(flags & !FLAGS == 0)?;
    table::is_capturing(stream).map_err(|_| INVALID)?;
    STREAMS.lock().registered.insert(stream as usize, flags);
    Ok(())
}

/// Forgets a stream, and those of its transfers to which it will not come any more: after an error.
pub(crate) fn deregister(stream: CUstream) -> Result<()> {
    let works = table::is_capturing(stream).is_ok();
    let mut streams = STREAMS.lock();
    let known = streams.registered.remove(&(stream as usize)).is_some();
    if !works {
        streams.queued.retain(|_, queued| queued.stream != stream as usize);
    }
    require(works || known)
}

/// Forgets what is registered.
pub(crate) fn clear() {
    STREAMS.lock().registered.clear();
}

/// The arguments of a transfer in a stream.
pub(crate) struct Arguments {
    pub(crate) base: u64,
    pub(crate) bytes: *const usize,
    pub(crate) file_offset: *const i64,
    pub(crate) base_offset: *const i64,
    pub(crate) result: *mut isize,
}

/// Queues a transfer.
///
/// # Safety
/// The arguments are null, or valid until the stream has come to the transfer.
pub(crate) unsafe fn queue(
    way: Way,
    file: Arc<File>,
    arguments: &Arguments,
    stream: CUstream,
) -> Result<()> {
    let Arguments { base, bytes, file_offset, base_offset, result } = *arguments;
    let all_there = !bytes.is_null() && !file_offset.is_null() && !base_offset.is_null();
    require(base != 0 && all_there && !result.is_null())?;
    if table::is_capturing(stream)? {
        return Err(Failure::Code(code::ASYNC_NOT_SUPPORTED));
    }
    let number = {
        let mut streams = STREAMS.lock();
        let flags = streams.registered.get(&(stream as usize)).copied().unwrap_or(0);
        // SAFETY: not null, so valid by the contract above.
        let queued = unsafe {
            Queued {
                stream: stream as usize,
                way,
                file,
                base,
                bytes: Later::of(bytes, flags & FIXED_BYTES != 0),
                file_offset: Later::of(file_offset, flags & FIXED_FILE_OFFSET != 0),
                base_offset: Later::of(base_offset, flags & FIXED_BASE_OFFSET != 0),
                result,
            }
        };
        streams.last += 1;
        let number = streams.last;
        streams.queued.insert(number, queued);
        number
    };
    table::call_in(stream, reached, number).inspect_err(|_| {
        STREAMS.lock().queued.remove(&number);
    })
}

/// The stream has come to a transfer.
unsafe extern "C" fn reached(number: *mut c_void) {
    let Some(queued) = STREAMS.lock().queued.remove(&(number as usize)) else { return };
    // SAFETY: the program keeps its arguments until this has run.
    let made = catch_unwind(AssertUnwindSafe(|| unsafe {
        let transfer = Transfer {
            way: queued.way,
            file: Arc::clone(&queued.file),
            base: queued.base,
            base_offset: queued.base_offset.value(),
            bytes: queued.bytes.value(),
            file_offset: queued.file_offset.value(),
        };
        transfer.make()
    }));
    let made = made.unwrap_or(Err(Failure::Code(code::INTERNAL_ERROR)));
    // SAFETY: as above.
    unsafe { queued.result.write(made.map_or_else(Failure::result, |moved| moved as isize)) };
}
