//! What the worker of another server says over a link, taken in as a lane's reader does, while the
//! client announces copies and signals: for the fuzz target.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::mem::take;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outboard_session::chunks::Cut;
use outboard_transport::{Capabilities, Interest, Readiness, Stream, Waker};
use outboard_wire::lane::LaneHeader;

use super::lane::Lane;
use super::{Bulk, Half, Sink, lock};

/// Bytes of a copy: two chunks, of which the second one is short.
const BYTES: usize = (64 << 10) + 40;
const CHUNK: u32 = 64 << 10;
const AROUND: usize = 64;
const KEPT: u8 = 0x22;
const SENT: u8 = 0x33;
static SOURCE: [u8; BYTES] = [SENT; BYTES];
/// The client announces so many numbers at most.
const MOST: u64 = 24;

/// Takes in what a peer says. The first bytes are what the client does meanwhile, one step at each
/// read. Panics if the peer reaches what it must not.
pub fn hostile_peer(data: &[u8]) {
    let Some((script, bytes)) = data.split_first_chunk() else { return };
    let losses = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&losses);
    let bulk = Bulk::to_peer(None, super::Order::Growing, move || {
        _ = counted.fetch_add(1, Ordering::Relaxed)
    });
    let client = Client { bulk: bulk.clone(), script: u64::from_le_bytes(*script), last: 0 };
    let talk = Arc::new(Talk {
        said: Mutex::new(bytes.to_vec()),
        client: Mutex::new((client, Under::default())),
        is_down: AtomicBool::new(false),
    });
    let lane = Arc::new(Lane::new(Arc::clone(&talk) as Arc<dyn Stream>, None));
    let lanes = || bulk.inner.lanes.write().unwrap_or_else(PoisonError::into_inner);
    lanes().push(Arc::clone(&lane));
    let ended = bulk.inner.read(&lane, &*talk);
    bulk.inner.has_ended(ended);
    assert!(bulk.is_lost(), "a link whose connection has ended is lost");
    // The client may go on before it knows.
    let (client, under) = &mut *lock(&talk.client);
    for _ in 0..8 {
        client.step(under);
    }
    bulk.lose();
    assert_eq!(losses.load(Ordering::Relaxed), 1, "a loss is told once");
    for told in &under.signals {
        assert_eq!(told.load(Ordering::Relaxed), 1, "what waits is told once");
    }
    under.arriving.iter().for_each(|(_, memory)| memory.check());
    lanes().clear();
}

/// The connection. Each read is preceded by a step of the client.
struct Talk {
    said: Mutex<Vec<u8>>,
    client: Mutex<(Client, Under)>,
    is_down: AtomicBool,
}

impl std::fmt::Debug for Talk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Talk")
    }
}

impl Stream for Talk {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (client, under) = &mut *lock(&self.client);
        client.step(under);
        if self.is_down.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let mut said = lock(&self.said);
        // A long chunk's bytes are not what is hostile about it.
        if buffer.len() > 2 * LaneHeader::SIZE && !said.is_empty() {
            buffer.fill(SENT);
            return Ok(buffer.len());
        }
        let count = buffer.len().min(said.len());
        buffer[..count].copy_from_slice(&said[..count]);
        said.drain(..count);
        Ok(count)
    }

    fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.is_down.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(buffers.iter().map(|buffer| buffer.len()).sum())
    }

    fn wait(&self, _: Interest, _: Option<&Waker>, _: Option<Duration>) -> io::Result<Readiness> {
        Ok(Readiness { read: true, write: true, ..Readiness::default() })
    }

    fn shutdown(&self) -> io::Result<()> {
        self.is_down.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn abandon(&self) -> io::Result<()> {
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn transport(&self) -> &'static str {
        "fuzz"
    }

    fn peer(&self) -> String {
        "a peer".to_owned()
    }
}

/// What the session's client has the worker do.
struct Client {
    bulk: Bulk,
    script: u64,
    /// The last number that it has announced.
    last: u64,
}

/// What is under way.
#[derive(Default)]
struct Under {
    arriving: Vec<(u64, Arc<Memory>)>,
    /// Announced, and without memory yet.
    expected: Vec<u64>,
    leaving: Vec<u64>,
    /// How often each was told of.
    signals: Vec<Arc<AtomicU32>>,
}

impl Client {
    fn step(&mut self, under: &mut Under) {
        let step = self.script & 0xf;
        self.script = self.script.rotate_right(4);
        let bulk = self.bulk.clone();
        let Ok(cut) = Cut::new(BYTES as u64, CHUNK) else { return };
        match step {
            1 | 2 => {
                let Some((number, _)) = self.announce() else { return };
                // Each number is announced once, and no chunk of it was taken before.
                bulk.expect(number, cut).expect("nothing came of it");
                under.expected.push(number);
            }
            3 | 4 => {
                let Some(number) = under.expected.pop() else { return };
                let memory = Arc::new(Memory::new(cut));
                bulk.set_sink(number, Arc::clone(&memory) as Arc<dyn Sink>);
                // One of them at first.
                let granted = if step == 3 { 1 } else { cut.count() };
                memory.granted.store(granted, Ordering::Relaxed);
                bulk.grant(number, granted);
                under.arriving.push((number, memory));
            }
            5 | 6 => {
                let Some((number, half)) = self.announce() else { return };
                for index in 0..cut.count() {
                    let (from, len) = (&SOURCE[cut.offset(index) as usize..], cut.len_of(index));
                    let half = Arc::clone(&half);
                    let sent = move || {
                        assert!(half.is_lost() || index < half.granted(), "sent unasked");
                    };
                    // SAFETY: a static.
                    unsafe { bulk.send(number, index, from.as_ptr(), len, step == 5, sent) };
                }
                under.leaving.push(number);
            }
            7 | 8 => {
                let Some((_, half)) = self.announce() else { return };
                let told = Arc::new(AtomicU32::new(0));
                under.signals.push(Arc::clone(&told));
                half.when_reached(move |_| _ = told.fetch_add(1, Ordering::Relaxed));
            }
            9 => {
                for (number, memory) in &under.arriving {
                    memory.granted.store(cut.count(), Ordering::Relaxed);
                    bulk.grant(*number, cut.count());
                }
            }
            10 => under.arriving.iter().for_each(|(number, memory)| {
                bulk.forsake(*number);
                memory.is_gone.store(true, Ordering::Relaxed);
            }),
            11 => take(&mut under.expected).into_iter().for_each(|number| {
                bulk.withdraw(number);
                bulk.done(number, false);
                bulk.end(number);
            }),
            12 => take(&mut under.leaving).into_iter().for_each(|number| {
                bulk.cancel(number, 0);
                bulk.end(number);
            }),
            13 => bulk.reached(self.last, true),
            14 if self.script.trailing_zeros() > 4 => bulk.lose(),
            _ => {}
        }
        self.write();
    }

    /// The next number, which both workers are told of.
    fn announce(&mut self) -> Option<(u64, Arc<Half>)> {
        if self.last == MOST {
            return None;
        }
        self.last += 1;
        let half = self.bulk.begin(self.last, Arc::new(|| ())).expect("numbers grow");
        Some((self.last, half))
    }

    /// As a lane's writer.
    fn write(&self) {
        let inner = &self.bulk.inner;
        loop {
            let Some(chunk) = lock(&inner.out).chunks.pop_front() else { return };
            let lanes = inner.lanes();
            let Some(lane) = lanes.first() else { return };
            let _ = lane.put(&mut lock(&lane.write), chunk.into(), &inner.direct);
        }
    }
}

/// Where a copy arrives.
struct Memory {
    cut: Cut,
    bytes: Mutex<Vec<u8>>,
    granted: AtomicU32,
    /// It has been forsaken: nothing may come any more.
    is_gone: AtomicBool,
    filled: Mutex<BTreeSet<u32>>,
}

impl Memory {
    fn new(cut: Cut) -> Memory {
        let bytes = Mutex::new(vec![KEPT; AROUND + BYTES + AROUND]);
        let (granted, is_gone) = (AtomicU32::new(0), AtomicBool::new(false));
        Memory { cut, bytes, granted, is_gone, filled: Mutex::default() }
    }

    fn check(&self) {
        let bytes = lock(&self.bytes);
        let (inside, behind) = bytes[AROUND..].split_at(BYTES);
        assert!(bytes[..AROUND].iter().chain(behind).all(|byte| *byte == KEPT));
        for index in &*lock(&self.filled) {
            let chunk = &inside[self.cut.offset(*index) as usize..];
            let len = self.cut.len_of(*index);
            // Only the long one's bytes are known.
            assert!(len < CHUNK || chunk[..len as usize].iter().all(|byte| *byte == SENT));
        }
    }
}

// SAFETY: slots of different chunks do not overlap, and the memory stays where it is.
unsafe impl Sink for Memory {
    fn slot(&self, index: u32, len: u32) -> *mut u8 {
        assert!(index < self.granted.load(Ordering::Relaxed), "a chunk that is not granted");
        assert_eq!(len, self.cut.len_of(index), "a chunk of another length");
        assert!(!lock(&self.filled).contains(&index), "a chunk that has come");
        assert!(!self.is_gone.load(Ordering::Relaxed), "a chunk for what is forsaken");
        let at = AROUND + self.cut.offset(index) as usize;
        lock(&self.bytes)[at..at + len as usize].as_mut_ptr()
    }

    fn filled(&self, index: u32) {
        assert!(lock(&self.filled).insert(index), "a chunk that has come");
    }
}
