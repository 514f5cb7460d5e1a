//! The devices of a server: what the front asks, sent over the link.

mod array;
mod backend;
mod commands;
mod copy;
mod device;
mod graph;
mod green;
mod host_call;
mod image;
mod ipc;
mod launch;
mod linear;
mod link;
mod managed;
mod module;
mod peer;
mod pinned;
mod pool;
mod reference;
mod seen;
mod shared;
mod stream;
mod tensormap;
mod vmm;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicPtr;
use std::sync::{Arc, Mutex};

use outboard_abi::CUresult;
use outboard_front::backend::{Result, Stream};

use crate::host::HostMemory;
use crate::pager::Pager;
use crate::session::Session;
use crate::slabs::Slabs;
use seen::Seen;
pub(crate) use shared::with_shared_memory;

/// The remote devices. One server serves the process, from its first `cuInit` on.
pub struct Remote {
    /// From the first connection on; a forked child that had not begun to use it makes another.
    session: AtomicPtr<Arc<Session>>,
    host: HostMemory,
    pager: Pager,
    /// Held while page-locked memory becomes mapped.
    mapping: Mutex<()>,
    slabs: Mutex<Slabs>,
    /// Managed variables, by module.
    variables: Mutex<BTreeMap<u64, Vec<Range<u64>>>>,
    seen: Seen,
}

static REMOTE: Remote = Remote {
    session: AtomicPtr::new(core::ptr::null_mut()),
    host: HostMemory::new(),
    pager: Pager::new(),
    mapping: Mutex::new(()),
    slabs: Mutex::new(Slabs::new()),
    variables: Mutex::new(BTreeMap::new()),
    seen: Seen::new(),
};

/// The name of a stream on the wire.
fn wire(stream: Stream) -> u64 {
    match stream {
        Stream::Legacy => 0,
        Stream::Created(id) => id.0,
    }
}

/// The outcome that stands in a reply.
fn succeed(status: u32) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(CUresult(status)) }
}

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`.
const INTERPROCESS: u32 = 4;
