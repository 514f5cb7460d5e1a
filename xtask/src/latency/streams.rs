//! Plain TCP connections through a network: what large copies are compared with.

use super::network::{Network, SERVER, Side};
use anyhow::{Context, Result, bail};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

/// Bytes of one write.
const PIECE: usize = 1 << 20;
/// Rounds before those that count, while TCP finds out how much it may send, and those that do.
const ROUNDS: [u32; 2] = [2, 4];

/// Seconds from the client to the server and for a word back, for so many bytes over so many
/// connections together.
pub(super) fn measure(network: &Network, count: usize, bytes: usize) -> Result<f64> {
    let listener = network
        .within(Side::Server, || Ok(TcpListener::bind((SERVER, 0))?))
        .context("cannot listen")?;
    let address = listener.local_addr().context("cannot listen")?;
    let mut clients = Vec::new();
    for _ in 0..count {
        let client = network
            .within(Side::Client, || Ok(TcpStream::connect(address)?))
            .context("cannot connect")?;
        client.set_nodelay(true).context("cannot connect")?;
        let (server, _) = listener.accept().context("cannot accept")?;
        thread::spawn(move || answer(server, bytes / count));
        clients.push(client);
    }
    let source = vec![1_u8; bytes / count];
    let mut started = Instant::now();
    for round in 0..ROUNDS[0] + ROUNDS[1] {
        if round == ROUNDS[0] {
            started = Instant::now();
        }
        let sent: io::Result<()> = thread::scope(|scope| {
            let threads: Vec<_> =
                clients.iter_mut().map(|client| scope.spawn(|| send(client, &source))).collect();
            let mut joined = threads.into_iter().map(|thread| thread.join());
            joined.try_for_each(|sent| {
                sent.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
            })
        });
        sent.context("a plain connection failed")?;
    }
    if clients.is_empty() {
        bail!("there is no connection to measure");
    }
    Ok(started.elapsed().as_secs_f64() / f64::from(ROUNDS[1]))
}

fn send(client: &mut TcpStream, source: &[u8]) -> io::Result<()> {
    source.chunks(PIECE).try_for_each(|piece| client.write_all(piece))?;
    client.read_exact(&mut [0])
}

/// Reads so many bytes and says a word, again and again, until the client is gone.
fn answer(mut server: TcpStream, bytes: usize) {
    let mut target = vec![0_u8; bytes];
    while server.read_exact(&mut target).and_then(|()| server.write_all(&[1])).is_ok() {}
}
