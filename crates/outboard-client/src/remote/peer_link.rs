//! A server's part in a link to another one.

use outboard_front::backend::{ContextId, Extent, ObjectId, Result, Side, StreamId};
use outboard_front::several::{HalfCopy, Linked, Numbered, Places, Way};
use outboard_wire::codec::decode_all;
use outboard_wire::handshake::Local;
use outboard_wire::limits::CHUNK_BYTES;
use outboard_wire::messages as msg;

use super::copy::region;
use super::link_places::LinkPlaces;
use super::{NO_CONTEXT, Remote};
use crate::session::Session;

/// Chunks are not larger, in bytes, ...
const LARGEST_CHUNK: u64 = 1 << 20;
/// ... and a copy has so many, if that does not make them too small.
const CHUNKS: u64 = 16;

/// The bytes of each chunk of a copy.
pub(super) fn chunk(bytes: u64) -> u32 {
    let smallest = *CHUNK_BYTES.start() as u64;
    (bytes / CHUNKS).next_power_of_two().clamp(smallest, LARGEST_CHUNK) as u32
}

/// The session that a worker is to call.
pub(super) struct Called<'a> {
    pub(super) addresses: &'a [String],
    pub(super) session: u64,
    pub(super) ticket: &'a [u8],
    pub(super) fingerprint: &'a [u8],
    /// If the two may share memory.
    pub(super) socket: Option<&'a Local>,
}

/// Has a session's worker call another one; whether the two share memory then.
pub(super) fn open_link(
    here: &Session,
    link: u32,
    called: &Called<'_>,
) -> std::result::Result<bool, String> {
    let &Called { addresses, session, ticket, fingerprint, socket } = called;
    let mut failure = String::new();
    for address in addresses {
        let message = msg::PeerLinkOpen {
            link,
            address,
            session,
            ticket,
            fingerprint,
            host: socket.map_or(0, |socket| socket.host),
            user: socket.map_or(0, |socket| socket.user),
            socket: socket.map_or("", |socket| &socket.path),
        };
        let (_, reply) = here
            .call_idle(NO_CONTEXT, &message)
            .map_err(|_| format!("{} does not know of links", here.server()))?;
        let reply: msg::PeerLinkOpenReply<'_> =
            decode_all(&reply).map_err(|error| error.to_string())?;
        if reply.failure.is_empty() {
            return Ok(reply.shares);
        }
        failure = format!("{}: {}", here.server(), outboard_wire::plain(reply.failure));
    }
    Err(failure)
}

impl Remote {
    pub(crate) fn link_to_server(
        &'static self,
        other: &'static Remote,
        link: u32,
    ) -> std::result::Result<Linked, String> {
        let lost = |_| "a server is lost".to_owned();
        let (here, there) = (self.session().map_err(lost)?, other.session().map_err(lost)?);
        for session in [here, there] {
            if session.link().introduction().is_none() {
                return Err(format!("{} makes no links to other servers", session.server()));
            }
        }
        let introductions = here.link().introduction().zip(there.link().introduction());
        let Some((calling, called)) = introductions else { return Ok(None) };
        let may_share = here.link().may_share() && there.link().may_share();
        let socket = calling.socket_of(called).filter(|_| may_share);
        here.freed_places.expect(link);
        there.freed_places.expect(link);
        let own = [there.server().to_owned()];
        let fingerprint = called.fingerprint().map_or_else(Vec::new, |bytes| bytes.to_vec());
        let called = Called {
            addresses: if called.addresses().is_empty() { &own } else { called.addresses() },
            session: called.session(),
            ticket: &called.ticket(link).key.to_le_bytes(),
            fingerprint: &fingerprint,
            socket,
        };
        let shares = open_link(here, link, &called)?;
        let places = shares.then(|| LinkPlaces::new(link, [here, there]));
        Ok(places.map(|places| Box::new(places) as Box<dyn Places>))
    }

    pub(crate) fn has_lost_link_to_server(&self, link: u32) -> bool {
        self.session()
            .map_or(true, |session| !session.link().is_alive() || session.lost_links.has(link))
    }

    /// Whether a side is memory that only the device uses: other memory has pages here.
    pub(crate) fn is_only_the_devices(&self, side: &Side, extent: Extent) -> bool {
        let Ok(region) = region(side) else { return false };
        let outboard_wire::boxes::Storage::Linear(address) = region.storage else { return true };
        let span = side.layout.span(extent);
        span.is_some_and(|span| !self.is_tracked(address.unified(), span))
    }

    pub(crate) fn half_copy(&self, numbered: Numbered, half: &HalfCopy) -> Result<()> {
        let invalid = outboard_abi::CUresult::CUDA_ERROR_INVALID_VALUE;
        let &HalfCopy { way, side, ctx, extent, stream, leads } = half;
        let region = region(&side).map_err(|_| invalid)?;
        let chunk = chunk(extent.bytes().ok_or(invalid)?);
        let Numbered { link, number: transfer, place } = numbered;
        let (flags, slots) = place.map_or((0, 0), |place| (place.flags, place.slots));
        let session = self.session()?;
        session.copies_over_a_link();
        match way {
            Way::ToDevice => {
                let dst = region;
                let message = msg::PeerCopyIn {
                    dst,
                    extent,
                    stream,
                    link,
                    transfer,
                    chunk,
                    leads,
                    flags,
                    slots,
                };
                session.send_counted(ctx, stream, &message)?;
            }
            Way::FromDevice => {
                let src = region;
                let message = msg::PeerCopyOut {
                    src,
                    extent,
                    stream,
                    link,
                    transfer,
                    chunk,
                    leads,
                    flags,
                    slots,
                };
                session.send_counted(ctx, stream, &message)?;
            }
        }
        Ok(())
    }

    pub(crate) fn tell_peer_of_event(
        &self,
        numbered: Numbered,
        ctx: ContextId,
        event: ObjectId,
    ) -> Result<()> {
        let Numbered { link, number, place } = numbered;
        let flags = place.map_or(0, |place| place.flags);
        let message = msg::PeerTell { event, link, number, flags };
        self.session()?.post_numbered(ctx, &message).map(drop)
    }

    pub(crate) fn stream_wait_for_peer(
        &self,
        numbered: Numbered,
        ctx: ContextId,
        stream: StreamId,
    ) -> Result<()> {
        let Numbered { link, number, place } = numbered;
        let session = self.session()?;
        session.holds.add_waiting(ctx, stream);
        let flags = place.map_or(0, |place| place.flags);
        session.post_to(ctx, stream, &msg::PeerWait { stream, link, number, flags })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_suit_the_copy() {
        assert_eq!(chunk(1), 64 << 10);
        assert_eq!(chunk(4 << 20), 256 << 10);
        assert_eq!(chunk(1 << 30), 1 << 20);
    }
}
