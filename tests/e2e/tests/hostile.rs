//! Clients that send something else than they should: what a real program sent is recorded, changed
//! and sent again. Each session ends in an error of its own; the server serves others all the
//! while.

use outboard_e2e::{Program, Recording, Server};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// Sessions with changed bytes.
const SESSIONS: usize = 240;
/// Every so many of them, a good client shows that the server is well.
const BETWEEN: usize = 60;
/// A session that gets nonsense, and then the end of the stream, ends within this time.
const LIMIT: Duration = Duration::from_secs(10);

/// Numbers without meaning, the same in every run (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }
}

/// Changes a few bytes from `first` on: bits, whole numbers, pieces cut out, doubled or moved.
fn change(bytes: &[u8], first: usize, random: &mut Random) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    for _ in 0..=random.below(4) {
        let at = first + random.below(changed.len() - first);
        let end = (at + 1 + random.below(64)).min(changed.len());
        match random.below(6) {
            0 => changed[at] ^= 1 << random.below(8),
            1 => changed[at] = random.below(256) as u8,
            2 => changed[at..end.min(at + 4)].fill(0xff),
            3 => {
                changed.drain(at..end);
            }
            4 => {
                let piece = changed[at..end].to_vec();
                changed.splice(at..at, piece);
            }
            _ => changed.truncate(at + 1),
        }
        if changed.len() <= first + 1 {
            break;
        }
    }
    changed
}

/// Sends the bytes and their end, and waits until the server has ended the connection.
fn send(server: &str, bytes: &[u8]) {
    let mut stream = TcpStream::connect(server).expect("the server listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
    stream.set_write_timeout(Some(LIMIT)).expect("a timeout");
    let mut answers = stream.try_clone().expect("a clone");
    let reader = std::thread::spawn(move || {
        let mut piece = [0; 65536];
        loop {
            match answers.read(&mut piece) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => {
                    return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                }
            }
        }
    });
    // The server may end the session before it has read everything.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    assert!(
        reader.join().expect("the reader does not panic"),
        "the session did not end within {LIMIT:?}"
    );
}

#[test]
fn changed_sessions_end_alone() {
    let server = Server::start();
    let recordings = ["vector_add", "streams_events", "symbols", "virtual_memory", "memory_pools"]
        .map(|program| Recording::of(&server, program));
    let mut neighbour = Program::new("endless").start_through(&server);
    neighbour.wait_for_line("running");
    let mut random = Random(2026);
    for session in 0..SESSIONS {
        let Recording { bytes, hello } = &recordings[session % recordings.len()];
        // One in ten changes the hello, too.
        let first = if session % 10 == 0 { 0 } else { *hello };
        send(server.address(), &change(bytes, first, &mut random));
        if session % BETWEEN == BETWEEN - 1 {
            Program::new("vector_add").through(&server).expect_success("a good client");
            assert!(!neighbour.has_ended(), "the neighbour went on: {}", server.log());
        }
    }
    let log = server.log();
    assert!(!log.contains("panicked"), "no worker panicked: {log}");
}
