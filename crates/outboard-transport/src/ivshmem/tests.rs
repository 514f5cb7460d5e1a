//! Over a file in `/dev/shm`, which is what a host sees of a device: both sides do nothing but map
//! it.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::part::{By, whole};
use super::*;
use crate::blocking::{read_exact, write_all};
use crate::rings::{BYTES, RING};
use crate::settling::{Outcome, stay};
use crate::stream::{Interest, Stream};
use crate::tcp::Tcp;
use crate::tls::over::Tls;
use crate::transport::{Listener, Transport};

const PATIENCE: Duration = Duration::from_secs(60);
const ANYWHERE: &str = "127.0.0.1:0";

/// A region's file, which ends with this value.
struct Shared(PathBuf);

impl Shared {
    fn create(bytes: u64) -> Shared {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = format!("/dev/shm/outboard-test-{}-{number}", std::process::id());
        File::create(&path).unwrap().set_len(bytes).unwrap();
        Shared(path.into())
    }

    fn open(&self) -> OwnedFd {
        File::options().read(true).write(true).open(&self.0).unwrap().into()
    }

    /// All of it as one part, as each side maps it.
    fn part(&self) -> Arc<Part> {
        Part::map(self.open(), 0, std::fs::metadata(&self.0).unwrap().len()).unwrap()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The sides meet over this transport; an address also names the file.
#[derive(Debug)]
struct Ivshmem<T>(T);

fn moved(outcome: io::Result<Outcome>) -> io::Result<Arc<dyn Stream>> {
    match outcome? {
        Outcome::Moved(stream) => Ok(stream),
        Outcome::Stays(why) => Err(why.unwrap_or_else(|| io::Error::other("it stays"))),
    }
}

thread_local! {
    /// Clients of one thread have one part, as those of one session.
    static PARTS: Mutex<Vec<(String, Arc<Part>)>> = const { Mutex::new(Vec::new()) };
}

fn part_of(path: &str) -> Arc<Part> {
    PARTS.with(|parts| {
        let mut parts = parts.lock().unwrap();
        if let Some((_, part)) = parts.iter().find(|(known, _)| known == path) {
            return Arc::clone(part);
        }
        let part = Shared(path.into()).part();
        parts.push((path.to_owned(), Arc::clone(&part)));
        part
    })
}

impl<T: Transport> Transport for Ivshmem<T> {
    fn name(&self) -> &'static str {
        "ivshmem"
    }

    fn connect(&self, address: &str, timeout: Duration) -> io::Result<Arc<dyn Stream>> {
        let (address, path) = address.split_once(' ').unwrap();
        let met = self.0.connect(address, timeout)?;
        moved(move_to(&met, &part_of(path), Instant::now() + timeout))
    }

    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        let listener = self.0.listen(address)?;
        let shared = Shared::create(20 * BYTES as u64);
        let address = format!("{} {}", listener.address()?, shared.0.display());
        let part = shared.part();
        // The client's, which removes the file's name after it.
        std::mem::forget(shared);
        let (accepted, taken) = channel();
        // Clients are connected before somebody accepts them, as by TCP.
        std::thread::spawn(move || {
            while let Ok(met) = listener.accept() {
                let stream = moved(take_up(&met, &part, Instant::now() + PATIENCE));
                if accepted.send(stream).is_err() {
                    return;
                }
            }
        });
        Ok(Box::new(IvshmemListener { address, taken: Mutex::new(taken) }))
    }
}

#[derive(Debug)]
struct IvshmemListener {
    address: String,
    taken: Mutex<Receiver<io::Result<Arc<dyn Stream>>>>,
}

impl Listener for IvshmemListener {
    fn accept(&self) -> io::Result<Arc<dyn Stream>> {
        self.taken.lock().unwrap().recv().map_err(io::Error::other)?
    }

    fn address(&self) -> io::Result<String> {
        Ok(self.address.clone())
    }
}

crate::conformance!(Ivshmem(Tcp), ANYWHERE);

/// As encrypted sessions have it: what carries the bells is encrypted, and so is what the memory
/// carries.
mod encrypted {
    use super::*;

    crate::conformance!(Tls::over(Ivshmem(Tls::over(Tcp))), ANYWHERE);
}

/// Two ends of a TCP connection.
fn met() -> [Arc<dyn Stream>; 2] {
    let listener = Tcp.listen(ANYWHERE).unwrap();
    let client = Tcp.connect(&listener.address().unwrap(), PATIENCE).unwrap();
    [client, listener.accept().unwrap()]
}

/// What becomes of a connection whose sides have these parts.
fn settle(client: &Arc<Part>, server: &Arc<Part>) -> [io::Result<Outcome>; 2] {
    let ([of_client, of_server], deadline) = (met(), Instant::now() + PATIENCE);
    let server = Arc::clone(server);
    let taking = std::thread::spawn(move || take_up(&of_server, &server, deadline));
    let moving = move_to(&of_client, client, deadline);
    [moving, taking.join().unwrap()]
}

fn pair(client: &Arc<Part>, server: &Arc<Part>) -> [Arc<dyn Stream>; 2] {
    settle(client, server).map(|outcome| moved(outcome).unwrap())
}

/// Why neither side of a connection has moved, as the client hears it.
fn refused(outcomes: [io::Result<Outcome>; 2]) -> String {
    let [client, server] = outcomes.map(Result::unwrap);
    assert!(matches!(server, Outcome::Stays(_)), "{server:?}");
    let Outcome::Stays(Some(why)) = client else { panic!("{client:?}") };
    why.to_string()
}

#[test]
fn who_sees_other_memory_stays_where_it_is() {
    let [here, there] = [(); 2].map(|()| Shared::create(4 * BYTES as u64));
    let (client, server) = (here.part(), there.part());
    let why = refused(settle(&client, &server));
    assert!(why.contains("do not see the same memory"), "{why}");
    // A memory that never changes shows nothing either.
    let stuck = whole(&File::open("/dev/zero").unwrap());
    assert!(stuck.is_err(), "what has no size is not mapped");
    // Nothing is held any more.
    assert_eq!((client.free(), server.free()), (0b1111, 0b1111));
    pair(&there.part(), &server);
}

#[test]
fn a_connection_that_stays_goes_on() {
    let shared = Shared::create(2 * BYTES as u64);
    let ([client, server], part) = (met(), shared.part());
    stay(&*client).unwrap();
    let outcome = take_up(&server, &part, Instant::now() + PATIENCE).unwrap();
    assert!(matches!(outcome, Outcome::Stays(None)));
    write_all(&*client, b"hello").unwrap();
    let mut heard = [0; 5];
    read_exact(&*server, &mut heard).unwrap();
    assert_eq!(&heard, b"hello");
}

#[test]
fn a_part_that_is_full_takes_no_further_connection_until_one_ends() {
    let shared = Shared::create(2 * BYTES as u64);
    let (client, server) = (shared.part(), shared.part());
    let first = pair(&client, &server);
    let second = pair(&client, &server);
    let why = refused(settle(&client, &server));
    assert!(why.contains("no further room"), "{why}");
    // Only once both sides have ended it: bytes that the other has not read are there still.
    let [of_client, of_server] = first;
    write_all(&*of_client, b"last").unwrap();
    drop(of_client);
    let why = refused(settle(&client, &server));
    assert!(why.contains("the server says") && why.contains("no further room"), "{why}");
    let mut last = [0; 4];
    read_exact(&*of_server, &mut last).unwrap();
    assert_eq!((&last, of_server.read(&mut [0]).unwrap()), (b"last", 0));
    drop(of_server);
    let third = pair(&client, &server);
    for [client, server] in [second, third] {
        write_all(&*client, b"there").unwrap();
        let mut heard = [0; 5];
        read_exact(&*server, &mut heard).unwrap();
        assert_eq!(&heard, b"there");
    }
}

/// What either side may find in the memory, which everybody in the virtual machine can write.
#[test]
fn nonsense_in_the_memory_is_an_error_and_no_more() {
    let shared = Shared::create(BYTES as u64);
    let anybody = whole(&shared.open().into()).unwrap();
    for position in [RING as u64 + 1, u64::MAX - RING as u64, u64::MAX / 2, 1 << 20] {
        let streams = pair(&shared.part(), &shared.part());
        // The position of each side of each ring is the first number of its 128 bytes.
        for at in [0, 128, 256, 384] {
            anybody.write(at, &position.to_le_bytes());
        }
        for stream in &streams {
            assert!(stream.wait(Interest::READ, None, Some(PATIENCE)).unwrap().read);
            let error = stream.read(&mut [0; 64]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert!(stream.wait(Interest::WRITE, None, Some(PATIENCE)).unwrap().write);
            let error = stream.write(&[IoSlice::new(b"x")]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
    // Anything at all, while both sides read and write.
    let streams = pair(&shared.part(), &shared.part());
    let mut state = 1_u64;
    for _ in 0..5_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (state >> 33) as usize % 64 * 8;
        anybody.write(at, &(state >> (state % 60)).to_le_bytes());
        for stream in &streams {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write(&[IoSlice::new(&[1; 100]), IoSlice::new(&[2; 3000])]);
            let both = Interest { read: true, write: true, hangup: true };
            let _ = stream.wait(both, None, Some(Duration::ZERO));
        }
    }
}

/// What either side may hear over the connection.
#[test]
fn nonsense_of_the_other_side_is_an_error_and_no_more() {
    let shared = Shared::create(BYTES as u64);
    let soon = || Instant::now() + PATIENCE;
    let of_server = |said: &[u8]| {
        let [client, server] = met();
        write_all(&*client, said).unwrap();
        client.shutdown().unwrap();
        take_up(&server, &shared.part(), soon())
    };
    assert_eq!(of_server(&[7]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert_eq!(of_server(&[1, 1]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(of_server(&[1, 1, 0, 0, 0, 9]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    // A slot that the part does not have.
    assert!(matches!(of_server(&[1, 0, 0, 0, 0x80]), Ok(Outcome::Stays(Some(_))) | Err(_)));
    let guessed = [&[1, 1, 0, 0, 0][..], &[0; 32]].concat();
    assert!(matches!(of_server(&guessed), Ok(Outcome::Stays(Some(_))) | Err(_)));
    let of_client = |said: &[u8]| {
        let [client, server] = met();
        write_all(&*server, said).unwrap();
        server.shutdown().unwrap();
        move_to(&client, &shared.part(), soon())
    };
    for wrong in [&[7][..], &[1, 1], &[1, 32], &[1, 255], &[0, 255, 255], &[0, 5, 0, b'n']] {
        assert!(of_client(wrong).is_err(), "{wrong:?}");
    }
    let why = of_client(&[0, 2, 0, b'n', b'o']).unwrap();
    assert!(matches!(&why, Outcome::Stays(Some(why)) if why.to_string().contains("no")));
}

#[test]
fn trials_are_of_one_slot_and_one_side() {
    let shared = Shared::create(2 * BYTES as u64);
    let part = shared.part();
    let slots = [part.take(0b01).unwrap(), part.take(0b10).unwrap()];
    assert!(part.take(u32::MAX).is_none());
    for (number, slot) in slots.iter().enumerate() {
        slot.write(By::Client, [number as u8; 16]);
        slot.write(By::Server, [number as u8 + 2; 16]);
    }
    slots[0].clear();
    let seen =
        [0, 1].map(|at: usize| (slots[at].read(By::Client)[0], slots[at].read(By::Server)[0]));
    assert_eq!(seen, [(0, 2), (1, 3)]);
}

#[test]
fn a_part_is_taken_once_and_comes_back_with_its_descriptor() {
    let shared = Shared::create(20 << 20);
    let region = Region::at(&shared.0);
    let (id, parts) = region.prepare().unwrap();
    assert_eq!(parts, 2);
    assert_eq!(region.prepare().unwrap(), (id, 2), "another server knows it by the same");
    let first = region.allot(id).unwrap().unwrap();
    let second = Region::at(&shared.0).allot(id).unwrap().unwrap();
    assert_ne!(first.offset, second.offset);
    let full = region.allot(id).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    assert!(full.to_string().contains("all 2 parts"), "{full}");
    assert!(region.allot([1; 16]).unwrap().is_none(), "that is another one");
    // What the worker has been given keeps it.
    let (offset, bytes) = (first.offset, first.bytes);
    let given = Part::map(first.file.try_clone().unwrap(), offset, bytes).unwrap();
    drop(first.file);
    assert!(region.allot(id).is_err());
    drop(given);
    assert_eq!(region.allot(id).unwrap().unwrap().offset, offset);
    // A device that was made anew gets another id.
    let file = File::create(&shared.0).unwrap();
    file.set_len(LEAST).unwrap();
    assert!(region.allot(id).unwrap().is_none());
    let (id, parts) = region.prepare().unwrap();
    assert_eq!((parts, region.allot(id).unwrap().unwrap().bytes), (1, LEAST - 4096));
}

#[test]
fn what_is_no_region_is_refused() {
    let small = Shared::create(LEAST - 1);
    assert!(Region::at(&small.0).prepare().unwrap_err().to_string().contains("1024 KiB"));
    let missing = Region::at("/dev/shm/outboard-test-that-is-not-there");
    assert_eq!(missing.prepare().unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(Region::at("/dev/null").prepare().is_err());
    assert!(Part::map(small.open(), 4096, LEAST).is_err(), "beyond the end");
    assert!(Part::map(small.open(), 100, 4096).is_err(), "not at a page");
    assert!(Part::map(small.open(), u64::MAX - 4095, 4096).is_err());
    assert!(Part::map(small.open(), 0, 0).is_err());
}

#[test]
fn a_device_is_found_by_its_name() {
    let shared = Shared::create(LEAST);
    let unused = Device::find(Some(&shared.0)).unwrap().unwrap();
    assert_eq!(unused.id(), UNKNOWN);
    let (id, _) = Region::at(&shared.0).prepare().unwrap();
    let device = Device::find(Some(&shared.0)).unwrap().unwrap();
    assert_eq!((device.id(), device.path()), (id, &*shared.0));
    assert!(Device::find(Some(OFF.as_ref())).unwrap().is_none());
    let missing = Device::find(Some("/dev/shm/not-there".as_ref())).unwrap_err();
    assert!(missing.to_string().contains("/dev/shm/not-there"), "{missing}");
}
