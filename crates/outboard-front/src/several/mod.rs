//! Several servers as the devices of one process.
//!
//! A context, a device and what is made of them carry their server in their name. Nearly every
//! method's arguments therefore name a server, and generated code passes the call to that server.
//! Order between streams and copies of bytes are what two servers do together
//! ([`crossing`]); any other operation that involves two servers is refused, and the log of errors
//! says why.

mod crossing;
mod fill;
mod gate;
mod links;
mod movers;
mod transfer;

mod generated {
    mod forward;
}

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{OnceLock, mpsc};

use outboard_abi::CUresult;
use outboard_wire::platform::{Platform, merged};
use parking_lot::Mutex;

use links::Links;
pub use links::{Carried, CarriedCopy, CopyQueue, Linked, Numbered, Place, Places};
use movers::Movers;
use transfer::Relay;

use crate::backend::{
    Backend, ContextId, Extent, Faults, ObjectId, Result, ServerId, Side, Statistics, StreamId,
    UnifiedPtr,
};
use crate::logs::because;

/// Keeps a stream waiting. Dropped, from any thread, it lets the stream go on.
pub type Hold = Box<dyn Send>;

/// What can be waited for in a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// All that is in a stream when this is asked for.
    Stream(StreamId),
    /// The latest record of an event.
    Event(ObjectId),
}

/// Is told that something has happened, or why it never will.
pub type Then = Box<dyn FnOnce(Result<()>) + Send>;

/// Which way bytes go between this process and a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// To the device.
    ToDevice,
    /// From the device.
    FromDevice,
}

/// Streams of a context that the program does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnStream {
    /// For bytes that go one way. Nothing in it waits.
    Copies(Way),
    /// For holds: the context is busy as long as one of them is there.
    Held,
}

/// One server's half of a copy over a link.
#[derive(Clone, Copy, Debug)]
pub struct HalfCopy {
    /// Which way the bytes go: to this server's device, or from it.
    pub way: Way,
    /// The memory here, and its context, which is the stream's too.
    pub side: Side,
    /// See [`side`](HalfCopy::side).
    pub ctx: ContextId,
    /// The size of the box.
    pub extent: Extent,
    /// The stream.
    pub stream: StreamId,
    /// Whether the copy is part of the stream's work.
    pub leads: bool,
}

/// A back end that can be one of several.
pub trait Member: Backend + Sync {
    /// The servers of the process, in the order in which it sees their devices: one device at each
    /// mention, what is left at the last.
    fn list() -> Vec<ServerId>;

    /// The back end of a server that is not the first. It lives as long as the process.
    fn of_server(server: ServerId) -> &'static Self;

    /// Has the loader bring what connections to these servers need, on this thread: it may be one
    /// that has the loader's lock, for which the threads that connect must not wait.
    fn load_what_all_need() {}

    /// Refuses servers that have answered and turn out to be one, with a device that is in the list
    /// twice.
    ///
    /// # Errors
    /// The error that `cuInit` returns.
    fn check_apart(_servers: &[(&'static Self, &Platform)]) -> Result<()> {
        Ok(())
    }

    /// Has later work of the stream wait for what this returns to be dropped. `None` if the server
    /// can hold no more streams.
    ///
    /// # Errors
    /// `CUDA_ERROR_DEVICE_UNAVAILABLE` if the server is lost; `CUDA_ERROR_OUT_OF_MEMORY`.
    fn hold(&'static self, ctx: ContextId, stream: StreamId) -> Result<Option<Hold>>;

    /// Calls `then` when that has happened: on any thread, also one that reads for others or this
    /// one, so it must be quick and must not use this server.
    ///
    /// # Errors
    /// `CUDA_ERROR_DEVICE_UNAVAILABLE` if the server is lost; `then` may have been told.
    fn when_done(&'static self, ctx: ContextId, what: Awaited, then: Then) -> Result<()>;

    /// Whether that is known to have happened, without asking.
    fn is_known_to_be_done(&'static self, ctx: ContextId, what: Awaited) -> bool;

    /// Whether bytes of copies that are done may be on their way to the program's memory.
    fn has_bytes_to_take_in(&'static self) -> bool;

    /// Waits for those.
    fn take_in(&'static self);

    /// Work of this server is known to be done, though nobody has waited for it: what its kernels
    /// have written to memory of the program is there for later work.
    fn knows_work_done(&'static self) {}

    /// Whether kernels of this server use memory that the program sees, too.
    fn uses_memory_of_the_program(&'static self) -> bool {
        false
    }

    /// A stream of this server that waits for another one is about to go on: what other servers'
    /// kernels have written to memory that this one's use is there for them.
    fn hand_on(&'static self) {}

    /// Has kernels in a context use memory of a context of another server, at its address.
    ///
    /// # Errors
    /// As of [`hold`](Member::hold); `CUDA_ERROR_MAP_FAILED` if something else is at the address on
    /// this server.
    fn take_part(
        &'static self,
        _ctx: ContextId,
        _owner: (&'static Self, ContextId),
        _address: UnifiedPtr,
    ) -> Result<()> {
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }

    /// The next call that waits for this server returns the error, if it succeeds by itself.
    fn fail_later(&'static self, error: CUresult);

    /// One of these streams, which is made when it is first needed.
    ///
    /// # Errors
    /// As of [`hold`](Member::hold).
    fn own_stream(&'static self, ctx: ContextId, which: OwnStream) -> Result<StreamId>;

    /// Has this server's worker connect to the other one's, as a link of that number. The memory
    /// that the two share then, if they do.
    ///
    /// # Errors
    /// A sentence that says why it cannot.
    fn link_to(
        &'static self,
        _other: &'static Self,
        _link: u32,
    ) -> std::result::Result<Linked, String> {
        Err("this back end has no links".to_owned())
    }

    /// Says something to people who read what the library says.
    fn say(_sentence: &str) {}

    /// Whether a link is known to be lost.
    fn has_lost_link(&'static self, _link: u32) -> bool {
        false
    }

    /// Whether a side of a copy is memory that a worker can send or store by itself.
    fn is_for_links(&'static self, _side: &Side, _extent: Extent) -> bool {
        false
    }

    /// Sends a box to a peer, or stores the one that it sends, as part of a stream's work if it
    /// `leads`, else beside it.
    ///
    /// # Errors
    /// `CUDA_ERROR_DEVICE_UNAVAILABLE` if the server is lost.
    fn copy_over_link(&'static self, _numbered: Numbered, _half: &HalfCopy) -> Result<()> {
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }

    /// Tells the peer of a link when the latest record of an event has happened.
    ///
    /// # Errors
    /// As of [`copy_over_link`](Member::copy_over_link).
    fn tell_peer(&'static self, _: Numbered, _: ContextId, _event: ObjectId) -> Result<()> {
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }

    /// Has later work of a stream wait for what a peer is to tell.
    ///
    /// # Errors
    /// As of [`copy_over_link`](Member::copy_over_link).
    fn wait_for_peer(&'static self, _: Numbered, _: ContextId, _: StreamId) -> Result<()> {
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }

    /// Waits until that has happened.
    ///
    /// # Errors
    /// As of the call of CUDA that waits for it.
    fn wait_for(&'static self, ctx: ContextId, what: Awaited) -> Result<()> {
        match what {
            Awaited::Stream(stream) => self.stream_synchronize(ctx, stream),
            Awaited::Event(event) => self.event_synchronize(ctx, event),
        }
    }
}

/// The servers of a process, in the order in which the program was given them.
pub struct Several<S: 'static> {
    first: S,
    faults: OnceLock<&'static dyn Faults>,
    /// From the first question for devices on.
    others: OnceLock<Box<[&'static S]>>,
    /// The platform that each server has told, by its place, and the process that it told: a server
    /// that has answered is not asked again when another fails.
    found: Mutex<BTreeMap<usize, (u32, Platform)>>,
    movers: Movers,
    relay: Relay,
    links: Links,
}

impl<S> fmt::Debug for Several<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Several")
    }
}

impl<S> Several<S> {
    /// The first server; the others are made when the process asks for devices.
    pub const fn new(first: S) -> Several<S> {
        Several {
            first,
            faults: OnceLock::new(),
            others: OnceLock::new(),
            found: Mutex::new(BTreeMap::new()),
            movers: Movers::new(),
            relay: Relay::new(),
            links: Links::new(),
        }
    }

    #[inline]
    pub(crate) fn first(&'static self) -> &'static S {
        &self.first
    }

    /// The server of this name. A process with one server pays for a comparison.
    #[inline]
    fn server(&'static self, id: ServerId) -> Result<&'static S> {
        if id == ServerId::FIRST { Ok(&self.first) } else { self.other(id) }
    }

    fn other(&'static self, id: ServerId) -> Result<&'static S> {
        let others = self.others.get().ok_or(CUresult::CUDA_ERROR_NOT_INITIALIZED)?;
        others.get(id.place() - 1).copied().ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
    }

    fn all(&'static self) -> impl Iterator<Item = &'static S> {
        std::iter::once(&self.first).chain(self.others.get().into_iter().flatten().copied())
    }

    /// Asks one server after the other until one knows the object; what that one says.
    fn each<T>(&'static self, ask: impl Fn(&'static S) -> Result<T>) -> Result<T> {
        first_to_know(self.all().map(ask))
    }

    /// Asks all servers; the answer of the first server that knows the object.
    fn everywhere<T>(&'static self, ask: impl Fn(&'static S) -> Result<T>) -> Result<T> {
        first_to_know(self.all().map(ask).collect::<Vec<_>>())
    }
}

impl<S: Member> Several<S> {
    fn attach(&'static self, faults: &'static dyn Faults) {
        let _ = self.faults.set(faults);
        self.first.attach(faults);
    }

    /// Asks all servers at once; the devices come in the servers' order.
    fn platform(&'static self) -> Result<Platform> {
        let others = self.others.get_or_init(|| self.make_others());
        if others.is_empty() {
            return self.first.platform();
        }
        S::load_what_all_need();
        let (answer, answers) = mpsc::channel();
        for (place, server) in others.iter().copied().enumerate() {
            let answer = answer.clone();
            let ask = move || drop(answer.send((place + 1, self.ask(place + 1, server))));
            outboard_threads::start(&format!("outboard-start{}", place + 1), ask)
                .map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        }
        drop(answer);
        let mut all = vec![(0, self.ask(0, &self.first))];
        all.extend(answers);
        all.sort_by_key(|(place, _)| *place);
        let all = all.into_iter().map(|(_, platform)| platform).collect::<Result<Vec<_>>>()?;
        if all.len() <= others.len() {
            return Err(CUresult::CUDA_ERROR_UNKNOWN);
        }
        S::check_apart(&self.all().zip(&all).collect::<Vec<_>>())?;
        Ok(merged(all, &S::list()))
    }

    fn ask(&'static self, place: usize, server: &'static S) -> Result<Platform> {
        let own = std::process::id();
        if let Some((_, platform)) = self.found.lock().get(&place).filter(|(of, _)| *of == own) {
            return Ok(platform.clone());
        }
        let platform = server.platform()?;
        self.found.lock().insert(place, (own, platform.clone()));
        Ok(platform)
    }

    fn make_others(&'static self) -> Box<[&'static S]> {
        let most = S::list().into_iter().map(ServerId::place).max().unwrap_or(0);
        let others = (1..=most).filter_map(ServerId::new).map(S::of_server);
        others
            .inspect(|server| {
                self.faults.get().into_iter().for_each(|faults| server.attach(*faults))
            })
            .collect()
    }

    /// Where this process's worker is, if it has one only: its number says which link it is of.
    fn message_whereabouts(&'static self) -> Result<Option<Vec<u8>>> {
        let list = S::list();
        let is_one = list.iter().all(|server| *server == ServerId::FIRST);
        if is_one { self.first.message_whereabouts() } else { Ok(None) }
    }

    /// Each server's description of its connection.
    fn statistics(&'static self) -> Statistics {
        if self.all().count() == 1 {
            return self.first.statistics();
        }
        Statistics::Several {
            servers: self.all().map(|server| server.statistics()).collect(),
            bytes_linked: self.links.bytes(),
            bytes_shared: self.links.shared_bytes(),
            bytes_relayed: self.relay.relayed(),
            not_linked: self.links.failure(),
        }
    }
}

fn first_to_know<T>(answers: impl IntoIterator<Item = Result<T>>) -> Result<T> {
    let unknown = CUresult::CUDA_ERROR_INVALID_VALUE;
    let known = |answer: &Result<T>| !matches!(answer, Err(error) if *error == unknown);
    answers.into_iter().find(known).unwrap_or(Err(unknown))
}

/// Refuses what is about contexts of two servers.
#[inline]
pub(crate) fn together(one: ContextId, other: ContextId) -> Result<()> {
    if one.has_server_of(other) { Ok(()) } else { Err(refusal(one.server(), other.server())) }
}

/// Refuses what is about several servers.
pub(crate) fn one_server(
    server: ServerId,
    others: impl IntoIterator<Item = ServerId>,
) -> Result<()> {
    match others.into_iter().find(|other| *other != server) {
        None => Ok(()),
        Some(other) => Err(refusal(server, other)),
    }
}

#[cold]
fn refusal(one: ServerId, other: ServerId) -> CUresult {
    because(format!(
        "it is about servers {} and {} of the program's list (counted from 1); Outboard does not do this across servers yet: \
         copy through host memory, or use devices of one server",
        one.place() + 1,
        other.place() + 1
    ));
    CUresult::CUDA_ERROR_NOT_SUPPORTED
}
