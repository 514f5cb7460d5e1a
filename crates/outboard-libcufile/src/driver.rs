//! Whether cuFile is open, and what it says of itself.

use parking_lot::Mutex;

use crate::parameters::{self, BATCH, BATCH_TIMEOUT, BUFFER_CACHE, DEVICE_CACHE, DIRECT_IO};
use crate::parameters::{ALLOW_COMPATIBILITY, PINNED, POLL_THRESHOLD, USE_POLLING};
use crate::status::{Failure, Result, code};
use crate::types::Properties;
use crate::{buffers, streams, table};

/// Open how many times.
static USES: Mutex<i64> = Mutex::new(0);

/// Opens cuFile once more.
pub(crate) fn open() -> Result<()> {
    let mut uses = USES.lock();
    start()?;
    *uses += 1;
    Ok(())
}

fn start() -> Result<()> {
    table::table()?;
    table::init()
}

/// Opens cuFile for a program that has not done so, and uses it.
pub(crate) fn ensure_open() -> Result<()> {
    let mut uses = USES.lock();
    if *uses == 0 {
        start()?;
        *uses = 1;
    }
    Ok(())
}

/// Closes cuFile once. The last time, what is registered of memory and streams is forgotten.
pub(crate) fn close() -> Result<()> {
    let mut uses = USES.lock();
    require_open(*uses)?;
    *uses -= 1;
    if *uses == 0 {
        buffers::clear();
        streams::clear();
    }
    Ok(())
}

pub(crate) fn uses() -> i64 {
    *USES.lock()
}

/// An error unless cuFile is open.
pub(crate) fn is_open() -> Result<()> {
    require_open(uses())
}

fn require_open(uses: i64) -> Result<()> {
    if uses > 0 { Ok(()) } else { Err(Failure::Code(code::DRIVER_NOT_INITIALIZED)) }
}

/// An error if cuFile is open: settings have been read.
pub(crate) fn is_closed() -> Result<()> {
    if uses() == 0 { Ok(()) } else { Err(Failure::Code(code::DRIVER_ALREADY_OPEN)) }
}

/// What there is: batches, streams and transfers by several threads.
const FEATURES: u32 = 1 << 1 | 1 << 2 | 1 << 3;

pub(crate) fn properties() -> Properties {
    let number = parameters::number;
    let small = |which| u32::try_from(number(which)).unwrap_or(u32::MAX);
    let control = u32::from(parameters::flag(USE_POLLING))
        | u32::from(parameters::flag(ALLOW_COMPATIBILITY)) << 1;
    Properties {
        major: 0,
        minor: 0,
        poll_threshold: number(POLL_THRESHOLD),
        max_direct_io: number(DIRECT_IO),
        // There is no driver for direct access on the client.
        file_systems: 0,
        control,
        features: FEATURES,
        device_cache: small(DEVICE_CACHE),
        buffer_cache: small(BUFFER_CACHE),
        pinned: small(PINNED),
        batch: small(BATCH),
        batch_timeout: small(BATCH_TIMEOUT),
    }
}
