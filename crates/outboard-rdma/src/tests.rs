//! What a key opens and what it does not, between two queue pairs of whatever device there is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outboard_test_support::skip;

use super::*;

const BYTES: usize = 1 << 16;

struct End {
    pair: QueuePair,
    queue: Arc<Queue>,
    address: Address,
}

/// An end with two regions: one of its own, one with this access.
fn end(access: Access) -> Result<End, Error> {
    let device = Device::open(names()?.first().ok_or(Error::NoDevice)?)?;
    let domain = Domain::create(&device)?;
    let regions =
        vec![Region::create(&domain, BYTES, Access::Own)?, Region::create(&domain, BYTES, access)?];
    let queue = Queue::create(&Channel::create(&device)?, 16)?;
    let sizes = Sizes { sends: 8, receives: 8 };
    let endpoint = device.endpoint(None)?;
    let pair = QueuePair::create(endpoint, &domain, regions, [&queue, &queue], sizes)?;
    let address = pair.address(0x0012_3456);
    Ok(End { pair, queue, address })
}

/// Two ends that are connected, of which the second has a region with this access.
fn ends(access: Access) -> Result<[End; 2], Error> {
    let ends = [end(Access::Own)?, end(access)?];
    for (own, peer) in [(0, 1), (1, 0)] {
        ends[own].pair.connect(ends[own].address, ends[peer].address, Mtu::MOST)?;
        (0..2).try_for_each(|_| ends[own].pair.receive(77, None))?;
    }
    Ok(ends)
}

/// Writes into the peer's memory; what becomes of it.
fn write(end: &End, to: Remote) -> Result<Completion, WorkError> {
    end.pair.regions()[0].write(0, b"written by the peer");
    let part = Part { region: 0, offset: 0, bytes: 19 };
    end.pair.send(5, 0xdead_beef, Some(part), Some(to)).unwrap();
    next(end)
}

fn next(end: &End) -> Result<Completion, WorkError> {
    let (mut found, began) = (None, Instant::now());
    while found.is_none() {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing has been done");
        end.queue.poll_all(&mut |done| found = found.or(Some(done))).unwrap();
    }
    found.unwrap()
}

fn read(end: &End) -> [u8; 19] {
    let mut bytes = [0; 19];
    end.pair.regions()[1].read(0, &mut bytes);
    bytes
}

macro_rules! needs_a_device {
    ($made:expr) => {
        match $made {
            Err(error @ (Error::NoDevice | Error::NoLibrary { .. } | Error::NoPort { .. })) => {
                skip!("{error}")
            }
            made => made.unwrap(),
        }
    };
}

#[test]
fn a_key_opens_its_region_and_nothing_beyond() {
    let [writer, owner] = needs_a_device!(ends(Access::RemoteWrite));
    let place = owner.pair.regions()[1].remote().unwrap();
    assert_eq!(write(&writer, place).unwrap().work, 5);
    let told = next(&owner).unwrap();
    assert_eq!((told.work, told.immediate, told.bytes), (77, Some(0xdead_beef), 19));
    assert_eq!(&read(&owner), b"written by the peer");
    let beyond = Remote { address: place.address + BYTES as u64 - 10, ..place };
    assert_eq!(write(&writer, beyond), Err(WorkError::Other("remote access error")));
    // A connection that has failed carries nothing more.
    assert_eq!(write(&writer, place), Err(WorkError::Flushed));
}

#[test]
fn a_key_that_is_old_opens_nothing() {
    let [_, former] = needs_a_device!(ends(Access::RemoteWrite));
    let old = former.pair.regions()[1].remote().unwrap();
    drop(former);
    let [writer, owner] = ends(Access::RemoteWrite).unwrap();
    assert_eq!(write(&writer, old), Err(WorkError::Other("remote access error")));
    assert_eq!(read(&owner), [0; 19]);
}

/// Even who knows the adapter's numbers for a region does not get at it.
#[test]
fn a_region_of_its_own_is_closed_to_who_guesses_its_key() {
    let [writer, owner] = needs_a_device!(ends(Access::Own));
    assert_eq!(owner.pair.regions()[1].remote(), None);
    let piece = owner.pair.regions()[1].piece(0, 19);
    let guessed = Remote { address: piece.addr, rkey: piece.lkey };
    // By the queue pair, which nobody may write through.
    assert_eq!(write(&writer, guessed), Err(WorkError::Other("remote invalid request error")));
    assert_eq!(read(&owner), [0; 19]);
    // And by the region, where the pair would let others write elsewhere.
    let [writer, owner] = ends(Access::RemoteWrite).unwrap();
    let piece = owner.pair.regions()[0].piece(0, 19);
    let guessed = Remote { address: piece.addr, rkey: piece.lkey };
    assert_eq!(write(&writer, guessed), Err(WorkError::Other("remote access error")));
}
