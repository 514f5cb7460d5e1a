//! `cargo bench -p outboard-transport --bench rates`: what a byte costs through TCP, through TLS
//! over it, and through shared memory, between two threads of this process, in turns.
//!
//! For each turn: GB/s, and seconds of processor time for each GB on either side, of a stream that
//! one thread writes and another one reads (`one way`), and of one that both do (`both ways`); then
//! of several streams at once (`-- 8`: as many as a session has lanes), one way. First, what a
//! short message costs that one thread writes and reads, without a wait.

#![allow(clippy::print_stdout, missing_docs)]

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboard_transport::shm::Shm;
use outboard_transport::tcp::Tcp;
use outboard_transport::tls::{self, Anchor, Fingerprint, client_config, server_config};
use outboard_transport::{Interest, Stream, Transport};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ServerConfig};

const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that a thread passes to one call, as lanes do.
const CHUNK: usize = 1 << 20;
/// Bytes of a turn, each way.
const TURN: usize = 1 << 30;
const TURNS: usize = 4;

type Pair = (Arc<dyn Stream>, Arc<dyn Stream>);

struct Encrypted {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Encrypted {
    fn new() -> Encrypted {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
        let certificate: CertificateDer<'static> = made.cert.into();
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let anchor = Anchor::Pinned(Fingerprint::of(&certificate));
        Encrypted {
            client: client_config(anchor, None).expect("it fits"),
            server: server_config(vec![certificate], key, None).expect("it fits").into(),
        }
    }

    fn over(&self, (here, there): Pair) -> Pair {
        let deadline = Instant::now() + PATIENCE;
        std::thread::scope(|scope| {
            let there = scope.spawn(|| tls::accept(there, Arc::clone(&self.server), deadline));
            let here = tls::connect(here, Arc::clone(&self.client), "localhost", &[], deadline);
            let there = there.join().expect("it does not panic").expect("they agree");
            (here.expect("they agree") as Arc<dyn Stream>, there as Arc<dyn Stream>)
        })
    }
}

fn pair(transport: &dyn Transport, address: &str) -> Pair {
    let listener = transport.listen(address).expect("a place");
    let address = listener.address().expect("an address");
    let here = transport.connect(&address, PATIENCE).expect("it listens");
    (here, listener.accept().expect("it has connected"))
}

fn plain() -> Pair {
    pair(&Tcp, "127.0.0.1:0")
}

fn memory() -> Pair {
    let folder = tempfile::tempdir().expect("a folder");
    pair(&Shm, folder.path().join("socket").to_str().expect("a plain path"))
}

fn again<T>(stream: &dyn Stream, interest: Interest, mut call: impl FnMut() -> io::Result<T>) -> T {
    loop {
        match call() {
            Ok(done) => return done,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                stream.wait(interest, None, Some(PATIENCE)).expect("it can wait");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Processor time of this thread.
fn used() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A message that waits for nobody: what the calls cost.
fn short(name: &str, (here, there): &Pair) {
    const COUNT: u32 = 2_000_000;
    let (message, mut room) = ([7; 64], [0; 64]);
    let begun = Instant::now();
    for _ in 0..COUNT {
        let written = here.write(&[IoSlice::new(&message)]).expect("there is room");
        let read = again(&**there, Interest::READ, || there.read(&mut room));
        assert_eq!((written, read), (message.len(), message.len()));
    }
    println!(
        "{name:10} {:.1} ns for a message of 64 bytes",
        begun.elapsed().as_nanos() as f64 / f64::from(COUNT)
    );
}

/// The processor time that writing took.
fn send(stream: &dyn Stream) -> Duration {
    let (bytes, before) = (vec![7; CHUNK], used());
    let mut left = TURN;
    while left > 0 {
        let bytes = IoSlice::new(&bytes[..CHUNK.min(left)]);
        left -= again(stream, Interest::WRITE, || stream.write(&[bytes]));
    }
    used() - before
}

/// The processor time that reading took.
fn receive(stream: &dyn Stream) -> Duration {
    let (mut bytes, before) = (vec![0; CHUNK], used());
    let mut left = TURN;
    while left > 0 {
        let room = &mut bytes[..CHUNK.min(left)];
        left -= again(stream, Interest::READ, || stream.read(room));
    }
    used() - before
}

/// Several streams at once, one way: the sum of what they carry.
fn together(name: &str, pairs: &[Pair]) {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for (here, there) in pairs {
            scope.spawn(|| send(&**here));
            scope.spawn(|| receive(&**there));
        }
    });
    let rate = (pairs.len() * TURN) as f64 / 1e9 / begun.elapsed().as_secs_f64();
    println!("{name:10} {:2} streams {rate:6.2} GB/s in sum", pairs.len());
}

fn turn(name: &str, (here, there): &Pair, both: bool) {
    let begun = Instant::now();
    let gigabytes = TURN as f64 / 1e9;
    let (sent, received) = std::thread::scope(|scope| {
        let one = (scope.spawn(|| send(&**here)), scope.spawn(|| receive(&**there)));
        let other =
            both.then(|| (scope.spawn(|| send(&**there)), scope.spawn(|| receive(&**here))));
        let of = |(send, receive): (_, _)| {
            let took = |thread: std::thread::ScopedJoinHandle<'_, Duration>| {
                thread.join().expect("it does not panic").as_secs_f64() / gigabytes
            };
            (took(send), took(receive))
        };
        let other = other.map(of);
        let one = of(one);
        other.map_or(one, |other| ((one.0 + other.0) / 2.0, (one.1 + other.1) / 2.0))
    });
    let rate = gigabytes / begun.elapsed().as_secs_f64();
    let ways = if both { "both ways" } else { "one way" };
    println!(
        "{name:10} {ways:10} {rate:6.2} GB/s each  {sent:.3} s/GB sending  {received:.3} s/GB receiving"
    );
}

fn main() {
    let encrypted = Encrypted::new();
    for _ in 0..TURNS {
        short("shm", &memory());
        for both in [false, true] {
            turn("tcp", &plain(), both);
            turn("tcp+tls", &encrypted.over(plain()), both);
            turn("shm", &memory(), both);
        }
    }
    for streams in std::env::args().skip(1).filter_map(|streams| streams.parse::<usize>().ok()) {
        for _ in 0..TURNS {
            together("tcp", &(0..streams).map(|_| plain()).collect::<Vec<_>>());
            let pairs: Vec<_> = (0..streams).map(|_| encrypted.over(plain())).collect();
            together("tcp+tls", &pairs);
        }
    }
}
