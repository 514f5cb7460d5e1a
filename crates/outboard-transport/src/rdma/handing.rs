//! How client and server come to an RDMA connection: over another one, which stays open.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use outboard_rdma::{
    Access, Address, Channel, Domain, Endpoint, Part, Queue, QueuePair, Region, Sizes,
};

use super::description::{ClientEnd, End};
use super::settings::Settings;
use super::stream::{Events, RECEIVED, RdmaStream, Side};
use crate::blocking::{read_exact_until, write_all};
use crate::random::random;
use crate::stream::Stream;
use crate::waker::Waker;

/// What the client says when it is connected.
const READY: [u8; 1] = [1];

/// Moves to a connection between adapters: the client's side. `met` is a stream to the server,
/// which carries nothing else from here on.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] after the deadline, [`io::ErrorKind::OutOfMemory`] under a limit on
/// locked memory that is too low, [`io::ErrorKind::InvalidData`] if the server says what makes no
/// sense, or why the adapter makes no connection.
pub fn move_to(
    met: Arc<dyn Stream>,
    endpoint: Endpoint,
    settings: Settings,
    deadline: Instant,
) -> io::Result<Arc<dyn Stream>> {
    let settings = settings.check()?;
    let (prepared, own) = Prepared::client(endpoint, settings)?;
    write_all(&*met, &own.encode())?;
    let mut said = [0; End::SIZE];
    read_exact_until(&*met, &mut said, deadline)?;
    let peer = End::decode(&said)?;
    let settings = settings.and(peer.settings);
    prepared.pair.connect(prepared.address, peer.address, settings.mtu)?;
    write_all(&*met, &READY)?;
    prepared.stream(met, Side::Client, settings)
}

/// Takes up what a client offers: the server's side.
///
/// # Errors
/// As [`move_to`].
pub fn take_up(
    met: Arc<dyn Stream>,
    endpoint: Endpoint,
    settings: Settings,
    deadline: Instant,
) -> io::Result<Arc<dyn Stream>> {
    let settings = settings.check()?;
    let mut said = [0; ClientEnd::SIZE];
    read_exact_until(&*met, &mut said, deadline)?;
    let peer = ClientEnd::decode(&said)?;
    // Slots are as large as the messages that both sides are ready for.
    let settings = settings.and(peer.end.settings);
    let (prepared, own) = Prepared::server(endpoint, settings)?;
    prepared.pair.connect(prepared.address, peer.end.address, settings.mtu)?;
    write_all(&*met, &own.encode())?;
    let mut ready = [0; READY.len()];
    read_exact_until(&*met, &mut ready, deadline)?;
    if ready != READY {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the client does not say that it is connected",
        ));
    }
    prepared.stream(met, Side::Server { ring: peer.ring }, settings)
}

/// An end that is not connected, with its receives posted.
pub(super) struct Prepared {
    pub(super) pair: QueuePair,
    events: Events,
    pub(super) address: Address,
}

impl Prepared {
    pub(super) fn client(
        endpoint: Endpoint,
        settings: Settings,
    ) -> io::Result<(Prepared, ClientEnd)> {
        let prepared = Prepared::new(endpoint, settings, Access::RemoteWrite, settings.ring())?;
        for receive in 0..settings.works() {
            prepared.pair.receive(receive.into(), None)?;
        }
        let ring = prepared.pair.regions()[RECEIVED]
            .remote()
            .ok_or_else(|| io::Error::other("the ring has no key"))?;
        let end = ClientEnd { end: End { address: prepared.address, settings }, ring };
        Ok((prepared, end))
    }

    pub(super) fn server(endpoint: Endpoint, settings: Settings) -> io::Result<(Prepared, End)> {
        let message = settings.message as usize;
        let slots = settings.works() as usize;
        let prepared = Prepared::new(endpoint, settings, Access::Own, slots * message)?;
        for slot in 0..slots {
            let part = Part { region: RECEIVED, offset: slot * message, bytes: message };
            prepared.pair.receive(slot as u64, Some(part))?;
        }
        let end = End { address: prepared.address, settings };
        Ok((prepared, end))
    }

    /// With memory for what comes of so many bytes.
    fn new(
        endpoint: Endpoint,
        settings: Settings,
        access: Access,
        bytes: usize,
    ) -> io::Result<Prepared> {
        let domain = Domain::create(&endpoint.device)?;
        let channel = Channel::create(&endpoint.device)?;
        let works = settings.works();
        let sent = Queue::create(&channel, works as usize)?;
        let received = Queue::create(&channel, works as usize)?;
        let regions = vec![
            Region::create(&domain, settings.ring(), Access::Own)?,
            Region::create(&domain, bytes, access)?,
        ];
        let sizes = Sizes { sends: works, receives: works };
        let pair = QueuePair::create(endpoint, &domain, regions, [&sent, &received], sizes)?;
        let address = pair.address(u32::from_le_bytes(random()?));
        let events = Events { channel, readable: Waker::new()?, writable: Waker::new()? };
        Ok(Prepared { pair, events, address })
    }

    fn stream(
        self,
        met: Arc<dyn Stream>,
        side: Side,
        settings: Settings,
    ) -> io::Result<Arc<dyn Stream>> {
        Ok(Arc::new(RdmaStream::new(self.pair, self.events, met, side, settings)))
    }
}
