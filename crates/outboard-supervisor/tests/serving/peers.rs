//! Peers that misbehave: slow ones, silent ones, many of them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use outboard_client::link::{Choice, ConnectError, handshake};
use outboard_session::client::{CALL, Outgoing};
use outboard_transport::Transport;
use outboard_transport::tcp::{self, Tcp};
use outboard_wire::ContextId;
use outboard_wire::handshake::{ANSWER_LIMIT, Preamble, Purpose, RefusalCode};

use super::cuts::{serve_keeping, work_while};
use super::parts::*;
use super::proxy::Proxy;
use super::scenarios::{is_lost, works};

macro_rules! scenarios {
    ($($name:ident)*) => {
        pub(crate) const ALL: &[(&str, fn())] = &[$((stringify!($name), $name)),*];
    };
}

scenarios! {
    a_slow_reader_holds_no_memory_and_harms_nobody
    a_silent_network_is_noticed_on_both_sides_in_time
    a_session_survives_silence
    thousands_of_connections_that_never_speak_harm_nobody
    who_is_refused_and_does_not_go_keeps_nobody_out
    those_who_only_ask_take_nobodys_place
}

/// Bytes of memory that a process has, or had at most.
fn memory(process: u32, line: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|text| text.strip_prefix(line)).unwrap();
    line.trim().split(' ').next().unwrap().parse::<u64>().unwrap() << 10
}

fn descriptors(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

/// A client that asks for far more than it reads: a byte a second.
fn a_slow_reader_holds_no_memory_and_harms_nobody() {
    let server = serve_keeping(2000, 500);
    let mut stream = TcpStream::connect(&server.first_line).unwrap();
    let mut hello = hello(Purpose::Session { devices: vec![] });
    let terms = outboard_wire::handshake::resume::Terms { grace: Duration::from_secs(60) };
    hello.more.set(outboard_wire::handshake::resume::RESUME, &terms);
    stream.write_all(&hello.encode()).unwrap();
    let mut head = [0; Preamble::SIZE];
    stream.read_exact(&mut head).unwrap();
    let mut body = vec![0; Preamble::decode(&head, ANSWER_LIMIT).unwrap().len as usize];
    stream.read_exact(&mut body).unwrap();
    let worker = server.children()[0];

    let before = memory(worker, "VmRSS:");
    let mut outgoing = Outgoing::new(false);
    let asked = vec![7; 256 << 10];
    stream.set_nonblocking(true).unwrap();
    let (mut sent, mut stuck_since, mut last_read) = (0u64, Instant::now(), Instant::now());
    // Until the worker has taken nothing for a while: then all buffers are full.
    while stuck_since.elapsed() < Duration::from_secs(3) {
        outgoing.push(ECHO, CALL, ContextId::NONE, |writer| writer.fixed(&asked)).unwrap();
        let batch = outgoing.take().unwrap();
        let mut bytes = batch.bytes();
        while !bytes.is_empty() && stuck_since.elapsed() < Duration::from_secs(3) {
            match stream.write(bytes) {
                Ok(count) => {
                    bytes = &bytes[count..];
                    sent += count as u64;
                    stuck_since = Instant::now();
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
            if last_read.elapsed() > Duration::from_secs(1) {
                last_read = Instant::now();
                let _ = stream.read(&mut [0]);
            }
        }
        outgoing.done(batch);
        assert!(sent < 512 << 20, "the worker takes all that comes");
    }
    assert!(sent > 256 << 10, "the worker took something");
    let grown = memory(worker, "VmHWM:").saturating_sub(before);
    assert!(grown < 32 << 20, "the worker holds {grown} bytes for a client that does not read");
    // It is not taken for dead, and others do not notice.
    assert!(runs(worker));
    let (link, other) = connect(&server.first_line, vec![]).unwrap();
    works(&link);
    assert!(runs(worker) && runs(other));
    drop(stream);
    wait_until("the worker's end", || !runs(worker));
    works(&link);
}

/// In seconds, for these tests.
const KEEPALIVE: u64 = 3;

/// A server and a proxy that can fall silent, where both sides are to notice within [`KEEPALIVE`].
fn through_silence(grace: u64) -> (Part, Proxy) {
    tcp::set_keepalive(Duration::from_secs(KEEPALIVE));
    let times = format!("{grace},{grace},{}", KEEPALIVE * 1000);
    let server = Part::start_with(&["supervisor"], &[("OUTBOARD_TEST_GRACE", &times)]);
    let proxy = Proxy::start(&server.first_line);
    (server, proxy)
}

/// Nothing says that the other side is gone: no end, no error. Idle connections are probed, others
/// have their bytes unanswered.
fn a_silent_network_is_noticed_on_both_sides_in_time() {
    const GRACE: u64 = 1;
    let (_server, proxy) = through_silence(GRACE * 1000);
    for busy in [false, true] {
        let (link, worker) = connect(proxy.address(), vec![]).unwrap();
        works(&link);
        proxy.silence(true);
        let start = Instant::now();
        if busy {
            assert!(is_lost(&link.call(ECHO, ContextId::NONE, |_| ())), "nobody answers");
        }
        wait_until("the worker's end", || !runs(worker));
        let worker_after = start.elapsed();
        wait_until("the link's end", || !link.is_alive());
        let link_after = start.elapsed();
        println!(
            "busy: {busy}; the worker ended after {worker_after:?}, the link after {link_after:?}"
        );
        assert!(is_lost(&link.call(ECHO, ContextId::NONE, |_| ())));
        // Neither gives up too early, nor, as somebody looks every two seconds and attempts to
        // connect take two, much too late.
        let (least, most) =
            (Duration::from_secs(GRACE), Duration::from_secs(KEEPALIVE + GRACE + 2 + 2 + 10));
        assert!(worker_after > least && worker_after < most, "{worker_after:?}");
        assert!(link_after > least && link_after < most, "{link_after:?}");
        proxy.silence(false);
    }
    tcp::set_keepalive(tcp::USUAL_KEEPALIVE);
}

fn a_session_survives_silence() {
    let (_server, proxy) = through_silence(3_600_000);
    let (link, worker) = connect(proxy.address(), vec![]).unwrap();
    // For a moment, which the system bridges; then until both sides have noticed.
    let mut silences = [Duration::from_millis(700), Duration::from_secs(2 * KEEPALIVE)].into_iter();
    work_while(&link, 6000, 12, || {
        std::thread::sleep(Duration::from_millis(50));
        if let Some(silence) = silences.next() {
            proxy.silence(true);
            std::thread::sleep(silence);
            proxy.silence(false);
        }
    });
    // And once more while nothing is under way.
    proxy.silence(true);
    std::thread::sleep(Duration::from_secs(2 * KEEPALIVE));
    proxy.silence(false);
    works(&link);
    assert!(runs(worker));
    tcp::set_keepalive(tcp::USUAL_KEEPALIVE);
}

/// Lets this process have as many descriptors as it may; how many.
fn raise_descriptor_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is there for reads and writes.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
    limit.rlim_cur
}

fn thousands_of_connections_that_never_speak_harm_nobody() {
    let server = serve();
    let supervisor = server.child.id();
    let many = 5000.min(raise_descriptor_limit() / 2) as usize;
    let (link, _) = connect(&server.first_line, vec![]).unwrap();
    works(&link);
    let before = (descriptors(supervisor), memory(supervisor, "VmRSS:"));
    let mut silent = Vec::new();
    let mut served = 0;
    for number in 0..many {
        silent.push(TcpStream::connect(&server.first_line).unwrap());
        if number % 500 == 499 {
            // Who is there already does not notice, and who speaks is heard before those who do
            // not.
            works(&link);
            wait_until("a seat", || match connect(&server.first_line, vec![]) {
                Ok((newcomer, _)) => {
                    works(&newcomer);
                    true
                }
                // Nobody is sent away who has just come.
                Err(ConnectError::Refused { refusal, .. }) => {
                    assert_eq!(refusal.code, RefusalCode::Busy);
                    false
                }
                Err(error) => panic!("{error}"),
            });
            served += 1;
        }
    }
    assert!(served >= many / 500);
    let during = descriptors(supervisor);
    assert!(
        during <= before.0 + MAX_HELLOS + 40,
        "{during} descriptors for those who never speak, {} before",
        before.0
    );
    // All are turned away in time, though they hold on.
    wait_until("as few descriptors as before", || descriptors(supervisor) <= before.0 + 2);
    for stream in &silent {
        assert!(stream.as_raw_fd() >= 0);
    }
    let after = memory(supervisor, "VmRSS:");
    assert!(after < before.1 + (32 << 20), "{after} bytes, {} before", before.1);
    works(&link);
}

/// They hold on to their connections after they were told that they cannot come in.
fn who_is_refused_and_does_not_go_keeps_nobody_out() {
    let server = serve();
    let before = descriptors(server.child.id());
    let refused: Vec<TcpStream> = (0..2 * MAX_HELLOS)
        .map(|_| {
            let mut stream = TcpStream::connect(&server.first_line).unwrap();
            stream.write_all(&hello(Purpose::Lane { session: 1, key: 1 }).encode()).unwrap();
            stream
        })
        .collect();
    // Those by the socket do not even notice.
    let address = format!("unix:{}", socket(server.child.id()));
    works(&connect_by(Choice::Auto, &address, vec![]).unwrap().0);
    wait_until("a seat", || {
        connect(&server.first_line, vec![]).is_ok_and(|(link, _)| {
            works(&link);
            true
        })
    });
    let held = descriptors(server.child.id());
    assert!(
        held <= before + MAX_HELLOS + 40,
        "{held} descriptors for those who were refused, {before} before"
    );
    drop(refused);
}

/// As many connections as one machine may ask with, and one more: the last quarter is for others.
fn those_who_only_ask_take_nobodys_place() {
    const MOST: usize = MAX_SESSIONS - MAX_SESSIONS / 4;
    let server = serve();
    let ask = || {
        let stream = Tcp.connect(&server.first_line, PATIENCE).unwrap();
        let hello = hello(Purpose::Management { devices: vec![] });
        handshake(&*stream, &server.first_line, &hello, Instant::now() + PATIENCE).map(|_| stream)
    };
    let mut asking: Vec<_> = (0..MOST).map(|_| ask().unwrap()).collect();
    match ask() {
        Err(ConnectError::Refused { refusal, .. }) => {
            assert_eq!(refusal.code, RefusalCode::OverLimit)
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("more than {MOST} ask"),
    }
    works(&connect(&server.first_line, vec![]).unwrap().0);
    asking.pop();
    wait_until("room for one more", || ask().is_ok());
}
