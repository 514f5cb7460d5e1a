use std::os::fd::AsFd;

use super::handing::OFFER;
use super::*;
use crate::passing;
use crate::unix::test_path;

crate::conformance!(Shm, &test_path());

fn pair() -> (ShmStream, Arc<dyn Stream>) {
    let server = UnixServer::bind(&test_path()).unwrap();
    let client = offer(dial(server.path().as_ref(), PATIENCE).unwrap(), &[]).unwrap();
    (client, take_up(server.take().unwrap(), Instant::now() + PATIENCE).unwrap().0)
}

/// The client's end writes whatever it likes into the memory.
#[test]
fn nonsense_in_the_rings_is_an_error_and_no_more() {
    for position in [RING as u64 + 1, u64::MAX - RING as u64, u64::MAX / 2, 1 << 20] {
        let (client, server) = pair();
        let sides = client.sides(0);
        sides.writer.moved(position, &sides.reader);
        assert!(server.wait(Interest::READ, None, Some(PATIENCE)).unwrap().read);
        assert_eq!(server.read(&mut [0; 64]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let sides = client.sides(1);
        sides.reader.moved(position, &sides.writer);
        assert!(server.wait(Interest::WRITE, None, Some(PATIENCE)).unwrap().write);
        assert_eq!(server.write(&[IoSlice::new(b"x")]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
    // Anything at all, while the server reads and writes.
    let (client, server) = pair();
    let mut state = 1_u64;
    for _ in 0..20_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (state >> 33) as usize % 64 * 8;
        // SAFETY: inside the first page of the segment; the other side believes none of it.
        unsafe { client.segment.as_ptr().add(at).cast::<u64>().write_volatile(state >> (state % 60)) };
        let _ = server.read(&mut [0; 4096]);
        let _ = server.write(&[IoSlice::new(&[1; 100]), IoSlice::new(&[2; 3000])]);
        let _ = server.wait(Interest { read: true, write: true, hangup: true }, None, Some(Duration::ZERO));
    }
}

/// So does the worker.
#[test]
fn nonsense_of_a_worker_in_the_rings_is_an_error_for_its_client() {
    for position in [RING as u64 + 1, u64::MAX - RING as u64, u64::MAX / 2, 1 << 20] {
        let (client, _server) = pair();
        let (out, back) = (client.sides(0), client.sides(1));
        out.reader.moved(position, &out.writer);
        assert_eq!(client.write(&[IoSlice::new(b"x")]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        back.writer.moved(position, &back.reader);
        assert_eq!(client.read(&mut [0; 64]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
    let (client, _server) = pair();
    let mut state = 7_u64;
    for _ in 0..20_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (state >> 33) as usize % 64 * 8;
        // SAFETY: inside the first page of the segment; this side believes none of it.
        unsafe { client.segment.as_ptr().add(at).cast::<u64>().write_volatile(state >> (state % 60)) };
        let _ = client.read(&mut [0; 4096]);
        let _ = client.write(&[IoSlice::new(&[1; 100]), IoSlice::new(&[2; 3000])]);
        let _ = client.wait(Interest { read: true, write: true, hangup: true }, None, Some(Duration::ZERO));
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
    let (right, small) = (Segment::create("test", BYTES).unwrap(), Segment::create("test", 4096).unwrap());
    let event = Waker::new().unwrap();
    let (event, right, small) = (event.as_fd(), right.file(), small.file());
    assert!(refused(b"OUTBOARD-RINGS-9", &[right, event, event, event, event]).contains("not memory"));
    assert!(refused(&OFFER, &[right, event, event, event]).contains("lacks"));
    assert!(refused(&OFFER, &[small, event, event, event, event]).contains("another size"));
    assert!(refused(&OFFER, &[event, event, event, event, event]).contains("kind of file"));
    let client = dial(server.path().as_ref(), PATIENCE).unwrap();
    let socket = server.take().unwrap();
    let soon = Instant::now() + Duration::from_millis(20);
    assert_eq!(take_up(socket, soon).unwrap_err().kind(), io::ErrorKind::TimedOut);
    drop(client);
}
