//! Plain TCP streams over the loopback interface: what copies over TCP are compared with. Sender and receiver work on
//! memory as large as a large copy, as a copy does.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Barrier;
use std::time::Instant;

/// Bytes of one measurement, all streams together, and of one write.
const BYTES: usize = 256 << 20;
const QUICK: usize = 32 << 20;
const PIECE: usize = 1 << 20;

/// How many streams are tried.
pub(crate) const COUNTS: [u32; 4] = [1, 2, 4, 8];

/// Bytes per second over this many streams at once. Each round sends the same memory again.
pub(crate) fn measure(streams: u32, rounds: u32, quick: bool) -> io::Result<Vec<f64>> {
    let bytes = if quick { QUICK } else { BYTES };
    let share = bytes / streams as usize;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let pairs = (0..streams).map(|_| {
        let sender = TcpStream::connect(listener.local_addr()?)?;
        let (receiver, _) = listener.accept()?;
        sender.set_nodelay(true)?;
        Ok((sender, receiver))
    });
    let mut pairs = pairs.collect::<io::Result<Vec<_>>>()?;
    let (mut source, mut target) = (vec![1u8; bytes], vec![0u8; bytes]);
    let mut all = Vec::new();
    // The first round warms up.
    for round in 0..=rounds {
        let barrier = &Barrier::new(2 * streams as usize + 1);
        let seconds = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for ((sender, receiver), (from, to)) in
                pairs.iter_mut().zip(source.chunks_mut(share).zip(target.chunks_mut(share)))
            {
                threads.push(scope.spawn(move || {
                    barrier.wait();
                    from.chunks(PIECE).try_for_each(|piece| sender.write_all(piece))
                }));
                threads.push(scope.spawn(move || {
                    barrier.wait();
                    to.chunks_mut(PIECE).try_for_each(|piece| receiver.read_exact(piece))
                }));
            }
            barrier.wait();
            let started = Instant::now();
            for thread in threads {
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))?;
            }
            io::Result::Ok(started.elapsed().as_secs_f64())
        })?;
        if round > 0 {
            all.push((share * streams as usize) as f64 / seconds);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_round_has_a_rate() {
        let rates = super::measure(2, 3, true).unwrap();
        assert!(rates.len() == 3 && rates.iter().all(|rate| *rate > 1e6), "{rates:?}");
    }
}
