//! What a server owes its clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use outboard_client::link::{ConnectError, Link, LinkError, handshake};
use outboard_transport::tcp::Tcp;
use outboard_transport::{Transport, write_all};
use outboard_wire::ContextId;
use outboard_wire::handshake::{
    ANSWER_LIMIT, Answer, Preamble, Purpose, Refusal, RefusalCode, VERSION, Version,
};

use super::parts::*;

macro_rules! scenarios {
    ($($name:ident)*) => {
        pub(crate) const ALL: &[(&str, fn())] = &[$((stringify!($name), $name)),*];
    };
}

scenarios! {
    a_session_works
    replies_may_come_later_and_out_of_order
    what_is_to_be_done_before_an_answer_is_done_before_it
    a_killed_worker_is_an_error_to_its_client_alone
    a_panic_anywhere_in_a_worker_ends_it
    a_departed_client_ends_its_worker
    a_killed_client_ends_its_worker_even_if_that_is_stuck
    a_malformed_frame_ends_its_session_alone
    a_worker_that_cannot_serve_says_why
    a_worker_that_crashes_at_the_start_is_reported
    other_protocol_versions_are_told_who_is_too_old
    nonsense_is_refused
    a_lane_needs_the_right_key
    a_probe_is_welcomed_and_its_worker_ends
    idle_connections_are_bounded_and_time_out
    sixty_four_clients_at_once
    sessions_are_bounded
    sigterm_stops_all_and_exits_with_success
    workers_die_with_a_killed_supervisor
}

pub(crate) fn works(link: &Link) {
    let reply = link.call(ECHO, ContextId::NONE, |writer| writer.str("hello")).unwrap();
    assert_eq!((reply.status, &reply.payload[4..]), (5, &b"hello"[..]));
}

pub(crate) fn is_lost<T>(result: &Result<T, LinkError>) -> bool {
    matches!(result, Err(LinkError::Lost(_)))
}

fn refusal<T>(result: Result<T, ConnectError>) -> Refusal {
    match result {
        Err(ConnectError::Refused { refusal, .. }) => refusal,
        Err(other) => panic!("not refused, but: {other}"),
        Ok(_) => panic!("not refused"),
    }
}

fn a_session_works() {
    let server = serve();
    let (link, worker) = connect(&server.first_line, vec![0, 1]).unwrap();
    assert_ne!(worker, server.child.id());
    works(&link);
    assert_eq!(link.call(999, ContextId::NONE, |_| ()).unwrap().status, 801);
    assert!(link.is_alive());
}

fn replies_may_come_later_and_out_of_order() {
    let server = serve();
    let (link, _) = connect(&server.first_line, vec![]).unwrap();
    std::thread::scope(|scope| {
        let later = scope.spawn(|| link.call(LATER, ContextId::NONE, |_| ()).unwrap());
        // It is under way before any of these.
        wait_until("the first call", || link.last() == 1);
        works(&link);
        assert_eq!(later.join().unwrap().status, 6);
    });
}

fn what_is_to_be_done_before_an_answer_is_done_before_it() {
    let server = serve();
    let (link, _) = connect(&server.first_line, vec![]).unwrap();
    let begun = Instant::now();
    link.call(AFTER_WORK, ContextId::NONE, |_| ()).unwrap();
    assert!(begun.elapsed() >= WORK);
}

fn a_killed_worker_is_an_error_to_its_client_alone() {
    let server = serve();
    let (victim, worker) = connect(&server.first_line, vec![]).unwrap();
    let (neighbour, _) = connect(&server.first_line, vec![]).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| victim.call(STUCK, ContextId::NONE, |_| ()));
        wait_until("the call", || victim.last() == 1);
        kill(worker, libc::SIGKILL);
        let death = Instant::now();
        assert!(is_lost(&waiting.join().unwrap()));
        // The promise is a second; here, a slow machine may take longer to schedule all the parts.
        assert!(death.elapsed() < PATIENCE / 6, "{:?}", death.elapsed());
    });
    assert!(is_lost(&victim.post(ECHO, ContextId::NONE, |_| ())));
    works(&neighbour);
    let (next, _) = connect(&server.first_line, vec![]).unwrap();
    works(&next);
}

fn a_panic_anywhere_in_a_worker_ends_it() {
    let server = serve();
    for op in [PANIC, PANIC_IN_HELPER] {
        let (link, worker) = connect(&server.first_line, vec![]).unwrap();
        assert!(is_lost(&link.call(op, ContextId::NONE, |_| ())));
        wait_until("the worker's end", || !runs(worker));
    }
}

fn a_departed_client_ends_its_worker() {
    let server = serve();
    let (link, worker) = connect(&server.first_line, vec![]).unwrap();
    works(&link);
    assert!(runs(worker));
    drop(link);
    wait_until("the worker's end", || !runs(worker));
}

fn a_killed_client_ends_its_worker_even_if_that_is_stuck() {
    let server = serve();
    let (neighbour, _) = connect(&server.first_line, vec![]).unwrap();
    let client = Part::start(&["client", &server.first_line]);
    let worker: u32 = client.first_line.parse().unwrap();
    assert!(runs(worker));
    client.signal(libc::SIGKILL);
    wait_until("the worker's end", || !runs(worker));
    works(&neighbour);
}

fn a_malformed_frame_ends_its_session_alone() {
    let server = serve();
    let (neighbour, _) = connect(&server.first_line, vec![]).unwrap();
    let stream = Tcp.connect(&server.first_line, PATIENCE).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let hello = hello(Purpose::Session { devices: vec![] });
    let welcome = handshake(&*stream, &server.first_line, &hello, deadline).unwrap();
    let worker = process(&welcome);
    write_all(&*stream, &[0xff; 64]).unwrap();
    wait_until("the worker's end", || !runs(worker));
    works(&neighbour);
}

fn a_worker_that_cannot_serve_says_why() {
    let server = serve();
    let refusal = refusal(connect(&server.first_line, vec![NO_SUCH_DEVICE]));
    assert_eq!(
        refusal,
        Refusal { code: RefusalCode::NoDevice, sentence: "there is no device 99".to_owned() }
    );
}

fn a_worker_that_crashes_at_the_start_is_reported() {
    let server = serve();
    let refusal = refusal(connect(&server.first_line, vec![CRASH]));
    assert_eq!(refusal.code, RefusalCode::WorkerFailed);
    assert!(refusal.sentence.contains("exit status: 7"), "{}", refusal.sentence);
}

/// What the server answers to these bytes.
pub(crate) fn answer_to(address: &str, bytes: &[u8]) -> Refusal {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let (head, body) =
        answer.split_first_chunk::<{ Preamble::SIZE }>().expect("there is an answer");
    let preamble = Preamble::decode(head, ANSWER_LIMIT).unwrap();
    match Answer::decode(&preamble, body, VERSION).unwrap() {
        Answer::Refusal(refusal) => refusal,
        Answer::Welcome(_) | Answer::Waiting(_) | Answer::Secure(_) | Answer::File(_) => {
            panic!("not refused")
        }
    }
}

fn other_protocol_versions_are_told_who_is_too_old() {
    let server = serve();
    let mut old = hello(Purpose::Probe);
    old.version = Version { major: VERSION.major - 1, minor: 9 };
    let refusal = answer_to(&server.first_line, &old.encode());
    assert_eq!(refusal.code, RefusalCode::ClientTooOld);
    assert!(refusal.sentence.contains("update the client"), "{}", refusal.sentence);
    let mut new = hello(Purpose::Probe);
    new.version = Version { major: VERSION.major + 1, minor: 0 };
    let refusal = answer_to(&server.first_line, &new.encode());
    assert_eq!(refusal.code, RefusalCode::ServerTooOld);
    assert!(refusal.sentence.contains("update the server"), "{}", refusal.sentence);
}

fn nonsense_is_refused() {
    let server = serve();
    let refusal = answer_to(&server.first_line, b"GET / HTTP/1.1\r\nHost: gpu\r\n\r\n");
    assert_eq!(refusal.code, RefusalCode::BadHello);
    let mut huge = hello(Purpose::Probe).encode();
    huge[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    let refusal = answer_to(&server.first_line, &huge);
    assert_eq!(refusal.code, RefusalCode::BadHello);
    assert!(refusal.sentence.contains("limit"), "{}", refusal.sentence);
    let (link, _) = connect(&server.first_line, vec![]).unwrap();
    works(&link);
}

fn a_lane_needs_the_right_key() {
    let server = serve();
    let stream = Tcp.connect(&server.first_line, PATIENCE).unwrap();
    let hello_session = hello(Purpose::Session { devices: vec![] });
    let welcome = handshake(&*stream, "server", &hello_session, Instant::now() + PATIENCE).unwrap();
    for (session, key) in
        [(welcome.session, welcome.key ^ 1), (welcome.session ^ 1, welcome.key), (0, 0)]
    {
        let refusal =
            answer_to(&server.first_line, &hello(Purpose::Lane { session, key }).encode());
        assert_eq!(refusal.code, RefusalCode::NoSession);
    }
}

fn a_probe_is_welcomed_and_its_worker_ends() {
    let server = serve();
    let stream = Tcp.connect(&server.first_line, PATIENCE).unwrap();
    let welcome =
        handshake(&*stream, "server", &hello(Purpose::Probe), Instant::now() + PATIENCE).unwrap();
    assert!(!welcome.software.is_empty());
    wait_until("the worker's end", || !runs(process(&welcome)));
}

fn idle_connections_are_bounded_and_time_out() {
    let server = serve();
    let mut idle: Vec<TcpStream> =
        (0..MAX_HELLOS).map(|_| TcpStream::connect(&server.first_line).unwrap()).collect();
    // Whoever comes now and speaks finds room soon: who has been silent the longest goes.
    wait_until("room", || match connect(&server.first_line, vec![]) {
        Ok((link, _)) => {
            works(&link);
            true
        }
        Err(error) => {
            assert_eq!(refusal::<()>(Err(error)).code, RefusalCode::Busy);
            false
        }
    });
    let mut in_time = 0;
    for stream in &mut idle {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        in_time += usize::from(answer.contains("the hello took too long"));
        assert!(
            answer.contains("the hello took too long") || answer.contains("too many clients"),
            "{answer}"
        );
    }
    assert!(in_time >= MAX_HELLOS / 2, "the others are only as many as came");
    let (link, _) = connect(&server.first_line, vec![]).unwrap();
    works(&link);
}

fn sixty_four_clients_at_once() {
    let server = serve();
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                let (link, _) = connect(&server.first_line, vec![]).unwrap();
                for _ in 0..20 {
                    works(&link);
                }
            });
        }
    });
}

fn sessions_are_bounded() {
    let server = serve();
    let stuck: Vec<TcpStream> = (0..MAX_SESSIONS)
        .map(|_| {
            let mut stream = TcpStream::connect(&server.first_line).unwrap();
            stream.write_all(&hello(Purpose::Session { devices: vec![HANG] }).encode()).unwrap();
            stream
        })
        .collect();
    // Their hellos are read one by one; only then is the table full.
    let mut refused = None;
    wait_until("a refusal", || match connect(&server.first_line, vec![]) {
        Ok(_) => false,
        Err(ConnectError::Refused { refusal, .. }) => {
            let full = refusal.sentence.contains("limit");
            refused = Some(refusal);
            full
        }
        Err(error) => panic!("{error}"),
    });
    assert_eq!(refused.unwrap().code, RefusalCode::Busy);
    drop(stuck);
}

fn sigterm_stops_all_and_exits_with_success() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut server = serve();
        let (link, worker) = connect(&server.first_line, vec![]).unwrap();
        let (_stuck, other) = connect(&server.first_line, vec![]).unwrap();
        works(&link);
        _stuck.post(STUCK, ContextId::NONE, |_| ()).unwrap();
        server.signal(signal);
        let status = server.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{status}");
        wait_until("the workers' end", || !runs(worker) && !runs(other));
        assert!(is_lost(&link.call(ECHO, ContextId::NONE, |_| ())));
        assert!(TcpStream::connect(&server.first_line).is_err());
    }
}

fn workers_die_with_a_killed_supervisor() {
    let server = serve();
    let (link, worker) = connect_trying(Duration::from_secs(1), &server.first_line).unwrap();
    link.post(STUCK, ContextId::NONE, |_| ()).unwrap();
    server.signal(libc::SIGKILL);
    wait_until("the worker's end", || !runs(worker));
    assert!(is_lost(&link.call(ECHO, ContextId::NONE, |_| ())));
}
