//! Tests of the properties that every transport must have. [`conformance!`](crate::conformance!)
//! makes one test of each function here:
//!
//! ```text
//! outboard_transport::conformance!(Tcp, "127.0.0.1:0");
//! ```
//!
//! With `unless WHY`, the tests are skipped if the expression says why.
//!
//! The functions panic if the transport lacks the property. Deadlines are generous: they only keep
//! a broken transport from hanging the suite.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::blocking::{read_exact, read_exact_until, write_all};
use crate::stream::{Interest, Readiness, Stream};
use crate::transport::{Listener, Transport};
use crate::waker::Waker;

/// Makes a test of each property. Arguments: the transport, an address to listen at, and where the
/// transport needs what not every machine has, why it cannot run here, if it cannot.
#[macro_export]
macro_rules! conformance {
    ($transport:expr, $address:expr) => {
        $crate::conformance!($transport, $address, unless None::<&str>);
    };
    ($transport:expr, $address:expr, unless $missing:expr) => {
        $crate::conformance!($transport, $address, $missing;
            bytes_arrive_in_order_both_ways
            nothing_to_read_would_block
            a_full_stream_would_block_and_drains
            several_buffers_go_out_in_order
            waiting_ends_when_bytes_come
            bytes_end_the_waiting_of_all
            what_a_short_read_leaves_ends_waiting
            a_reader_is_woken_though_a_writer_was_before
            waiting_ends_when_time_is_up
            waiting_ends_when_woken
            wakeups_are_remembered_once
            shutdown_ends_a_blocked_reader
            unread_bytes_survive_the_peers_end
            a_hangup_is_seen_without_reading
            writing_to_a_dead_peer_fails_without_a_signal
            an_abandoned_stream_is_only_let_go
            many_streams_share_a_listener
            a_deadline_ends_a_read
            who_reads_much_gets_it_whole
        );
    };
    ($transport:expr, $address:expr, $missing:expr; $($property:ident)*) => {
        mod conformance {
            use super::*;
            $(
                #[test]
                fn $property() {
                    if let Some(why) = $missing {
                        outboard_test_support::skip!("{why}");
                    }
                    $crate::conformance::$property(&$transport, $address);
                }
            )*
        }
    };
}

const PATIENCE: Duration = Duration::from_secs(60);

fn listen(transport: &dyn Transport, address: &str) -> (Box<dyn Listener>, String) {
    let listener = transport.listen(address).expect("listens");
    let address = listener.address().expect("knows its address");
    (listener, address)
}

fn connect(transport: &dyn Transport, address: &str) -> (Arc<dyn Stream>, Arc<dyn Stream>) {
    let (listener, address) = listen(transport, address);
    let client = transport.connect(&address, PATIENCE).expect("connects");
    (client, listener.accept().expect("accepts"))
}

fn would_block<T: std::fmt::Debug>(result: io::Result<T>) {
    assert_eq!(result.expect_err("should block").kind(), io::ErrorKind::WouldBlock);
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 % 253) as u8).collect()
}

/// Megabytes each way at once, unchanged.
pub fn bytes_arrive_in_order_both_ways(transport: &dyn Transport, address: &str) {
    let (client, server) = connect(transport, address);
    let sent = pattern(3 << 20);
    thread::scope(|scope| {
        for stream in [&client, &server] {
            let sent = &sent;
            scope.spawn(move || write_all(&**stream, sent).expect("writes"));
            scope.spawn(move || {
                let mut received = vec![0; sent.len()];
                read_exact(&**stream, &mut received).expect("reads");
                assert!(received == *sent, "bytes changed on the way");
            });
        }
    });
}

/// A read with nothing there does not block.
pub fn nothing_to_read_would_block(transport: &dyn Transport, address: &str) {
    let (client, server) = connect(transport, address);
    would_block(client.read(&mut [0; 8]));
    would_block(server.read(&mut [0; 8]));
}

/// Writes stop with `WouldBlock` at a peer that does not read, and go on once it does.
pub fn a_full_stream_would_block_and_drains(transport: &dyn Transport, address: &str) {
    let (client, server) = connect(transport, address);
    let block = pattern(64 << 10);
    let mut written = 0;
    loop {
        match client.write(&[IoSlice::new(&block)]) {
            Ok(count) => written += count,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                // Bytes in flight may still make room once.
                let ready = client
                    .wait(Interest::WRITE, None, Some(Duration::from_millis(100)))
                    .expect("waits");
                if !ready.write {
                    break;
                }
            }
        }
        assert!(written < 1 << 30, "a stream that nobody reads swallows a gigabyte");
    }
    let mut received = vec![0; written];
    read_exact(&*server, &mut received).expect("reads");
    assert!(client.wait(Interest::WRITE, None, Some(PATIENCE)).expect("waits").write);
}

/// Room for a thread that waits to write leaves one that waits to read to be woken later.
pub fn a_reader_is_woken_though_a_writer_was_before(transport: &dyn Transport, address: &str) {
    let (client, server) = connect(transport, address);
    // More than a stream holds.
    let sent = pattern(8 << 20);
    for _ in 0..10 {
        thread::scope(|scope| {
            scope.spawn(|| {
                let end = Instant::now() + PATIENCE / 4;
                read_exact_until(&*client, &mut [0], end).expect("a byte comes");
                assert!(Instant::now() < end, "the byte does not wake the reader");
            });
            let writer = scope.spawn(|| write_all(&*client, &sent).expect("writes"));
            thread::sleep(Duration::from_millis(20));
            read_exact(&*server, &mut vec![0; sent.len()]).expect("reads");
            writer.join().expect("writes");
            write_all(&*server, &[1]).expect("writes");
        });
    }
}

/// A vectored write keeps the order of its buffers.
pub fn several_buffers_go_out_in_order(transport: &dyn Transport, address: &str) {
    let (client, server) = connect(transport, address);
    let count = client
        .write(&[IoSlice::new(b"one "), IoSlice::new(b""), IoSlice::new(b"two")])
        .expect("writes");
    assert_eq!(count, 7);
    let mut received = [0; 7];
    read_exact(&*server, &mut received).expect("reads");
    assert_eq!(&received, b"one two");
}

/// A blocked wait ends when bytes come.
pub fn waiting_ends_when_bytes_come(transport: &dyn Transport, address: &str) {
    let (client, server) = connect(transport, address);
    thread::scope(|scope| {
        let waiting =
            scope.spawn(|| server.wait(Interest::READ, None, Some(PATIENCE)).expect("waits"));
        write_all(&*client, b"x").expect("writes");
        let ready = waiting.join().expect("returns");
        assert!(ready.read && !ready.hangup);
    });
}

/// Of several threads that wait, one reads for all, and it need not be the first to wake up.
pub fn bytes_end_the_waiting_of_all(transport: &dyn Transport, address: &str) {
    let (client, server) = connect(transport, address);
    for _ in 0..100 {
        thread::scope(|scope| {
            let waiting = || server.wait(Interest::READ, None, Some(PATIENCE)).expect("waits").read;
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(waiting)).collect();
            thread::sleep(Duration::from_millis(1));
            let started = Instant::now();
            write_all(&*client, b"x").expect("writes");
            for thread in threads {
                assert!(thread.join().expect("no panic"), "there is a byte to read");
            }
            assert!(started.elapsed() < PATIENCE / 2, "one was not woken");
        });
        assert_eq!(server.read(&mut [0; 8]).expect("reads"), 1);
    }
}

/// Bytes that a read has no room for are there for whoever waits, wherever they lie meanwhile.
pub fn what_a_short_read_leaves_ends_waiting(transport: &dyn Transport, address: &str) {
    let (client, server) = connect(transport, address);
    let started = Instant::now();
    thread::scope(|scope| {
        let waiting = || server.wait(Interest::READ, None, Some(PATIENCE)).expect("waits").read;
        let first = scope.spawn(waiting);
        write_all(&*client, b"some bytes").expect("writes");
        assert!(first.join().expect("no panic"));
        read_exact(&*server, &mut [0]).expect("reads");
        assert!(waiting());
        let reader = scope.spawn(|| {
            let mut rest = [0; 9 + 5];
            read_exact(&*server, &mut rest).expect("reads");
            rest
        });
        write_all(&*client, b", more").expect("writes");
        assert_eq!(&reader.join().expect("no panic"), b"ome bytes, mor");
        assert!(waiting());
    });
    assert!(started.elapsed() < PATIENCE / 2, "who waits is not woken");
    assert_eq!(server.read(&mut [0; 8]).expect("reads"), 1);
    let ready = server.wait(Interest::READ, None, Some(Duration::from_millis(10))).expect("waits");
    assert_eq!(ready, Readiness::default(), "all has been read");
}

/// A wait for what does not come ends in time, with nothing ready.
pub fn waiting_ends_when_time_is_up(transport: &dyn Transport, address: &str) {
    let (client, _server) = connect(transport, address);
    let start = Instant::now();
    let ready = client.wait(Interest::READ, None, Some(Duration::from_millis(20))).expect("waits");
    assert_eq!(ready, Readiness::default());
    assert!(start.elapsed() >= Duration::from_millis(20));
}

/// Another thread can end a wait without a limit.
pub fn waiting_ends_when_woken(transport: &dyn Transport, address: &str) {
    let (client, _server) = connect(transport, address);
    let waker = Waker::new().expect("makes a waker");
    thread::scope(|scope| {
        let waiting =
            scope.spawn(|| client.wait(Interest::HANGUP, Some(&waker), None).expect("waits"));
        waker.wake();
        assert_eq!(
            waiting.join().expect("returns"),
            Readiness { woken: true, ..Readiness::default() }
        );
    });
}

/// Wake-ups before a wait end it, and are then used up.
pub fn wakeups_are_remembered_once(transport: &dyn Transport, address: &str) {
    let (client, _server) = connect(transport, address);
    let waker = Waker::new().expect("makes a waker");
    waker.wake();
    waker.wake();
    assert!(client.wait(Interest::READ, Some(&waker), Some(PATIENCE)).expect("waits").woken);
    let ready =
        client.wait(Interest::READ, Some(&waker), Some(Duration::from_millis(10))).expect("waits");
    assert_eq!(ready, Readiness::default());
}

/// Shutting down ends a wait in another thread, and the peer reads the end.
pub fn shutdown_ends_a_blocked_reader(transport: &dyn Transport, address: &str) {
    let (client, server) = connect(transport, address);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut byte = [0];
            read_exact(&*client, &mut byte)
        });
        client.shutdown().expect("shuts down");
        assert!(waiting.join().expect("returns").is_err());
    });
    assert!(server.wait(Interest::READ, None, Some(PATIENCE)).expect("waits").read);
    assert_eq!(server.read(&mut [0; 8]).expect("reads the end"), 0);
    client.shutdown().expect("shutting down twice is harmless");
}

/// What was written before the end can still be read.
pub fn unread_bytes_survive_the_peers_end(transport: &dyn Transport, address: &str) {
    let (client, server) = connect(transport, address);
    write_all(&*client, b"last words").expect("writes");
    drop(client);
    let mut received = [0; 10];
    read_exact(&*server, &mut received).expect("reads");
    assert_eq!(&received, b"last words");
    assert!(server.wait(Interest::READ, None, Some(PATIENCE)).expect("waits").read);
    assert_eq!(server.read(&mut [0; 8]).expect("reads the end"), 0);
}

/// A wait for a hangup ends when the peer goes, even with bytes unread, and not when bytes come.
pub fn a_hangup_is_seen_without_reading(transport: &dyn Transport, address: &str) {
    let (client, server) = connect(transport, address);
    write_all(&*client, b"unread").expect("writes");
    assert!(server.wait(Interest::READ, None, Some(PATIENCE)).expect("waits").read);
    let ready =
        server.wait(Interest::HANGUP, None, Some(Duration::from_millis(10))).expect("waits");
    assert_eq!(ready, Readiness::default());
    drop(client);
    assert!(server.wait(Interest::HANGUP, None, Some(PATIENCE)).expect("waits").hangup);
}

/// Writing to a peer that is gone becomes an error; a signal would end this process.
pub fn writing_to_a_dead_peer_fails_without_a_signal(transport: &dyn Transport, address: &str) {
    let (client, server) = connect(transport, address);
    drop(server);
    let start = Instant::now();
    while client.write(&[IoSlice::new(b"hello?")]).is_ok() {
        assert!(start.elapsed() < PATIENCE, "writes to a dead peer go on for ever");
        client.wait(Interest::HANGUP, None, Some(PATIENCE)).expect("waits");
    }
}

/// Abandoning a stream that another descriptor shares leaves the connection up; abandoning the last
/// one ends it.
pub fn an_abandoned_stream_is_only_let_go(transport: &dyn Transport, address: &str) {
    let (client, server) = connect(transport, address);
    let shared = client.descriptor().map(|fd| fd.try_clone_to_owned().expect("duplicates"));
    client.abandon().expect("lets go");
    assert!(client.write(&[IoSlice::new(b"x")]).is_err());
    assert!(client.read(&mut [0; 8]).is_err());
    if let Some(shared) = shared {
        let ready =
            server.wait(Interest::HANGUP, None, Some(Duration::from_millis(10))).expect("waits");
        assert_eq!(ready, Readiness::default());
        drop(shared);
    }
    assert!(server.wait(Interest::HANGUP, None, Some(PATIENCE)).expect("waits").hangup);
}

/// One listener serves many clients, each with its own stream.
pub fn many_streams_share_a_listener(transport: &dyn Transport, address: &str) {
    let (listener, address) = listen(transport, address);
    let clients: Vec<_> = (0..16u8)
        .map(|i| {
            let client = transport.connect(&address, PATIENCE).expect("connects");
            write_all(&*client, &[i]).expect("writes");
            client
        })
        .collect();
    let mut seen = [false; 16];
    for _ in &clients {
        let server = listener.accept().expect("accepts");
        let mut byte = [0];
        read_exact(&*server, &mut byte).expect("reads");
        write_all(&*server, &[byte[0] + 100]).expect("writes");
        seen[usize::from(byte[0])] = true;
    }
    assert_eq!(seen, [true; 16]);
    for (i, client) in clients.iter().enumerate() {
        let mut byte = [0];
        read_exact(&**client, &mut byte).expect("reads");
        assert_eq!(usize::from(byte[0]), i + 100);
    }
}

/// A read with a deadline ends, whether or not bytes keep trickling in.
pub fn a_deadline_ends_a_read(transport: &dyn Transport, address: &str) {
    let (client, server) = connect(transport, address);
    write_all(&*client, b"ab").expect("writes");
    let mut received = [0; 4];
    let error =
        read_exact_until(&*server, &mut received, Instant::now() + Duration::from_millis(30));
    assert_eq!(error.expect_err("times out").kind(), io::ErrorKind::TimedOut);
    assert_eq!(&received[..2], b"ab");
}

/// Whole frames of any size come while a reader waits for them, however they are cut, and a single
/// byte wakes it afterwards.
pub fn who_reads_much_gets_it_whole(transport: &dyn Transport, address: &str) {
    let (client, server) = connect(transport, address);
    let sizes = [1, 100, 70_000, 3, 300_000, 128 << 10, (1 << 20) + 7, 8];
    thread::scope(|scope| {
        scope.spawn(|| {
            for size in sizes {
                let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
                let (first, rest) = bytes.split_at(size - size / 3);
                write_all(&*client, first).expect("writes");
                thread::sleep(Duration::from_millis(2));
                write_all(&*client, rest).expect("writes");
            }
        });
        for size in sizes {
            let mut received = vec![0; size];
            read_exact(&*server, &mut received).expect("reads");
            assert!(
                received.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8),
                "{size}"
            );
        }
    });
    write_all(&*client, b"x").expect("writes");
    let started = Instant::now();
    assert!(server.wait(Interest::READ, None, Some(PATIENCE)).expect("waits").read);
    assert!(started.elapsed() < PATIENCE / 2, "one byte is enough");
}
