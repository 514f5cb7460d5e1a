//! Shows that servers are asked at once, without a clock.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use std::{io, thread};

use crate::Server;

/// Where the ways to several servers meet: the first connections of all of them, then the second
/// ones, and so on.
pub struct Meeting {
    ways: usize,
    rounds: usize,
    /// How many connections have come in each round.
    arrived: Mutex<Vec<usize>>,
    changed: Condvar,
}

impl Meeting {
    /// A meeting of the first `rounds` connections of each of `ways`.
    pub fn new(ways: usize, rounds: usize) -> Arc<Self> {
        let (arrived, changed) = (Mutex::new(vec![0; rounds]), Condvar::new());
        Arc::new(Self { ways, rounds, arrived, changed })
    }

    /// A way to a server, which answers none of the first connections before they have met those of
    /// the other ways. Its address.
    pub fn way(self: &Arc<Self>, server: &Server) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let address = listener.local_addr().expect("it listens").to_string();
        let (target, meeting) = (server.address().to_owned(), Arc::clone(self));
        thread::spawn(move || {
            for (round, client) in listener.incoming().map_while(Result::ok).enumerate() {
                let Ok(server) = TcpStream::connect(&target) else { continue };
                let copy =
                    |stream: &TcpStream| stream.try_clone().expect("a descriptor can be had");
                let (to_server, to_client) = (copy(&server), copy(&client));
                thread::spawn(move || carry(client, to_server));
                let meeting = Arc::clone(&meeting);
                thread::spawn(move || {
                    if meeting.wait(round) {
                        carry(server, to_client);
                    } else {
                        let _ = to_client.shutdown(Shutdown::Both);
                    }
                });
            }
        });
        address
    }

    /// Waits until the connections of this round have come on all ways. Where one does not come in
    /// time, nothing else does: the client is not answered.
    fn wait(&self, round: usize) -> bool {
        if round >= self.rounds {
            return true;
        }
        let mut arrived = self.arrived.lock().expect("nobody failed");
        arrived[round] += 1;
        self.changed.notify_all();
        let missing = |arrived: &mut Vec<usize>| arrived[round] < self.ways;
        let limit = Duration::from_secs(60);
        !self
            .changed
            .wait_timeout_while(arrived, limit, missing)
            .expect("nobody failed")
            .1
            .timed_out()
    }

    /// Whether as many connections came as were to meet.
    pub fn is_complete(&self) -> bool {
        self.arrived.lock().expect("nobody failed").iter().all(|count| *count == self.ways)
    }
}

/// Carries bytes one way until they end.
pub fn carry(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}
