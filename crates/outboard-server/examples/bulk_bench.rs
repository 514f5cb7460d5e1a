//! What large copies cost over loopback TCP, with a worker whose device takes and gives at once.
//!
//! `cargo run --release -p outboard-server --example bulk_bench`
#![allow(clippy::print_stdout)]

use std::io::{BufRead, BufReader};
use std::process::{Command as Process, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outboard_client::link::bulk::suggested_chunk;
use outboard_client::link::{Config as LinkConfig, Link};
use outboard_server::supervisor::{self, Config, WorkerCommand};
use outboard_server::worker::{self, Bulk, Command, Handler, Replier, Sink};
use outboard_session::chunks::Cut;
use outboard_transport::tcp::Tcp;
use outboard_wire::Reader;
use outboard_wire::handshake::{Hello, Purpose, VERSION};
use outboard_wire::limits::{STAGING, WINDOW};

const UPLOAD: u16 = 1;
const DOWNLOAD: u16 = 2;
const WAIT: u16 = 3;

/// Staging memory for one transfer at a time; whoever takes the bytes out of it takes no time.
#[derive(Clone, Copy)]
struct Memory(*mut u8);

// SAFETY: only an address, of memory that is never freed. What this program does with it may mix up bytes that
// nobody looks at.
unsafe impl Send for Memory {}
// SAFETY: see above.
unsafe impl Sync for Memory {}

struct Slots {
    memory: Memory,
    cut: Cut,
    transfer: u64,
    bulk: Bulk,
    filled: AtomicU32,
    waiting: Arc<Mutex<Waiting>>,
}

/// Who asked whether the last upload is there, and whether it is.
#[derive(Default)]
struct Waiting {
    complete: bool,
    asked: Option<(u64, Replier)>,
}

impl Waiting {
    fn answer(&mut self) {
        if self.complete
            && let Some((seq, replier)) = self.asked.take()
        {
            replier.reply(seq, 0, |_| ()).expect("fits");
        }
    }
}

// SAFETY: a slot lies within the memory, which is as long as a window. Slots of one window don't overlap.
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
        self.bulk.done(self.transfer);
        let mut waiting = self.waiting.lock().expect("no panics");
        waiting.complete = true;
        waiting.answer();
    }
}

struct Taker {
    memory: Memory,
    waiting: Arc<Mutex<Waiting>>,
}

impl Handler for Taker {
    fn snapshot(&mut self) -> Vec<u8> {
        Vec::new()
    }

    fn command(&mut self, command: Command<'_>, replier: &Replier) {
        if command.op == WAIT {
            let mut waiting = self.waiting.lock().expect("no panics");
            waiting.asked = Some((command.seq, replier.clone()));
            return waiting.answer();
        }
        let mut reader = Reader::new(command.payload);
        let mut next = || reader.u64().expect("the client is ours");
        let transfer = next();
        let cut = Cut::new(next(), next() as u32).expect("the client is ours");
        let bulk = replier.bulk();
        if command.op == UPLOAD {
            let (memory, bulk) = (self.memory, bulk.clone());
            let waiting = Arc::clone(&self.waiting);
            waiting.lock().expect("no panics").complete = false;
            let slots = Slots { memory, cut, transfer, bulk, filled: AtomicU32::new(0), waiting };
            replier.bulk().receive(transfer, cut, Arc::new(slots)).expect("the client is ours");
        } else {
            for index in 0..cut.count() {
                let from = self.memory.0.wrapping_add((index % cut.window() * cut.chunk()) as usize);
                // SAFETY: the memory is never freed.
                unsafe { bulk.send(transfer, index, from, cut.len_of(index), || ()) };
            }
        }
    }
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("worker") => worker::run(|_| {
            let memory = vec![1; WINDOW].leak();
            Ok(Taker { memory: Memory(memory.as_mut_ptr()), waiting: Arc::default() })
        }),
        Some("serve") => {
            let mut config = Config::new("127.0.0.1:0", WorkerCommand::this_program(["worker"]));
            config.lanes = std::env::args().nth(2).and_then(|lanes| lanes.parse().ok()).unwrap_or(4);
            config.on_ready = Some(Box::new(|address| println!("{address}")));
            supervisor::serve(config).expect("serves");
            ExitCode::SUCCESS
        }
        _ => {
            println!("{:>6} {:>10} {:>22} {:>22}", "lanes", "KiB", "to the worker, GB/s", "from the worker, GB/s");
            for lanes in [1, 2, 4, 8] {
                with_server(lanes);
            }
            ExitCode::SUCCESS
        }
    }
}

fn with_server(lanes: u32) {
    let mut server = Process::new("/proc/self/exe")
        .args(["serve", &lanes.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut address = String::new();
    BufReader::new(server.stdout.take().expect("piped")).read_line(&mut address).expect("reads");
    let purpose = Purpose::Session { devices: vec![] };
    let hello = Hello {
        version: VERSION,
        software: String::new(),
        client: "bench".to_owned(),
        purpose,
        process: Default::default(),
    };
    let link = Link::connect(&Tcp, address.trim(), &hello, LinkConfig::default(), Box::new(|_, _| ()));
    let (link, _) = link.expect("connects");
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
        let rates = times.map(|mut times: Vec<Duration>| {
            times.sort();
            len as f64 / times[times.len() / 2].as_secs_f64() / 1e9
        });
        println!("{:>6} {:>10} {:>22.2} {:>22.2}", lanes, len >> 10, rates[0], rates[1]);
    }
    server.kill().expect("is killed");
    server.wait().expect("ends");
}

/// Until the worker has all bytes.
fn upload(link: &Link, memory: &[u8]) {
    let len = memory.len() as u64;
    let upload = link.upload(len, suggested_chunk(len)).expect("has room");
    announce(link, UPLOAD, upload.number(), len, upload.chunk());
    // SAFETY: the memory outlives the call.
    unsafe { upload.send(memory.as_ptr()) }.expect("is sent");
    link.call(WAIT, 0, |_| ()).expect("answers");
}

fn download(link: &Link, memory: &mut [u8]) {
    let len = memory.len() as u64;
    // SAFETY: the memory outlives the wait.
    let ticket = unsafe { link.download(memory.as_mut_ptr(), len, suggested_chunk(len)) }.expect("has room");
    announce(link, DOWNLOAD, ticket.number(), len, ticket.chunk());
    ticket.wait().expect("comes");
}

fn announce(link: &Link, op: u16, transfer: u64, len: u64, chunk: u32) {
    let announce = |writer: &mut outboard_wire::Writer| {
        writer.u64(transfer);
        writer.u64(len);
        writer.u64(chunk.into());
    };
    link.post(op, 0, announce).expect("is sent");
}
