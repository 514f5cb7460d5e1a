//! Connections to workers of other servers of this machine, which share memory with this one: rings
//! for what lanes carry, and an area that copies go through from device to device.
//!
//! The worker that calls makes the memory, and hands it over a Unix socket behind the welcome.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use outboard_session::groups::AREA;
use outboard_transport::segment::Segment;
use outboard_transport::{Stream, shm};
use parking_lot::Mutex;

/// Areas that a session has at most. Pages of each are taken only where copies need them.
const MOST: usize = 8;
/// How long the other worker may take for its part.
const PATIENCE: Duration = Duration::from_secs(10);

/// The areas of a session.
#[derive(Debug, Default)]
pub(super) struct Areas(Mutex<Vec<Weak<Segment>>>);

impl Areas {
    /// Makes an area for a link.
    pub(super) fn make(&self) -> io::Result<Arc<Segment>> {
        self.add(|| Segment::create("outboard-peers", AREA))
    }

    /// Takes one that the other worker has made.
    fn accept(&self, file: OwnedFd) -> io::Result<Arc<Segment>> {
        let area = self.add(|| Segment::accept(file, AREA))?;
        if area.bytes() != AREA {
            let reason = "the memory that a peer shares has another size";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Ok(area)
    }

    fn add(&self, map: impl FnOnce() -> io::Result<Segment>) -> io::Result<Arc<Segment>> {
        let mut areas = self.0.lock();
        areas.retain(|area| area.strong_count() > 0);
        if areas.len() >= MOST {
            return Err(io::Error::other(format!("the session shares {MOST} areas with others")));
        }
        let area = Arc::new(map()?);
        areas.push(Arc::downgrade(&area));
        Ok(area)
    }

    /// Takes up the memory that a worker offers which has called.
    pub(super) fn take_up(&self, socket: OwnedFd) -> io::Result<Offered> {
        let (stream, files) = shm::take_up(socket, Instant::now() + PATIENCE)?;
        let mut files = files.into_iter();
        let area = files.next().map(|file| self.accept(file)).transpose()?;
        Ok(Offered { stream, area })
    }
}

/// What a worker has offered.
pub(super) struct Offered {
    /// To be [confirmed](shm::confirm).
    pub(super) stream: Arc<dyn Stream>,
    /// The area, if it comes with this connection.
    pub(super) area: Option<Arc<Segment>>,
}

/// Offers memory to the worker that has been called: the stream through it, once that has it.
pub(super) fn offer(socket: OwnedFd, area: Option<&Segment>) -> io::Result<Arc<dyn Stream>> {
    let file = area.map(Segment::file);
    shm::Offer::new()?.move_to(socket, file.as_slice(), Instant::now() + PATIENCE)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use outboard_transport::{passing, segment};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn sockets() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
    }

    /// What the other worker takes of an offer with this file, and what becomes of the offer.
    fn offered(areas: &Areas, area: Option<&Segment>) -> io::Result<Option<Arc<Segment>>> {
        let (here, there) = sockets();
        std::thread::scope(|scope| {
            let offered = scope.spawn(|| offer(here, area).map(drop));
            let Offered { stream, area } = areas.take_up(there)?;
            shm::confirm(&*stream)?;
            offered.join().unwrap()?;
            Ok(area)
        })
    }

    #[test]
    fn both_workers_have_the_same_memory() {
        let (ours, theirs) = (Areas::default(), Areas::default());
        let area = ours.make().unwrap();
        let taken = offered(&theirs, Some(&area)).unwrap().unwrap();
        // SAFETY: both mappings are alive, and only this thread uses them.
        unsafe {
            area.as_ptr().add(AREA - 1).write(7);
            assert_eq!(taken.as_ptr().add(AREA - 1).read(), 7);
        }
        assert!(offered(&theirs, None).unwrap().is_none(), "a further lane brings none");
        assert!(rustix::fs::ftruncate(taken.file(), 0).is_err());
    }

    #[test]
    fn a_session_has_a_few_areas_which_end_with_their_links() {
        let areas = Areas::default();
        let some: Vec<_> = (0..MOST).map(|_| areas.make().unwrap()).collect();
        let why = areas.make().unwrap_err().to_string();
        assert!(why.contains("shares 8 areas"), "{why}");
        drop(some);
        areas.make().unwrap();
    }

    #[test]
    fn memory_of_another_kind_is_refused() {
        let areas = Areas::default();
        let small = Segment::create("small", 4096).unwrap();
        assert!(offered(&areas, Some(&small)).is_err());
        let (here, there) = sockets();
        let large = segment::create_file("large", 2 * AREA as u64).unwrap();
        passing::send(here.as_fd(), b"OUTBOARD-RINGS-2", &[large.as_fd()]).unwrap();
        assert!(areas.take_up(there).is_err());
    }
}
