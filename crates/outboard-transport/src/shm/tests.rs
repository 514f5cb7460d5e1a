use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals};
use rustix::io::Errno;

use super::handing::OFFER;
use super::*;
use crate::passing;
use crate::rings::RING;
use crate::unix::test_path;

crate::conformance!(Shm, &test_path());

/// Offers memory over a socket, without further files.
fn offer(socket: OwnedFd) -> ShmStream {
    Offer::new().unwrap().send(socket, &[]).unwrap()
}

fn pair() -> (ShmStream, Arc<dyn Stream>) {
    let server = UnixServer::bind(&test_path()).unwrap();
    let client = offer(dial(server.path().as_ref(), PATIENCE).unwrap());
    (client, take_up(server.take().unwrap(), Instant::now() + PATIENCE).unwrap().0)
}

/// The client's end writes whatever it likes into the memory.
#[test]
fn nonsense_in_the_rings_is_an_error_and_no_more() {
    for position in [RING as u64 + 1, u64::MAX - RING as u64, u64::MAX / 2, 1 << 20] {
        let (client, server) = pair();
        let sides = client.rings.outward();
        sides.writer.moved(position, &sides.reader);
        assert!(server.wait(Interest::READ, None, Some(PATIENCE)).unwrap().read);
        assert_eq!(server.read(&mut [0; 64]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let sides = client.rings.inward();
        sides.reader.moved(position, &sides.writer);
        assert!(server.wait(Interest::WRITE, None, Some(PATIENCE)).unwrap().write);
        assert_eq!(
            server.write(&[IoSlice::new(b"x")]).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }
    // Anything at all, while the server reads and writes.
    let (client, server) = pair();
    let mut state = 1_u64;
    for _ in 0..20_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (state >> 33) as usize % 64 * 8;
        // SAFETY: inside the first page of the segment; the other side believes none of it.
        unsafe {
            client
                .rings
                .keeper()
                .0
                .as_ptr()
                .add(at)
                .cast::<u64>()
                .write_volatile(state >> (state % 60))
        };
        let _ = server.read(&mut [0; 4096]);
        let _ = server.write(&[IoSlice::new(&[1; 100]), IoSlice::new(&[2; 3000])]);
        let _ = server.wait(
            Interest { read: true, write: true, hangup: true },
            None,
            Some(Duration::ZERO),
        );
    }
}

/// So does the worker.
#[test]
fn nonsense_of_a_worker_in_the_rings_is_an_error_for_its_client() {
    for position in [RING as u64 + 1, u64::MAX - RING as u64, u64::MAX / 2, 1 << 20] {
        let (client, _server) = pair();
        let (out, back) = (client.rings.outward(), client.rings.inward());
        out.reader.moved(position, &out.writer);
        assert_eq!(
            client.write(&[IoSlice::new(b"x")]).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        back.writer.moved(position, &back.reader);
        assert_eq!(client.read(&mut [0; 64]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
    let (client, _server) = pair();
    let mut state = 7_u64;
    for _ in 0..20_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (state >> 33) as usize % 64 * 8;
        // SAFETY: inside the first page of the segment; this side believes none of it.
        unsafe {
            client
                .rings
                .keeper()
                .0
                .as_ptr()
                .add(at)
                .cast::<u64>()
                .write_volatile(state >> (state % 60))
        };
        let _ = client.read(&mut [0; 4096]);
        let _ = client.write(&[IoSlice::new(&[1; 100]), IoSlice::new(&[2; 3000])]);
        let _ = client.wait(
            Interest { read: true, write: true, hangup: true },
            None,
            Some(Duration::ZERO),
        );
    }
}

#[test]
fn an_offer_that_is_not_as_it_should_be_is_refused() {
    let server = UnixServer::bind(&test_path()).unwrap();
    let refused = |message: &[u8], files: &[BorrowedFd<'_>]| {
        let client = dial(server.path().as_ref(), PATIENCE).unwrap();
        passing::send(client.as_fd(), message, files).unwrap();
        let socket = server.take().unwrap();
        take_up(socket, Instant::now() + PATIENCE).unwrap_err().to_string()
    };
    let (right, small) =
        (Segment::create("test", BYTES).unwrap(), Segment::create("test", 4096).unwrap());
    let event = Waker::new().unwrap();
    let (event, right, small) = (event.as_fd(), right.file(), small.file());
    assert!(
        refused(b"OUTBOARD-RINGS-9", &[right, event, event, event, event]).contains("not memory")
    );
    assert!(refused(&OFFER, &[right, event, event, event]).contains("lacks"));
    assert!(refused(&OFFER, &[small, event, event, event, event]).contains("another size"));
    assert!(refused(&OFFER, &[event, event, event, event, event]).contains("kind of file"));
    let client = dial(server.path().as_ref(), PATIENCE).unwrap();
    let socket = server.take().unwrap();
    let soon = Instant::now() + Duration::from_millis(20);
    assert_eq!(take_up(socket, soon).unwrap_err().kind(), io::ErrorKind::TimedOut);
    drop(client);
}

/// A worker that was offered memory has its descriptors, and may do with them what it likes.
#[test]
fn descriptors_in_the_hands_of_a_hostile_worker_do_its_client_no_harm() {
    let server = UnixServer::bind(&test_path()).unwrap();
    let client = dial(server.path().as_ref(), PATIENCE).unwrap();
    let stream = offer(client);
    let socket = server.take().unwrap();
    let mut said = [0; OFFER.len()];
    let files = passing::receive(socket.as_fd(), &mut said, Instant::now() + PATIENCE).unwrap();
    let [memory, events @ ..] = &files[..] else { panic!("no memory") };
    // Pages that went away would kill the client where it touches them.
    for bytes in [0, 4096, 2 * BYTES as u64] {
        assert_eq!(rustix::fs::ftruncate(memory, bytes), Err(Errno::PERM), "{bytes}");
    }
    assert_eq!(fcntl_add_seals(memory, SealFlags::WRITE), Err(Errno::PERM));
    fallocate(memory, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, BYTES as u64)
        .unwrap();
    // Counters that are full take no more wake-ups, and must not hold up who wakes.
    let full = (u64::MAX - 1).to_ne_bytes();
    for event in events {
        let _ = rustix::io::write(event, &full);
    }
    for _ in 0..100 {
        let _ = stream.write(&[IoSlice::new(&[7; 60_000])]);
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.wait(
            Interest { read: true, write: true, hangup: true },
            None,
            Some(Duration::from_millis(1)),
        );
    }
    let _ = stream.shutdown();
}

/// The answer to an offer brings no descriptors; those that come are not kept.
#[test]
fn descriptors_that_come_with_the_answer_to_an_offer_are_closed() {
    let server = UnixServer::bind(&test_path()).unwrap();
    let client = dial(server.path().as_ref(), PATIENCE).unwrap();
    let answered = std::thread::spawn(move || {
        let socket = server.take().unwrap();
        let mut said = [0; OFFER.len()];
        let files = passing::receive(socket.as_fd(), &mut said, Instant::now() + PATIENCE).unwrap();
        let (end, other) = rustix::pipe::pipe().unwrap();
        let ends: Vec<_> = std::iter::repeat_n(other.as_fd(), passing::MOST).collect();
        passing::send(socket.as_fd(), &[1], &ends).unwrap();
        drop(other);
        (end, socket, files)
    });
    let stream = Offer::new().unwrap().move_to(client, &[], Instant::now() + PATIENCE);
    let (end, ..) = answered.join().unwrap();
    // The pipe is at its end once nobody has the other one.
    let mut ended = [PollFd::new(&end, PollFlags::IN)];
    assert_eq!(poll(&mut ended, Some(&Timespec { tv_sec: 5, tv_nsec: 0 })), Ok(1));
    assert!(ended[0].revents().contains(PollFlags::HUP), "the client holds the other end");
    drop(stream);
}

#[test]
fn files_are_taken_by_their_numbers() {
    let server = UnixServer::bind(&test_path()).unwrap();
    let client = offer(dial(server.path().as_ref(), PATIENCE).unwrap());
    let worker = take_up(server.take().unwrap(), Instant::now() + PATIENCE).unwrap().0;
    assert_eq!(
        take_file(&*worker, 0).unwrap_err().kind(),
        io::ErrorKind::TimedOut,
        "nothing has come"
    );
    let ends: Vec<_> = (0..4).map(|_| rustix::pipe::pipe().unwrap()).collect();
    let ended = |number: usize| {
        let mut end = [PollFd::new(&ends[number].0, PollFlags::IN)];
        poll(&mut end, Some(&Timespec::default())).unwrap() == 1
    };
    for (number, (_, file)) in ends.iter().enumerate().take(3) {
        give_file(&client, number as u64, file.as_fd()).unwrap();
    }
    // The first is that of a command that has failed.
    let file = take_file(&*worker, 1).unwrap();
    rustix::io::write(&file, b"x").unwrap();
    assert!(ended(1) && !ended(0) && !ended(2));
    assert!(take_file(&*worker, 1).is_err(), "it is taken once");
    assert_eq!(
        take_file(&*worker, 2).unwrap_err().kind(),
        io::ErrorKind::TimedOut,
        "what was passed over is gone"
    );
    // A number without a file, and more before it than anybody leaves.
    passing::send(client.socket.fd(), &3_u64.to_le_bytes(), &[]).unwrap();
    assert_eq!(take_file(&*worker, 3).unwrap_err().kind(), io::ErrorKind::InvalidData);
    for number in 10..10 + 66 {
        passing::send(client.socket.fd(), &u64::to_le_bytes(number), &[]).unwrap();
    }
    assert_eq!(take_file(&*worker, 0).unwrap_err().kind(), io::ErrorKind::NotFound);
    // What is not this kind of stream has no such socket.
    let plain =
        crate::unix::from_descriptor(dial(server.path().as_ref(), PATIENCE).unwrap()).unwrap();
    assert_eq!(
        give_file(&*plain, 0, ends[3].1.as_fd()).unwrap_err().kind(),
        io::ErrorKind::Unsupported
    );
}
