//! How client and server come to an RDMA connection: over another one, which stays open. Either of
//! them may find that it cannot be, until the client has the last word; then they go on over the
//! connection that they have.
//!
//! | client | server |
//! |---|---|
//! | which of the server's adapters, and its own end; or that it stays | |
//! | | its own end; or why not |
//! | a message over the adapters | the same message back |
//! | whether it has moved | |

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboard_rdma::{
    Access, Address, Channel, Domain, Endpoint, Part, Queue, QueuePair, Region, Sizes,
};

use super::description::{ClientEnd, End};
use super::settings::Settings;
use super::stream::{Events, RECEIVED, RdmaStream, Side};
use crate::blocking::{read_exact_until, write_all};
use crate::random::random;
use crate::settling::{MOVED, Outcome, READY, STAYS, read_answer, read_byte, refusal, stay, wrong};
use crate::stream::Stream;
use crate::waker::Waker;

/// How long a message may take to the peer and back.
const TRIAL: Duration = Duration::from_secs(2);

/// With the place of the server's adapter: the client lends memory once the connection has moved
/// ([`super::direct`]).
const LENDS: u8 = 0x80;

/// Moves to a connection between adapters, if it can be: the client's side. `met` is a stream to
/// the server, which carries nothing else if it is left. `place` is that of the server's adapter
/// among those it has named; the client `lends` memory afterwards if the server knows of that.
///
/// # Errors
/// If `met` fails, which is useless then: [`io::ErrorKind::TimedOut`] after the deadline,
/// [`io::ErrorKind::InvalidData`] if the server says what makes no sense.
pub fn move_to(
    met: &Arc<dyn Stream>,
    (place, lends): (u8, bool),
    endpoint: Endpoint,
    settings: Settings,
    deadline: Instant,
) -> io::Result<Outcome> {
    let prepared = settings.check().and_then(|settings| Prepared::client(endpoint, settings));
    let (prepared, own) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => {
            stay(&**met)?;
            return Ok(Outcome::Stays(Some(why)));
        }
    };
    let choice = place.checked_add(1).filter(|choice| choice & LENDS == 0);
    let choice = choice.ok_or(io::ErrorKind::InvalidInput)? | if lends { LENDS } else { 0 };
    write_all(&**met, &[&[choice][..], &own.encode()].concat())?;
    if let Err(why) = read_answer(&**met, deadline)? {
        return Ok(Outcome::Stays(Some(why)));
    }
    let peer = End::read(&**met, deadline)?;
    let settings = settings.and(peer.settings);
    let tried = prepared.connect(peer.address, met, Side::Client, settings).and_then(|stream| {
        let sent = message(settings)?;
        let until = deadline.min(Instant::now() + TRIAL);
        write_all(&stream, &sent)?;
        let mut back = vec![0; sent.len()];
        read_exact_until(&stream, &mut back, until).map_err(unheard)?;
        if back == sent { Ok(stream) } else { Err(wrong("what comes back is not what was sent")) }
    });
    match tried {
        Ok(stream) => {
            write_all(&**met, &[MOVED])?;
            stream.leave_met();
            Ok(Outcome::Moved(Arc::new(stream)))
        }
        Err(why) => {
            write_all(&**met, &[STAYS])?;
            Ok(Outcome::Stays(Some(why)))
        }
    }
}

/// Does what the client wishes, if it can be: the server's side. `open` gives the adapter that has
/// the place which the client has chosen. Also returns that place if the client has moved and lends
/// memory next.
///
/// # Errors
/// If `met` fails, as for [`move_to`].
pub fn take_up(
    met: &Arc<dyn Stream>,
    open: impl FnOnce(usize) -> io::Result<Endpoint>,
    settings: Settings,
    deadline: Instant,
) -> io::Result<(Outcome, Option<usize>)> {
    let choice = read_byte(&**met, deadline)?;
    if choice == STAYS {
        return Ok((Outcome::Stays(None), None));
    }
    let (place, lends) = (usize::from(choice & !LENDS), choice & LENDS != 0);
    let place = place.checked_sub(1).ok_or_else(|| wrong("the client names no adapter"))?;
    let mut said = [0; ClientEnd::SIZE];
    read_exact_until(&**met, &mut said, deadline)?;
    let peer = ClientEnd::decode(&said)?;
    let prepared = settings.check().and_then(|settings| {
        // Slots are as large as the messages that both sides are ready for.
        let settings = settings.and(peer.end.settings);
        let (prepared, own) = Prepared::server(open(place)?, settings)?;
        let side = Side::Server { ring: peer.ring };
        Ok((prepared.connect(peer.end.address, met, side, settings)?, own, settings))
    });
    let (stream, own, settings) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => {
            write_all(&**met, &refusal(&why))?;
            return Ok((Outcome::Stays(Some(why)), None));
        }
    };
    write_all(&**met, &[&[READY][..], &own.encode()].concat())?;
    let until = deadline.min(Instant::now() + TRIAL);
    let mut heard = message(settings)?;
    let tried = read_exact_until(&stream, &mut heard, until)
        .map_err(unheard)
        .and_then(|()| write_all(&stream, &heard));
    match read_byte(&**met, deadline)? {
        STAYS => Ok((Outcome::Stays(tried.err()), None)),
        MOVED => {
            stream.leave_met();
            Ok((Outcome::Moved(Arc::new(stream)), lends.then_some(place)))
        }
        _ => Err(wrong("the client does not say whether it has moved")),
    }
}

/// What is sent to see whether messages arrive: as long as they may be.
fn message(settings: Settings) -> io::Result<Vec<u8>> {
    let mut message = vec![0; settings.message as usize];
    message[..16].copy_from_slice(&random::<16>()?);
    Ok(message)
}

fn unheard(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::TimedOut => io::Error::new(
            io::ErrorKind::TimedOut,
            format!(
                "the peer's adapter was not heard for {} seconds: do the two lie in one network?",
                TRIAL.as_secs()
            ),
        ),
        _ => error,
    }
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
        let pair =
            QueuePair::create(endpoint, &domain, regions, access, [&sent, &received], sizes)?;
        let address = pair.address(u32::from_le_bytes(random()?));
        let events = Events { channel, readable: Waker::new()?, writable: Waker::new()? };
        Ok(Prepared { pair, events, address })
    }

    fn connect(
        self,
        peer: Address,
        met: &Arc<dyn Stream>,
        side: Side,
        settings: Settings,
    ) -> io::Result<RdmaStream> {
        self.pair.connect(self.address, peer, settings.mtu)?;
        Ok(RdmaStream::new(self.pair, self.events, Arc::clone(met), side, settings))
    }
}
