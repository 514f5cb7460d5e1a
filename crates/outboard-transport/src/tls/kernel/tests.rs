//! On a kernel that has TLS: that of `cargo xtask ktls`, if not this machine's.

use std::borrow::Cow;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use outboard_test_support::skip;
use rustls::SupportedCipherSuite;

use super::*;
use crate::blocking::{read_exact, write_all};
use crate::stream::{Interest, Readiness};
use crate::tls::keys::{Kind, RECORD};
use crate::tls::over::Tls;
use crate::tls::tests::{echo, record, settings, wrong_records};
use crate::tls::{TlsStream, client, connect, provider, server};

const PATIENCE: Duration = Duration::from_secs(60);

/// By the kernel, which must not decline.
const KERNEL: Kernel = Kernel { otherwise: |why| panic!("{why}"), most_records: u64::MAX };
const BY_KERNEL: Records = Records::Kernel(KERNEL);

fn missing() -> Option<Without> {
    check().err()
}

macro_rules! needs_tls {
    () => {
        if let Some(why) = missing() {
            skip!("{why}");
        }
    };
}

mod on_both_sides {
    use super::*;
    crate::conformance!(Tls::with(Tcp, [BY_KERNEL; 2]), "127.0.0.1:0", unless missing());
}

mod of_the_client {
    use super::*;
    crate::conformance!(
        Tls::with(Tcp, [BY_KERNEL, Records::Here]), "127.0.0.1:0", unless missing()
    );
}

mod of_the_server {
    use super::*;
    crate::conformance!(
        Tls::with(Tcp, [Records::Here, BY_KERNEL]), "127.0.0.1:0", unless missing()
    );
}

/// The client's end, by the kernel, and the server's, made here.
fn ends(suite: SupportedCipherSuite, kernel: Kernel) -> (Arc<KernelStream>, Arc<TlsStream>) {
    let (of_client, of_server) = settings(suite);
    let deadline = Instant::now() + PATIENCE;
    let listener = Tcp.listen("127.0.0.1:0").unwrap();
    let below = Tcp.connect(&listener.address().unwrap(), PATIENCE).unwrap();
    std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            let below = listener.accept().unwrap();
            TlsStream::over(server(below, of_server.into(), deadline).unwrap()).unwrap()
        });
        let first = |_| Cow::Borrowed(&b"!"[..]);
        let here = client(below, of_client, "localhost", first, deadline).unwrap();
        let here = take_over(here, kernel).unwrap().ok().expect("the kernel makes them");
        let there = there.join().unwrap();
        read_exact(&*there, &mut [0]).unwrap();
        (here, there)
    })
}

fn usual() -> (Arc<KernelStream>, Arc<TlsStream>) {
    ends(provider().cipher_suites[0], KERNEL)
}

fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|i| (i * 31 % 251) as u8).collect()
}

/// The end of a stream that has to have another key.
fn expect_another_key(error: &io::Error) {
    // Whoever can resume takes that for a violation of the protocol, and does not.
    assert_ne!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    assert!(error.to_string().contains("another key"), "{error}");
}

#[test]
fn a_connection_that_the_kernel_does_not_take_is_encrypted_here() {
    static TOLD: AtomicU32 = AtomicU32::new(0);
    let otherwise = |_: &Without| {
        TOLD.fetch_add(1, Ordering::Relaxed);
    };
    let records = Records::Kernel(Kernel { otherwise, most_records: u64::MAX });
    let (address, config) = echo(provider().cipher_suites[0], false);
    let below = Tcp.connect(&address, PATIENCE).unwrap();
    let here = connect(below, config, "localhost", b"!", records, Instant::now() + PATIENCE);
    let here = here.unwrap();
    let mut said = [0; 6];
    write_all(&*here, b"again").unwrap();
    read_exact(&*here, &mut said).unwrap();
    assert_eq!(&said, b"!again");
    assert_eq!(TOLD.load(Ordering::Relaxed) == 1, missing().is_some());
    assert_eq!(here.transport(), "tcp+tls");
}

#[test]
fn each_suite_goes_both_ways_between_the_kernel_and_records_made_here() {
    needs_tls!();
    let bytes = pattern(1 << 20);
    for suite in provider().cipher_suites {
        let (here, there) = ends(suite, KERNEL);
        let (here, there): (Arc<dyn Stream>, Arc<dyn Stream>) = (here, there);
        std::thread::scope(|scope| {
            for (from, to) in [(&here, &there), (&there, &here)] {
                let bytes = &bytes;
                scope.spawn(move || write_all(&**from, bytes).unwrap());
                scope.spawn(move || {
                    let mut received = vec![0; bytes.len()];
                    read_exact(&**to, &mut received[..25]).unwrap();
                    read_exact(&**to, &mut received[25..]).unwrap();
                    assert!(received == *bytes, "{suite:?}");
                });
            }
        });
    }
}

/// Its tickets come before its first answer.
#[test]
fn a_peer_that_has_all_from_rustls_understands_the_kernel() {
    needs_tls!();
    let bytes = pattern(300_000);
    for suite in provider().cipher_suites {
        let (address, config) = echo(suite, false);
        let below = Tcp.connect(&address, PATIENCE).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let here = connect(below, config, "localhost", b"!", BY_KERNEL, deadline).unwrap();
        let mut answer = vec![0; bytes.len()];
        read_exact(&*here, &mut answer[..1]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..3).for_each(|_| write_all(&*here, &bytes).unwrap()));
            for _ in 0..3 {
                read_exact(&*here, &mut answer).unwrap();
                assert!(answer == bytes, "{suite:?}");
            }
        });
    }
}

#[test]
fn a_peer_that_changes_its_key_ends_the_connection_and_no_byte_before_is_lost() {
    needs_tls!();
    let (here, there) = usual();
    {
        let mut outgoing = there.outgoing.lock().unwrap();
        // Three are data, and one tells that there is another key.
        outgoing.records_of_a_key = outgoing.key_is_used() + 4;
    }
    let bytes = pattern(10 * RECORD);
    let sent = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_all(&*there, &bytes));
        let mut received = vec![0; 3 * RECORD];
        read_exact(&*here, &mut received).unwrap();
        assert!(received == bytes[..received.len()]);
        expect_another_key(&read_exact(&*here, &mut [0]).unwrap_err());
        writer.join().unwrap()
    });
    // It finds out, too.
    let end = sent.and_then(|()| read_exact(&*there, &mut [0])).unwrap_err();
    assert_ne!(end.kind(), io::ErrorKind::InvalidData, "{end}");
    let (address, config) = echo(provider().cipher_suites[0], true);
    let below = Tcp.connect(&address, PATIENCE).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let here = connect(below, config, "localhost", b"!", BY_KERNEL, deadline).unwrap();
    expect_another_key(&read_exact(&*here, &mut [0]).unwrap_err());
}

#[test]
fn a_key_that_is_used_up_ends_the_connection_behind_what_was_written() {
    needs_tls!();
    let (here, there) = ends(provider().cipher_suites[0], Kernel { most_records: 64, ..KERNEL });
    let mut written = 0;
    let error = loop {
        match here.write(&[IoSlice::new(&[7; 100])]) {
            Ok(count) => written += count,
            Err(error) => break error,
        }
    };
    expect_another_key(&error);
    // The first byte was a record, too.
    assert_eq!(written, 55 * 100);
    let mut received = vec![0; written];
    read_exact(&*there, &mut received).unwrap();
    assert!(received.iter().all(|byte| *byte == 7));
    let end = read_exact(&*there, &mut [0]).unwrap_err();
    assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof, "{end}");
}

#[test]
fn the_kernel_makes_as_many_records_as_are_counted_here() {
    needs_tls!();
    for suite in provider().cipher_suites {
        let (here, there) = ends(suite, KERNEL);
        let fd = socket_of(&*here.below).unwrap();
        assert_eq!(socket::records_sent(fd).unwrap(), 1, "the first byte's record was made here");
        let bytes = pattern(5 * RECORD + 1);
        assert_eq!(here.write(&[IoSlice::new(&bytes)]).unwrap(), bytes.len());
        assert_eq!(socket::records_sent(fd).unwrap(), 7, "{suite:?}");
        read_exact(&*there, &mut vec![0; bytes.len()]).unwrap();
        // Nothing is no record.
        assert_eq!(here.write(&[IoSlice::new(b"")]).unwrap(), 0);
        assert_eq!(socket::records_sent(fd).unwrap(), 7);
    }
}

#[test]
fn a_peer_that_breaks_the_rules_is_an_error() {
    needs_tls!();
    for ((what, say), room) in wrong_records().iter().flat_map(|one| [1, 1 << 20].map(|r| (one, r)))
    {
        let (here, there) = usual();
        let mut outgoing = there.outgoing.lock().unwrap();
        say(&mut outgoing);
        write_all(&*there.below, outgoing.rest()).unwrap();
        let mut rest = [0; 300_000];
        outgoing.raw(&rest);
        let _ = there.below.write(&[IoSlice::new(&rest)]);
        let error = read_exact(&*here, &mut vec![0; room]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{what}, {room}: {error}");
        let again = read_exact(&*here, &mut rest).unwrap_err();
        assert_ne!(again.kind(), io::ErrorKind::WouldBlock, "{what}: it is over");
    }
}

/// Bytes, nothing at all, and what is passed over, in any order; and small reads.
#[test]
fn records_without_bytes_for_the_reader_are_passed_over() {
    needs_tls!();
    for room in [1, 3, 100] {
        let (here, there) = usual();
        let mut outgoing = there.outgoing.lock().unwrap();
        let ticket = [&[4, 0, 1, 44][..], &[9; 300]].concat();
        for kind in [Kind::Data, Kind::Handshake] {
            record(&mut outgoing, Kind::Data, b"abcd");
            record(&mut outgoing, Kind::Data, b"");
            record(&mut outgoing, kind, if kind == Kind::Data { b"e" } else { &ticket });
            record(&mut outgoing, Kind::Data, b"f");
            record(&mut outgoing, Kind::Handshake, &ticket);
        }
        record(&mut outgoing, Kind::Data, b"");
        record(&mut outgoing, Kind::Alert, &[1, 0]);
        write_all(&*there.below, outgoing.rest()).unwrap();
        let (mut said, mut part) = (Vec::new(), vec![0; room]);
        loop {
            match here.read(&mut part) {
                Ok(0) => break,
                Ok(count) => said.extend_from_slice(&part[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    here.wait(Interest::READ, None, Some(PATIENCE)).unwrap();
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(said, b"abcdefabcdf", "{room}");
        // The end is there for all, though the connection is not closed.
        let began = Instant::now();
        assert!(here.wait(Interest::READ, None, Some(PATIENCE)).unwrap().read);
        assert_eq!(here.read(&mut part).unwrap(), 0);
        assert!(began.elapsed() < PATIENCE / 2);
        write_all(&*here, b"this way it goes on").unwrap();
    }
}

#[test]
fn part_of_a_record_is_nothing_to_read_and_its_end_is_waited_for() {
    needs_tls!();
    let (here, there) = usual();
    let mut outgoing = there.outgoing.lock().unwrap();
    record(&mut outgoing, Kind::Data, &[5; 1000]);
    let sealed = outgoing.rest().to_vec();
    for (from, to) in [(0, 3), (3, 5), (5, 500), (500, sealed.len() - 1)] {
        write_all(&*there.below, &sealed[from..to]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let error = here.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{to} bytes");
        let wait = || here.wait(Interest::READ, None, Some(Duration::from_millis(10))).unwrap();
        // One wait may end in vain, and not the next: else no silent peer were noticed.
        if wait().read {
            let error = here.read(&mut [0; 8]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{to} bytes");
            assert_eq!(wait(), Readiness::default(), "{to} bytes");
        }
    }
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| here.wait(Interest::READ, None, Some(PATIENCE)).unwrap());
        std::thread::sleep(Duration::from_millis(20));
        let began = Instant::now();
        write_all(&*there.below, &sealed[sealed.len() - 1..]).unwrap();
        assert!(waiting.join().unwrap().read);
        assert!(began.elapsed() < PATIENCE / 2, "whoever waits is not woken");
    });
    read_exact(&*here, &mut [0; 1000]).unwrap();
    // Cut off within a record, it ends as a killed peer's does.
    record(&mut outgoing, Kind::Data, &[5; 1000]);
    write_all(&*there.below, &sealed[..400]).unwrap();
    there.below.shutdown().unwrap();
    let end = read_exact(&*here, &mut [0]).unwrap_err();
    assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof, "{end}");
}

/// Of what a full connection has taken over, the last record may be lost when it is shut down: the
/// others come, in order, and then the end.
#[test]
fn a_full_connection_that_is_shut_down_ends_between_records() {
    needs_tls!();
    let (here, there) = usual();
    let bytes = pattern(64 << 10);
    let mut written = 0;
    while let Ok(count) = here.write(&[IoSlice::new(&bytes[written % bytes.len()..])]) {
        written += count;
    }
    here.shutdown().unwrap();
    let (mut received, mut room) = (0, vec![0; 100_000]);
    let end = loop {
        match there.read(&mut room) {
            Ok(count @ 1..) => {
                let all = (received..received + count).zip(&room);
                assert!(all.into_iter().all(|(at, byte)| *byte == bytes[at % bytes.len()]));
                received += count;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                there.wait(Interest::READ, None, Some(PATIENCE)).unwrap();
            }
            end => break end,
        }
    };
    assert!(matches!(end, Ok(0)), "{end:?}");
    assert!(received <= written && received + (64 << 10) > written, "{received} of {written}");
}

/// Memory whose pages are closed makes the call fail, and no byte is lost: it is made again.
#[test]
fn bytes_for_closed_memory_come_once_it_is_open() {
    needs_tls!();
    const PAGES: usize = 16;
    let page = rustix::param::page_size();
    // SAFETY: a new mapping of its own.
    let memory = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            PAGES * page,
            rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
            rustix::mm::MapFlags::PRIVATE,
        )
    }
    .unwrap();
    let close = |protection| {
        // SAFETY: the mapping's second half, to which nobody holds a reference.
        unsafe {
            rustix::mm::mprotect(memory.byte_add(PAGES / 2 * page), PAGES / 2 * page, protection)
        }
        .unwrap()
    };
    let (here, there) = usual();
    let bytes = pattern(PAGES * page);
    // SAFETY: the mapping; what is closed is only passed on to the kernel.
    let room = || unsafe { std::slice::from_raw_parts_mut(memory.cast::<u8>(), PAGES * page) };
    let open = rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE;
    let from = |way: &dyn Fn(usize) -> io::Result<usize>| {
        let (mut done, mut closed) = (0, 0);
        close(rustix::mm::MprotectFlags::empty());
        while done < PAGES * page {
            match way(done) {
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    here.wait(Interest::READ, None, Some(Duration::from_millis(10))).unwrap();
                }
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::EFAULT), "{error}");
                    closed += 1;
                    close(open);
                }
            }
        }
        assert_eq!(closed, 1);
    };
    write_all(&*there, &bytes).unwrap();
    from(&|done| here.read(&mut room()[done..]));
    assert!(room() == bytes);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut received = vec![0; bytes.len()];
            read_exact(&*there, &mut received).unwrap();
            received
        });
        from(&|done| here.write(&[IoSlice::new(&room()[done..])]));
        assert!(reader.join().unwrap() == bytes);
    });
    // SAFETY: nobody refers to it any more.
    unsafe { rustix::mm::munmap(memory, PAGES * page) }.unwrap();
}
