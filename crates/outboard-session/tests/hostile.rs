//! Mutated frames of every message, as a worker would receive them: each ends in an error or in a
//! message that is whole, without a panic and without memory beyond what came.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use outboard_session::{client, server};
use outboard_wire::ContextId;
use outboard_wire::messages;

/// Counts the bytes in use, and the most at any time.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: it only counts; the system's allocator does the work with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A small generator of numbers, so that a failure can be repeated by its round.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Payloads that decode, of every message there is: one of zeros, and what chance makes of it.
fn payloads(random: &mut Random) -> Vec<(u16, Vec<u8>)> {
    let mut found = Vec::new();
    for op in (0..=u16::MAX).filter(|op| messages::name(*op).is_some()) {
        let zeros =
            (0..400).map(|len| vec![0; len]).find(|zeros| messages::round_trip(op, zeros).is_ok());
        let zeros = zeros.unwrap_or_else(|| {
            panic!("{} has no plain payload", messages::name(op).unwrap_or_default())
        });
        found.push((op, zeros.clone()));
        let mut last = zeros;
        for _ in 0..300 {
            let mut next = last.clone();
            for _ in 0..=random.below(3) {
                if !next.is_empty() {
                    let at = random.below(next.len());
                    next[at] = if random.below(2) == 0 {
                        random.below(9) as u8
                    } else {
                        random.next() as u8
                    };
                }
            }
            if random.below(3) == 0 {
                let more = random.below(40);
                next.resize(next.len() + more, 1);
            }
            if messages::round_trip(op, &next).is_ok() {
                found.push((op, next.clone()));
                last = next;
            }
        }
    }
    found
}

/// Frames as a client would send them, numbered from 1.
fn session(random: &mut Random, payloads: &[(u16, Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut out = client::Outgoing::new(false);
    (0..1 + random.below(5))
        .map(|_| {
            let (op, payload) = random.pick(payloads);
            let flags = if random.below(2) == 0 { client::CALL } else { 0 };
            out.push(*op, flags, ContextId(random.below(3) as u32), |writer| writer.fixed(payload))
                .unwrap();
            out.take().unwrap().bytes().to_vec()
        })
        .collect()
}

/// Damages one frame, or the order of all.
fn mutate(random: &mut Random, frames: &mut Vec<Vec<u8>>) {
    let victim = random.below(frames.len());
    let frame = &mut frames[victim];
    if frame.is_empty() {
        return;
    }
    match random.below(8) {
        0 => frame.truncate(random.below(frame.len())),
        1 => {
            let bit = random.below(frame.len() * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        2 => {
            let at = random.below(frame.len());
            frame[at] = random.next() as u8;
        }
        // Numbers that matter: none, one too many, the largest.
        3 if frame.len() >= 4 => {
            let at = random.below(frame.len() - 3);
            let value =
                *random.pick(&[0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX, 16 << 20, (16 << 20) + 1]);
            frame[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        4 if frame.len() >= 4 => {
            let len = *random.pick(&[0, 1, frame.len() as u32, 16 << 20, (16 << 20) + 1, u32::MAX]);
            frame[..4].copy_from_slice(&len.to_le_bytes());
        }
        5 => {
            let at = random.below(frame.len() + 1);
            let extra: Vec<u8> = (0..random.below(50)).map(|_| random.next() as u8).collect();
            frame.splice(at..at, extra);
        }
        6 => {
            let again = frame.clone();
            frames.push(again);
        }
        _ => {
            let other = random.below(frames.len());
            frames.swap(victim, other);
        }
    }
}

#[test]
fn mutated_frames_end_in_errors_only() {
    const ROUNDS: u32 = 100_000;
    // A receive buffer with room for the next read, and what one frame of this test may need to
    // decode.
    const MEMORY: usize = 1 << 20;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let payloads = payloads(&mut random);
    let (mut refused, mut decoded, mut unfinished) = (0, 0, 0);
    for round in 0..ROUNDS {
        let mut frames = session(&mut random, &payloads);
        for _ in 0..=random.below(3) {
            mutate(&mut random, &mut frames);
        }
        let bytes = frames.concat();
        let before = NOW.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        let mut commands = server::Incoming::new();
        let piece = 1 + random.below(bytes.len() + 1);
        let mut end = None;
        'session: for piece in bytes.chunks(piece) {
            commands.buffer().push(piece);
            loop {
                match commands.next_command() {
                    Ok(None) => break,
                    Ok(Some(command)) => match messages::round_trip(command.op, command.payload) {
                        Ok(Some(again)) => {
                            assert_eq!(again, command.payload, "round {round}");
                            decoded += 1;
                        }
                        Ok(None) | Err(_) => {
                            end = Some(());
                            break 'session;
                        }
                    },
                    Err(_) => {
                        end = Some(());
                        break 'session;
                    }
                }
            }
        }
        match end {
            Some(()) => refused += 1,
            None => unfinished += 1,
        }
        let most = MOST.load(Ordering::Relaxed) - before;
        assert!(most <= MEMORY, "round {round} took {most} bytes for {}", bytes.len());
    }
    // The mutations are worth something: many get through to the decoders, and many are refused.
    assert!(refused > ROUNDS / 4 && decoded > ROUNDS / 4, "{refused} {decoded} {unfinished}");
}
