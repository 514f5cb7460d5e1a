//! Copies between host and device through a driver library, native or Outboard's: rates by size,
//! and what small ones cost.
//!
//! `cargo run --release -p outboard-worker --example copy_bench -- /path/to/libcuda.so.1 [NAME]`;
//! with `ops` in place of NAME, what the driver operations cost that large copies are made of
//! (native only).
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

use outboard_abi::{CUresult, CUstream};
use outboard_driver::{Library, Table, call};

const SIZES: [usize; 6] = [128 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20];

fn main() {
    let mut args = std::env::args().skip(1);
    let library = args.next().expect("the path of a driver library");
    let name = args.next().unwrap_or_else(|| "copies".to_owned());
    // SAFETY: whoever runs this names a driver library.
    let table = &unsafe { Library::load(Path::new(&library)) }.expect("loads").table;
    let started = Instant::now();
    call!(table, cuInit(0)).expect("initialises");
    let (mut context, mut stream) = (ptr::null_mut(), ptr::null_mut());
    call!(table, cuDevicePrimaryCtxRetain(&raw mut context, 0)).expect("a context");
    call!(table, cuCtxSetCurrent(context)).expect("is current");
    call!(table, cuStreamCreate(&raw mut stream, 1)).expect("a stream");
    let largest = SIZES[SIZES.len() - 1];
    let mut device = 0;
    call!(table, cuMemAlloc_v2(&raw mut device, largest)).expect("device memory");
    let bench = Bench { table, stream, device };
    println!("{name}: ready after {:.0} ms", started.elapsed().as_secs_f64() * 1e3);
    if name == "ops" {
        return ops::run(&bench);
    }
    let mut pageable = vec![1_u8; largest];
    let mut pinned = ptr::null_mut();
    call!(table, cuMemHostAlloc(&raw mut pinned, largest, 0)).expect("pinned memory");
    // SAFETY: this many bytes were allocated.
    unsafe { ptr::write_bytes(pinned.cast::<u8>(), 2, largest) };
    let memory = [("pageable", pageable.as_mut_ptr()), ("pinned", pinned.cast())];
    let first = Instant::now();
    bench.to_device(memory[0].1, 64 << 20).expect("copies");
    println!(
        "{name}: first copy of 64 MiB {:.2} GB/s",
        (64 << 20) as f64 / first.elapsed().as_secs_f64() / 1e9
    );
    for (kind, host) in memory {
        for bytes in [64, 4 << 10, 64 << 10] {
            let posted = median(500, || bench.to_device(host, bytes).expect("copies"));
            let both = median(500, || {
                bench.to_device(host, bytes).expect("copies");
                bench.finish().expect("ends");
            });
            let back = median(500, || bench.to_host(host, bytes).expect("copies"));
            println!(
                "{name}: {kind:>8} {bytes:>6} B to {:>6.1} us, to and synchronise {:>6.1} us, from {:>6.1} us",
                us(posted),
                us(both),
                us(back)
            );
        }
    }
    println!(
        "{name}: GB/s, median, best      size     to     (best)    from   (best)   to async         from async"
    );
    for (kind, host) in memory {
        for bytes in SIZES {
            let rounds = ((2 << 30) / bytes).clamp(5, 60);
            let rate = |run: &dyn Fn() -> Result<(), CUresult>| {
                let mut times = times(rounds, || run().expect("copies"));
                times.sort();
                let rate = |time: Duration| bytes as f64 / time.as_secs_f64() / 1e9;
                format!("{:>6.2} ({:>6.2})", rate(times[times.len() / 2]), rate(times[0]))
            };
            println!(
                "{name}: {kind:>8} {:>10} KiB {} {} {} {}",
                bytes >> 10,
                rate(&|| bench.to_device(host, bytes)),
                rate(&|| bench.to_host(host, bytes)),
                rate(&|| bench.to_device_async(host, bytes).and_then(|()| bench.finish())),
                rate(&|| bench.to_host_async(host, bytes).and_then(|()| bench.finish())),
            );
        }
    }
    let (user, system) = processor_time();
    println!("{name}: processor time of this process {user:.2} s + {system:.2} s");
}

struct Bench<'a> {
    table: &'a Table,
    stream: CUstream,
    device: u64,
}

impl Bench<'_> {
    fn to_device(&self, host: *const u8, bytes: usize) -> Result<(), CUresult> {
        call!(self.table, cuMemcpyHtoD_v2(self.device, host.cast(), bytes))
    }

    fn to_host(&self, host: *mut u8, bytes: usize) -> Result<(), CUresult> {
        call!(self.table, cuMemcpyDtoH_v2(host.cast(), self.device, bytes))
    }

    fn to_device_async(&self, host: *const u8, bytes: usize) -> Result<(), CUresult> {
        call!(self.table, cuMemcpyHtoDAsync_v2(self.device, host.cast(), bytes, self.stream))
    }

    fn to_host_async(&self, host: *mut u8, bytes: usize) -> Result<(), CUresult> {
        call!(self.table, cuMemcpyDtoHAsync_v2(host.cast(), self.device, bytes, self.stream))
    }

    fn finish(&self) -> Result<(), CUresult> {
        call!(self.table, cuStreamSynchronize(self.stream))?;
        call!(self.table, cuStreamSynchronize(ptr::null_mut()))
    }
}

fn times(rounds: usize, mut run: impl FnMut()) -> Vec<Duration> {
    (0..rounds)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .collect()
}

fn median(rounds: usize, run: impl FnMut()) -> Duration {
    let mut times = times(rounds, run);
    times.sort();
    times[rounds / 2]
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Seconds in user and system mode so far.
fn processor_time() -> (f64, f64) {
    // SAFETY: all zeros are a value, and the kernel fills it in.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (seconds(usage.ru_utime), seconds(usage.ru_stime))
}

/// What the operations cost that a large copy consists of.
mod ops {
    use std::sync::atomic::{AtomicU32, Ordering};

    use outboard_abi::CUevent_flags;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

    use super::*;

    pub(super) fn run(bench: &Bench<'_>) {
        let (table, stream) = (bench.table, bench.stream);
        for (what, advice) in [
            ("as it is", &[][..]),
            ("populated", &[Advice::LinuxPopulateWrite][..]),
            ("huge pages, populated", &[Advice::LinuxHugepage, Advice::LinuxPopulateWrite][..]),
        ] {
            let bytes = 34 << 20;
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            let start = Instant::now();
            // SAFETY: a new mapping, never unmapped.
            let memory =
                unsafe { mmap_anonymous(ptr::null_mut(), bytes, protection, flags) }.expect("maps");
            for advice in advice {
                // SAFETY: the mapping is ours.
                unsafe { madvise(memory, bytes, *advice) }.expect("is advised");
            }
            let mapped = start.elapsed();
            let start = Instant::now();
            call!(table, cuMemHostRegister_v2(memory, bytes, 3)).expect("registers");
            println!(
                "ops: 34 MiB {what}: made in {:.0} us, registered in {:.0} us",
                us(mapped),
                us(start.elapsed())
            );
        }
        let mut slot = ptr::null_mut();
        call!(table, cuMemHostAlloc(&raw mut slot, 128 << 20, 0)).expect("pinned memory");
        let host = slot.cast::<u8>();
        let (mut flag, mut word) = (ptr::null_mut(), 0);
        call!(table, cuMemHostAlloc(&raw mut flag, 4096, 0)).expect("pinned memory");
        call!(table, cuMemHostGetDevicePointer_v2(&raw mut word, flag, 0)).expect("has an address");
        // SAFETY: aligned and allocated above.
        let seen = unsafe { AtomicU32::from_ptr(flag.cast()) };
        let mut event = ptr::null_mut();
        let by_event = median(300, || {
            call!(table, cuMemcpyDtoHAsync_v2(slot, bench.device, 64, stream)).expect("copies");
            call!(table, cuEventCreate(&raw mut event, CUevent_flags::CU_EVENT_DISABLE_TIMING.0))
                .expect("an event");
            call!(table, cuEventRecord(event, stream)).expect("records");
            while call!(table, cuEventQuery(event)).is_err() {}
            call!(table, cuEventDestroy_v2(event)).expect("destroys");
        });
        call!(table, cuEventCreate(&raw mut event, CUevent_flags::CU_EVENT_DISABLE_TIMING.0))
            .expect("an event");
        let by_old_event = median(300, || {
            call!(table, cuMemcpyDtoHAsync_v2(slot, bench.device, 64, stream)).expect("copies");
            call!(table, cuEventRecord(event, stream)).expect("records");
            while call!(table, cuEventQuery(event)).is_err() {}
        });
        let mut value = 0;
        let by_flag = median(300, || {
            value += 1;
            call!(table, cuMemcpyDtoHAsync_v2(slot, bench.device, 64, stream)).expect("copies");
            call!(table, cuStreamWriteValue32_v2(stream, word, value, 0)).expect("writes");
            while seen.load(Ordering::Acquire) < value {}
        });
        let by_query = median(300, || {
            call!(table, cuMemcpyDtoHAsync_v2(slot, bench.device, 64, stream)).expect("copies");
            while call!(table, cuStreamQuery(stream)).is_err() {}
        });
        let mut plain = [0_u8; 64];
        let pageable = median(300, || {
            call!(table, cuMemcpyDtoHAsync_v2(plain.as_mut_ptr().cast(), bench.device, 64, stream))
                .expect("copies");
        });
        let idle = median(300, || call!(table, cuStreamQuery(stream)).expect("is idle"));
        println!(
            "ops: 64 B from the device until seen: new event {:.1}, event {:.1}, flag {:.1}, stream query {:.1}, pageable {:.1} us; query of an idle stream {:.2} us",
            us(by_event),
            us(by_old_event),
            us(by_flag),
            us(by_query),
            us(pageable),
            us(idle)
        );
        for (batch, group) in [
            (false, 512 << 10),
            (true, 512 << 10),
            (false, 1 << 20),
            (true, 1 << 20),
            (false, 2 << 20),
            (true, 2 << 20),
            (true, 4 << 20),
        ] {
            for to_device in [true, false] {
                let (mut queued, mut best) = (Duration::MAX, Duration::MAX);
                for _ in 0..7 {
                    let start = Instant::now();
                    for index in 0..(128 << 20) / group {
                        // SAFETY: within the 128 MiB above.
                        let at = unsafe { host.add(index * group) };
                        let from = bench.device + (index * group) as u64;
                        if to_device {
                            bench.table_in(at, from, group)
                        } else {
                            bench.table_out(at, from, group)
                        }
                        value += 1;
                        if batch {
                            memops(table, stream, word, value);
                        } else {
                            call!(table, cuStreamWriteValue32_v2(stream, word, value, 0))
                                .expect("writes");
                            call!(table, cuStreamWaitValue32_v2(stream, word, value, 0))
                                .expect("waits");
                        }
                    }
                    queued = queued.min(start.elapsed());
                    call!(table, cuStreamSynchronize(stream)).expect("ends");
                    best = best.min(start.elapsed());
                }
                println!(
                    "ops: 128 MiB in groups of {:>4} KiB, {} {}: queued in {:>5.0} us, {:.1} GB/s",
                    group >> 10,
                    if to_device { "to  " } else { "from" },
                    if batch { "batched " } else { "separate" },
                    us(queued),
                    (128 << 20) as f64 / best.as_secs_f64() / 1e9
                );
            }
        }
    }

    impl Bench<'_> {
        fn table_in(&self, host: *mut u8, device: u64, bytes: usize) {
            call!(self.table, cuMemcpyHtoDAsync_v2(device, host.cast(), bytes, self.stream))
                .expect("copies");
        }

        fn table_out(&self, host: *mut u8, device: u64, bytes: usize) {
            call!(self.table, cuMemcpyDtoHAsync_v2(host.cast(), device, bytes, self.stream))
                .expect("copies");
        }
    }

    fn memops(table: &Table, stream: CUstream, address: u64, value: u32) {
        use outboard_abi::{
            CUstreamBatchMemOpParams,
            CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st as WaitValue,
            CUstreamBatchMemOpParams_union_CUstreamMemOpWaitValueParams_st__bindgen_ty_1 as Value,
            CUstreamBatchMemOpType as Kind,
        };
        let mut list =
            [Kind::CU_STREAM_MEM_OP_WRITE_VALUE_32, Kind::CU_STREAM_MEM_OP_WAIT_VALUE_32].map(
                |operation| {
                    let mut params = CUstreamBatchMemOpParams { pad: [0; 6] };
                    let operand = Value { value64: value.into() };
                    params.waitValue = WaitValue {
                        operation,
                        address,
                        __bindgen_anon_1: operand,
                        flags: 0,
                        alias: 0,
                    };
                    params
                },
            );
        call!(table, cuStreamBatchMemOp_v2(stream, 2, list.as_mut_ptr(), 0)).expect("queues");
    }
}
