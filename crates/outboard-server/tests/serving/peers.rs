//! Peers that misbehave: silent ones, many of them.

use std::io::Write;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Instant;

use outboard_client::link::{Choice, ConnectError, handshake};
use outboard_transport::Transport;
use outboard_transport::tcp::Tcp;
use outboard_wire::handshake::{Purpose, RefusalCode};

use super::parts::*;
use super::scenarios::works;

macro_rules! scenarios {
    ($($name:ident)*) => {
        pub(crate) const ALL: &[(&str, fn())] = &[$((stringify!($name), $name)),*];
    };
}

scenarios! {
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
            // Who is there already does not notice, and who speaks is heard before those who do not.
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
    assert!(held <= before + MAX_HELLOS + 40, "{held} descriptors for those who were refused, {before} before");
    drop(refused);
}

/// As many connections as one holder may ask with, and one more.
fn those_who_only_ask_take_nobodys_place() {
    const MOST: usize = 64;
    let server = serve();
    let ask = || {
        let stream = Tcp.connect(&server.first_line, PATIENCE).unwrap();
        let hello = hello(Purpose::Management { devices: vec![] });
        handshake(&*stream, &server.first_line, &hello, Instant::now() + PATIENCE).map(|_| stream)
    };
    let mut asking: Vec<_> = (0..MOST).map(|_| ask().unwrap()).collect();
    match ask() {
        Err(ConnectError::Refused { refusal, .. }) => assert_eq!(refusal.code, RefusalCode::OverLimit),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("more than {MOST} ask"),
    }
    works(&connect(&server.first_line, vec![]).unwrap().0);
    asking.pop();
    wait_until("room for one more", || ask().is_ok());
}
