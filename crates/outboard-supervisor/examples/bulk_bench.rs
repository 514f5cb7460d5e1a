//! What large copies cost over loopback TCP, with a worker whose device takes and gives at once;
//! and what plain TCP streams carry.
//!
//! `cargo run --release -p outboard-supervisor --example bulk_bench`; with the argument `tls`, the
//! same copies in the clear and with TLS, in turns.
#![allow(clippy::print_stdout)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command as Process, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use outboard_client::link::bulk::Direction;
use outboard_client::link::{Config as LinkConfig, Link};
use outboard_session::chunks::Cut;
use outboard_supervisor::auth::{self, certificate};
use outboard_supervisor::{Config, WorkerCommand};
use outboard_transport::tcp::Tcp;
use outboard_wire::handshake::{Hello, Purpose, Refusal, VERSION};
use outboard_wire::limits::{STAGING, WINDOW};
use outboard_wire::window::Window;
use outboard_wire::{ContextId, Reader};
use outboard_worker::sandbox::Sandbox;
use outboard_worker::{Build, Bulk, Command, Handler, Replier, Sink, Start, Warm};

const UPLOAD: u16 = 1;
const DOWNLOAD: u16 = 2;

/// Staging memory for one transfer at a time; whoever takes the bytes out of it takes no time.
#[derive(Clone, Copy)]
struct Memory(*mut u8);

// SAFETY: only an address, of memory that is never freed. What this program does with it may mix up
// bytes that nobody looks at.
unsafe impl Send for Memory {}
// SAFETY: see above.
unsafe impl Sync for Memory {}

struct Slots {
    memory: Memory,
    cut: Cut,
    transfer: u64,
    bulk: Bulk,
    filled: AtomicU32,
}

// SAFETY: a slot lies within the memory, which is as long as a window. Slots of one window don't
// overlap.
unsafe impl Sink for Slots {
    fn slot(&self, index: u32, _: u32) -> *mut u8 {
        self.memory.0.wrapping_add((index % self.cut.window() * self.cut.chunk()) as usize)
    }

    fn filled(&self, _: u32) {
        let filled = self.filled.fetch_add(1, Ordering::AcqRel) + 1;
        if filled < self.cut.count() {
            self.bulk.grant(self.transfer, filled + self.cut.window());
            return;
        }
        self.bulk.done(self.transfer, true);
    }
}

struct Taker {
    memory: Memory,
}

impl Handler for Taker {
    fn snapshot(&mut self) -> Vec<u8> {
        Vec::new()
    }

    fn command(&mut self, command: Command<'_>, replier: &Replier) {
        let mut reader = Reader::new(command.payload);
        let mut next = || reader.u64().expect("the client is ours");
        let transfer = next();
        let cut = Cut::new(next(), next() as u32).expect("the client is ours");
        let bulk = replier.bulk();
        if command.op == UPLOAD {
            let (memory, bulk) = (self.memory, bulk.clone());
            let slots = Slots { memory, cut, transfer, bulk, filled: AtomicU32::new(0) };
            replier.bulk().receive(transfer, cut, Arc::new(slots)).expect("the client is ours");
        } else {
            for index in 0..cut.count() {
                let from =
                    self.memory.0.wrapping_add((index % cut.window() * cut.chunk()) as usize);
                // SAFETY: the memory is never freed.
                unsafe { bulk.send(transfer, index, from, cut.len_of(index), true, || ()) };
            }
        }
    }
}

struct Taking;

impl Build for Taking {
    type Prepared = ();
    type Handler = Taker;

    fn prepare(self, _: Option<&Warm>, _: Option<Window>) -> Result<(), Refusal> {
        Ok(())
    }

    fn snapshot((): &()) -> Vec<u8> {
        Vec::new()
    }

    fn build((): (), _: &Start) -> Result<Taker, Refusal> {
        let memory = vec![1; WINDOW].leak();
        Ok(Taker { memory: Memory(memory.as_mut_ptr()) })
    }
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("worker") => outboard_worker::run(&Sandbox::none(), Taking),
        Some("serve") => {
            let mut config = Config::new("127.0.0.1:0", WorkerCommand::this_program(["worker"]));
            config.lanes =
                std::env::args().nth(2).and_then(|lanes| lanes.parse().ok()).unwrap_or(4);
            if let Some(state) = std::env::args_os().nth(3) {
                config.auth = auth::Config {
                    tls: auth::Tls::On,
                    state: Some(state.into()),
                    ..auth::Config::default()
                };
            }
            config.on_ready = Some(Box::new(|address| println!("{address}")));
            outboard_supervisor::serve(config).expect("serves");
            ExitCode::SUCCESS
        }
        Some("tls") => {
            println!(
                "{:>5} {:>7} {:>30} {:>30}",
                "", "", "to the worker, GB/s", "from the worker, GB/s"
            );
            println!(
                "{:>5} {:>7} {:>9} {:>9} {:>10} {:>9} {:>9} {:>10}",
                "lanes", "KiB", "plain", "TLS", "TLS/plain", "plain", "TLS", "TLS/plain"
            );
            [1, 2, 4, 8, 16].into_iter().for_each(against_tls);
            ExitCode::SUCCESS
        }
        _ => {
            println!(
                "{:>7} {:>18} {:>22}",
                "streams", "plain TCP, GB/s", "with MSG_ZEROCOPY, GB/s"
            );
            for streams in [1, 2, 4, 8, 12, 16] {
                println!(
                    "{streams:>7} {:>18.2} {:>22.2}",
                    plain(streams, false),
                    plain(streams, true)
                );
            }
            println!(
                "{:>7} {:>10} {:>22} {:>22}",
                "lanes", "KiB", "to the worker, GB/s", "from the worker, GB/s"
            );
            for lanes in [1, 2, 4, 8, 12, 16] {
                with_server(lanes);
            }
            ExitCode::SUCCESS
        }
    }
}

/// What so many plain TCP streams carry: each a thread that writes from one buffer and a thread
/// that reads into one, 512 KiB at a time.
fn plain(streams: usize, zero_copy: bool) -> f64 {
    const PIECE: usize = 512 << 10;
    const EACH: usize = 1 << 30;
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = listener.local_addr().expect("is bound");
    let pairs: Vec<_> = (0..streams)
        .map(|_| {
            (TcpStream::connect(address).expect("connects"), listener.accept().expect("accepts").0)
        })
        .collect();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for (sender, mut receiver) in pairs {
            scope.spawn(move || {
                let buffer = vec![1; PIECE];
                (0..EACH / PIECE).for_each(|_| {
                    if zero_copy {
                        send_zero_copy(&sender, &buffer)
                    } else {
                        (&sender).write_all(&buffer).expect("sends")
                    }
                });
                if zero_copy {
                    // The kernel may still read the buffer.
                    std::mem::forget(buffer);
                }
            });
            scope.spawn(move || {
                let mut buffer = vec![0; PIECE];
                (0..EACH / PIECE).for_each(|_| receiver.read_exact(&mut buffer).expect("receives"));
            });
        }
    });
    (streams * EACH) as f64 / start.elapsed().as_secs_f64() / 1e9
}

/// Writes without a copy into the kernel, and takes in what it says of earlier writes.
fn send_zero_copy(stream: &TcpStream, mut bytes: &[u8]) {
    let fd = stream.as_raw_fd();
    let on: libc::c_int = 1;
    // SAFETY: the option is a number.
    unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ZEROCOPY, (&raw const on).cast(), 4) };
    while !bytes.is_empty() {
        // SAFETY: the buffer is never freed, whenever the kernel reads it.
        let sent =
            unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_ZEROCOPY) };
        // Too much is still being read, or the socket is full of what was said.
        assert!(
            sent >= 0 || std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOBUFS),
            "sends"
        );
        bytes = &bytes[sent.max(0) as usize..];
        let mut control = [0_u8; 256];
        // SAFETY: all zeros are a message without buffers.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        loop {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = control.len();
            // SAFETY: the kernel writes at most as much as the buffer has.
            if unsafe {
                libc::recvmsg(fd, &raw mut message, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
            } < 0
            {
                break;
            }
        }
    }
}

/// A server with a client; encrypted, if there is a folder for the server's certificate.
fn connected(lanes: u32, state: Option<&Path>) -> (Child, Link) {
    let mut server = Process::new("/proc/self/exe");
    server.args(["serve", &lanes.to_string()]).args(state).stdout(Stdio::piped());
    let mut server = server.spawn().expect("starts");
    let mut address = String::new();
    BufReader::new(server.stdout.take().expect("piped")).read_line(&mut address).expect("reads");
    let mut config = LinkConfig::default();
    config.security.fingerprint = state.map(|state| {
        let fingerprint =
            certificate::fingerprint(&state.join("server.crt")).expect("the server has made it");
        fingerprint.to_string()
    });
    let purpose = Purpose::Session { devices: vec![] };
    let hello = Hello {
        version: VERSION,
        software: String::new(),
        client: "bench".to_owned(),
        purpose,
        process: Default::default(),
        more: Default::default(),
    };
    let link = Link::connect(&Tcp, address.trim(), &hello, config, Box::new(|_, _| ()));
    (server, link.expect("connects").0)
}

fn end(mut server: Child) {
    server.kill().expect("is killed");
    server.wait().expect("ends");
}

/// The median of some times, as a rate.
fn rate(mut times: Vec<Duration>, len: usize) -> f64 {
    times.sort();
    len as f64 / times[times.len() / 2].as_secs_f64() / 1e9
}

fn against_tls(lanes: u32) {
    let state = tempfile::tempdir().expect("a folder can be made");
    let (plain, encrypted) = (connected(lanes, None), connected(lanes, Some(state.path())));
    for len in [128 << 10, 1 << 20, 16 << 20, STAGING] {
        let rounds = (STAGING * 4 / len).clamp(9, 200);
        let mut memory = vec![1; len];
        let mut times = [const { Vec::new() }; 4];
        for _ in 0..rounds {
            for (index, (_, link)) in [&plain, &encrypted].into_iter().enumerate() {
                let start = Instant::now();
                upload(link, &memory);
                times[index].push(start.elapsed());
                let start = Instant::now();
                download(link, &mut memory);
                times[2 + index].push(start.elapsed());
            }
        }
        let [up, up_tls, down, down_tls] = times.map(|times| rate(times, len));
        println!(
            "{lanes:>5} {:>7} {up:>9.2} {up_tls:>9.2} {:>10.2} {down:>9.2} {down_tls:>9.2} {:>10.2}",
            len >> 10,
            up_tls / up,
            down_tls / down
        );
    }
    end(plain.0);
    end(encrypted.0);
}

fn with_server(lanes: u32) {
    let (server, link) = connected(lanes, None);
    for len in [128 << 10, 1 << 20, 16 << 20, STAGING] {
        let rounds = (STAGING * 2 / len).clamp(3, 300);
        let mut memory = vec![1; len];
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            let start = Instant::now();
            upload(&link, &memory);
            times[0].push(start.elapsed());
            let start = Instant::now();
            download(&link, &mut memory);
            times[1].push(start.elapsed());
        }
        let rates = times.map(|times: Vec<Duration>| rate(times, len));
        println!("{:>6} {:>10} {:>22.2} {:>22.2}", lanes, len >> 10, rates[0], rates[1]);
    }
    end(server);
}

/// Until the worker has all bytes.
fn upload(link: &Link, memory: &[u8]) {
    let len = memory.len() as u64;
    let upload = link
        .upload(len, link.chunk(Direction::Up, len, false))
        .expect("is there")
        .expect("has room");
    announce(link, UPLOAD, upload.number(), len, upload.chunk());
    // SAFETY: the memory outlives the call.
    unsafe { upload.send(memory.as_ptr()) }.expect("is sent").wait().expect("arrives");
}

fn download(link: &Link, memory: &mut [u8]) {
    let len = memory.len() as u64;
    // SAFETY: the memory outlives the wait.
    let ticket = unsafe {
        link.download(memory.as_mut_ptr(), len, link.chunk(Direction::Down, len, false), Vec::new())
    }
    .expect("has room");
    announce(link, DOWNLOAD, ticket.number(), len, ticket.chunk());
    ticket.wait().expect("comes");
}

fn announce(link: &Link, op: u16, transfer: u64, len: u64, chunk: u32) {
    let announce = |writer: &mut outboard_wire::Writer| {
        writer.u64(transfer);
        writer.u64(len);
        writer.u64(chunk.into());
    };
    link.post(op, ContextId::NONE, announce).expect("is sent");
}
