//! A path between a program and its server that changes bytes on their way to the program, the same
//! ones for the same number.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Connections of a session that are damaged: commands and the first lanes.
const CONNECTIONS: u64 = 3;
/// Places are at most so far into a connection.
const FARTHEST: u32 = 18;

/// A generator of numbers that are the same for the same seed (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// What becomes of a byte.
#[derive(Clone, Copy, Debug)]
enum Change {
    Flip(u32),
    Set(u8),
    Drop,
    Repeat,
}

/// What is done to one connection.
#[derive(Clone, Debug)]
struct Plan {
    connection: u64,
    /// Offsets from the connection's first byte, sorted.
    changes: Vec<(u64, Change)>,
}

impl Plan {
    fn new(seed: u64) -> Plan {
        let mut numbers = Numbers(seed);
        // Most of what can go wrong is in the commands' connection.
        let connection = numbers.below(2 * CONNECTIONS).saturating_sub(CONNECTIONS);
        let count = 1 + numbers.below(3);
        let mut changes: Vec<_> = (0..count)
            .map(|_| {
                let farthest = 5 + numbers.below(u64::from(FARTHEST) - 5);
                let at = numbers.below(1 << farthest);
                let change = match numbers.below(8) {
                    0..4 => Change::Flip(numbers.below(8) as u32),
                    4 | 5 => Change::Set([0, 0xff, 0x7f, 0x80][numbers.below(4) as usize]),
                    6 => Change::Drop,
                    _ => Change::Repeat,
                };
                (at, change)
            })
            .collect();
        changes.sort_unstable_by_key(|(at, _)| *at);
        Plan { connection, changes }
    }

    /// The bytes that go on for bytes that came, the first of them at `first` of the connection.
    fn apply(&self, first: u64, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len() + 1);
        let mut changes = self.changes.iter().filter(|(at, _)| *at >= first).peekable();
        for (at, &byte) in (first..).zip(bytes) {
            let mut here = vec![byte];
            while let Some((_, change)) = changes.next_if(|(place, _)| *place == at) {
                match *change {
                    Change::Flip(bit) => here.iter_mut().for_each(|byte| *byte ^= 1 << bit),
                    Change::Set(value) => here.fill(value),
                    Change::Drop => here.clear(),
                    Change::Repeat => here.extend_from_within(..),
                }
            }
            out.extend(here);
        }
        out
    }
}

/// Such a path.
pub struct Damage {
    address: String,
    plan: Plan,
    /// Bytes that came for the program, for each connection.
    passed: Arc<Mutex<Vec<u64>>>,
}

impl Damage {
    /// To a server.
    pub fn before(server: &str, seed: u64) -> Damage {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address").to_string();
        let (plan, passed) = (Plan::new(seed), Arc::new(Mutex::new(Vec::new())));
        let (server, own, counted) = (server.to_owned(), plan.clone(), Arc::clone(&passed));
        std::thread::spawn(move || {
            for (number, client) in listener.incoming().flatten().enumerate() {
                let plan = (number as u64 == own.connection).then(|| own.clone());
                // A connection that fails ends, as both sides see.
                let _ = connect(&server, client, plan, number, &counted);
            }
        });
        Damage { address, plan, passed }
    }

    /// Where the program finds the server.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether any byte was changed.
    pub fn happened(&self) -> bool {
        let passed = self.passed.lock().expect("no thread panics with it");
        let passed = passed.get(self.plan.connection as usize).copied().unwrap_or(0);
        self.plan.changes.iter().any(|(at, _)| *at < passed)
    }

    /// What it does, for messages.
    pub fn plan(&self) -> String {
        format!("connection {}, {:?}", self.plan.connection, self.plan.changes)
    }
}

fn connect(
    server: &str,
    client: TcpStream,
    plan: Option<Plan>,
    number: usize,
    counted: &Arc<Mutex<Vec<u64>>>,
) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    counted.lock().expect("no thread panics with it").push(0);
    let (from, to) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || pass(from, to, |bytes| bytes.to_vec()));
    let (counted, mut first) = (Arc::clone(counted), 0);
    std::thread::spawn(move || {
        pass(server, client, |bytes| {
            let out = plan.as_ref().map_or_else(|| bytes.to_vec(), |plan| plan.apply(first, bytes));
            first += bytes.len() as u64;
            counted.lock().expect("no thread panics with it")[number] = first;
            out
        });
    });
    Ok(())
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut change: impl FnMut(&[u8]) -> Vec<u8>) {
    let mut piece = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        if to.write_all(&change(&piece[..count])).is_err() {
            break;
        }
    }
    // One side may be gone already.
    let _ = (to.shutdown(Shutdown::Write), from.shutdown(Shutdown::Read));
}
