//! Servers that stop.

use std::time::{Duration, Instant};

use outboard_client::link::ConnectError;
use outboard_wire::handshake::{Purpose, RefusalCode};

use super::parts::*;
use super::scenarios::{answer_to, is_lost, works};

macro_rules! scenarios {
    ($($name:ident)*) => {
        pub(crate) const ALL: &[(&str, fn())] = &[$((stringify!($name), $name)),*];
    };
}

scenarios! {
    a_stopping_server_lets_sessions_finish_and_takes_no_new_ones
    a_second_signal_ends_sessions_at_once
    sessions_end_when_their_time_is_up
    a_stopping_server_without_sessions_ends_at_once
}

/// A server whose sessions may go on for so many seconds when it stops.
fn serve_draining(seconds: u64) -> Part {
    Part::start(&["supervisor", "1", &seconds.to_string()])
}

/// Waits until the server refuses new sessions because it is stopping.
fn stopping(server: &Part) {
    wait_until("a refusal", || match connect(&server.first_line, vec![]) {
        Ok(_) => false,
        Err(ConnectError::Refused { refusal, .. }) => {
            assert_eq!(refusal.code, RefusalCode::Stopping, "{}", refusal.sentence);
            true
        }
        Err(error) => panic!("{error}"),
    });
}

fn a_stopping_server_lets_sessions_finish_and_takes_no_new_ones() {
    let mut server = serve_draining(600);
    let (link, worker) = connect(&server.first_line, vec![]).unwrap();
    let (other, _) = connect(&server.first_line, vec![]).unwrap();
    works(&link);
    server.signal(libc::SIGTERM);
    stopping(&server);
    // Workers without a client go at once, those with one stay.
    wait_until("the warm worker's end", || server.children().len() == 2);
    works(&link);
    works(&other);
    // Lanes are judged by their key as ever.
    let lane = hello(Purpose::Lane { session: 1, key: 1 });
    assert_eq!(answer_to(&server.first_line, &lane.encode()).code, RefusalCode::NoSession);
    drop(link);
    wait_until("the worker's end", || !runs(worker));
    works(&other);
    assert!(server.child.try_wait().unwrap().is_none(), "it waits for the other session");
    drop(other);
    let status = server.child.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
}

fn a_second_signal_ends_sessions_at_once() {
    for (first, second) in [(libc::SIGTERM, libc::SIGTERM), (libc::SIGINT, libc::SIGINT)] {
        let mut server = serve_draining(600);
        let (link, worker) = connect(&server.first_line, vec![]).unwrap();
        server.signal(first);
        stopping(&server);
        works(&link);
        server.signal(second);
        let status = server.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{status}");
        wait_until("the worker's end", || !runs(worker));
        assert!(is_lost(&link.call(ECHO, 0, |_| ())));
    }
}

fn sessions_end_when_their_time_is_up() {
    let mut server = serve_draining(1);
    let (link, worker) = connect(&server.first_line, vec![]).unwrap();
    let asked = Instant::now();
    server.signal(libc::SIGTERM);
    let status = server.child.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(asked.elapsed() >= Duration::from_secs(1), "{:?}", asked.elapsed());
    wait_until("the worker's end", || !runs(worker));
    assert!(is_lost(&link.call(ECHO, 0, |_| ())));
}

fn a_stopping_server_without_sessions_ends_at_once() {
    let mut server = serve_draining(600);
    let (link, worker) = connect(&server.first_line, vec![]).unwrap();
    drop(link);
    wait_until("the worker's end", || !runs(worker));
    server.signal(libc::SIGTERM);
    let status = server.child.wait().unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
}
