//! Links between the workers of two servers: what goes over them, and who may connect.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outboard_e2e::raw_client::{RawClient, hello_saying, write_chunk};
use outboard_e2e::{Driver, Folder, Program, Server, carry, outboard, reaching_loopback, within};
use outboard_transport::tls;
use outboard_wire::codec::decode_all;
use outboard_wire::handshake::peers::{Called, PEERS};
use outboard_wire::handshake::{
    ANSWER_LIMIT, Answer, Extensions, Hello, Preamble, Process, Purpose, Refusal, RefusalCode,
    VERSION,
};
use outboard_wire::lane::{LaneHeader, LaneKind};
use outboard_wire::messages::{PeerLinkOpen, PeerLinkOpenReply, PeerTell, PeerWait};
use outboard_wire::{ObjectId, StreamId};
use serde_json::Value;

const MEMORY: [(&str, &str); 1] = [("OUTBOARD_CPU_MEMORY", "256M")];

fn server(flags: &[&str]) -> Server {
    let driver = ["--driver", Driver::chosen().name()];
    Server::start_with(&reaching_loopback(&[&driver[..], flags].concat()), &MEMORY)
}

/// Copies and waits between two servers; what the process counted.
fn across(servers: [&Server; 2], env: &[(&str, &str)]) -> Value {
    let list = servers.map(Server::address).join(",");
    let program = Program::new("across").arg("4");
    let program = env.iter().fold(program, |program, (name, value)| program.env(name, value));
    program.statistics_of_list(&list)
}

fn count(statistics: &Value, name: &str) -> u64 {
    statistics[name].as_u64().unwrap_or_else(|| panic!("{name} is not in {statistics}"))
}

fn expect_linked(statistics: &Value) {
    assert_eq!(count(statistics, "bytes_relayed"), 0, "{statistics}");
    assert!(count(statistics, "bytes_linked") > 200 << 20, "{statistics}");
    assert!(statistics["not_linked"].is_null(), "{statistics}");
}

#[test]
fn copies_between_linked_servers_pass_no_client() {
    let (first, second) = (server(&[]), server(&[]));
    for transport in ["tcp", "shm"] {
        expect_linked(&across([&first, &second], &[("OUTBOARD_TRANSPORT", transport)]));
    }
}

/// The driver refuses work with memory that it was told to free, whoever moves the bytes.
#[test]
fn copies_of_memory_that_is_freed_are_done() {
    let servers = [server(&["--peers", "none"]), server(&["--peers", "none"])];
    let list = servers.each_ref().map(Server::address).join(",");
    for transport in ["tcp", "shm"] {
        let program = Program::new("freed_meanwhile").arg("device").arg("40").arg("1");
        let said = program.env("OUTBOARD_TRANSPORT", transport).through_list(&list);
        let (status, out, errors) = (said.status, said.stdout, said.stderr);
        assert!(status.success(), "over {transport}: {status}\n{out}{errors}");
    }
}

#[test]
fn links_are_encrypted_where_sessions_are() {
    let folder = Folder::create();
    let state = folder.path("state");
    let made = outboard(&["token", "create", "--json", "--owner", "a", "--state", &state]);
    let made: Value = serde_json::from_slice(&made.stdout).expect("JSON");
    let part = |name: &str| made[name].as_str().expect("a text").to_owned();
    let strict = ["--tls", "on", "--require-authentication", "--state", &state];
    let (first, second) = (server(&strict), server(&strict));
    let fingerprint = part("fingerprint");
    let token = part("token");
    let env = [("OUTBOARD_TLS_FINGERPRINT", &*fingerprint), ("OUTBOARD_TOKEN", &*token)];
    expect_linked(&across([&first, &second], &env));
}

#[test]
fn without_a_link_bytes_go_through_the_client_which_says_why() {
    let (first, second) = (server(&["--peers", "none"]), server(&[]));
    let statistics = across([&first, &second], &[]);
    assert_eq!(count(&statistics, "bytes_linked"), 0);
    assert!(count(&statistics, "bytes_relayed") > 200 << 20);
    let why = statistics["not_linked"].as_str().expect("a sentence");
    assert!(why.contains("makes no links"), "{why}");
    // One that reaches nobody, and that the other one cannot reach at the address it names.
    let far = ["--peers", "192.0.2.0/24", "--peer-address", "127.0.0.1:1"];
    let statistics = across([&server(&far), &server(&far)], &[]);
    let why = statistics["not_linked"].as_str().expect("a sentence");
    assert!(why.contains("--peers") && why.contains("127.0.0.1:1"), "{why}");
}

/// What listens on this machine only is not for clients, unless the administrator says so.
#[test]
fn by_default_servers_do_not_connect_over_loopback_and_name_the_option() {
    let (first, second) = (server(&["--peers", "private"]), server(&["--peers", "private"]));
    let statistics = across([&first, &second], &[("OUTBOARD_TRANSPORT", "tcp")]);
    assert_eq!(count(&statistics, "bytes_linked"), 0, "{statistics}");
    let why = statistics["not_linked"].as_str().expect("a sentence");
    assert!(why.contains("--peers NETWORK") && why.contains(second.address()), "{why}");
    // By their Unix sockets they meet all the same.
    expect_linked(&across([&first, &second], &[("OUTBOARD_TRANSPORT", "auto")]));
}

/// A client has its server try ports, to learn what is there. It waits for each, a few are tried,
/// the words are the same, and others' links come about meanwhile.
#[test]
fn a_client_that_scans_learns_little_and_keeps_nobody_from_linking() {
    const PORTS: u32 = 60;
    const AT_ONCE: usize = 16;
    const EACH: Duration = Duration::from_secs(5);
    let (first, second) = (server(&[]), server(&[]));
    let closed: Vec<String> = (0..PORTS)
        .map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"))
        .map(|listener| listener.local_addr().expect("bound").to_string())
        .collect();
    let mut scanner = RawClient::connect(&first);
    let began = Instant::now();
    let open = |link: u32, address| PeerLinkOpen {
        link,
        address,
        session: 1,
        ticket: &[0; 16],
        fingerprint: &[],
        host: 0,
        user: 0,
        socket: "",
    };
    let asked: Vec<u32> =
        (1..).zip(&closed).map(|(link, address)| scanner.ask(&open(link, address))).collect();
    expect_linked(&across([&first, &second], &[("OUTBOARD_TRANSPORT", "tcp")]));
    let mut tried = 0;
    for (number, address) in asked.into_iter().zip(&closed) {
        let reply = scanner.reply(number).expect("an answer");
        let PeerLinkOpenReply { failure, .. } = decode_all(&reply).expect("an answer");
        if failure.contains("too many connections") {
            continue;
        }
        tried += 1;
        let alike = failure.replace(address, "ADDRESS");
        assert_eq!(
            alike,
            "this server cannot reach ADDRESS; its log says why (`outboard serve --peers NETWORK` \
             names the networks in which it connects to others)"
        );
    }
    let took = began.elapsed();
    assert!(took >= EACH, "what is closed is told as late as what is silent: {took:?}");
    let most = AT_ONCE * took.as_secs() as usize / EACH.as_secs() as usize;
    assert!((1..=most).contains(&tried), "{tried} of at most {most} in {took:?}");
    first.expect_logged("Connection refused");
}

/// What stands between two servers, and can be cut.
struct Between {
    address: String,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Between {
    /// In front of whatever is at the address that `found` says, once it is known.
    fn new(found: Arc<Mutex<String>>) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let open = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&open);
        std::thread::spawn(move || {
            for here in listener.incoming().flatten() {
                let there = TcpStream::connect(&*found.lock().expect("set")).expect("it listens");
                let pairs = [(&here, &there), (&there, &here)];
                for (from, to) in pairs.map(|(from, to)| (from.try_clone(), to.try_clone())) {
                    let (from, to) = (from.expect("a descriptor"), to.expect("a descriptor"));
                    std::thread::spawn(move || carry(from, to));
                }
                all.lock().expect("held briefly").extend([here, there]);
            }
        });
        Between { address, open }
    }

    fn connections(&self) -> usize {
        self.open.lock().expect("held briefly").len()
    }

    fn cut(&self) {
        for stream in self.open.lock().expect("held briefly").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Two servers lose each other while both reach the client: what is under way fails, and what
/// comes later goes through the client.
#[test]
fn a_cut_between_two_servers_ends_what_is_under_way_and_nothing_else() {
    let found = Arc::new(Mutex::new(String::new()));
    let between = Between::new(Arc::clone(&found));
    let (first, second) = (server(&[]), server(&["--peer-address", &between.address]));
    found.lock().expect("unused").push_str(second.address());
    let folder = Folder::create();
    let file = folder.path("profile");
    let program = Program::new("across").arg("cut").env("OUTBOARD_PROFILE", &file);
    let list = [first.address(), second.address()].join(",");
    let mut running = program.start_through_list(&list);
    running.wait_for_line("copied");
    assert!(between.connections() > 0, "the link goes this way: {}", running.seen());
    between.cut();
    running.finish().expect_success("copies after a cut");
    let profile: Value =
        serde_json::from_slice(&std::fs::read(&file).expect("a profile")).expect("JSON");
    let statistics = &profile;
    assert!(count(statistics, "bytes_linked") > 0 && count(statistics, "bytes_relayed") > 0);
}

/// A connection to a session's worker as that of another server makes it.
fn call(server: &Server, session: u64, link: u32, key: u128) -> Result<TcpStream, Refusal> {
    let mut more = Extensions::default();
    more.set(PEERS, &Called { link });
    let stream = TcpStream::connect(server.address()).expect("it listens");
    hello_saying(stream, Purpose::Peer { session, key }, more).map(|(stream, _)| stream)
}

/// Whether such a connection is refused; while the session ends it may be closed instead.
fn is_refused(server: &Server, session: u64, link: u32, key: u128) -> bool {
    let mut more = Extensions::default();
    more.set(PEERS, &Called { link });
    let (version, purpose) = (VERSION, Purpose::Peer { session, key });
    let (software, client, process) = (String::new(), String::new(), Process::default());
    let hello = Hello { version, software, client, purpose, process, more };
    let mut stream = TcpStream::connect(server.address()).expect("it listens");
    stream.write_all(&hello.encode()).expect("it reads");
    stream.shutdown(Shutdown::Write).expect("open until now");
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    let Some((head, body)) = said.split_first_chunk::<{ Preamble::SIZE }>() else { return false };
    let preamble = Preamble::decode(head, ANSWER_LIMIT).expect("a preamble");
    matches!(Answer::decode(&preamble, body, VERSION), Ok(Answer::Refusal(_)))
}

fn ticket(client: &RawClient, link: u32) -> u128 {
    tls::ticket(client.welcome().key, client.welcome().session, link).key
}

#[test]
fn tickets_are_good_for_their_session_and_link_alone() {
    let server = server(&[]);
    let (client, other) = (RawClient::connect(&server), RawClient::connect(&server));
    let session = client.welcome().session;
    let refused = |session, link, key| {
        let refusal = call(&server, session, link, key).expect_err("no such ticket");
        assert_eq!(refusal.code, RefusalCode::NoSession, "{}", refusal.sentence);
    };
    refused(session, 1, 0);
    refused(session, 1, client.welcome().key);
    refused(session, 1, ticket(&client, 2));
    refused(session, 1, ticket(&other, 1));
    refused(other.welcome().session, 1, ticket(&client, 1));
    let answered = call(&server, session, 1, ticket(&client, 1)).expect("the right ticket");
    drop(answered);
    // A peer is told nothing by which it could pass for the client.
    let mut more = Extensions::default();
    more.set(PEERS, &Called { link: 1 });
    let stream = TcpStream::connect(server.address()).expect("it listens");
    let purpose = Purpose::Peer { session, key: ticket(&client, 1) };
    let (_, welcome) = hello_saying(stream, purpose, more).expect("the right ticket");
    assert_eq!((welcome.key, welcome.snapshot.len()), (0, 0));
    let old = ticket(&client, 1);
    drop(client);
    assert!(
        within(Duration::from_secs(20), || is_refused(&server, session, 1, old)),
        "a session's tickets end with it"
    );
}

fn say(stream: &mut TcpStream, kind: LaneKind, transfer: u64, index: u32) {
    let header = LaneHeader { kind, transfer, index, len: 0 };
    let _ = stream.write_all(&header.encode());
}

/// Whether the other side has closed the connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    let mut room = [0; 1024];
    loop {
        match stream.read(&mut room) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// A peer that breaks the rules loses its link, and nothing else ends.
#[test]
fn a_hostile_peer_loses_its_link_and_nothing_else() {
    let server = server(&[]);
    let mut client = RawClient::connect(&server);
    client.open();
    type Attack = fn(&mut TcpStream);
    let attacks: [Attack; 8] = [
        |peer| write_chunk(peer, 1, 0, &[0; 16]),
        |peer| say(peer, LaneKind::Answer, 1, 0),
        |peer| say(peer, LaneKind::Lend, 1, 0),
        |peer| say(peer, LaneKind::Readable, 1, 0),
        |peer| drop(peer.write_all(&[0xff; 24])),
        |peer| (1..100_000).for_each(|number| say(peer, LaneKind::Reached, number, 0)),
        |peer| {
            say(peer, LaneKind::Grant, 1, u32::MAX);
            write_chunk(peer, 1, u32::MAX, &[0; 16]);
        },
        |peer| drop(peer.shutdown(Shutdown::Write)),
    ];
    for (link, attack) in (1..).zip(attacks) {
        let mut peer = call(&server, client.welcome().session, link, ticket(&client, link))
            .unwrap_or_else(|refusal| panic!("attack {link}: {}", refusal.sentence));
        attack(&mut peer);
        assert!(is_closed(&mut peer), "attack {link}");
        client.alloc(1 << 20).expect("the session goes on");
    }
    // What waits for a peer that is gone goes on, with an error.
    let link = 20;
    let peer = call(&server, client.welcome().session, link, ticket(&client, link));
    let peer = peer.unwrap_or_else(|refusal| panic!("{}", refusal.sentence));
    client.post(&PeerWait { stream: StreamId::LEGACY, link, number: 1, flags: 0 });
    client.post(&PeerTell { event: ObjectId(99), link, number: 2, flags: 0 });
    client.alloc(1 << 20).expect("the stream stands, the session does not");
    drop(peer);
    let synchronize = outboard_wire::messages::StreamSynchronize { stream: StreamId::LEGACY };
    client.call(&synchronize, |_| ()).expect("the stream goes on");
    assert!(within(Duration::from_secs(10), || {
        client.alloc(1 << 10).expect("the session goes on");
        client.failures.contains(&DEVICE_UNAVAILABLE)
    }));
}

/// `CUDA_ERROR_DEVICE_UNAVAILABLE`
const DEVICE_UNAVAILABLE: u32 = 46;
