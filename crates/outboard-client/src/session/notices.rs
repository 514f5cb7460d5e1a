//! What the server says unasked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, Result};
use outboard_front::fault::is_sticky;
use outboard_session::groups::{AREA, FLAGS};
use outboard_wire::collectives::CommFailure;
use outboard_wire::notice::{
    COMM_FAILED, COPIED, ENDED, ERRORS, FAILURE, Failure, FreePlaces, KERNELS, OUTPUT, PEER_LOST,
    PLACES_FREE, REQUEST, WANTED,
};
use outboard_wire::request::Request;
use outboard_wire::{Code, Reader, plain};
use parking_lot::Mutex;

use super::open;
use super::output::{self, Output};
use crate::copies::under_way::Copies;
use crate::kernels::KnownKernels;
use crate::requests::Requests;

/// The failure of a posted command that no call has returned yet; 0 for none.
#[derive(Debug, Default)]
pub(super) struct Pending(AtomicU32);

impl Pending {
    /// Returns the failure to the first caller.
    pub(super) fn take(&self) -> Result<()> {
        match self.0.swap(0, Ordering::AcqRel) {
            0 => Ok(()),
            earlier => Err(CUresult(earlier)),
        }
    }

    fn add(&self, failure: &Failure, fault: &OnFault) {
        let error = CUresult(failure.status);
        if is_sticky(error) {
            fault(failure.ctx, error);
        } else {
            self.set(error);
        }
    }

    /// Nobody has been told of this, either. The first one counts.
    pub(super) fn set(&self, error: CUresult) {
        let _ = self.0.compare_exchange(0, error.0, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// The links to other servers' workers that are lost.
#[derive(Debug, Default)]
pub(crate) struct LostLinks {
    any: AtomicBool,
    links: Mutex<BTreeSet<u32>>,
}

impl LostLinks {
    fn add(&self, link: u32) {
        self.links.lock().insert(link);
        self.any.store(true, Ordering::Release);
    }

    /// Whether this one is among them.
    pub(crate) fn has(&self, link: u32) -> bool {
        self.any.load(Ordering::Acquire) && self.links.lock().contains(&link)
    }
}

/// Places that workers of a link have done with, of links to whose memory this client gives places.
#[derive(Debug, Default)]
pub(crate) struct FreedPlaces(Mutex<BTreeMap<u32, Vec<u64>>>);

impl FreedPlaces {
    /// Those of a link are wanted from now on.
    pub(crate) fn expect(&self, link: u32) {
        self.0.lock().entry(link).or_default();
    }

    pub(crate) fn add(&self, FreePlaces { link, places }: FreePlaces) {
        let mut freed = self.0.lock();
        let Some(known) = freed.get_mut(&link) else { return };
        // There are no more places than that.
        if known.len() + places.len() <= AREA / FLAGS {
            known.extend(places);
        }
    }

    /// Those that have come to be free.
    pub(crate) fn take(&self, link: u32) -> Vec<u64> {
        self.0.lock().get_mut(&link).map(std::mem::take).unwrap_or_default()
    }
}

/// Is told of an error that a context keeps.
pub(super) type OnFault = Box<dyn Fn(ContextId, CUresult) + Send + Sync>;

/// Is told that a communicator has failed.
pub(super) type OnCommFailure = Box<dyn Fn(&CommFailure) + Send + Sync>;

/// The receivers of notices.
pub(super) struct Notices {
    pub(super) pending: Arc<Pending>,
    pub(super) fault: OnFault,
    pub(super) comm_failed: OnCommFailure,
    pub(super) copies: Arc<Copies>,
    pub(super) requests: Arc<Requests>,
    pub(super) kernels: Arc<KnownKernels>,
    /// Whether memory that is kept is wanted back.
    pub(super) memory_wanted: Arc<AtomicBool>,
    pub(super) lost_links: Arc<LostLinks>,
    pub(super) freed_places: Arc<FreedPlaces>,
}

impl Notices {
    /// Takes one in, on whichever thread reads the link, which must not wait for others of the
    /// program. Malformed notices, and those of newer servers, are ignored.
    pub(super) fn take(&self, code: u16, payload: &[u8]) {
        let mut reader = Reader::new(payload);
        match code {
            OUTPUT => output::print(Output::standard(), payload),
            ERRORS => output::print(Output::error(), payload),
            ENDED => {
                if let Ok(sentence) = reader.get::<&str>() {
                    open::say(Code::SessionOver, &format!("the session was {}", plain(sentence)));
                }
            }
            COPIED => {
                if let Ok(number) = reader.get() {
                    self.copies.copied(number);
                }
            }
            FAILURE => {
                if let Ok(failure) = reader.get() {
                    self.pending.add(&failure, &self.fault);
                }
            }
            COMM_FAILED => {
                if let Ok(failure) = reader.get() {
                    (self.comm_failed)(&failure);
                }
            }
            REQUEST => {
                if let Ok(request) = reader.get::<Request<'_>>() {
                    self.requests.asked(&request);
                }
            }
            KERNELS => {
                if let Ok(told) = reader.get() {
                    self.kernels.insert(told);
                }
            }
            PEER_LOST => {
                if let Ok(link) = reader.get() {
                    self.lost_links.add(link);
                }
            }
            PLACES_FREE => {
                if let Ok(free) = reader.get() {
                    self.freed_places.add(free);
                }
            }
            WANTED => self.memory_wanted.store(true, Ordering::Release),
            _ => {}
        }
    }
}

/// Notices of a session that has nothing else.
#[cfg(fuzzing)]
pub(crate) struct Taken(Notices);

#[cfg(fuzzing)]
impl Default for Taken {
    fn default() -> Taken {
        let copies = Arc::new(Copies::default());
        let requests = Requests::new(Arc::clone(&copies), Vec::new());
        let fault = Box::new(|_, _| {});
        let comm_failed = Box::new(|_: &CommFailure| {});
        Taken(Notices {
            pending: Arc::default(),
            fault,
            comm_failed,
            copies,
            requests,
            kernels: Arc::default(),
            memory_wanted: Arc::default(),
            lost_links: Arc::default(),
            freed_places: Arc::default(),
        })
    }
}

#[cfg(fuzzing)]
impl Taken {
    /// Takes one in, but for what a program prints and what takes a thread.
    pub(crate) fn take(&self, code: u16, payload: &[u8]) {
        if !matches!(code, OUTPUT | ERRORS | REQUEST) {
            self.0.take(code, payload);
        }
    }
}
