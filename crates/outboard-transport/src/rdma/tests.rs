//! Over whatever RDMA device the machine has: soft-RoCE, in the machine of `cargo xtask rdma`.

use std::io::{self, IoSlice};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outboard_rdma::{Access, Device, Endpoint, Mtu, Remote};
use outboard_test_support::skip;

use super::handing::Prepared;
use super::immediate::{Immediate, Kind};
use super::stream::SENT;
use super::*;
use crate::blocking::{read_exact, write_all};
use crate::settling::{Outcome, stay};
use crate::stream::{Interest, Stream};
use crate::tcp::Tcp;
use crate::tls::over::Tls;
use crate::transport::{Listener, Transport};

mod two_devices;

/// What the sides meet over is a TCP connection of the loopback interface.
#[derive(Debug, Clone, Copy)]
struct Rdma;

const PATIENCE: Duration = Duration::from_secs(60);
const ANYWHERE: &str = "127.0.0.1:0";

pub(super) fn endpoint() -> io::Result<Endpoint> {
    let names = outboard_rdma::names()?;
    let name = names.first().ok_or(outboard_rdma::Error::NoDevice)?;
    Ok(Device::open(name)?.endpoint(None)?)
}

/// Why the tests of this file cannot run, if they cannot.
pub(super) fn missing() -> Option<String> {
    endpoint().err().map(|error| error.to_string())
}

macro_rules! needs_a_device {
    () => {
        if let Some(why) = missing() {
            skip!("{why}");
        }
    };
}

/// The client's side of a connection that has to move.
fn move_over(
    met: &Arc<dyn Stream>,
    endpoint: Endpoint,
    settings: Settings,
    deadline: Instant,
) -> io::Result<Arc<dyn Stream>> {
    moved(move_to(met, (0, false), endpoint, settings, deadline)?)
}

/// The server's side, by that adapter whatever the client chooses.
fn follow(
    met: &Arc<dyn Stream>,
    endpoint: Endpoint,
    settings: Settings,
    deadline: Instant,
) -> io::Result<Arc<dyn Stream>> {
    moved(take_up(met, |_| Ok(endpoint), settings, deadline)?.0)
}

fn moved(outcome: Outcome) -> io::Result<Arc<dyn Stream>> {
    match outcome {
        Outcome::Moved(stream) => Ok(stream),
        Outcome::Stays(why) => Err(why.unwrap_or_else(|| io::Error::other("it stays"))),
    }
}

impl Transport for Rdma {
    fn name(&self) -> &'static str {
        "rdma"
    }

    fn connect(&self, address: &str, timeout: Duration) -> io::Result<Arc<dyn Stream>> {
        let met = Tcp.connect(address, timeout)?;
        move_over(&met, endpoint()?, Settings::default(), Instant::now() + timeout)
    }

    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        let listener = Tcp.listen(address)?;
        let address = listener.address()?;
        let (accepted, taken) = channel();
        // Clients are connected before somebody accepts them, as by TCP.
        std::thread::spawn(move || {
            while let Ok(met) = listener.accept() {
                let deadline = Instant::now() + PATIENCE;
                let stream = endpoint()
                    .and_then(|endpoint| follow(&met, endpoint, Settings::default(), deadline));
                if accepted.send(stream).is_err() {
                    return;
                }
            }
        });
        Ok(Box::new(RdmaListener { address, taken: Mutex::new(taken) }))
    }
}

#[derive(Debug)]
struct RdmaListener {
    address: String,
    taken: Mutex<Receiver<io::Result<Arc<dyn Stream>>>>,
}

impl Listener for RdmaListener {
    fn accept(&self) -> io::Result<Arc<dyn Stream>> {
        self.taken.lock().unwrap().recv().map_err(io::Error::other)?
    }

    fn address(&self) -> io::Result<String> {
        Ok(self.address.clone())
    }
}

crate::conformance!(Rdma, ANYWHERE, unless missing());

/// As encrypted sessions have it.
mod encrypted {
    use super::*;

    crate::conformance!(Tls::over(Rdma), ANYWHERE, unless missing());
}

/// Two ends of a TCP connection.
fn met() -> [Arc<dyn Stream>; 2] {
    let listener = Tcp.listen(ANYWHERE).unwrap();
    let client = Tcp.connect(&listener.address().unwrap(), PATIENCE).unwrap();
    [client, listener.accept().unwrap()]
}

fn connect(
    endpoints: [Endpoint; 2],
    settings: [Settings; 2],
) -> io::Result<(Arc<dyn Stream>, Arc<dyn Stream>)> {
    let ([of_client, of_server], [client, server]) = (met(), endpoints);
    let deadline = Instant::now() + PATIENCE;
    let taking = std::thread::spawn(move || follow(&of_server, server, settings[1], deadline));
    let client = move_over(&of_client, client, settings[0], deadline)?;
    Ok((client, taking.join().unwrap()?))
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 % 253) as u8).collect()
}

/// So many bytes each way at once.
fn exchange(client: &dyn Stream, server: &dyn Stream, bytes: usize) {
    let sent = pattern(bytes);
    std::thread::scope(|scope| {
        for stream in [client, server] {
            scope.spawn(|| write_all(stream, &sent).unwrap());
            scope.spawn(|| {
                let mut received = vec![0; sent.len()];
                read_exact(stream, &mut received).unwrap();
                assert!(received == sent, "bytes changed on the way");
            });
        }
    });
}

#[test]
fn a_server_tells_no_key_and_lets_nobody_at_its_memory() {
    needs_a_device!();
    let settings = Settings::default();
    let (server, end) = Prepared::server(endpoint().unwrap(), settings).unwrap();
    for region in server.pair.regions() {
        assert_eq!((region.access(), region.remote()), (Access::Own, None));
    }
    let (client, of_client) = Prepared::client(endpoint().unwrap(), settings).unwrap();
    let access = client.pair.regions().iter().map(|region| region.access());
    assert_eq!(access.collect::<Vec<_>>(), [Access::Own, Access::RemoteWrite]);
    assert_eq!(of_client.encode().len(), end.encode().len() + size_of::<u64>() + size_of::<u32>());
}

#[test]
fn settings_of_both_sides_count_and_all_sizes_carry_all_bytes() {
    needs_a_device!();
    let of = |depth, message, ring, mtu| Settings {
        depth,
        message,
        ring,
        mtu: Mtu::within(mtu).unwrap(),
    };
    let small = of(4, 1 << 10, 4 << 10, 256);
    for (client, server) in [
        (Settings::default(), small),
        (small, Settings::default()),
        (of(16, 64 << 10, 100_001, 1024), of(1024, 3001, 2 << 20, 4096)),
    ] {
        let endpoints = [endpoint().unwrap(), endpoint().unwrap()];
        let (client, server) = connect(endpoints, [client, server]).unwrap();
        exchange(&*client, &*server, 200_000);
    }
    let wrong = Settings { depth: 3, ..Settings::default() };
    let [one, _other] = met();
    let error = move_over(&one, endpoint().unwrap(), wrong, Instant::now() + PATIENCE).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

/// Whoever finds that it cannot be says so, and both go on over what they have.
#[test]
fn sides_that_do_not_move_go_on_as_before() {
    needs_a_device!();
    let deadline = || Instant::now() + PATIENCE;
    let wrong = Settings { depth: 3, ..Settings::default() };
    let no_adapter = || io::Error::other("there is none");
    type Open = Box<dyn FnOnce(usize) -> io::Result<Endpoint> + Send>;
    let cases: [(&str, Settings, Open); 3] = [
        ("the server has none", Settings::default(), Box::new(move |_| Err(no_adapter()))),
        ("the client does not want to", wrong, Box::new(|_| endpoint())),
        (
            "nobody has that place",
            Settings::default(),
            Box::new(|place| {
                assert_eq!(place, 7);
                Err(io::ErrorKind::NotFound.into())
            }),
        ),
    ];
    for (name, settings, open) in cases {
        let [client, server] = met();
        let taking = std::thread::spawn({
            let server = Arc::clone(&server);
            move || take_up(&server, open, Settings::default(), deadline())
        });
        let outcome =
            move_to(&client, (7, true), endpoint().unwrap(), settings, deadline()).unwrap();
        assert!(matches!(outcome, Outcome::Stays(Some(_))), "{name}: {outcome:?}");
        let taken = taking.join().unwrap().unwrap();
        assert!(matches!(taken, (Outcome::Stays(_), None)), "{name}");
        exchange(&*client, &*server, 10_000);
    }
    let [client, server] = met();
    stay(&*client).unwrap();
    let outcome = take_up(&server, |_| endpoint(), Settings::default(), deadline()).unwrap();
    assert!(matches!(outcome, (Outcome::Stays(None), None)));
    exchange(&*client, &*server, 10_000);
}

/// Each message of one byte uses up a whole place, and words without bytes go both ways.
#[test]
fn many_small_messages_go_both_ways() {
    needs_a_device!();
    let settings = Settings { depth: 8, ..Settings::default() };
    let endpoints = [endpoint().unwrap(), endpoint().unwrap()];
    let (client, server) = connect(endpoints, [settings; 2]).unwrap();
    std::thread::scope(|scope| {
        for stream in [&client, &server] {
            scope.spawn(move || {
                (0..3000_u32).for_each(|number| write_all(&**stream, &[number as u8]).unwrap())
            });
            scope.spawn(move || {
                for number in 0..3000_u32 {
                    let mut byte = [0];
                    read_exact(&**stream, &mut byte).unwrap();
                    assert_eq!(byte[0], number as u8);
                }
            });
        }
    });
}

#[test]
fn a_client_that_describes_nonsense_or_nothing_is_refused() {
    needs_a_device!();
    let [client, server] = met();
    write_all(&*client, &[0xff; 100]).unwrap();
    let soon = Instant::now() + Duration::from_millis(200);
    let error = follow(&server, endpoint().unwrap(), Settings::default(), soon).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let [_client, server] = met();
    let soon = Instant::now() + Duration::from_millis(200);
    let error = follow(&server, endpoint().unwrap(), Settings::default(), soon).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

/// A client of one's own making, connected to a real server.
fn rogue() -> (Prepared, Arc<dyn Stream>, Arc<dyn Stream>) {
    let [of_client, of_server] = met();
    let deadline = Instant::now() + PATIENCE;
    let taking = std::thread::spawn(move || {
        follow(&of_server, endpoint().unwrap(), Settings::default(), deadline)
    });
    let (client, own) = Prepared::client(endpoint().unwrap(), Settings::default()).unwrap();
    write_all(&*of_client, &[&[1][..], &own.encode()].concat()).unwrap();
    let mut ready = [0];
    read_exact(&*of_client, &mut ready).unwrap();
    assert_eq!(ready, [1]);
    let mut said = [0; super::description::End::SIZE];
    read_exact(&*of_client, &mut said).unwrap();
    let peer = super::description::End::decode(&said).unwrap();
    client.pair.connect(client.address, peer.address, peer.settings.mtu).unwrap();
    let trial = outboard_rdma::Part { region: SENT, offset: 0, bytes: 64 << 10 };
    let number = Immediate { used: 0, kind: Kind::Bytes }.encode();
    client.pair.send(0, number, Some(trial), None).unwrap();
    write_all(&*of_client, &[1]).unwrap();
    (client, of_client, taking.join().unwrap().unwrap())
}

#[test]
fn a_client_that_breaks_the_rules_ends_its_own_stream_only() {
    needs_a_device!();
    let bytes = |used| Immediate { used, kind: Kind::Bytes }.encode();
    for (number, with_bytes) in [
        // Credits for what was not sent, bytes that are none, and a number that nobody sends.
        (Immediate { used: 100, kind: Kind::Bare }.encode(), false),
        (bytes(0), false),
        (u32::MAX, true),
    ] {
        let (client, _met, server) = rogue();
        let part = outboard_rdma::Part { region: SENT, offset: 0, bytes: 8 };
        client.pair.send(0, number, with_bytes.then_some(part), None).unwrap();
        let began = Instant::now();
        let error = loop {
            server.wait(Interest::READ, None, Some(PATIENCE)).unwrap();
            match (server.read(&mut [0; 8]), server.write(&[IoSlice::new(b"x")])) {
                (Err(error), _) | (_, Err(error)) if error.kind() != io::ErrorKind::WouldBlock => {
                    break error;
                }
                _ => assert!(began.elapsed() < PATIENCE),
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{number:#x}: {error}");
    }
}

/// Without a key of the server's, a client writes nowhere; the adapter refuses, and ends the
/// connection.
#[test]
fn a_client_that_writes_into_the_servers_memory_is_refused_by_the_adapter() {
    needs_a_device!();
    let (client, _met, server) = rogue();
    let part = outboard_rdma::Part { region: SENT, offset: 0, bytes: 8 };
    let own = client.pair.regions()[super::stream::RECEIVED].remote().unwrap();
    for key in [own.rkey, own.rkey.wrapping_add(0x100)] {
        let _ = client.pair.send(0, 0, Some(part), Some(Remote { rkey: key, ..own }));
    }
    let mut refused = None;
    let began = Instant::now();
    while refused.is_none() {
        assert!(began.elapsed() < PATIENCE);
        let mut take = |done: Result<_, outboard_rdma::WorkError>| refused = refused.or(done.err());
        client.pair.sent().poll_all(&mut take).unwrap();
    }
    // By the queue pair, which nobody may write through.
    assert_eq!(refused, Some(outboard_rdma::WorkError::Other("remote invalid request error")));
    drop(server);
}

/// A forked child lets go of its parent's stream, and lives on after it.
#[test]
fn a_forked_child_lets_the_stream_go() {
    needs_a_device!();
    let endpoints = [endpoint().unwrap(), endpoint().unwrap()];
    let (client, server) = connect(endpoints, [Settings::default(); 2]).unwrap();
    exchange(&*client, &*server, 100_000);
    // SAFETY: the child makes only calls that are safe in a signal handler.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let fine = client.abandon().is_ok()
            && server.abandon().is_ok()
            && client.read(&mut [0; 8]).is_err_and(|e| e.kind() == io::ErrorKind::NotConnected)
            && client.write(&[]).is_err_and(|e| e.kind() == io::ErrorKind::NotConnected);
        // SAFETY: as above.
        unsafe {
            if fine {
                libc::pause();
            }
            libc::_exit(1)
        }
    }
    exchange(&*client, &*server, 100_000);
    write_all(&*client, b"last words").unwrap();
    drop(client);
    let mut said = [0; 10];
    read_exact(&*server, &mut said).unwrap();
    assert_eq!(&said, b"last words");
    assert!(server.wait(Interest::HANGUP, None, Some(PATIENCE)).unwrap().hangup);
    let mut status = 0;
    // SAFETY: the child is this test's own.
    unsafe {
        assert_eq!(libc::waitpid(child, &mut status, libc::WNOHANG), 0, "the child is fine");
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, &mut status, 0);
    }
}

/// Where another process of this test is to connect to: it then takes up what is offered there.
const PEER: &str = "OUTBOARD_TEST_RDMA_PEER";

/// A server that is killed in the middle of a transfer is gone at once for its client.
#[test]
fn a_peer_that_is_killed_is_noticed_at_once() {
    needs_a_device!();
    if let Ok(address) = std::env::var(PEER) {
        let met = Tcp.connect(&address, PATIENCE).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let server = follow(&met, endpoint().unwrap(), Settings::default(), deadline).unwrap();
        write_all(&*server, b"here").unwrap();
        // What the client sends is left lying.
        server.wait(Interest::HANGUP, None, Some(PATIENCE)).unwrap();
        return;
    }
    let listener = Tcp.listen(ANYWHERE).unwrap();
    let mut peer = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "rdma::tests::a_peer_that_is_killed_is_noticed_at_once"])
        .env(PEER, listener.address().unwrap())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let met = listener.accept().unwrap();
    let deadline = Instant::now() + PATIENCE;
    let client = move_over(&met, endpoint().unwrap(), Settings::default(), deadline).unwrap();
    read_exact(&*client, &mut [0; 4]).unwrap();
    let writing = std::thread::spawn({
        let client = Arc::clone(&client);
        move || write_all(&*client, &vec![7; 64 << 20])
    });
    std::thread::sleep(Duration::from_millis(300));
    peer.kill().unwrap();
    peer.wait().unwrap();
    let began = Instant::now();
    assert!(client.wait(Interest::HANGUP, None, Some(PATIENCE)).unwrap().hangup);
    let seen = began.elapsed();
    writing.join().unwrap().unwrap_err();
    let told = began.elapsed();
    drop(client);
    let closed = began.elapsed();
    assert!(closed < Duration::from_secs(15), "seen {seen:?}, told {told:?}, closed {closed:?}");
}

/// Who may lock little memory is told how much is needed, and which limit to raise.
#[test]
fn a_limit_on_locked_memory_that_is_too_low_is_named() {
    needs_a_device!();
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let refused = std::thread::spawn(|| {
        let endpoint = endpoint().unwrap();
        // Of this thread only; other tests do not feel the limit, or have a higher one.
        let mut own = capabilities(None).unwrap();
        own.effective.remove(CapabilitySet::IPC_LOCK);
        set_capabilities(None, own).unwrap();
        let before = getrlimit(Resource::Memlock);
        setrlimit(Resource::Memlock, Rlimit { current: Some(100 << 10), ..before }).unwrap();
        let refused = Prepared::client(endpoint, Settings::default());
        setrlimit(Resource::Memlock, before).unwrap();
        refused.err().map(|error| (error.kind(), error.to_string()))
    });
    let (kind, said) = refused.join().unwrap().expect("too little may be locked");
    assert_eq!(kind, io::ErrorKind::OutOfMemory);
    assert!(said.contains("2097152 bytes") && said.contains("102400"), "{said}");
    assert!(said.contains("ulimit -l"), "{said}");
}
