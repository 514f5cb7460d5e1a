//! What a key opens and what it does not, between two queue pairs of whatever device there is.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboard_test_support::skip;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::*;

const BYTES: usize = 1 << 16;

struct End {
    domain: Arc<Domain>,
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
    let pair = QueuePair::create(endpoint, &domain, regions, access, [&queue, &queue], sizes)?;
    let address = pair.address(0x0012_3456);
    Ok(End { domain, pair, queue, address })
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

/// Bytes of the test, lent by one end, and a peer that may read and write there.
struct Lent {
    memory: Borrowed,
    bytes: Vec<u8>,
}

fn lend(end: &End, fill: u8, access: Access) -> Lent {
    let mut bytes = vec![fill; BYTES];
    // SAFETY: a vector's bytes stay where they are while it lives, which ends behind the loan in
    // `take_back`, or with the test.
    let memory =
        unsafe { Borrowed::create(&end.domain, bytes.as_mut_ptr(), BYTES, access) }.unwrap();
    Lent { memory, bytes }
}

fn take_back(lent: Lent) -> Vec<u8> {
    assert!(lent.memory.end().is_ok());
    lent.bytes
}

/// Two ends of which the first reads memory that the second lends, and writes there.
fn reading_ends() -> Result<[End; 2], Error> {
    ends_with_reads(Access::RemoteReadWrite)
}

fn ends_with_reads(access: Access) -> Result<[End; 2], Error> {
    let ends = [end(Access::Own)?, end(access)?];
    for (own, peer) in [(0, 1), (1, 0)] {
        let device = ends[own].pair.device();
        let most = device.reads()?;
        assert!(most.begun > 0 && most.served > 0);
        let reads = Reads { begun: most.begun.min(4), served: most.served.min(4) };
        ends[own].pair.connect_to_read(ends[own].address, ends[peer].address, Mtu::MOST, reads)?;
    }
    Ok(ends)
}

#[test]
fn lent_memory_is_written_and_read_without_the_owners_doing() {
    let [worker, owner] = needs_a_device!(reading_ends());
    let [own, theirs] = [lend(&worker, 7, Access::Own), lend(&owner, 9, Access::RemoteReadWrite)];
    let (start, there) = (own.memory.addresses().start, theirs.memory.addresses().start);
    assert_eq!(own.memory.remote(start), None, "nobody else gets a key");
    let place = |offset| theirs.memory.remote(there + offset).unwrap();
    let half = BYTES / 2;
    worker.pair.write(1, (&own.memory, start), half, place(0)).unwrap();
    assert_eq!(next(&worker).unwrap().work, 1);
    // SAFETY: nobody looks at the second half before the work is done.
    unsafe { worker.pair.read(2, (&own.memory, start + half as u64), half, place(half as u64)) }
        .unwrap();
    assert_eq!(next(&worker).unwrap().work, 2);
    let (own, theirs) = (take_back(own), take_back(theirs));
    assert!(theirs[..half].iter().all(|byte| *byte == 7), "written");
    assert!(theirs[half..].iter().all(|byte| *byte == 9), "left alone");
    assert!(own[..half].iter().all(|byte| *byte == 7), "left alone");
    assert!(own[half..].iter().all(|byte| *byte == 9), "read");
}

/// A program that forks goes on to use its memory in the child.
#[test]
fn a_child_has_memory_that_is_lent() {
    let [_, owner] = needs_a_device!(reading_ends());
    let lent = lend(&owner, 9, Access::RemoteReadWrite);
    let byte = lent.bytes[BYTES / 2..].as_ptr();
    // SAFETY: the child makes no calls but one, which ends it.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the byte is there, if the child has the memory; `_exit` may be called anywhere.
        unsafe { libc::_exit(i32::from(byte.read_volatile() != 9)) };
    }
    let mut status = -1;
    // SAFETY: waits for that child, and writes its status to a variable of its own.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "a signal, or another byte");
    take_back(lent);
}

/// What a key opened is closed once the owner has taken the memory back, or beyond its end.
#[test]
fn lent_memory_that_was_taken_back_is_closed() {
    let [worker, owner] = needs_a_device!(reading_ends());
    let [own, theirs] = [lend(&worker, 7, Access::Own), lend(&owner, 9, Access::RemoteReadWrite)];
    let start = own.memory.addresses().start;
    let key = theirs.memory.remote(theirs.memory.addresses().start).unwrap();
    let theirs = take_back(theirs);
    worker.pair.write(1, (&own.memory, start), 100, key).unwrap();
    assert_eq!(next(&worker), Err(WorkError::Other("remote access error")));
    assert!(theirs.iter().all(|byte| *byte == 9));
    let [worker, owner] = reading_ends().unwrap();
    let [own, theirs] = [lend(&worker, 7, Access::Own), lend(&owner, 9, Access::RemoteReadWrite)];
    let start = own.memory.addresses().start;
    let end = theirs.memory.remote(theirs.memory.addresses().end - 50).unwrap();
    // SAFETY: nobody looks at these bytes before the work is done.
    unsafe { worker.pair.read(1, (&own.memory, start), 100, end) }.unwrap();
    assert_eq!(next(&worker), Err(WorkError::Other("remote access error")));
    assert!(take_back(own).iter().all(|byte| *byte == 7), "nothing was read");
}

/// A stream's peer may write where it has a key, and read nowhere.
#[test]
fn who_may_write_may_not_read() {
    let [worker, owner] = needs_a_device!(ends_with_reads(Access::RemoteWrite));
    let own = lend(&worker, 7, Access::Own);
    let place = owner.pair.regions()[1].remote().unwrap();
    let start = own.memory.addresses().start;
    // SAFETY: nobody looks at these bytes before the work is done.
    unsafe { worker.pair.read(1, (&own.memory, start), 19, place) }.unwrap();
    assert!(matches!(next(&worker), Err(WorkError::Other(_))));
    assert!(take_back(own).iter().all(|byte| *byte == 7), "nothing was read");
}

/// A dma-buf of pages of this process, which the kernel's `udmabuf` makes.
fn dma_buf() -> std::io::Result<OwnedFd> {
    const UDMABUF_CREATE: libc::c_ulong = 0x4018_7542;
    let pages = memfd_create("pages", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC)?;
    ftruncate(&pages, BYTES as u64)?;
    fcntl_add_seals(&pages, SealFlags::SHRINK)?;
    let maker = std::fs::OpenOptions::new().read(true).write(true).open("/dev/udmabuf")?;
    // `struct udmabuf_create`: the file and flags, and which bytes of it.
    let create = [pages.as_raw_fd() as u64, 0, BYTES as u64];
    // SAFETY: the structure that this request reads.
    let made = unsafe { libc::ioctl(maker.as_raw_fd(), UDMABUF_CREATE, create.as_ptr()) };
    if made < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// Soft-RoCE, for one, does not take them.
#[test]
fn a_dma_buf_is_taken_or_refused_by_name() {
    let device = needs_a_device!(
        names().and_then(|names| Device::open(names.first().ok_or(Error::NoDevice)?))
    );
    // Where none can be made, a file that is none.
    let made = dma_buf().ok();
    let is_one = made.is_some();
    let buffer = made.unwrap_or_else(|| memfd_create("pages", MemfdFlags::CLOEXEC).unwrap());
    let domain = Domain::create(&device).unwrap();
    let addresses = (0x7000_0000, BYTES);
    match Borrowed::of_dma_buf(&domain, (buffer.as_fd(), 0), addresses, Access::Own) {
        Ok(memory) => {
            assert!(is_one);
            assert_eq!(memory.addresses(), 0x7000_0000..0x7000_0000 + BYTES as u64);
            assert!(memory.end().is_ok());
        }
        Err(error) => {
            let (words, name) = (error.to_string(), device.name());
            let refused = format!("ibv_reg_dmabuf_mr failed for the RDMA device `{name}`: ");
            assert!(words.starts_with(&refused) || matches!(error, Error::NoDmaBuf), "{words}");
        }
    }
}
