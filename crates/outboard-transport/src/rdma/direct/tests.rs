//! Over whatever RDMA device the machine has, as the streams' tests.

use std::time::Duration;

use outboard_test_support::skip;

use super::super::tests::{endpoint, missing};
use super::*;
use crate::pipe;

const PATIENCE: Duration = Duration::from_secs(60);
const BYTES: usize = 9 << 20;

macro_rules! needs_a_device {
    () => {
        if let Some(why) = missing() {
            skip!("{why}");
        }
    };
}

fn connected() -> (Lender, Mover) {
    let (client, server) = pipe::pair().unwrap();
    let deadline = Instant::now() + PATIENCE;
    let usual = Settings::default();
    let taking = std::thread::spawn(move || take(&*server, endpoint, usual, deadline).unwrap());
    let lender = lend(&*client, endpoint().unwrap(), usual, deadline).unwrap().unwrap();
    (lender, taking.join().unwrap().unwrap().unwrap())
}

/// Memory of one side that its adapter knows.
struct Memory(Vec<u8>);

impl Memory {
    fn new(fill: impl Fn(usize) -> u8) -> Memory {
        Memory((0..BYTES).map(fill).collect())
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.0[offset..].as_ptr().cast_mut()
    }
}

fn lent(lender: &Lender, memory: &Memory) -> Loan {
    // SAFETY: the tests take the loan back, or end the lender, before the memory goes.
    unsafe { lender.lend(memory.at(0), BYTES) }.unwrap()
}

fn place(loan: &Loan, offset: usize) -> Remote {
    loan.remote(loan.addresses().start + offset as u64).unwrap()
}

fn know(mover: &Mover, memory: &Memory) -> Own {
    // SAFETY: the tests' movers end before the memory goes.
    unsafe { mover.add_memory(memory.at(0), BYTES) }.unwrap()
}

fn pattern(offset: usize) -> u8 {
    (offset * 7 % 253) as u8
}

/// More than a work carries, by several threads at once.
#[test]
fn bytes_are_moved_both_ways_by_all_threads() {
    needs_a_device!();
    let (lender, mover) = connected();
    let (here, there) = (Memory::new(pattern), Memory::new(|_| 0));
    let (loan, quarter) = (lent(&lender, &there), BYTES / 4);
    // SAFETY: these bytes are there.
    let tried = unsafe { mover.write(here.at(0), quarter, place(&loan, 0)) };
    assert!(!tried.unwrap(), "the adapter does not know the memory yet");
    know(&mover, &here);
    let write = |offset: usize, bytes: usize| {
        // SAFETY: these bytes are there, and only written to elsewhere.
        unsafe { mover.write(here.at(offset), bytes, place(&loan, offset)) }.unwrap()
    };
    std::thread::scope(|scope| {
        let write = &write;
        scope.spawn(move || assert!(write(0, 2 * quarter + 5)));
        for part in 0..20 {
            let bytes = (BYTES - 2 * quarter - 5) / 20;
            scope.spawn(move || assert!(write(2 * quarter + 5 + part * bytes, bytes)));
        }
    });
    let whole = BYTES - (BYTES - 2 * quarter - 5) % 20;
    assert!(there.0[..whole] == here.0[..whole], "bytes changed on the way");
    let back = Memory::new(|_| 0);
    know(&mover, &back);
    std::thread::scope(|scope| {
        for part in 0..4 {
            let (mover, back, loan) = (&mover, &back, &loan);
            let offset = part * quarter;
            // SAFETY: each thread has a part of its own.
            let read = move || unsafe { mover.read(back.at(offset), quarter, place(loan, offset)) };
            scope.spawn(move || read().unwrap());
        }
    });
    assert!(back.0[..4 * quarter] == there.0[..4 * quarter], "bytes changed on the way back");
    assert!(mover.read_apart(5000, place(&loan, 777)).unwrap() == there.0[777..5777]);
    let apart = Memory::new(|_| 0);
    // SAFETY: these bytes are there, and nobody else's.
    unsafe { mover.read(apart.at(1), 5000, place(&loan, 777)) }.unwrap();
    assert!(apart.0[1..5001] == there.0[777..5777], "into memory that the adapter does not know");
    assert_eq!(mover.moved(), [whole, 4 * quarter + 10000].map(|bytes| bytes as u64));
    lender.take_back(loan);
    assert!(lender.is_connected() && mover.is_connected());
}

/// Memory that was taken back, or is not all lent: the adapter refuses, and the connection ends.
#[test]
fn what_is_not_lent_is_refused() {
    needs_a_device!();
    for taken_back in [true, false] {
        let (lender, mover) = connected();
        let (here, there) = (Memory::new(|_| 7), Memory::new(|_| 9));
        know(&mover, &here);
        let loan = lent(&lender, &there);
        let to = place(&loan, if taken_back { 0 } else { BYTES - 50 });
        if taken_back {
            lender.take_back(loan);
        }
        // SAFETY: these bytes are there.
        let error = unsafe { mover.write(here.at(0), 100, to) }.unwrap_err();
        assert!(error.to_string().contains("remote access error"), "{error}");
        assert!(!mover.is_connected());
        // SAFETY: as above.
        assert!(!unsafe { mover.write(here.at(0), 100, to) }.unwrap(), "it is not tried again");
        // SAFETY: as above.
        unsafe { mover.read(here.at(0), 100, to) }.unwrap_err();
        drop(lender);
        assert!(there.0.iter().all(|byte| *byte == 9) && here.0.iter().all(|byte| *byte == 7));
    }
}

fn wait_until_it_writes(mover: &Mover) {
    let began = Instant::now();
    while mover.moved()[0] == 0 {
        assert!(began.elapsed() < PATIENCE, "nothing is written");
        std::thread::yield_now();
    }
}

/// Threads are in the middle of writing when the client ends the connection: none of their bytes
/// comes later, and none of the threads waits for ever.
#[test]
fn nothing_is_written_once_the_client_has_ended_it() {
    needs_a_device!();
    let (lender, mover) = connected();
    let (here, mut there) = (Memory::new(|_| 7), Memory::new(|_| 9));
    know(&mover, &here);
    let loan = lent(&lender, &there);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                // SAFETY: these bytes are there.
                while unsafe { mover.write(here.at(0), 1 << 16, place(&loan, 0)) }
                    .is_ok_and(|written| written)
                {
                    assert!(began.elapsed() < PATIENCE, "it goes on");
                }
            });
        }
        wait_until_it_writes(&mover);
        lender.end();
        there.0.fill(3);
        std::thread::sleep(Duration::from_secs(1));
        // As a worker does whose lane has ended.
        mover.end("the client has ended it");
    });
    assert!(there.0.iter().all(|byte| *byte == 3), "bytes came after the end");
    lender.take_back(loan);
}

/// An adapter says no more of the works that it has: their threads go on, and it does not.
#[test]
fn works_that_an_adapter_does_not_give_up_are_withdrawn() {
    needs_a_device!();
    let (lender, mover) = connected();
    let (here, there) = (Memory::new(|_| 7), Memory::new(|_| 9));
    let own = know(&mover, &here);
    let loan = lent(&lender, &there);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                // SAFETY: these bytes are there.
                while unsafe { mover.write(here.at(0), BYTES, place(&loan, 0)) }
                    .is_ok_and(|written| written)
                {}
            });
        }
        wait_until_it_writes(&mover);
        // Nothing comes of the works of a pair that is gone.
        mover.withdraw();
        mover.end("a test");
    });
    mover.remove_memory(own);
    lender.take_back(loan);
    assert!(lender.is_connected() && !mover.is_connected());
}

#[test]
fn a_client_that_describes_nonsense_is_refused() {
    needs_a_device!();
    let deadline = Instant::now() + PATIENCE;
    let usual = Settings::default();
    let (client, server) = pipe::pair().unwrap();
    write_all(&*client, &[0xff; 100]).unwrap();
    let error = take(&*server, endpoint, usual, deadline).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    // It serves no reads.
    let (client, server) = pipe::pair().unwrap();
    let own = Prepared::new(endpoint().unwrap(), Access::RemoteReadWrite).unwrap();
    let own = End { address: own.address, settings: usual };
    write_all(&*client, &[&[HEEDS, 0][..], &own.encode()].concat()).unwrap();
    let why = take(&*server, endpoint, usual, deadline).unwrap().unwrap_err();
    assert!(read_answer(&*client, deadline).unwrap().is_err(), "{why}");
    let (client, server) = pipe::pair().unwrap();
    write_all(&*client, &[STAYS]).unwrap();
    assert!(take(&*server, endpoint, usual, deadline).unwrap().unwrap().is_none());
}
