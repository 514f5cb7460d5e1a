//! What stands for a device in these tests: staging slots that are emptied in order, as a stream
//! would.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use outboard_session::chunks::Cut;
use outboard_wire::Reader;
use outboard_worker::{Bulk, Command, Replier, Sink};
use parking_lot::{Condvar, Mutex};

/// Announces an upload: number, length, chunk size, how.
pub(crate) const UPLOAD: u16 = 20;
/// Lets held uploads go on.
pub(crate) const RELEASE: u16 = 21;
/// Answers with the checksum of an upload's bytes, once they are there.
pub(crate) const SUM: u16 = 22;
/// Announces a download: number, length, chunk size, how.
pub(crate) const DOWNLOAD: u16 = 23;

/// Ways to treat a transfer.
pub(crate) const NORMAL: u8 = 0;
/// As a stream that waits behind a long kernel would.
pub(crate) const HOLD: u8 = 1;
/// The transfer cannot be carried out.
pub(crate) const REFUSE: u8 = 2;

/// The bytes of a transfer from `start`, a multiple of 8, on. Made in words, since these tests are
/// not optimised.
pub(crate) fn pattern(transfer: u64, start: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    let mut word = start / 8;
    while bytes.len() < len {
        bytes.extend_from_slice(
            &(word.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ transfer).to_le_bytes(),
        );
        word += 1;
    }
    bytes.truncate(len);
    bytes
}

/// A sum that notices bytes out of place.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8);
    let sum = words.by_ref().fold(0u64, |sum, word| {
        sum.rotate_left(7).wrapping_add(u64::from_le_bytes(word.try_into().expect("eight bytes")))
    });
    words.remainder().iter().fold(sum, |sum, byte| sum.rotate_left(7).wrapping_add((*byte).into()))
}

struct Slots {
    transfer: u64,
    cut: Cut,
    bulk: Bulk,
    /// Atomics, because lane threads write to it through a shared reference.
    memory: Vec<AtomicU8>,
    state: Mutex<State>,
    complete: Condvar,
}

#[derive(Default)]
struct State {
    filled: Vec<bool>,
    emptied: u32,
    held: bool,
    result: Vec<u8>,
}

impl Slots {
    fn place(&self, index: u32) -> usize {
        (index % self.cut.window()) as usize * self.cut.chunk() as usize
    }

    /// Empties the slots whose turn it is, and lets their successors come.
    fn advance(&self, state: &mut State) {
        if state.held {
            return;
        }
        while state.filled.get(state.emptied as usize) == Some(&true) {
            let (start, len) = (self.place(state.emptied), self.cut.len_of(state.emptied) as usize);
            // SAFETY: the slot was filled and is not granted again before it has been emptied; the
            // memory lives as long as this value.
            let slot = unsafe {
                std::slice::from_raw_parts(self.memory[start..].as_ptr().cast::<u8>(), len)
            };
            state.result.extend_from_slice(slot);
            state.emptied += 1;
        }
        if state.emptied == self.cut.count() {
            self.bulk.done(self.transfer, true);
            self.complete.notify_all();
        } else {
            self.bulk.grant(self.transfer, state.emptied + self.cut.window());
        }
    }
}

// SAFETY: a slot belongs to one granted chunk until it is emptied, and the next one that uses it is
// granted only then.
unsafe impl Sink for Slots {
    fn slot(&self, index: u32, len: u32) -> *mut u8 {
        assert_eq!(len, self.cut.len_of(index));
        self.memory[self.place(index)..].as_ptr().cast::<u8>().cast_mut()
    }

    fn filled(&self, index: u32) {
        let mut state = self.state.lock();
        state.filled[index as usize] = true;
        self.advance(&mut state);
    }
}

/// All uploads of a session.
#[derive(Default)]
pub(crate) struct Device {
    uploads: HashMap<u64, Arc<Slots>>,
}

impl Device {
    /// Carries out one of the commands above; whether it was one.
    pub(crate) fn command(&mut self, command: &Command<'_>, replier: &Replier) -> bool {
        let mut reader = Reader::new(command.payload);
        match command.op {
            UPLOAD | DOWNLOAD => {
                let (transfer, len) = (reader.u64().unwrap(), reader.u64().unwrap());
                let (chunk, how) = (reader.u32().unwrap(), reader.u8().unwrap());
                let cut = Cut::new(len, chunk).unwrap();
                if command.op == UPLOAD {
                    self.upload(transfer, cut, how, replier.bulk());
                } else {
                    download(transfer, cut, how, replier.bulk().clone());
                }
            }
            RELEASE => {
                for slots in self.uploads.values() {
                    let mut state = slots.state.lock();
                    state.held = false;
                    slots.advance(&mut state);
                }
            }
            SUM => {
                let slots = Arc::clone(&self.uploads[&reader.u64().unwrap()]);
                let (seq, replier) = (command.seq, replier.clone());
                std::thread::spawn(move || {
                    let complete = |state: &mut State| state.emptied < slots.cut.count();
                    let mut state = slots.state.lock();
                    slots.complete.wait_while(&mut state, complete);
                    let sum = checksum(&state.result);
                    replier.reply(seq, 0, |writer| writer.u64(sum)).unwrap();
                });
            }
            _ => return false,
        }
        true
    }

    fn upload(&mut self, transfer: u64, cut: Cut, how: u8, bulk: &Bulk) {
        if how == REFUSE {
            bulk.discard(transfer, cut).unwrap();
            return;
        }
        let state = State {
            filled: vec![false; cut.count() as usize],
            held: how == HOLD,
            ..State::default()
        };
        let slots = Arc::new(Slots {
            transfer,
            cut,
            bulk: bulk.clone(),
            memory: (0..cut.staging()).map(|_| AtomicU8::new(0)).collect(),
            state: Mutex::new(state),
            complete: Condvar::new(),
        });
        self.uploads.insert(transfer, Arc::clone(&slots));
        bulk.receive(transfer, cut, slots).unwrap();
    }
}

fn download(transfer: u64, cut: Cut, how: u8, bulk: Bulk) {
    std::thread::spawn(move || {
        for index in 0..cut.count() {
            if how == REFUSE && index == 1 {
                break;
            }
            let len = cut.len_of(index);
            let bytes = pattern(transfer, cut.offset(index), len as usize);
            let from = bytes.as_ptr();
            // SAFETY: the bytes live until the closure is dropped, which happens after it was
            // called.
            unsafe { bulk.send(transfer, index, from, len, true, move || drop(bytes)) };
        }
        if how == REFUSE {
            bulk.cancel(transfer, 1);
        }
    });
}
