//! The session's links to workers of other servers.
//!
//! The client introduces the two workers. One of them has its supervisor connect, since its own
//! sandbox opens no sockets; the other one's supervisor hands it the connection, as it does with
//! those of the client. Where the called session's connections are encrypted, those of its links
//! are, too: the calling worker recognises the called one by the session's certificate, and shows
//! its ticket before anything else.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboard_transport::segment::Segment;
use outboard_transport::tls::{self, Anchor, Fingerprint};
use outboard_transport::{Stream, read_exact_until, shm, tcp, unix, write_all};
use outboard_wire::handshake::peers::{MESSAGES, Ticket};
use outboard_wire::handshake::rdma::{Adapters as Offer, RDMA};
use outboard_wire::handshake::{Answer, Extensions, Local, Refusal, RefusalCode, VERSION, Welcome};
use outboard_wire::notice::PEER_LOST;
use parking_lot::Mutex;

use super::adapters::Adapters;
use super::bulk::{Bulk, Order};
use super::link_adapters::LinkAdapters;
use super::neighbour::{self, Areas, Offered};
use super::pace::Pace;
use super::places::Places;
use super::registry::Registry;
use super::replier::Replier;
use super::secure::Secure;

/// Links for copies that a session has at most; those that were lost do not count.
const MOST: usize = 64;
/// Links for messages, of which a session has two with each other one: one for each direction.
const MOST_FOR_MESSAGES: usize = 128;
/// Connections of each of these: so many links need threads.
const LANES_FOR_MESSAGES: u32 = 2;
/// How long the other worker may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The links of a session, by their numbers.
#[derive(Clone, Debug)]
pub(crate) struct Peers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    links: Mutex<HashMap<u32, Bulk>>,
    pace: Option<Arc<Pace>>,
    adapters: LinkAdapters,
    /// Connections of each link.
    lanes: u32,
    areas: Areas,
    /// Connections of other servers of this machine whose memory is being taken up.
    meeting: Places,
}

/// A session of another server, and how to get there.
pub(crate) struct Called {
    /// HOST:PORT.
    pub(crate) address: String,
    pub(crate) session: u64,
    pub(crate) ticket: Ticket,
    /// SHA-256 of the session's certificate, if its connections are encrypted.
    pub(crate) fingerprint: Option<[u8; 32]>,
    /// The server's Unix socket, if it may be on this machine.
    pub(crate) neighbour: Option<Local>,
}

/// Connections through memory of a link, at most: bytes of copies need them only now and then.
const MOST_RINGS: u32 = 4;

impl Peers {
    pub(super) fn new(pace: Option<Arc<Pace>>, lanes: u32, adapters: LinkAdapters) -> Peers {
        let (links, lanes, areas) = (Mutex::default(), lanes.max(1), Areas::default());
        let meeting = Places::default();
        Peers(Arc::new(Inner { links, pace, adapters, lanes, areas, meeting }))
    }

    /// The link of that number, unless it is lost.
    pub(crate) fn link(&self, number: u32) -> Option<Bulk> {
        self.0.links.lock().get(&number).cloned()
    }

    /// Takes a connection of another server's worker into use, with what encrypts it. If it is
    /// movable, that worker may move it to adapters.
    pub(super) fn accept(
        &self,
        replier: &Replier,
        number: u32,
        (stream, secure): (Arc<dyn Stream>, Option<&Secure>),
        movable: bool,
        session: u64,
    ) -> io::Result<()> {
        let adapters = if movable { self.0.adapters.usable() } else { None };
        let welcome = welcome(session, adapters.map(Adapters::offer));
        let Some(link) = self.welcome(replier, number, &*stream, &welcome)? else { return Ok(()) };
        let stream = match adapters {
            None => stream,
            Some(adapters) => adapters.settle(stream, secure, None)?,
        };
        link.add_lane(stream)
    }

    /// Takes a connection over the Unix socket into use: the other worker shares memory with this
    /// one.
    pub(super) fn accept_neighbour(
        &self,
        replier: &Replier,
        number: u32,
        (stream, socket): (Arc<dyn Stream>, OwnedFd),
        session: u64,
    ) -> io::Result<()> {
        let welcome = welcome(session, None);
        let Some(link) = self.welcome(replier, number, &*stream, &welcome)? else { return Ok(()) };
        drop(stream);
        let peers = self.clone();
        let place = peers.0.meeting.take();
        let place =
            place.ok_or_else(|| io::Error::other("too many workers share their memory at once"))?;
        let take_up = move || {
            let taken = peers.0.areas.take_up(socket);
            drop(place);
            let Offered { stream, area } = taken?;
            area.map_or(Ok(()), |area| link.share(area))?;
            // Before the other worker uses it.
            link.add_lane(Arc::clone(&stream))?;
            shm::confirm(&*stream)
        };
        let taken = move || {
            if let Err(error) = take_up() {
                tracing::warn!(%error, "a link shares no memory");
            }
        };
        std::thread::Builder::new().name("peer-open".to_owned()).spawn(taken).map(drop)
    }

    /// Welcomes another server's worker, unless there are too many links.
    fn welcome(
        &self,
        replier: &Replier,
        number: u32,
        stream: &dyn Stream,
        welcome: &[u8],
    ) -> io::Result<Option<Bulk>> {
        // It fits into the empty socket buffer, so this does not wait for the other side.
        match self.link_or_new(replier, number) {
            Ok(link) => write_all(stream, welcome).map(|()| Some(link)),
            Err(failure) => {
                let refusal = Refusal { code: RefusalCode::OverLimit, sentence: failure };
                write_all(stream, &refusal.encode(VERSION)).map(|()| None)
            }
        }
    }

    /// Connects to another server's worker, and says whether the two share memory; the error is a
    /// sentence that says why it could not.
    pub(crate) fn open(
        &self,
        replier: &Replier,
        number: u32,
        called: &Called,
    ) -> Result<bool, String> {
        let link = self.link_or_new(replier, number)?;
        let meets = match &called.neighbour {
            Some(server) => self.meet(replier.registry(), &link, number, called, server),
            None => Err("it is not to be on this machine".to_owned()),
        };
        let opened = meets.or_else(|reason| {
            tracing::debug!(reason, "a link shares no memory");
            (0..self.lanes(number)).try_for_each(|_| {
                let stream = self.dial(replier.registry(), number, called)?;
                link.add_lane(stream).map_err(|error| error.to_string())
            })
        });
        if opened.is_err() {
            link.lose();
        } else if link.is_lost() {
            return Err(format!("the link to {} was lost at once", called.address));
        }
        opened.map(|()| link.area().is_some())
    }

    /// Connects to the worker of a server of this machine, and shares memory with it. After an
    /// error the link has no lanes.
    fn meet(
        &self,
        registry: &Registry,
        link: &Bulk,
        number: u32,
        called: &Called,
        server: &Local,
    ) -> Result<(), String> {
        let broken = |error: io::Error| format!("{}: {error}", server.path);
        let meet = |area: Option<&Segment>| {
            let socket = registry.dial_socket(number, called, server).map_err(broken)??;
            let again = socket.try_clone().map_err(broken)?;
            let stream = unix::from_descriptor(again).map_err(broken)?;
            expect_welcome(&*stream, &server.path, Instant::now() + PATIENCE)?;
            neighbour::offer(socket, area).map_err(broken)
        };
        // Messages go through the rings.
        let area = match is_for_messages(number) {
            true => None,
            false => Some(self.0.areas.make().map_err(broken)?),
        };
        let stream = meet(area.as_deref())?;
        area.map_or(Ok(()), |area| link.share(area)).map_err(broken)?;
        link.add_lane(stream).map_err(broken)?;
        for _ in 1..self.lanes(number).min(MOST_RINGS) {
            // It does with fewer, too.
            let Ok(stream) = meet(None) else { break };
            link.add_lane(stream).map_err(broken)?;
        }
        Ok(())
    }

    /// How many connections a link has.
    fn lanes(&self, number: u32) -> u32 {
        if is_for_messages(number) { self.0.lanes.min(LANES_FOR_MESSAGES) } else { self.0.lanes }
    }

    fn link_or_new(&self, replier: &Replier, number: u32) -> Result<Bulk, String> {
        let mut links = self.0.links.lock();
        if let Some(link) = links.get(&number) {
            return Ok(link.clone());
        }
        let for_messages = is_for_messages(number);
        let most = if for_messages { MOST_FOR_MESSAGES } else { MOST };
        let alike = |other: &&u32| is_for_messages(**other) == for_messages;
        if links.keys().filter(alike).count() >= most {
            return Err(format!("the session has {most} links of this kind already"));
        }
        let (peers, replier, made) = (self.clone(), replier.clone(), Instant::now());
        let order = if for_messages { Order::Any } else { Order::Growing };
        let on_loss = move || peers.is_lost(&replier, number, made);
        let link = Bulk::to_peer(self.0.pace.clone(), order, on_loss);
        links.insert(number, link.clone());
        Ok(link)
    }

    fn is_lost(&self, replier: &Replier, number: u32, made: Instant) {
        self.0.links.lock().remove(&number);
        self.0.adapters.lost(made);
        // A client that has gone needs no word of it.
        let _ = replier.notice(PEER_LOST, |writer| writer.u32(number));
    }

    /// One connection to another server's worker.
    fn dial(
        &self,
        registry: &Registry,
        link: u32,
        called: &Called,
    ) -> Result<Arc<dyn Stream>, String> {
        if let Some(adapters) = self.0.adapters.usable() {
            // What is not reached now is not reached without adapters, either.
            match registry.dial(link, called, true).map_err(broken(&called.address)) {
                Ok(connection) => match self.move_there(connection?, called, adapters) {
                    Ok(stream) => return Ok(stream),
                    // A worker of an earlier release does not take such a connection.
                    Err(error) => tracing::debug!(error, "a link is tried without adapters"),
                },
                Err(error) => tracing::debug!(error, "a link is tried without adapters"),
            }
            self.0.adapters.rest();
        }
        let connection = registry.dial(link, called, false).map_err(broken(&called.address))??;
        greet(connection, called).map(|(stream, _)| stream)
    }

    /// A connection between adapters, if it can be.
    fn move_there(
        &self,
        connection: OwnedFd,
        called: &Called,
        adapters: &Adapters,
    ) -> Result<Arc<dyn Stream>, String> {
        let broken = broken(&called.address);
        let (stream, welcome) = greet(connection, called)?;
        let offer: Option<Offer> = welcome.more.get(RDMA).map_err(|error| {
            format!("{} offers RDMA in words that make no sense: {error}", called.address)
        })?;
        let Some(offer) = offer.filter(|offer| !offer.addresses.is_empty()) else {
            return Ok(stream);
        };
        let encrypt = called.fingerprint.map(|fingerprint| {
            move |stream| encrypt(stream, called, fingerprint, Instant::now() + PATIENCE)
        });
        self.0.adapters.move_there(adapters, &offer, stream, encrypt).map_err(broken)
    }

    /// Ends connections whose other side no longer answers. To be called every few seconds.
    pub(super) fn check(&self) {
        let links: Vec<Bulk> = self.0.links.lock().values().cloned().collect();
        links.iter().for_each(Bulk::check_lanes);
    }
}

fn is_for_messages(link: u32) -> bool {
    link & MESSAGES != 0
}

/// What another server's worker is told: nothing that only the client is to know.
fn welcome(session: u64, adapters: Option<Offer>) -> Vec<u8> {
    let (software, snapshot) = (env!("CARGO_PKG_VERSION").to_owned(), Vec::new());
    let mut more = Extensions::default();
    if let Some(adapters) = adapters {
        more.set(RDMA, &adapters);
    }
    Welcome { version: VERSION, software, session, key: 0, lanes: 0, snapshot, local: None, more }
        .encode()
}

/// Says that the connection to this address broke off, and by what.
fn broken(address: &str) -> impl Fn(io::Error) -> String + Copy {
    move |error| format!("the connection to {address} broke off: {error}")
}

/// A connection that the supervisor has made, once it is encrypted, if it is to be, and welcome.
fn greet(connection: OwnedFd, called: &Called) -> Result<(Arc<dyn Stream>, Welcome), String> {
    let deadline = Instant::now() + PATIENCE;
    let broken = broken(&called.address);
    let mut stream = tcp::from_descriptor(connection).map_err(broken)?;
    if let Some(fingerprint) = called.fingerprint {
        stream = encrypt(stream, called, fingerprint, deadline).map_err(broken)?;
    }
    let welcome = expect_welcome(&*stream, &called.address, deadline)?;
    Ok((stream, welcome))
}

/// Encrypts a connection to a session with that certificate, and shows the ticket.
fn encrypt(
    below: Arc<dyn Stream>,
    called: &Called,
    fingerprint: [u8; 32],
    deadline: Instant,
) -> io::Result<Arc<dyn Stream>> {
    let config = tls::client_config(Anchor::Pinned(Fingerprint(fingerprint)), None)
        .map_err(io::Error::other)?;
    let ticket = called.ticket.key.to_le_bytes();
    Ok(tls::connect(below, config, tls::SESSION, &ticket, deadline)?)
}

/// Reads the other worker's answer to the hello.
fn expect_welcome(
    stream: &dyn Stream,
    address: &str,
    deadline: Instant,
) -> Result<Welcome, String> {
    let broken = broken(address);
    let read = |room: &mut [u8]| read_exact_until(stream, room, deadline).map_err(broken);
    let wrong = |error| format!("{address} answers what makes no sense: {error}");
    match Answer::read(read, wrong)? {
        Answer::Welcome(welcome) => Ok(welcome),
        Answer::Refusal(refusal) => Err(format!("{address} refuses: {}", refusal.sentence)),
        Answer::Waiting(_) | Answer::Secure(_) | Answer::File(_) => {
            Err(format!("{address} answers what belongs to no link"))
        }
    }
}
