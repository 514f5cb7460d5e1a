//! A relay that holds every byte back for a while.

use anyhow::{Context, Result};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Sleeping is not more exact than this.
const SLOPPY: Duration = Duration::from_micros(200);

/// A relay to a server. It lives as long as this process, and its connections as long as their ends.
pub(super) struct Relay {
    pub(super) address: String,
}

impl Relay {
    /// A relay to `server` that takes `delay` each way.
    pub(super) fn start(server: &str, delay: Duration) -> Result<Relay> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
        let address = listener.local_addr().context("cannot listen")?.to_string();
        let server = server.to_owned();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A client whose server is not there finds its connection closed.
                let _ = TcpStream::connect(&server).and_then(|server| join(client, server, delay));
            }
        });
        Ok(Relay { address })
    }
}

fn join(client: TcpStream, server: TcpStream, delay: Duration) -> std::io::Result<()> {
    for (from, to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        to.set_nodelay(true)?;
        let (send, held) = mpsc::channel();
        thread::spawn(move || read(from, &send, delay));
        thread::spawn(move || write(to, &held));
    }
    Ok(())
}

/// Bytes, and when they are due.
type Held = (Instant, Vec<u8>);

fn read(mut from: TcpStream, held: &Sender<Held>, delay: Duration) {
    let mut buffer = vec![0; 256 << 10];
    loop {
        match from.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The writer learns of the end as the channel closes.
            Ok(0) | Err(_) => return,
            Ok(count) => {
                if held.send((Instant::now() + delay, buffer[..count].to_vec())).is_err() {
                    return;
                }
            }
        }
    }
}

fn write(mut to: TcpStream, held: &Receiver<Held>) {
    while let Ok((due, bytes)) = held.recv() {
        let left = due.saturating_duration_since(Instant::now());
        if left > SLOPPY {
            thread::sleep(left - SLOPPY);
        }
        while Instant::now() < due {
            thread::yield_now();
        }
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
