//! Plain TCP over the loopback interface: what copies over TCP are compared with, and the round
//! trip that every wait over TCP has. Of streams, sender and receiver work on memory as large as a
//! large copy, as a copy does.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Barrier;
use std::time::Instant;

use crate::statistics;

/// Bytes of one measurement, all streams together, and of one write.
const BYTES: usize = 256 << 20;
const QUICK: usize = 32 << 20;
const PIECE: usize = 1 << 20;

/// Bytes of a question and of its answer: as many as a small command has.
const QUESTION: usize = 64;
/// Round trips of one measurement.
const ROUND_TRIPS: usize = 10_000;

/// How many streams are tried.
pub(crate) const COUNTS: [u32; 4] = [1, 2, 4, 8];

/// Which ways bytes go over each stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ways {
    One,
    /// Both at once, as copies in both directions share their connections.
    Both,
}

/// Bytes per second each way over this many streams at once. Each round sends the same memory
/// again.
pub(crate) fn measure(streams: u32, ways: Ways, rounds: u32, quick: bool) -> io::Result<Vec<f64>> {
    let bytes = if quick { QUICK } else { BYTES };
    let share = bytes / streams as usize;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let pairs = (0..streams).map(|_| pair(&listener)).collect::<io::Result<Vec<_>>>()?;
    let there = pairs.iter().map(|(here, there)| (here, there));
    let back = pairs.iter().map(|(here, there)| (there, here)).filter(|_| ways == Ways::Both);
    let routes: Vec<(&TcpStream, &TcpStream)> = there.chain(back).collect();
    let (mut source, mut target) =
        (vec![1u8; share * routes.len()], vec![0u8; share * routes.len()]);
    let mut all = Vec::new();
    // The first round warms up.
    for round in 0..=rounds {
        let barrier = &Barrier::new(2 * routes.len() + 1);
        let seconds = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for ((mut sender, mut receiver), (from, to)) in
                routes.iter().copied().zip(source.chunks_mut(share).zip(target.chunks_mut(share)))
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

/// Seconds that a small question and its answer take, in each round the median, between two threads
/// that look for them all the time.
pub(crate) fn round_trip(rounds: u32) -> io::Result<Vec<f64>> {
    let (mut here, mut there) = pair(&TcpListener::bind("127.0.0.1:0")?)?;
    here.set_nonblocking(true)?;
    there.set_nonblocking(true)?;
    std::thread::scope(|scope| {
        let questions = rounds as usize * ROUND_TRIPS;
        let echo = scope.spawn(move || {
            (0..questions).try_for_each(|_| {
                look(&mut there)?;
                there.write_all(&[0; QUESTION])
            })
        });
        let mut round = || {
            let mut times = Vec::with_capacity(ROUND_TRIPS);
            for _ in 0..ROUND_TRIPS {
                let asked = Instant::now();
                here.write_all(&[0; QUESTION])?;
                look(&mut here)?;
                times.push(asked.elapsed().as_secs_f64());
            }
            io::Result::Ok(statistics::summary(&times).map_or(0.0, |summary| summary.median))
        };
        let medians: io::Result<Vec<f64>> = (0..rounds).map(|_| round()).collect();
        // If this side has failed, so does the other one.
        drop(here);
        echo.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))).and(medians)
    })
}

/// Looks for a question, or an answer, until it is there. The processor is offered to others now
/// and then, as a client and its worker do.
fn look(stream: &mut TcpStream) -> io::Result<()> {
    const LOOKS: u32 = 4;
    let (mut bytes, mut come, mut looks) = ([0; QUESTION], 0, 0_u32);
    while come < QUESTION {
        match stream.read(&mut bytes[come..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => come += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                looks += 1;
                if looks.is_multiple_of(LOOKS) {
                    std::thread::yield_now();
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The two ends of a connection, both of which send at once.
fn pair(listener: &TcpListener) -> io::Result<(TcpStream, TcpStream)> {
    let here = TcpStream::connect(listener.local_addr()?)?;
    let (there, _) = listener.accept()?;
    here.set_nodelay(true)?;
    there.set_nodelay(true)?;
    Ok((here, there))
}

#[cfg(test)]
mod tests {
    #[test]
    fn round_trips_take_some_time() {
        let medians = super::round_trip(2).unwrap();
        assert!(
            medians.len() == 2 && medians.iter().all(|time| *time > 1e-7 && *time < 1.0),
            "{medians:?}"
        );
    }

    #[test]
    fn every_round_has_a_rate() {
        for ways in [super::Ways::One, super::Ways::Both] {
            let rates = super::measure(2, ways, 3, true).unwrap();
            assert!(rates.len() == 3 && rates.iter().all(|rate| *rate > 1e6), "{rates:?}");
        }
    }
}
