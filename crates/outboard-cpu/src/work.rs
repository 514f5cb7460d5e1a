//! What can be queued in a stream.

use std::collections::VecDeque;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Instant;

use outboard_abi::{CUresult, CUstreamWaitValue_flags_enum as WaitFlags};
use outboard_front::backend::{Fill, Rect};
use outboard_transport::page::{page_bytes, present};

use crate::boxes::BoxWork;
use crate::graph::replay::Replay;
use crate::launch::Grid;

/// Where a piece of work stands after it has been given a thread.
#[derive(Debug)]
pub(crate) enum Progress {
    Done,
    /// The value it waits for has not come.
    Waiting,
    Failed(CUresult),
}

/// One piece of work. Its addresses were checked when it was submitted; the arena that they lie in
/// stays mapped for ever.
pub(crate) enum Work {
    /// Only a place in the order.
    Nothing,
    /// Takes the time.
    Stamp(Arc<Stamp>),
    /// Copies rows, which may overlap.
    Copy {
        dst: u64,
        src: u64,
        rect: Rect,
    },
    /// Copies a box.
    Box(BoxWork),
    /// Copies staged bytes.
    Upload {
        dst: u64,
        bytes: Box<[u8]>,
    },
    Fill(Fill),
    /// Fills device memory with zeros.
    Clear {
        address: u64,
        bytes: u64,
    },
    Write(Word),
    /// Waits until the word in memory satisfies the condition.
    Wait(Word, Condition),
    /// Operations on memory, one after the other.
    Batch(VecDeque<Work>),
    Launch(Box<Grid>),
    /// Runs a graph.
    Replay(Box<Replay>),
    Call(Box<dyn FnMut() + Send>),
    /// Calls a function of the program; it is told when the work before has failed.
    Host(Box<dyn FnMut(CUresult) + Send>),
}

/// A value of 32 or 64 bits, and an aligned address for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    pub(crate) address: u64,
    pub(crate) value: u64,
    pub(crate) wide: bool,
}

/// How a word in memory is compared with the value waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Condition {
    /// Signed difference at least 0, so that counters may wrap around.
    AtLeast,
    Equal,
    /// Common bits.
    And,
    /// A bit that neither has.
    Nor,
}

/// The time at which a stream reached a point.
#[derive(Default)]
pub(crate) struct Stamp(std::sync::OnceLock<Instant>);

impl Stamp {
    pub(crate) fn time(&self) -> Option<Instant> {
        self.0.get().copied()
    }
}

impl Work {
    /// Whether it takes no longer than handing it to another thread.
    pub(crate) fn is_instant(&self) -> bool {
        matches!(
            self,
            Work::Nothing | Work::Stamp(_) | Work::Write(_) | Work::Wait(..) | Work::Batch(_)
        )
    }

    /// Whether it has no value to wait for any more.
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Work::Wait(word, condition) => condition.holds(word.load(), *word),
            Work::Batch(operations) => operations.front().is_none_or(Work::is_ready),
            Work::Replay(replay) => replay.is_ready(),
            _ => true,
        }
    }

    /// It will not run: its context has failed.
    pub(crate) fn drop_with(&mut self, error: CUresult) {
        if let Work::Host(call) = self {
            call(error);
        }
    }

    pub(crate) fn run(&mut self) -> Progress {
        match self {
            Work::Nothing => {}
            Work::Stamp(stamp) => {
                let _ = stamp.0.set(Instant::now());
            }
            Work::Copy { dst, src, rect } => copy(*dst, *src, *rect),
            Work::Box(work) => work.run(),
            Work::Upload { dst, bytes } => {
                // SAFETY: the range was checked to lie in allocated device or registered memory,
                // and does not overlap our own box.
                unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), *dst as *mut u8, bytes.len()) }
            }
            Work::Fill(fill) => run_fill(fill),
            Work::Clear { address, bytes } => clear(*address, *bytes),
            Work::Write(word) => word.store(),
            Work::Wait(..) if !self.is_ready() => return Progress::Waiting,
            Work::Wait(..) => fence(Ordering::SeqCst),
            Work::Batch(operations) => {
                while let Some(operation) = operations.front_mut() {
                    match operation.run() {
                        Progress::Done => _ = operations.pop_front(),
                        other => return other,
                    }
                }
            }
            Work::Launch(grid) => {
                return grid.run().map_or_else(Progress::Failed, |()| Progress::Done);
            }
            Work::Replay(replay) => return replay.run(),
            Work::Call(call) => call(),
            Work::Host(call) => call(CUresult::CUDA_SUCCESS),
        }
        Progress::Done
    }
}

impl Condition {
    /// The condition that the flags of `cuStreamWaitValue32` ask for.
    pub(crate) fn new(flags: u32) -> Option<Condition> {
        // A flush of outstanding remote writes: here all writes are coherent.
        match WaitFlags(flags & !WaitFlags::CU_STREAM_WAIT_VALUE_FLUSH.0) {
            WaitFlags::CU_STREAM_WAIT_VALUE_GEQ => Some(Condition::AtLeast),
            WaitFlags::CU_STREAM_WAIT_VALUE_EQ => Some(Condition::Equal),
            WaitFlags::CU_STREAM_WAIT_VALUE_AND => Some(Condition::And),
            WaitFlags::CU_STREAM_WAIT_VALUE_NOR => Some(Condition::Nor),
            _ => None,
        }
    }

    fn holds(self, found: u64, word: Word) -> bool {
        let Word { value, wide, .. } = word;
        match self {
            Condition::AtLeast if wide => found.wrapping_sub(value) as i64 >= 0,
            Condition::AtLeast => (found as u32).wrapping_sub(value as u32) as i32 >= 0,
            Condition::Equal => found == value,
            Condition::And => found & value != 0,
            Condition::Nor if wide => !(found | value) != 0,
            Condition::Nor => !(found as u32 | value as u32) != 0,
        }
    }
}

impl Word {
    fn load(self) -> u64 {
        // SAFETY: the address is aligned and was checked to lie in device or registered memory;
        // kernels and host threads that access it at the same time do so with whole words.
        unsafe {
            match self.wide {
                true => AtomicU64::from_ptr(self.address as *mut u64).load(Ordering::SeqCst),
                false => {
                    u64::from(AtomicU32::from_ptr(self.address as *mut u32).load(Ordering::SeqCst))
                }
            }
        }
    }

    fn store(self) {
        // SAFETY: as for `load`.
        unsafe {
            match self.wide {
                true => AtomicU64::from_ptr(self.address as *mut u64)
                    .store(self.value, Ordering::SeqCst),
                false => AtomicU32::from_ptr(self.address as *mut u32)
                    .store(self.value as u32, Ordering::SeqCst),
            }
        }
    }
}

fn copy(dst: u64, src: u64, rect: Rect) {
    for row in 0..rect.height {
        let (to, from) = (dst + row * rect.dst_pitch, src + row * rect.src_pitch);
        // SAFETY: device addresses of the rectangle were checked to lie in allocated or registered
        // memory; a host address and its length are the program's, which promised that they are
        // valid until the copy is done.
        unsafe { ptr::copy(from as *const u8, to as *mut u8, rect.width as usize) }
    }
}

fn run_fill(fill: &Fill) {
    for row in 0..fill.height {
        let start = fill.dst.0 + row * fill.pitch;
        let width = fill.width as usize;
        // SAFETY: the rows were checked to lie in allocated or registered memory, aligned to the
        // element.
        unsafe {
            match fill.element {
                1 => ptr::write_bytes(start as *mut u8, fill.value as u8, width),
                2 => {
                    std::slice::from_raw_parts_mut(start as *mut u16, width).fill(fill.value as u16)
                }
                _ => std::slice::from_raw_parts_mut(start as *mut u32, width).fill(fill.value),
            }
        }
    }
}

/// Writes zeros where there may be others: pages that nobody has touched take no memory.
fn clear(address: u64, bytes: u64) {
    /// Bytes that are looked at in one step.
    const STEP: u64 = 1 << 30;
    let end = address + bytes;
    let zero = |from: u64, to: u64| {
        // SAFETY: checked to lie in allocated memory of a device.
        unsafe { ptr::write_bytes(from as *mut u8, 0, (to - from) as usize) }
    };
    let first = address.next_multiple_of(page_bytes()).min(end);
    let last = (end & !(page_bytes() - 1)).max(first);
    zero(address, first);
    let mut at = first;
    while at < last {
        let step = (last - at).min(STEP);
        for part in present(at, step as usize) {
            zero(at + part.start as u64, at + part.end as u64);
        }
        at += step;
    }
    zero(last, end);
}

#[cfg(test)]
mod tests {
    use outboard_front::backend::DevicePtr;

    use super::*;

    /// Zeros end up everywhere, and pages that nobody has touched stay so where the system knows.
    #[test]
    fn clearing_takes_no_memory_where_nothing_is() {
        use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
        const BYTES: usize = 4 << 20;
        let file = outboard_simt::memory_file(BYTES as u64).unwrap();
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let memory = unsafe { mmap(ptr::null_mut(), BYTES, access, flags, &file, 0) }.unwrap();
        let bytes = memory.cast::<u8>();
        let touched = [0, 5, 300_000, 1 << 20, BYTES - 1];
        for at in touched {
            // SAFETY: within the mapping.
            unsafe { bytes.add(at).write(7) };
        }
        let before = rustix::fs::fstat(&file).unwrap().st_blocks;
        // Not from the first byte to the last.
        clear(memory as u64 + 1, BYTES as u64 - 2);
        let after = rustix::fs::fstat(&file).unwrap().st_blocks;
        // SAFETY: as above.
        let left = touched.map(|at| unsafe { bytes.add(at).read() });
        assert_eq!(left, [7, 0, 0, 0, 7]);
        let system = rustix::system::sysinfo();
        if system.freeswap == system.totalswap && present(memory as u64, BYTES).len() > 1 {
            assert_eq!(before, after);
        }
        // SAFETY: the mapping of this test.
        unsafe { munmap(memory, BYTES) }.unwrap();
    }

    fn word(value: u64, wide: bool) -> Word {
        Word { address: 0, value, wide }
    }

    #[test]
    fn conditions() {
        use Condition::*;
        assert!(AtLeast.holds(5, word(5, false)) && !AtLeast.holds(4, word(5, false)));
        // Counters wrap around: 1 is after 0xffff_fffe.
        assert!(
            AtLeast.holds(1, word(0xffff_fffe, false))
                && !AtLeast.holds(1, word(0xffff_fffe, true))
        );
        assert!(AtLeast.holds(0, word(u64::MAX, true)));
        assert!(Equal.holds(7, word(7, true)) && !Equal.holds(7, word(1 << 32 | 7, true)));
        assert!(And.holds(6, word(2, false)) && !And.holds(6, word(9, false)));
        assert!(Nor.holds(0xff, word(0xff00, false)) && !Nor.holds(0xffff_ffff, word(0, false)));
        assert!(Nor.holds(0xffff_ffff, word(0, true)));
        assert_eq!(Condition::new(0x4000_0000), Some(AtLeast));
        assert_eq!(Condition::new(17), None);
    }

    #[test]
    fn a_batch_goes_on_where_it_waited() {
        let memory = [0u32; 3].map(AtomicU32::new);
        let word = |index: usize, value| {
            let address = memory[index].as_ptr() as u64;
            Word { address, value, wide: false }
        };
        let operations = [
            Work::Write(word(0, 1)),
            Work::Wait(word(1, 1), Condition::Equal),
            Work::Write(word(2, 1)),
        ];
        let mut batch = Work::Batch(operations.into());
        assert!(batch.is_ready() && matches!(batch.run(), Progress::Waiting) && !batch.is_ready());
        assert_eq!(memory.each_ref().map(|word| word.load(Ordering::SeqCst)), [1, 0, 0]);
        memory[0].store(7, Ordering::SeqCst);
        memory[1].store(1, Ordering::SeqCst);
        assert!(batch.is_ready() && matches!(batch.run(), Progress::Done));
        assert_eq!(memory.each_ref().map(|word| word.load(Ordering::SeqCst)), [7, 1, 1]);
    }

    #[test]
    fn fills_rows() {
        let mut memory = vec![0u16; 12];
        let dst = memory.as_mut_ptr() as u64;
        let fill = Fill {
            dst: DevicePtr(dst),
            pitch: 8,
            value: 0xabcd_1234,
            element: 2,
            width: 3,
            height: 3,
        };
        assert!(matches!(Work::Fill(fill).run(), Progress::Done));
        let row = [0x1234, 0x1234, 0x1234, 0];
        assert_eq!(memory, [row, row, row].concat());
    }

    #[test]
    fn copies_overlapping_rows() {
        let mut memory: Vec<u8> = (0..16).collect();
        let base = memory.as_mut_ptr() as u64;
        let rect = Rect { width: 8, height: 1, dst_pitch: 0, src_pitch: 0 };
        assert!(matches!(Work::Copy { dst: base + 2, src: base, rect }.run(), Progress::Done));
        assert_eq!(memory, [0, 1, 0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15]);
    }
}
