//! Connections that are lost in the middle of a session.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outboard_client::link::Link;
use outboard_wire::handshake::resume::{Point, RESUME, Terms};
use outboard_wire::handshake::{
    ANSWER_LIMIT, Answer, Preamble, Purpose, RefusalCode, VERSION, Welcome,
};
use outboard_wire::{ContextId, Reader, Writer};

use super::copies::{download, start_download, upload};
use super::device::NORMAL;
use super::parts::*;
use super::proxy::Proxy;
use super::scenarios::{answer_to, is_lost, works};

macro_rules! scenarios {
    ($($name:ident)*) => {
        pub(crate) const ALL: &[(&str, fn())] = &[$((stringify!($name), $name)),*];
    };
}

scenarios! {
    a_session_survives_cuts_at_any_byte
    an_encrypted_session_survives_cuts_at_any_byte
    a_session_survives_the_loss_of_all_connections
    a_session_survives_the_loss_of_single_connections
    what_is_posted_while_there_is_no_connection_is_done_once
    a_session_ends_when_its_time_is_up
    a_session_ends_at_once_with_a_goodbye
    a_killed_client_is_not_waited_for_as_long_as_a_silent_one
    sessions_are_taken_up_again_with_their_key_only
    a_session_that_cannot_be_taken_up_ends_with_its_connection
}

/// A server that keeps sessions for so many milliseconds when clients fall silent, and when they
/// close the connection.
pub(crate) fn serve_keeping(silent: u64, closed: u64) -> Part {
    Part::start_with(&["supervisor"], &[("OUTBOARD_TEST_GRACE", &format!("{silent},{closed}"))])
}

const LONG: u64 = 3_600_000;

/// Posts and calls of one thread, of which the worker keeps count.
fn count(link: &Link, from: u64, many: u64) {
    for number in from..from + many {
        link.post(COUNT, ContextId::NONE, |writer| writer.u64(number)).unwrap();
        if number % 7 == 0 {
            let text = vec![number as u8; (number % 5000) as usize];
            let reply = link.call(ECHO, ContextId::NONE, |writer| writer.fixed(&text)).unwrap();
            assert!(reply.payload == text, "another call's reply");
        }
    }
}

/// Calls whose answers land in this thread's memory. How many did.
fn land(link: &Link, many: usize) -> usize {
    let mut landed = 0;
    for number in 0..many {
        let len = (16 << 10) + number * 911 % (200 << 10);
        let text: Vec<u8> = (0..len).map(|at| (at * 7 + at / 251 + number) as u8).collect();
        let mut memory = vec![0; len];
        let encode = |writer: &mut Writer| writer.bytes(&text);
        let to = Some((memory.as_mut_ptr(), len));
        // SAFETY: nobody else has the memory until this returns.
        let reply = unsafe { link.call_for_bytes(RETURN, ContextId::NONE, encode, to) }.unwrap();
        if reply.landed {
            assert!(memory == text, "bytes of an answer are wrong");
            landed += 1;
        } else {
            assert_eq!(Reader::new(&reply.payload).bytes(), Ok(&text[..]), "an answer is wrong");
        }
    }
    landed
}

/// How many numbers the worker was told, their sum, and whether those of each thousand came in
/// order.
fn counted(link: &Link) -> (u64, u64, bool) {
    let reply = link.call(COUNTED, ContextId::NONE, |_| ()).unwrap();
    let word = |at: usize| u64::from_le_bytes(reply.payload[at..at + 8].try_into().unwrap());
    (word(0), word(8), word(16) == 1)
}

/// Threads that post, call and copy, while `disturb` is called again and again. All of it must come
/// right.
pub(crate) fn work_while(link: &Link, rounds: u64, copies: usize, mut disturb: impl FnMut()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|thread| scope.spawn(move || count(link, 1 + thread * 1_000_000, rounds)))
            .chain([
                scope.spawn(move || {
                    (0..copies).for_each(|round| upload(link, 100_003 + round * 333_333, 256 << 10))
                }),
                scope.spawn(move || {
                    (0..copies)
                        .for_each(|round| download(link, 70_001 + round * 444_444, 256 << 10))
                }),
            ])
            .collect();
        let over = &over;
        let ended = scope.spawn(move || {
            let results: Vec<_> =
                workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            over.store(true, Ordering::Release);
            results.into_iter().for_each(|result| result.unwrap());
        });
        while !over.load(Ordering::Acquire) {
            disturb();
        }
        ended.join().unwrap();
    });
    let sum = |thread: u64| (0..rounds).map(|number| 1 + thread * 1_000_000 + number).sum::<u64>();
    assert_eq!(counted(link), (2 * rounds, sum(0) + sum(1), true));
}

fn a_session_survives_cuts_at_any_byte() {
    let server = serve_keeping(LONG, LONG);
    let proxy = Proxy::start(&server.first_line);
    let (link, worker) = connect(proxy.address(), vec![]).unwrap();
    survives_cuts(&proxy, &link);
    assert!(runs(worker));
}

/// A cut record is no end of the session either, and each new connection has keys of its own.
fn an_encrypted_session_survives_cuts_at_any_byte() {
    let times = format!("{LONG},{LONG}");
    let (server, security, _state) = super::secure::serve_with(&[("OUTBOARD_TEST_GRACE", &times)]);
    let proxy = Proxy::start(&server.first_line);
    let link = super::secure::link(proxy.address(), security);
    survives_cuts(&proxy, &link);
    assert_eq!(link.peer().0, "tcp+tls");
}

fn survives_cuts(proxy: &Proxy, link: &Link) {
    proxy.cut_within(3 << 20);
    proxy.cut(None);
    work_while(link, 4000, 12, || std::thread::sleep(Duration::from_millis(20)));
    proxy.cut_within(400 << 10);
    proxy.cut(None);
    let landed = land(link, 60);
    // What is encrypted is decrypted to somewhere else.
    assert_eq!(landed > 30, link.peer().0 == "tcp", "{landed} answers landed");
    let (made, cuts) = proxy.counts();
    assert!(cuts >= 10, "{cuts} cuts of {made} connections");
    // Without cuts, the session is as it was.
    proxy.cut_within(0);
    works(link);
    upload(link, 3 << 20, 1 << 20);
}

fn a_session_survives_the_loss_of_all_connections() {
    let server = serve_keeping(LONG, LONG);
    let proxy = Proxy::start(&server.first_line);
    let (link, _) = connect(proxy.address(), vec![]).unwrap();
    let mut cuts = 0;
    work_while(&link, 6000, 12, || {
        std::thread::sleep(Duration::from_millis(60));
        cuts += usize::from(proxy.cut(None) > 1);
    });
    // However fast the work was, one more in a copy, and one more while nothing is under way.
    let mut to = vec![0; 40 << 20];
    let ticket = start_download(&link, &mut to, 256 << 10, NORMAL);
    wait_until("the copy's connections", || proxy.cut(None) >= 2);
    ticket.wait().unwrap();
    assert!(to == super::device::pattern(ticket.number(), 0, to.len()));
    let made = proxy.counts().0;
    proxy.cut(None);
    wait_until("a new connection", || proxy.counts().0 > made);
    works(&link);
}

fn a_session_survives_the_loss_of_single_connections() {
    let server = serve_keeping(LONG, LONG);
    let proxy = Proxy::start(&server.first_line);
    let (link, _) = connect(proxy.address(), vec![]).unwrap();
    let mut which = 0;
    work_while(&link, 6000, 14, || {
        std::thread::sleep(Duration::from_millis(10));
        which += 3;
        proxy.cut(Some(which));
    });
    works(&link);
}

fn what_is_posted_while_there_is_no_connection_is_done_once() {
    let server = serve_keeping(LONG, LONG);
    let proxy = Proxy::start(&server.first_line);
    let (link, _) = connect(proxy.address(), vec![]).unwrap();
    works(&link);
    proxy.close(true);
    proxy.cut(None);
    let posted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (link, posted) = (&link, &posted);
        let posting = scope.spawn(move || {
            for number in 1..=300_000u64 {
                link.post(COUNT, ContextId::NONE, |writer| writer.u64(number)).unwrap();
                posted.store(number, Ordering::Relaxed);
            }
        });
        // All of it, or as much as the queue takes: who posts waits then.
        let mut before = 0;
        wait_until("nothing more is posted", || {
            std::thread::sleep(Duration::from_millis(100));
            let now = posted.load(Ordering::Relaxed);
            std::mem::replace(&mut before, now) == now && now > 0
        });
        proxy.close(false);
        posting.join().unwrap();
    });
    assert_eq!(counted(&link), (300_000, 300_000 * 300_001 / 2, true));
}

fn a_session_ends_when_its_time_is_up() {
    let server = serve_keeping(1200, 600);
    let proxy = Proxy::start(&server.first_line);
    let (link, worker) = connect(proxy.address(), vec![]).unwrap();
    works(&link);
    proxy.close(true);
    proxy.cut(None);
    let start = Instant::now();
    let Err(error) = link.call(ECHO, ContextId::NONE, |_| ()) else {
        panic!("there is no connection")
    };
    assert!(
        start.elapsed() >= Duration::from_millis(500),
        "it gave up after {:?}: {error}",
        start.elapsed()
    );
    assert!(error.to_string().contains("there was no other"), "{error}");
    wait_until("the worker's end", || !runs(worker));
    // It stays lost, whatever the network does.
    proxy.close(false);
    assert!(
        is_lost(&link.call(ECHO, ContextId::NONE, |_| ()))
            && is_lost(&link.post(ECHO, ContextId::NONE, |_| ()))
            && !link.is_alive()
    );

    // A client that comes too late is told so.
    let (link, worker) = connect(proxy.address(), vec![]).unwrap();
    proxy.close(true);
    proxy.cut(None);
    wait_until("the worker's end", || !runs(worker));
    proxy.close(false);
    let Err(error) = link.call(ECHO, ContextId::NONE, |_| ()) else {
        panic!("the session is over")
    };
    assert!(
        error.to_string().contains("session is kept") || error.to_string().contains("no other"),
        "{error}"
    );
}

fn a_session_ends_at_once_with_a_goodbye() {
    let server = serve_keeping(LONG, LONG);
    let (link, worker) = connect(&server.first_line, vec![]).unwrap();
    works(&link);
    drop(link);
    wait_until("the worker's end", || !runs(worker));
    let client = Part::start(&["leaving-client", &server.first_line]);
    let worker = client.first_line.parse().unwrap();
    wait_until("the worker's end", || !runs(worker));
}

fn a_killed_client_is_not_waited_for_as_long_as_a_silent_one() {
    let server = serve_keeping(LONG, 700);
    let mut client = Part::start(&["client", &server.first_line]);
    let worker: u32 = client.first_line.parse().unwrap();
    let killed = Instant::now();
    client.child.kill().unwrap();
    assert!(
        runs(worker) || killed.elapsed() > Duration::from_millis(600),
        "it is kept for a while"
    );
    wait_until("the worker's end", || !runs(worker));
    assert!(killed.elapsed() >= Duration::from_millis(600), "{:?}", killed.elapsed());
}

/// A session whose client is this test itself.
fn bare_session(address: &str, terms: Option<Terms>) -> (TcpStream, Welcome) {
    let mut hello = hello(Purpose::Session { devices: vec![] });
    if let Some(terms) = terms {
        hello.more.set(RESUME, &terms);
    }
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&hello.encode()).unwrap();
    let mut head = [0; Preamble::SIZE];
    stream.read_exact(&mut head).unwrap();
    let preamble = Preamble::decode(&head, ANSWER_LIMIT).unwrap();
    let mut body = vec![0; preamble.len as usize];
    stream.read_exact(&mut body).unwrap();
    match Answer::decode(&preamble, &body, VERSION).unwrap() {
        Answer::Welcome(welcome) => (stream, welcome),
        other => panic!("{other:?}"),
    }
}

fn sessions_are_taken_up_again_with_their_key_only() {
    let server = serve_keeping(LONG, LONG);
    let terms = Terms { grace: Duration::from_secs(5) };
    let (stream, welcome) = bare_session(&server.first_line, Some(terms));
    assert_eq!(welcome.more.get(RESUME), Ok(Some(terms)), "the shorter time counts");
    let worker = process(&welcome);
    let resume = |key: u128, point: Option<Point>| {
        let mut hello = hello(Purpose::Resume { session: welcome.session, key });
        if let Some(point) = point {
            hello.more.set(RESUME, &point);
        }
        hello.encode()
    };
    let point = Point { lane: 0, attempt: 1, received: 0 };
    assert_eq!(
        answer_to(&server.first_line, &resume(welcome.key ^ 1, Some(point))).code,
        RefusalCode::NoSession
    );
    assert_eq!(
        answer_to(&server.first_line, &resume(welcome.key, None)).code,
        RefusalCode::BadHello
    );
    // Neither has disturbed it.
    assert!(runs(worker));
    // An attempt of which more was received than was ever sent ends the session: its client is not
    // the one it was.
    let absurd = Point { received: 1 << 40, ..point };
    TcpStream::connect(&server.first_line)
        .unwrap()
        .write_all(&resume(welcome.key, Some(absurd)))
        .unwrap();
    wait_until("the worker's end", || !runs(worker));
    drop(stream);
}

fn a_session_that_cannot_be_taken_up_ends_with_its_connection() {
    let server = serve_keeping(LONG, LONG);
    let (stream, welcome) = bare_session(&server.first_line, None);
    assert_eq!(welcome.more.get::<Terms>(RESUME), Ok(None), "nobody asked");
    let worker = process(&welcome);
    drop(stream);
    wait_until("the worker's end", || !runs(worker));
}
