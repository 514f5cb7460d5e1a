//! The devices of a server: what the front asks, sent over the link.

mod collectives;
mod commands;
mod context;
mod copy;
mod crossing;
mod event;
mod files;
mod graph;
mod green;
mod host_call;
mod image;
mod ipc;
mod launch;
mod linear;
mod link;
mod link_places;
mod managed;
mod memory;
mod message;
mod module;
mod names;
mod peer_link;
mod pinned;
mod polled;
mod pool;
mod shared;
mod stream;
mod vmm;

mod generated {
    mod forward;
}

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicU32};
use std::sync::{Arc, OnceLock};

use outboard_abi::CUresult;
use outboard_front::backend::{
    ContextId, DeviceId, Faults, HostPtr, ObjectId, Result, ServerId, UnifiedPtr,
};
use parking_lot::Mutex;

use crate::host::HostMemory;
use crate::pager::Pager;
use crate::session::Session;
use crate::slabs::Slabs;
use crate::tokens::Descriptors;
use crossing::Crossing;
use polled::PolledWaits;

/// The devices of one of a process's servers.
pub struct Remote {
    server: ServerId,
    /// The receiver of faults, from the first query on.
    faults: OnceLock<&'static dyn Faults>,
    /// From the first connection on; a forked child that had not begun to use it makes another.
    session: AtomicPtr<Arc<Session>>,
    host: HostMemory,
    pager: Pager,
    /// Held while page-locked memory becomes mapped.
    mapping: Mutex<()>,
    /// The servers whose workers have pages of this one's page-locked memory themselves, by its
    /// first address.
    lent: Mutex<BTreeMap<HostPtr, Vec<&'static Remote>>>,
    /// How much work has been queued while streams were held, while there is tracked memory.
    behind_holds: AtomicU32,
    slabs: Mutex<Slabs>,
    /// Managed variables, by module.
    variables: Mutex<BTreeMap<ObjectId, Vec<Range<UnifiedPtr>>>>,
    /// The contexts that have a stream for the pager's bytes.
    moving: Mutex<BTreeSet<ContextId>>,
    polled: PolledWaits,
    crossing: Crossing,
    messages: message::Messages,
    /// What programs pass to each other.
    descriptors: Descriptors,
}

impl Remote {
    /// The devices of a server, before any query for them.
    pub const fn new(server: ServerId) -> Remote {
        Remote {
            server,
            faults: OnceLock::new(),
            session: AtomicPtr::new(core::ptr::null_mut()),
            host: HostMemory::new(),
            pager: Pager::new(),
            mapping: Mutex::new(()),
            lent: Mutex::new(BTreeMap::new()),
            behind_holds: AtomicU32::new(0),
            slabs: Mutex::new(Slabs::new()),
            variables: Mutex::new(BTreeMap::new()),
            moving: Mutex::new(BTreeSet::new()),
            polled: PolledWaits::new(),
            crossing: Crossing::new(),
            messages: message::Messages::new(),
            descriptors: Descriptors::new(),
        }
    }
}

impl Remote {
    /// A device of this server, of which the server has told.
    fn own(&self, device: DeviceId) -> DeviceId {
        device.of(self.server)
    }
}

/// The outcome that stands in a reply.
fn succeed(status: u32) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(CUresult(status)) }
}

/// Some calls are not of a context.
const NO_CONTEXT: ContextId = ContextId(0);
