//! What strangers and owners may take of the supervisor: each test takes more, and looks who is
//! still served.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use outboard_e2e::raw_client::hello;
use outboard_e2e::{Folder, Footprint, Program, RawClient, Server, dist, metrics, within};
use outboard_wire::ObjectId;
use outboard_wire::device_id::DeviceId;
use outboard_wire::handshake::{Purpose, RefusalCode};
use outboard_wire::messages::*;
use rustix::net::sockopt::{set_socket_linger, set_socket_reuseaddr};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    bind, connect, sendmsg, socket_with,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const OUT_OF_MEMORY: u32 = 2;
/// Only keeps a broken server from hanging a test.
const LIMIT: Duration = Duration::from_secs(60);

/// Lets this process have as many files open as the system allows: whoever plays many strangers
/// needs a socket for each.
fn have_many_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
        .expect("up to the hard limit");
}

/// A server that may have so many files open, and no more.
fn serve_with_files(most: u32, args: &[&str]) -> Server {
    have_many_files();
    let folder = Folder::create();
    let program = dist().join("bin/outboard");
    let text = format!("#!/bin/sh\nulimit -n {most}\nexec {} \"$@\"\n", program.display());
    let script = folder.write("serve", &text);
    folder.allow("serve", 0o700);
    let all: Vec<&str> = ["--driver", "cpu"].into_iter().chain(args.iter().copied()).collect();
    Server::start_program(Path::new(&script), &all, &[])
}

fn descriptors(server: &Server) -> u64 {
    Footprint::of(server.id()).expect("the server runs").descriptors
}

/// A stranger, who comes from that address of this machine.
fn stranger(to: &str, from: Ipv4Addr) -> Option<TcpStream> {
    let to: SocketAddr = to.parse().expect("an address");
    let socket =
        socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).ok()?;
    // Another test may have the same address, to another server.
    set_socket_reuseaddr(&socket, true).ok()?;
    // To look for a free port takes the system long where many are taken.
    let port = 10_000 + (from.to_bits() % 20_000) as u16;
    bind(&socket, &SocketAddrV4::new(from, port)).ok()?;
    connect(&socket, &to).ok()?;
    Some(socket.into())
}

/// The address with that number, none of which is 127.0.0.1.
fn somewhere(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x7f01_0001 + number * 257)
}

/// Asks whether the server is well, as liveness probes do: within a second.
fn is_healthy(metrics: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(metrics) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
    let mut answer = String::new();
    let asked =
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.contains(" 200 ")
}

/// Memory of a device that other processes may be given.
fn create_shareable(client: &mut RawClient, memory: u64, bytes: u64) -> Result<(), u32> {
    let create = VmmCreate {
        memory: ObjectId(memory),
        bytes,
        device: DeviceId::new(0),
        handle_types: 1,
        compression: 0,
        usage: 0,
    };
    client.call(&create, |_| ())
}

fn export(client: &mut RawClient, memory: u64) -> Result<(u64, u64), u32> {
    client.call(&ExportPhysical { memory: ObjectId(memory) }, |reply| reply.token)
}

const GRANULE: u64 = 2 << 20;

/// However often a client exports its memory, the supervisor has one descriptor for it; and
/// whatever it exports, others come in.
#[test]
fn exports_leave_descriptors_for_others() {
    const FILES: u32 = 1024;
    let server = serve_with_files(FILES, &[]);
    let before = descriptors(&server);
    let mut client = RawClient::connect(&server);
    client.open();
    create_shareable(&mut client, 1, GRANULE).expect("memory");
    let last = client.ask_all((0..2 * FILES).map(|_| ExportPhysical { memory: ObjectId(1) }));
    client.reply(last).expect("one more export of the same memory");
    let after = descriptors(&server);
    assert!(after < before + 8, "{after} descriptors for one allocation, {before} before");

    // Different memory, in several sessions: each gets a share, and all together leave room.
    let mut clients = vec![client];
    for _ in 0..7 {
        let mut client = RawClient::connect(&server);
        client.open();
        clients.push(client);
    }
    let mut refused = 0;
    for client in &mut clients {
        for memory in 2..100 {
            create_shareable(client, memory, GRANULE).expect("memory");
            match export(client, memory) {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error, OUT_OF_MEMORY);
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 0, "there is a bound");
    let taken = descriptors(&server);
    assert!(taken < u64::from(FILES) / 2, "{taken} of {FILES} descriptors are taken");
    Program::new("vector_add").through(&server).expect_success("somebody else");
    // What has been let go of is free for others.
    drop(clients);
    assert!(
        within(LIMIT, || descriptors(&server) < before + 8),
        "{} descriptors",
        descriptors(&server)
    );
    let mut next = RawClient::connect(&server);
    next.open();
    create_shareable(&mut next, 1, GRANULE).expect("memory");
    export(&mut next, 1).expect("there is room again");
}

/// Memory that only its descriptor keeps counts for who exported it.
#[test]
fn what_only_a_descriptor_keeps_counts() {
    const LIMIT_BYTES: u64 = 64 << 20;
    have_many_files();
    let server = Server::start_with(&["--driver", "cpu", "--session-memory", "64M"], &[]);
    let mut client = RawClient::connect(&server);
    client.open();
    let mut tokens = Vec::new();
    for memory in 1..=2 * LIMIT_BYTES / GRANULE {
        if create_shareable(&mut client, memory, GRANULE).is_err() {
            break;
        }
        tokens.push(export(&mut client, memory).expect("a token"));
        client.post(&VmmRelease { memory: ObjectId(memory) });
    }
    let held = tokens.len() as u64 * GRANULE;
    assert!(held > 0 && held <= LIMIT_BYTES, "{held} bytes of {LIMIT_BYTES}");
    // Once nobody has the descriptor any more, there is room.
    client.post(&Unshare { token: tokens[0] });
    create_shareable(&mut client, 1000, GRANULE).expect("as much as was let go of");
}

/// One descriptor of several that is closed leaves the others as they are.
#[test]
fn a_thousand_tensors_are_shared() {
    have_many_files();
    let server = Server::start();
    Program::new("shareable_handles")
        .arg("thousand")
        .through(&server)
        .expect_success("a thousand tensors");
}

/// Those who connect to the metrics' port and ask for nothing keep nobody from asking whether the
/// server is well.
#[test]
fn silent_connections_do_not_starve_the_liveness_probe() {
    have_many_files();
    let server = Server::start_with(&["--driver", "cpu", "--metrics", "0"], &[]);
    let metrics = metrics::address(&server);
    let over = AtomicBool::new(false);
    let (mut asked, mut answered) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut silent = Vec::new();
            while !over.load(Ordering::Relaxed) {
                silent.extend(TcpStream::connect(&metrics));
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            asked += 1;
            answered += u32::from(is_healthy(&metrics));
            std::thread::sleep(Duration::from_millis(20));
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(answered, asked, "probes that were answered");
}

/// A flood of connections that say nothing, each from another address, refuses nobody who speaks.
#[test]
fn a_flood_from_many_addresses_refuses_no_good_session() {
    const GOOD: usize = 200;
    const SESSIONS: usize = 4;
    const FLOOD: usize = 5000;
    have_many_files();
    let server = Server::start();
    let (over, came) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (mut refused, mut good) = (Vec::new(), 0);
    std::thread::scope(|scope| {
        let (over, came) = (&over, &came);
        let address = server.address();
        for thread in 0..2_u32 {
            scope.spawn(move || {
                let mut silent = std::collections::VecDeque::new();
                let mut number = thread;
                while !over.load(Ordering::Relaxed) {
                    number += 2;
                    silent.extend(stranger(address, somewhere(number % 60_000)));
                    came.fetch_add(1, Ordering::Relaxed);
                    if silent.len() > 2000 {
                        silent.pop_front();
                    }
                }
            });
        }
        assert!(within(LIMIT, || came.load(Ordering::Relaxed) >= 1000), "the flood comes");
        while good < GOOD || came.load(Ordering::Relaxed) < FLOOD {
            good += 1;
            // Most of them only show that they are heard.
            let purpose = match good <= SESSIONS {
                true => Purpose::Session { devices: vec![] },
                false => Purpose::Lane { session: 1, key: 1 },
            };
            match hello(address, purpose) {
                Err(refusal) if refusal.code != RefusalCode::NoSession => {
                    refused.push(refusal.sentence)
                }
                _ => {}
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(refused.is_empty(), "{} of {good} refused, the first: {}", refused.len(), refused[0]);
}

/// Those who only ask are few in all, whatever addresses they come from, and leave room for
/// sessions.
#[test]
fn those_who_only_ask_are_few_in_all() {
    have_many_files();
    let server = Server::start_with(&["--driver", "cpu", "--max-sessions", "4"], &[]);
    let mut asking = Vec::new();
    let mut refusals = Vec::new();
    for number in 0..40 {
        let stream = stranger(server.address(), somewhere(number)).expect("the server listens");
        match outboard_e2e::raw_client::hello_over(stream, Purpose::Management { devices: vec![] })
        {
            Ok(asker) => asking.push(asker),
            Err(refusal) => refusals.push(refusal.code),
        }
    }
    assert!((4..=20).contains(&asking.len()), "{} ask", asking.len());
    assert!(refusals.iter().all(|code| *code == RefusalCode::Busy), "{refusals:?}");
    let sessions: Vec<RawClient> = (0..4).map(|_| RawClient::connect(&server)).collect();
    assert_eq!(sessions.len(), 4);
    drop(asking);
    assert!(
        within(LIMIT, || hello(server.address(), Purpose::Management { devices: vec![] }).is_ok()),
        "there is room for questions again"
    );
}

/// Lines of a log in which `message` is said, and the number of those that were left out.
fn said(log: &str, message: &str) -> (usize, u64) {
    let (mut lines, mut left_out) = (0, 0);
    for line in log.lines() {
        let Ok(entry) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let fields = &entry["fields"];
        let text = fields["message"].as_str().unwrap_or_default();
        if text == message {
            lines += 1;
        }
        if text == message || text.contains("were left out") {
            left_out += fields["left_out"].as_u64().unwrap_or(0);
        }
    }
    (lines, left_out)
}

/// Strangers do not fill the log: a few lines of each kind, and how many there would have been.
#[test]
fn strangers_do_not_fill_the_log() {
    const MANY: u64 = 1500;
    have_many_files();
    let server = Server::start();
    for _ in 0..MANY {
        let mut stream = TcpStream::connect(server.address()).expect("the server listens");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
        stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
        // The refusal.
        stream.read_exact(&mut [0; 16]).expect("an answer");
    }
    let all = within(LIMIT, || {
        let (lines, left_out) = said(&server.log(), "refused");
        lines as u64 + left_out == MANY
    });
    let log = server.log();
    let (lines, left_out) = said(&log, "refused");
    assert!(all, "{lines} lines and {left_out} left out of {MANY}");
    assert!(lines < 200, "{lines} lines for {MANY} strangers");
}

/// With hardly any descriptors there are fewer seats, so that those who come in are served, and who
/// does not fit is told so.
#[test]
fn seats_are_no_more_than_descriptors() {
    let server = serve_with_files(64, &["--metrics", "0"]);
    let metrics = metrics::address(&server);
    let silent: Vec<_> =
        (0..200).filter_map(|number| stranger(server.address(), somewhere(number))).collect();
    let asking: Vec<_> =
        (0..60).map(|_| TcpStream::connect(&metrics).expect("the port is open")).collect();
    let mut sessions = vec![RawClient::connect(&server)];
    assert!(is_healthy(&metrics), "the probe is answered; the server says:\n{}", server.log());
    let refusal = loop {
        match RawClient::connect_to(server.address()) {
            Ok(session) => sessions.push(session),
            Err(refusal) => break refusal,
        }
        assert!(sessions.len() < 64, "there is a bound");
    };
    assert_eq!(refusal.code, RefusalCode::Busy, "{}", refusal.sentence);
    assert!(descriptors(&server) < 64);
    for session in &mut sessions {
        session.open();
        session.alloc(1 << 20).expect("those who are in are served");
    }
    assert!(!server.log().contains("cannot accept"), "{}", server.log());
    drop((silent, asking));
}

/// Sends bytes with a descriptor attached, as often as it is taken; how often that was.
fn attach(to: &UnixStream, descriptor: BorrowedFd<'_>) -> usize {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let sent = sendmsg(to, &[IoSlice::new(b"O")], &mut ancillary, SendFlags::NOSIGNAL);
    usize::from(sent.is_ok())
}

/// A connection whose last close waits for half a minute, as its peer reads nothing.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut ours = TcpStream::connect(listener.local_addr().expect("it has one")).expect("a peer");
    let theirs = listener.accept().expect("it comes").0;
    ours.set_nonblocking(true).expect("it need not wait");
    while ours.write(&[0; 1 << 16]).is_ok() {}
    set_socket_linger(&ours, Some(Duration::from_secs(30))).expect("it lingers");
    (ours, theirs)
}

/// Whoever may reach the clients' and the administrators' sockets can attach descriptors to what it
/// sends. Nobody waits until they are closed.
#[test]
fn descriptors_that_nobody_asked_for_delay_nobody() {
    let folder = Folder::create();
    let (clients, administrators) = (folder.path("clients.sock"), folder.path("admin.sock"));
    let server = Server::start_with(
        &["--driver", "cpu", "--metrics", "0", "--socket", &clients, "--admin", &administrators],
        &[],
    );
    let metrics = metrics::address(&server);
    let mut taken = 0;
    let mut peers = Vec::new();
    for path in [&clients, &administrators] {
        for _ in 0..5 {
            let stream = UnixStream::connect(path).expect("the server listens");
            let (socket, peer) = lingering();
            let is_taken = attach(&stream, socket.as_fd());
            if is_taken == 0 {
                // This is its last close.
                set_socket_linger(&socket, None).expect("it lingers no more");
            }
            taken += is_taken;
            peers.push(peer);
            drop(socket);
            let began = Instant::now();
            assert!(is_healthy(&metrics), "a probe beside it");
            drop(stream);
            assert!(is_healthy(&metrics), "a probe behind it");
            assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        }
    }
    // A kernel of 6.16 or newer lets none of them through.
    eprintln!("{taken} of 10 descriptors were taken");
    Program::new("vector_add").through(&server).expect_success("a client beside them");
}
