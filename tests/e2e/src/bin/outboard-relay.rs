//! `outboard-relay PORT MICROSECONDS`: a TCP relay on this machine that delays each direction.
//!
//! It listens on a free port of 127.0.0.1, which it prints, and connects to PORT there. Bytes keep
//! their order; each is passed on MICROSECONDS after it has come. It limits no rate. It stands in
//! for a distance where the kernel has no netem (`cargo xtask latency` uses that).

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Most bytes that one direction holds.
const HELD: usize = 512 << 20;
/// Most bytes that are read at once.
const PIECE: usize = 256 << 10;
/// A sleep may last so much longer than it was told to; the rest is spent awake.
const LATE: Duration = Duration::from_micros(80);

/// What one direction holds: when each piece is due.
#[derive(Default)]
struct Held {
    pieces: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    ended: bool,
}

#[derive(Default)]
struct Way {
    held: Mutex<Held>,
    changed: Condvar,
}

impl Way {
    fn fill(&self, mut from: TcpStream, delay: Duration) {
        let mut piece = vec![0; PIECE];
        while let Ok(count @ 1..) = from.read(&mut piece) {
            let due = Instant::now() + delay;
            let mut held = self.held.lock();
            while held.bytes > HELD {
                self.changed.wait(&mut held);
            }
            held.pieces.push_back((due, piece[..count].to_vec()));
            held.bytes += count;
            drop(held);
            self.changed.notify_all();
        }
        self.held.lock().ended = true;
        self.changed.notify_all();
    }

    fn next(&self) -> Option<(Instant, Vec<u8>)> {
        let mut held = self.held.lock();
        loop {
            if let Some(piece) = held.pieces.pop_front() {
                held.bytes -= piece.1.len();
                self.changed.notify_all();
                return Some(piece);
            }
            if held.ended {
                return None;
            }
            self.changed.wait(&mut held);
        }
    }

    fn empty(&self, mut to: TcpStream) {
        while let Some((due, piece)) = self.next() {
            if let Some(rest) =
                due.checked_duration_since(Instant::now()).and_then(|left| left.checked_sub(LATE))
            {
                std::thread::sleep(rest);
            }
            while Instant::now() < due {
                std::hint::spin_loop();
            }
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        // One side may be gone already.
        let _ = to.shutdown(Shutdown::Write);
    }
}

fn pass(from: &TcpStream, to: &TcpStream, delay: Duration) -> std::io::Result<()> {
    let (from, to, way) = (from.try_clone()?, to.try_clone()?, Arc::new(Way::default()));
    let own = Arc::clone(&way);
    std::thread::spawn(move || own.fill(from, delay));
    std::thread::spawn(move || way.empty(to));
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(port), Some(delay)) = (args.next(), args.next()) else {
        return Err("usage: outboard-relay PORT MICROSECONDS".into());
    };
    let (port, delay) = (port.parse::<u16>()?, Duration::from_micros(delay.parse()?));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", listener.local_addr()?.port())?;
    out.flush()?;
    for client in listener.incoming().flatten() {
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        pass(&client, &server, delay)?;
        pass(&server, &client, delay)?;
    }
    Ok(())
}
