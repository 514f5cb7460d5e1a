//! Bytes that an adapter moves between registered memory of client and server, without a copy.
//!
//! The client lends memory ([`Lender`]): it tells addresses and keys. The server's adapter writes
//! there, or reads there, from and to memory that the server has lent to its own adapter only
//! ([`Mover`]). Each session has one such pair of ends beside its streams, made over one of them
//! ([`lend`], [`take`]).
//!
//! | client | server |
//! |---|---|
//! | its end, and how many reads it serves at once | |
//! | | its end; or why not |

mod lender;
mod mover;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::Instant;

use outboard_rdma::{Access, Address, Channel, Domain, Endpoint, Queue, QueuePair, Reads, Sizes};

use super::description::End;
use super::settings::Settings;
use crate::blocking::write_all;
use crate::random::random;
use crate::settling::{READY, STAYS, read_answer, read_byte, refusal};
use crate::stream::Stream;
pub use lender::{Lender, Loan};
pub use mover::{Mover, Own};
pub use outboard_rdma::Remote;

/// Works of the server's end that may be under way, one for each thread of a lane.
const WORKS: u32 = 64;
/// Reads under way at most: adapters have places for some.
const MOST_READS: u8 = 16;

/// An end that is not connected.
struct Prepared {
    domain: Arc<Domain>,
    channel: Arc<Channel>,
    queue: Arc<Queue>,
    pair: QueuePair,
    address: Address,
}

impl Prepared {
    fn new(endpoint: Endpoint, peer: Access) -> io::Result<Prepared> {
        let domain = Domain::create(&endpoint.device)?;
        let channel = Channel::create(&endpoint.device)?;
        let queue = Queue::create(&channel, WORKS as usize)?;
        let sizes = Sizes { sends: WORKS, receives: 1 };
        let pair = QueuePair::create(endpoint, &domain, Vec::new(), peer, [&queue, &queue], sizes)?;
        let address = pair.address(u32::from_le_bytes(random()?));
        Ok(Prepared { domain, channel, queue, pair, address })
    }
}

/// The client's side: makes an end, and meets the server's over a stream between them.
///
/// # Errors
/// If the stream fails, which is useless then. Inside: why there is no such end.
pub fn lend(
    stream: &dyn Stream,
    endpoint: Endpoint,
    settings: Settings,
    deadline: Instant,
) -> io::Result<io::Result<Lender>> {
    let prepared = Prepared::new(endpoint, Access::RemoteReadWrite).and_then(|prepared| {
        let served = prepared.pair.device().reads()?.served.min(MOST_READS);
        Ok((prepared, served))
    });
    let (prepared, served) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => {
            write_all(stream, &[STAYS])?;
            return Ok(Err(why));
        }
    };
    let own = End { address: prepared.address, settings };
    write_all(stream, &[&[HEEDS, served][..], &own.encode()].concat())?;
    if let Err(why) = read_answer(stream, deadline)? {
        return Ok(Err(why));
    }
    let peer = End::read(stream, deadline)?;
    let mtu = settings.and(peer.settings).mtu;
    let reads = Reads { begun: 0, served };
    let connected = prepared.pair.connect_to_read(own.address, peer.address, mtu, reads);
    Ok(connected.map_err(io::Error::from).map(|()| Lender::new(prepared)))
}

/// The server's side, with the end that `open` gives; none if the client has none.
///
/// # Errors
/// As for [`lend`].
pub fn take(
    stream: &dyn Stream,
    open: impl FnOnce() -> io::Result<Endpoint>,
    settings: Settings,
    deadline: Instant,
) -> io::Result<io::Result<Option<Mover>>> {
    let comes = read_byte(stream, deadline)?;
    if comes == STAYS {
        return Ok(Ok(None));
    }
    let served = read_byte(stream, deadline)?;
    let peer = End::read(stream, deadline)?;
    let prepared = open().and_then(|endpoint| {
        let prepared = Prepared::new(endpoint, Access::Own)?;
        let begun = prepared.pair.device().reads()?.begun.min(served).min(MOST_READS);
        if begun == 0 {
            return Err(io::Error::other("an adapter reads no memory of others"));
        }
        let mtu = settings.and(peer.settings).mtu;
        let reads = Reads { begun, served: 0 };
        prepared.pair.connect_to_read(prepared.address, peer.address, mtu, reads)?;
        Ok(prepared)
    });
    match prepared {
        Ok(prepared) => {
            let own = End { address: prepared.address, settings };
            write_all(stream, &[&[READY][..], &own.encode()].concat())?;
            Ok(Ok(Some(Mover::new(prepared, comes == HEEDS))))
        }
        Err(why) => {
            write_all(stream, &refusal(&why))?;
            Ok(Err(why))
        }
    }
}

/// What the client begins with, unless it stays: it heeds what the server says of device memory. An
/// older one, which does not, begins with 1.
const HEEDS: u8 = 2;
