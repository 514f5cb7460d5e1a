//! What the link costs: posting and calling, against a worker thread over loopback TCP.
//!
//! `cargo run --release -p outboard-client --example link_bench`
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use outboard_client::link::{Config, Link};
use outboard_session::server::{Incoming, Outgoing};
use outboard_transport::tcp::Tcp;
use outboard_transport::{Interest, Stream, Transport, write_all};
use outboard_wire::ContextId;

/// Answers every call at once; `spin` says how long it looks before it blocks.
fn worker(stream: &dyn Stream, spin: Duration) {
    let (mut incoming, mut outgoing) = (Incoming::new(), Outgoing::new(false));
    let mut idle = Instant::now();
    loop {
        while let Some(command) = incoming.next_command().expect("frames are right") {
            if command.wants_reply() {
                outgoing.reply(command.seq, 0, command.seq, |_| ()).expect("fits");
            }
        }
        if let Some(batch) = outgoing.take() {
            write_all(stream, batch.bytes()).expect("the client reads");
            outgoing.done(batch);
        }
        match stream.read(incoming.buffer().room()) {
            Ok(0) => return,
            Ok(count) => {
                incoming.buffer().filled(count);
                idle = Instant::now();
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if idle.elapsed() > spin {
                    stream.wait(Interest::READ, None, None).expect("waits");
                } else {
                    std::thread::yield_now();
                }
            }
            Err(_) => return,
        }
    }
}

fn start(spin: Duration) -> Link {
    let listener = Tcp.listen("127.0.0.1:0").expect("listens");
    let client = Tcp
        .connect(&listener.address().expect("has an address"), Duration::from_secs(5))
        .expect("connects");
    let server: Arc<dyn Stream> = listener.accept().expect("accepts");
    std::thread::spawn(move || worker(&*server, spin));
    Link::start(client, Config { spin, ..Config::default() }, Box::new(|_, _| ())).expect("starts")
}

fn median(mut values: Vec<Duration>) -> Duration {
    values.sort();
    values[values.len() / 2]
}

fn main() {
    const POSTS: u32 = 10_000;
    let launch = [0; 84];
    println!(
        "{:<10} {:>14} {:>12} {:>16} {:>14}",
        "spin", "post, each", "writes", "call, median", "call, p99"
    );
    for spin in [Duration::ZERO, Duration::from_micros(5), Duration::from_micros(50)] {
        let link = start(spin);
        link.call(1, ContextId::NONE, |_| ()).expect("answers");
        let mut bursts = Vec::new();
        let before = link.stats();
        for _ in 0..21 {
            let start = Instant::now();
            for _ in 0..POSTS {
                link.post(1, ContextId(1), |writer| writer.fixed(&launch)).expect("posts");
            }
            bursts.push(start.elapsed() / POSTS);
            link.call(1, ContextId::NONE, |_| ()).expect("answers");
        }
        let writes = (link.stats().sends - before.sends) / 21;
        let mut calls: Vec<Duration> = (0..20_000)
            .map(|_| {
                let start = Instant::now();
                link.call(1, ContextId::NONE, |_| ()).expect("answers");
                start.elapsed()
            })
            .collect();
        let middle = median(calls.clone());
        calls.sort();
        let slow = calls[calls.len() * 99 / 100];
        println!(
            "{:<10?} {:>14?} {:>12} {:>16?} {:>14?}",
            spin,
            median(bursts),
            writes,
            middle,
            slow
        );
    }
}
