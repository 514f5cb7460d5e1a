//! Counts of what was done, kept between start and stop. Their layout is that of cuFile 1.15, whose
//! release this library says it is.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::parameters::{self, STATISTICS};
use crate::status::{Failure, INVALID, Result, code, require};
use crate::table::{self, Way};

/// `CUfileOpCounter_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Count {
    ok: u64,
    failed: u64,
}

impl Count {
    fn add(&mut self, ok: bool) {
        *(if ok { &mut self.ok } else { &mut self.failed }) += 1;
    }
}

/// `CUfileStatsLevel1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(unreachable_pub)]
pub struct Level1 {
    /// Reads and writes.
    transfers: [Count; 2],
    file_register: Count,
    file_deregister: Count,
    memory_register: Count,
    memory_deregister: Count,
    bytes: [u64; 2],
    bytes_per_second: [u64; 2],
    average_us: [u64; 2],
    per_second: [u64; 2],
    sum_us: [u64; 2],
    batch_submit: Count,
    batch_complete: Count,
    batch_setup: Count,
    batch_cancel: Count,
    batch_destroy: Count,
    batch_enqueued: Count,
    batch_posix_enqueued: Count,
    batch_processed: Count,
    batch_posix_processed: Count,
    /// By ways of NVIDIA's to the disk, none of which is there.
    batch_ways: [Count; 5],
    batch_total: Count,
    batch_bytes: [u64; 2],
    batch_bytes_per_second: [u64; 2],
    batch_times: [u64; 6],
    batch_last: [u64; 2],
}

/// `CUfileStatsLevel2_t`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(unreachable_pub)]
pub struct Level2 {
    basic: Level1,
    /// How many reads and writes were of so many KiB, by powers of two.
    sizes: [[u64; 32]; 2],
}

/// `CUfilePerGpuStats_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    uuid: [u8; 16],
    read: Reads,
    written: Writes,
    registered: [u64; 5],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Reads {
    bytes: u64,
    bytes_per_second: u64,
    utilization: u64,
    us: u64,
    all: u64,
    direct: [u64; 2],
    plain: u64,
    other: [u64; 4],
    failed: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Writes {
    bytes: u64,
    bytes_per_second: u64,
    utilization: u64,
    us: u64,
    all: u64,
    direct: [u64; 2],
    plain: u64,
    other: [u64; 2],
    failed: u64,
}

const DEVICES: usize = 16;

/// `CUfileStatsLevel3_t`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(unreachable_pub)]
pub struct Level3 {
    detailed: Level2,
    devices: u32,
    each: [Device; DEVICES],
}

// SAFETY: they are plain numbers, for which zero is a value.
const NOTHING: Level3 = unsafe { core::mem::zeroed() };

struct Statistics {
    level: i32,
    since: Option<Instant>,
    /// How long they were kept before they were stopped.
    before: Duration,
    counts: Level3,
}

static STATE: Mutex<Statistics> =
    Mutex::new(Statistics { level: 0, since: None, before: Duration::ZERO, counts: NOTHING });

const MOST: i32 = 3;

pub(crate) fn level() -> i32 {
    STATE.lock().level.max(parameters::number(STATISTICS) as i32)
}

pub(crate) fn set_level(level: i32) -> Result<()> {
    require((0..=MOST).contains(&level))?;
    STATE.lock().level = level;
    Ok(())
}

pub(crate) fn start() {
    STATE.lock().since.get_or_insert_with(Instant::now);
}

pub(crate) fn stop() {
    let mut state = STATE.lock();
    if let Some(since) = state.since.take() {
        state.before += since.elapsed();
    }
}

pub(crate) fn reset() {
    let mut state = STATE.lock();
    state.counts = NOTHING;
    state.before = Duration::ZERO;
    state.since = state.since.map(|_| Instant::now());
}

/// Counts something, while counts are kept.
fn note(count: impl FnOnce(&mut Level3)) {
    let mut state = STATE.lock();
    if state.since.is_some() {
        count(&mut state.counts);
    }
}

/// What is counted with its outcome alone.
#[derive(Clone, Copy)]
pub(crate) enum What {
    FileRegister,
    FileDeregister,
    MemoryRegister,
    MemoryDeregister,
    BatchSetup,
    BatchSubmit,
    BatchCancel,
    BatchDestroy,
}

/// Counts an operation by its outcome, which it hands on.
pub(crate) fn counted<T>(what: What, outcome: Result<T>) -> Result<T> {
    let ok = outcome.is_ok();
    note(|counts| {
        let basic = &mut counts.detailed.basic;
        let count = match what {
            What::FileRegister => &mut basic.file_register,
            What::FileDeregister => &mut basic.file_deregister,
            What::MemoryRegister => &mut basic.memory_register,
            What::MemoryDeregister => &mut basic.memory_deregister,
            What::BatchSetup => &mut basic.batch_setup,
            What::BatchSubmit => &mut basic.batch_submit,
            What::BatchCancel => &mut basic.batch_cancel,
            What::BatchDestroy => &mut basic.batch_destroy,
        };
        count.add(ok);
        if matches!(what, What::BatchSubmit) {
            basic.batch_total.add(ok);
        }
    });
    outcome
}

/// Counts a transfer from or to memory at `base`.
pub(crate) fn transferred(way: Way, base: u64, moved: Result<usize>, took: Duration) {
    // The driver library is not asked while the counts are locked.
    let device = if level() >= MOST { table::device_at(base).ok() } else { None };
    note(|counts| {
        let (which, us) = (way as usize, took.as_micros() as u64);
        let basic = &mut counts.detailed.basic;
        basic.transfers[which].add(moved.is_ok());
        let bytes = moved.unwrap_or(0) as u64;
        basic.bytes[which] += bytes;
        basic.sum_us[which] += us;
        if moved.is_ok() {
            let size = (bytes / 1024).checked_ilog2().map_or(0, |log| log as usize);
            counts.detailed.sizes[which][size.min(31)] += 1;
        }
        let device = device.and_then(|device| counts.each.get_mut(device as usize));
        if let Some(device) = device {
            device.add(way, moved.is_ok(), bytes, us);
        }
    });
}

impl Device {
    fn add(&mut self, way: Way, ok: bool, bytes: u64, us: u64) {
        let (counts, failed) = match way {
            Way::Read => {
                let read = &mut self.read;
                ([&mut read.bytes, &mut read.us, &mut read.all, &mut read.plain], &mut read.failed)
            }
            Way::Write => {
                let write = &mut self.written;
                let counts = [&mut write.bytes, &mut write.us, &mut write.all, &mut write.plain];
                (counts, &mut write.failed)
            }
        };
        let more = [bytes, us, 1, 1];
        counts.into_iter().zip(more).for_each(|(count, more)| *count += more);
        *failed += u64::from(!ok);
    }
}

/// A transfer of a batch has ended.
pub(crate) fn batch_processed(way: Way, moved: Result<usize>) {
    note(|counts| {
        let basic = &mut counts.detailed.basic;
        for count in [
            &mut basic.batch_enqueued,
            &mut basic.batch_posix_enqueued,
            &mut basic.batch_processed,
            &mut basic.batch_posix_processed,
            &mut basic.batch_complete,
        ] {
            count.add(moved.is_ok());
        }
        let bytes = moved.unwrap_or(0) as u64;
        basic.batch_bytes[way as usize] += bytes;
        basic.batch_last[way as usize] = bytes;
    });
}

/// The counts up to a level.
fn counts(wanted: i32) -> Result<Level3> {
    if level() < wanted {
        return Err(INVALID);
    }
    let (mut counts, kept) = {
        let state = STATE.lock();
        (state.counts, state.before + state.since.map_or(Duration::ZERO, |since| since.elapsed()))
    };
    let seconds = kept.as_secs_f64();
    let rate = |count: u64| if seconds > 0.0 { (count as f64 / seconds) as u64 } else { 0 };
    let basic = &mut counts.detailed.basic;
    for which in 0..2 {
        let count = basic.transfers[which];
        let all = count.ok + count.failed;
        basic.bytes_per_second[which] = rate(basic.bytes[which]);
        basic.average_us[which] = basic.sum_us[which].checked_div(all).unwrap_or(0);
        basic.per_second[which] = rate(all);
        basic.batch_bytes_per_second[which] = rate(basic.batch_bytes[which]);
    }
    Ok(counts)
}

pub(crate) fn level_1() -> Result<Level1> {
    counts(1).map(|counts| counts.detailed.basic)
}

pub(crate) fn level_2() -> Result<Level2> {
    counts(2).map(|counts| counts.detailed)
}

pub(crate) fn level_3() -> Result<Level3> {
    let mut counts = counts(MOST)?;
    let devices = table::devices()?.clamp(0, DEVICES as i32);
    counts.devices = devices as u32;
    for (number, device) in (0..devices).zip(&mut counts.each) {
        device.uuid = table::uuid_of(number)?;
    }
    Ok(counts)
}

/// The kibibytes of a device's memory that can be reached from outside: all of them.
pub(crate) fn reachable(device: i32) -> Result<usize> {
    require((0..table::devices()?).contains(&device))?;
    let bytes = table::memory_of(device).map_err(|_| Failure::Code(code::INTERNAL_ERROR))?;
    Ok(bytes / 1024)
}
