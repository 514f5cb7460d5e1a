//! Links between the workers of two servers of one machine, which share memory: what goes through
//! it, who may have it, and what becomes of copies whose other half is gone, stands still or lies.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outboard_e2e::metrics::{address, scrape, sum};
use outboard_e2e::raw_client::greet;
use outboard_e2e::raw_peer::{RawPeer, Sharing, area};
use outboard_e2e::{
    Driver, Folder, Program, RawClient, Server, outboard, reaching_loopback, within,
};
use outboard_session::chunks::Cut;
use outboard_session::groups::{AREA, AREA_FLAGS, BLOCK, FLAGS, Flag, Groups};
use outboard_transport::segment::{Segment, create_file};
use outboard_transport::tls;
use outboard_wire::boxes::{Extent, Layout, Region, Storage};
use outboard_wire::handshake::peers::{Called, PEERS};
use outboard_wire::handshake::{Extensions, Purpose};
use outboard_wire::messages::{CopyOut, PeerCopyIn, PeerCopyOut, PeerTell, PeerWait};
use outboard_wire::messages::{EventCreate, StreamSynchronize};
use outboard_wire::{DevicePtr, ObjectId, StreamId};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::{Pid, Signal, kill_process};
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

/// All went from server to server, and through shared memory or not.
fn expect_linked(statistics: &Value, in_memory: bool) {
    let linked = count(statistics, "bytes_linked");
    assert!(linked > 200 << 20 && count(statistics, "bytes_relayed") == 0, "{statistics}");
    assert_eq!(count(statistics, "bytes_shared"), if in_memory { linked } else { 0 });
    assert!(statistics["not_linked"].is_null(), "{statistics}");
}

const AUTO: (&str, &str) = ("OUTBOARD_TRANSPORT", "auto");

#[test]
fn no_byte_of_a_copy_goes_over_a_connection() {
    let servers = ["127.0.0.1:0"; 2].map(|metrics| server(&["--metrics", metrics]));
    let both = [&servers[0], &servers[1]];
    for transport in ["auto", "shm"] {
        expect_linked(&across(both, &[("OUTBOARD_TRANSPORT", transport)]), true);
    }
    let moved = |way: &str| {
        let sums = both.map(|server| {
            sum(&scrape(&address(server)), "outboard_bytes_total", &[&format!("way=\"{way}\"")])
        });
        sums[0] + sums[1]
    };
    assert_eq!(moved("lanes"), 0.0);
    assert!(moved("shared") > f64::from(800 << 20), "{}", moved("shared"));
    expect_linked(&across(both, &[("OUTBOARD_TRANSPORT", "tcp")]), false);
    assert!(moved("lanes") > f64::from(400 << 20), "{}", moved("lanes"));
}

/// Copies of one stream use the same slots: there is memory for only three such copies at once.
#[test]
fn many_copies_queued_at_once_all_go_through_memory() {
    let servers = [server(&[]), server(&[])];
    let list = [servers[0].address(), servers[1].address()].join(",");
    let program =
        ["device", "6", "16"].into_iter().fold(Program::new("freed_meanwhile"), Program::arg);
    let program = program.sharing_memory();
    expect_linked(&program.statistics_of_list(&list), true);
}

#[test]
fn servers_without_a_socket_share_no_memory() {
    let (first, second) = (server(&["--socket", "none"]), server(&[]));
    expect_linked(&across([&first, &second], &[AUTO]), false);
    expect_linked(&across([&second, &first], &[AUTO]), false);
}

/// One server's socket is where the other one does not look for servers: that one calls.
#[test]
fn the_server_that_may_connect_to_the_other_one_s_socket_does() {
    let folder = Folder::create();
    let socket = folder.path("socket");
    let (hidden, usual) = (server(&["--socket", &socket]), server(&[]));
    expect_linked(&across([&hidden, &usual], &[AUTO]), true);
    // The first of the list reaches the other one over TCP, which does as well.
    expect_linked(&across([&usual, &hidden], &[AUTO]), false);
}

/// The bytes do not leave the machine.
#[test]
fn where_sessions_are_encrypted_memory_is_shared_all_the_same() {
    let folder = Folder::create();
    let state = folder.path("state");
    let made = outboard(&["token", "create", "--json", "--owner", "a", "--state", &state]);
    let made: Value = serde_json::from_slice(&made.stdout).expect("JSON");
    let part = |name: &str| made[name].as_str().expect("a text").to_owned();
    let strict = ["--tls", "on", "--require-authentication", "--state", &state];
    let (first, second) = (server(&strict), server(&strict));
    let (fingerprint, token) = (part("fingerprint"), part("token"));
    let secrets = [("OUTBOARD_TLS_FINGERPRINT", &*fingerprint), ("OUTBOARD_TOKEN", &*token)];
    expect_linked(&across([&first, &second], &[AUTO, secrets[0], secrets[1]]), true);
}

/// A process of the server's user at the server's socket, as another server's worker gets it: that
/// it is of this user opens nothing.
#[test]
fn without_the_ticket_nobody_meets_a_worker_by_the_socket() {
    let server = server(&[]);
    let client = RawClient::connect(&server);
    let (welcome, link) = (client.welcome(), 1);
    let ticket = tls::ticket(welcome.key, welcome.session, link).key;
    let of_another_link = tls::ticket(welcome.key, welcome.session, link + 1).key;
    let path = &welcome.local.as_ref().expect("the server has a socket").path;
    for key in [0, 1, ticket ^ 1, of_another_link] {
        let mut stream = UnixStream::connect(path).expect("it listens");
        let mut more = Extensions::default();
        more.set(PEERS, &Called { link });
        let purpose = Purpose::Peer { session: welcome.session, key };
        assert!(greet(&mut stream, purpose, more).is_err(), "{key}");
    }
    assert!(RawPeer::call(&client, link).is_ok());
}

fn worker(server: &Server) -> Pid {
    Pid::from_raw(server.only_worker() as i32).expect("a process")
}

/// The other worker is killed while copies and signals of both directions are under way.
#[test]
fn a_stream_that_waits_for_a_worker_that_was_killed_goes_on() {
    let (first, second) = (server(&[]), server(&[]));
    let list = [first.address(), second.address()].join(",");
    let program = Program::new("crossing").arg("lost").sharing_memory();
    let mut running = program.start_through_list(&list);
    running.wait_for_line("waiting");
    kill_process(worker(&second), Signal::KILL).expect("it runs");
    let outcome = running.finish();
    outcome.expect_success("the first server's device");
    assert!(outcome.stdout.ends_with("the other server goes on\n"), "{}", outcome.stdout);
}

/// The other worker stands still for a while: so do the copies, and nothing is lost.
#[test]
fn copies_go_on_with_a_worker_that_was_stopped() {
    let (first, second) = (server(&[]), server(&[]));
    let list = [first.address(), second.address()].join(",");
    let program = Program::new("across").arg("cut").sharing_memory();
    let mut running = program.start_through_list(&list);
    running.wait_for_line("copied");
    for stopped in [&second, &first, &second] {
        let worker = worker(stopped);
        kill_process(worker, Signal::STOP).expect("it runs");
        std::thread::sleep(Duration::from_millis(400));
        kill_process(worker, Signal::CONT).expect("it is there");
        std::thread::sleep(Duration::from_millis(50));
    }
    running.finish().expect_success("copies beside a worker that stands still");
}

/// A session with memory on the device, and a peer that it shares memory with.
struct Played {
    client: RawClient,
    peer: Sharing,
    link: u32,
    memory: u64,
    /// Numbers that have been announced.
    last: u64,
}

const BYTES: u64 = 1 << 20;
const CHUNK: u32 = 256 << 10;
/// The place of the copies here.
const AT: u64 = FLAGS as u64;
const SLOTS: u64 = AREA_FLAGS as u64;
/// `CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_DEVICE_UNAVAILABLE`.
const INVALID: u32 = 1;
const UNAVAILABLE: u32 = 46;

fn groups() -> Groups {
    Groups::passing(Cut::new(BYTES, CHUNK).expect("a copy"))
}

fn flag(flag: Flag) -> usize {
    groups().flag(flag)
}

fn region(address: u64) -> Region {
    let layout = Layout { pitch: BYTES, slice: BYTES };
    Region { storage: Storage::Linear(DevicePtr(address)), layout, at: (0, 0, 0) }
}

impl Played {
    fn new(server: &Server) -> Played {
        let mut client = RawClient::connect(server);
        client.open();
        let memory = client.alloc(BYTES).expect("memory");
        let peer = Played::link(&client, 1);
        Played { client, peer, link: 1, memory, last: 0 }
    }

    fn link(client: &RawClient, link: u32) -> Sharing {
        let peer = RawPeer::call(client, link);
        let peer = peer.unwrap_or_else(|refusal| panic!("{}", refusal.sentence));
        peer.offer(&area()).expect("the worker takes it")
    }

    /// The peer is gone, and another one comes.
    fn another_peer(&mut self) {
        self.link += 1;
        self.peer = Played::link(&self.client, self.link);
        self.last = 0;
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn comes_at(&mut self, flags: u64, slots: u64, leads: bool) {
        let (link, transfer) = (self.link, self.number());
        let (dst, extent, stream) = (region(self.memory), Extent::row(BYTES), StreamId::LEGACY);
        let chunk = CHUNK;
        let copy = PeerCopyIn { dst, extent, stream, link, transfer, chunk, leads, flags, slots };
        self.client.post(&copy);
    }

    fn goes_at(&mut self, flags: u64, slots: u64, leads: bool) {
        let (link, transfer) = (self.link, self.number());
        let (src, extent, stream) = (region(self.memory), Extent::row(BYTES), StreamId::LEGACY);
        let chunk = CHUNK;
        let copy = PeerCopyOut { src, extent, stream, link, transfer, chunk, leads, flags, slots };
        self.client.post(&copy);
    }

    fn synchronize(&mut self) {
        let synchronize = StreamSynchronize { stream: StreamId::LEGACY };
        self.client.call(&synchronize, |_| ()).expect("the stream goes on");
    }

    /// The session has been told of these failures, and of no others.
    fn expect_failures(&mut self, wanted: &[u32]) {
        let told = within(Duration::from_secs(20), || {
            self.client.alloc(1 << 10).expect("the session goes on");
            self.client.failures.len() >= wanted.len()
        });
        let failures = std::mem::take(&mut self.client.failures);
        assert!(told && failures == wanted, "{failures:?}, not {wanted:?}");
    }

    /// What is at the end of the device's memory.
    fn last_byte(&mut self) -> u8 {
        let src = DevicePtr(self.memory + BYTES - 4096);
        let copy = CopyOut { src, stream: StreamId::LEGACY, bytes: 4096 };
        self.client.call(&copy, |reply| reply.data[4095]).expect("it is there")
    }
}

#[test]
fn only_an_area_as_workers_make_them_is_shared() {
    let server = server(&[]);
    let mut client = RawClient::connect(&server);
    client.open();
    let call = |link| {
        RawPeer::call(&client, link).unwrap_or_else(|refusal| panic!("{}", refusal.sentence))
    };
    let small = Arc::new(Segment::create("small", 4096).expect("memory"));
    let file = create_file("large", 2 * AREA as u64).expect("memory");
    assert!(call(1).is_turned_away(b"something else..", &[]));
    assert!(call(2).offers_in_vain(&[]));
    assert!(call(3).offers_in_vain(&[file.as_fd(); 5]));
    assert!(call(4).offer(&small).is_err(), "it has another size");
    let first = call(5).offer(&area()).expect("the worker takes it");
    assert!(call(5).offer(&area()).is_err(), "a link has one");
    drop(first);
    // More than a session has; one that ends makes room.
    let mut some: Vec<Sharing> =
        (10..18).map(|link| call(link).offer(&area()).expect("one of eight")).collect();
    assert!(call(20).offer(&area()).is_err());
    some.pop();
    let link = std::cell::Cell::new(20);
    assert!(within(Duration::from_secs(20), || {
        link.set(link.get() + 1);
        call(link.get()).offer(&area()).is_ok()
    }));
    client.alloc(1 << 20).expect("the session goes on");
}

#[test]
fn a_peer_says_what_its_own_copies_bring_and_nothing_else() {
    let server = server(&[]);
    let mut played = Played::new(&server);
    // An honest one: the device waits for each group, and says when it has it.
    for leads in [true, false] {
        played.comes_at(AT, SLOTS, leads);
        played.peer.fill(SLOTS, BYTES as usize, if leads { 7 } else { 8 });
        let count = groups().count();
        assert!(count > 1 && count == groups().slots());
        (0..count as usize).for_each(|slot| played.peer.set(AT, flag(Flag::Full(slot)), 1));
        played.synchronize();
        assert_eq!(played.last_byte(), if leads { 7 } else { 8 });
        assert!(within(Duration::from_secs(20), || {
            played.peer.word(AT, flag(Flag::Ended)).load(Ordering::Acquire) == 1
        }));
        // The peer's half ends as well: it leaves no flag behind.
        (0..=flag(Flag::Ended)).for_each(|word| played.peer.set(AT, word, 0));
    }
    // One that says that it has failed.
    played.comes_at(AT, SLOTS, true);
    played.peer.set(AT, flag(Flag::Failed), 1);
    played.synchronize();
    played.expect_failures(&[UNAVAILABLE]);
    // One that writes anything anywhere, also where nobody has begun anything.
    played.another_peer();
    let mut state = 1_u64;
    for round in 0..20 {
        let place = AT + round * FLAGS as u64;
        if round % 2 == 0 {
            played.comes_at(place, SLOTS, true)
        } else {
            played.goes_at(place, SLOTS, true)
        }
        for _ in 0..2000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let word = (state >> 33) as usize % (AREA_FLAGS / 4);
            played.peer.set(0, word, (state >> (state % 60)) as u32);
        }
        (0..64).for_each(|word| played.peer.set(place, word, u32::MAX));
        played.client.alloc(1 << 10).expect("the session goes on");
    }
    played.another_peer();
    played.synchronize();
    played.client.alloc(1 << 20).expect("the session goes on");
}

/// A peer that is gone, whatever it has said before, and whatever it goes on to write. What such a
/// copy was to overwrite stays as it is.
#[test]
fn what_waits_for_a_peer_that_is_gone_goes_on() {
    let server = server(&[]);
    let mut played = Played::new(&server);
    played.comes_at(AT, SLOTS, true);
    played.peer.fill(SLOTS, BYTES as usize, 9);
    (0..groups().count() as usize).for_each(|slot| played.peer.set(AT, flag(Flag::Full(slot)), 1));
    played.synchronize();
    for leads in [true, false] {
        played.another_peer();
        let told: &[u32] = if leads { &[UNAVAILABLE] } else { &[] };
        played.comes_at(AT, SLOTS, leads);
        played.peer.fill(SLOTS, BYTES as usize, 5);
        played.client.alloc(1 << 10).expect("the stream stands, the session does not");
        played.another_peer();
        played.synchronize();
        played.expect_failures(told);
        assert_eq!(played.last_byte(), 9);
        played.goes_at(AT, SLOTS, leads);
        played.client.alloc(1 << 10).expect("the stream stands, the session does not");
        played.another_peer();
        played.synchronize();
        played.expect_failures(told);
    }
    let (link, stream, number) = (played.link, StreamId::LEGACY, played.number());
    played.client.post(&PeerWait { stream, link, number, flags: AT });
    played.client.alloc(1 << 10).expect("the stream stands, the session does not");
    played.another_peer();
    played.synchronize();
    played.expect_failures(&[UNAVAILABLE]);
    // It keeps the memory, goes on to take back flags, and takes the pages away.
    played.comes_at(AT, SLOTS, true);
    let kept =
        Sharing { stream: Arc::clone(&played.peer.stream), area: Arc::clone(&played.peer.area) };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                (0..64).for_each(|word| kept.set(AT, word, 0));
                std::thread::yield_now();
            }
        });
        kept.stream.shutdown().expect("it is open");
        let holes = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(kept.area.file(), holes, 0, AREA as u64).expect("memory has holes");
        played.synchronize();
        over.store(true, Ordering::Relaxed);
    });
    played.expect_failures(&[UNAVAILABLE]);
}

/// More copies than a stream takes at once, and more that follow than may stand still: the rest
/// start later, in their places.
#[test]
fn copies_that_cannot_be_queued_whole_start_later() {
    let server = server(&[]);
    let mut played = Played::new(&server);
    // Blocks are whole mebibytes, so no slots reach over the end of one.
    assert!([BLOCK, AREA_FLAGS].iter().all(|bytes| bytes.is_multiple_of(BYTES as usize)));
    let flags = |copy: u64| AT + copy * FLAGS as u64;
    let slots = |copy: u64| SLOTS + copy * BYTES;
    const LEADING: u64 = 40;
    const ALL: u64 = LEADING + 20;
    for copy in 0..ALL {
        played.comes_at(flags(copy), slots(copy), copy < LEADING);
    }
    played.client.alloc(1 << 10).expect("the stream stands, the session does not");
    // In the order in which nobody waits for them.
    for copy in (0..ALL).rev() {
        played.peer.fill(slots(copy), BYTES as usize, copy as u8);
        let count = groups().count() as usize;
        (0..count).for_each(|slot| played.peer.set(flags(copy), flag(Flag::Full(slot)), 1));
    }
    played.synchronize();
    for copy in 0..ALL {
        let ended = || played.peer.word(flags(copy), flag(Flag::Ended)).load(Ordering::Acquire);
        assert!(within(Duration::from_secs(20), || ended() == 1), "{copy}");
    }
    played.expect_failures(&[]);
}

#[test]
fn signals_go_by_flags() {
    let server = server(&[]);
    let mut played = Played::new(&server);
    let (link, stream) = (played.link, StreamId::LEGACY);
    let reached = Groups::passing(Cut::new(1, 64 << 10).expect("a signal")).flag(Flag::Reached);
    let event = ObjectId(77);
    played.client.post(&EventCreate { event, flags: 2 });
    let number = played.number();
    played.client.post(&PeerTell { event, link, number, flags: AT });
    assert!(within(Duration::from_secs(20), || {
        played.client.alloc(1 << 10).expect("the session goes on");
        played.peer.word(AT, reached).load(Ordering::Acquire) == 1
    }));
    let (number, flags) = (played.number(), AT + FLAGS as u64);
    played.client.post(&PeerWait { stream, link, number, flags });
    let waits = played.client.ask(&StreamSynchronize { stream });
    std::thread::sleep(Duration::from_millis(100));
    played.peer.set(flags, reached, 1);
    played.client.reply(waits).expect("the stream goes on");
    played.expect_failures(&[]);
}

/// A client that names places which nobody gives out.
#[test]
fn places_that_are_none_are_refused() {
    let server = server(&[]);
    let mut played = Played::new(&server);
    let (block, area) = (BLOCK as u64, AREA as u64);
    let flags = [8, AT + 4, SLOTS, area, u64::MAX, 1 << 63];
    let slots = [0, AT, SLOTS + 8, block - 4096, area - 4096, area, u64::MAX, 1 << 63];
    let places = flags.map(|at| (at, SLOTS)).into_iter().chain(slots.map(|at| (AT, at)));
    for (flags, slots) in places {
        played.comes_at(flags, slots, true);
        played.goes_at(flags, slots, true);
        played.expect_failures(&[INVALID, INVALID]);
    }
    // A link without an area.
    let (link, stream) = (99, StreamId::LEGACY);
    played.client.post(&PeerWait { stream, link, number: 1, flags: AT });
    played.expect_failures(&[UNAVAILABLE]);
    played.comes_at(AT, SLOTS, true);
    (0..groups().count() as usize).for_each(|slot| played.peer.set(AT, flag(Flag::Full(slot)), 1));
    played.synchronize();
    played.expect_failures(&[]);
}
