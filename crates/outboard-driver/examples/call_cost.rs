//! What calls of a driver library cost their caller, with one thread and with several.
//!
//! ```text
//! cargo build --release --package outboard-driver --example call_cost
//! outboard run --server ADDRESS -- target/release/examples/call_cost [THREADS]
//! ```
//!
//! Loads the `libcuda.so.1` that the loader finds, whichever that is: NVIDIA's, Outboard's, the
//! software device. What is told is the processor time of the threads that call, so that others on
//! the machine count little, and the wall time beside it.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use outboard_abi::*;
use outboard_driver::{Library, Table, call};

const PTX: &CStr = c"
.version 7.0
.target sm_70
.address_size 64
.visible .entry eight(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d, .param .u32 e, .param .u32 f, .param .f32 g, .param .f32 h)
{
    ret;
}
";

/// Live allocations while pointers are asked about.
const ALLOCATIONS: usize = 100_000;
/// While calls are made for their instructions to be counted.
const COUNTED_ALLOCATIONS: usize = 500;
/// Each figure is the best of this many rounds.
const ROUNDS: usize = 5;
/// Posted calls between two waits for the device, so that no queue is ever full.
const BATCH: usize = 2_000;

type Result<T> = std::result::Result<T, CUresult>;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // SAFETY: a driver library, or the loader finds none.
    let library = unsafe { Library::load(Path::new("libcuda.so.1")) }?;
    let outcome = match arguments.as_slice() {
        // For `cargo xtask counts`: makes calls, and measures nothing.
        [count, wanted, calls] if count == "--count" => {
            repeat(library.table, wanted, calls.parse()?)
        }
        _ => measure(library.table, arguments.first().map_or(Ok(8), |text| text.parse())?),
    };
    outcome.map_err(|error| format!("a call failed with error {}", error.0))?;
    Ok(())
}

/// What the calls need.
#[derive(Clone, Copy)]
struct Objects {
    context: CUcontext,
    stream: CUstream,
    event: CUevent,
    function: CUfunction,
    kernel: CUkernel,
    memory: CUdeviceptr,
    first: CUdeviceptr,
    allocations: u64,
}

// SAFETY: handles, which all threads may use.
unsafe impl Send for Objects {}
// SAFETY: as above.
unsafe impl Sync for Objects {}

/// A call with its name, and whether it is posted.
type Case = (&'static str, bool, fn(&Table, &Objects, usize) -> Result<()>);

fn cases() -> Vec<Case> {
    vec![
        ("cuCtxGetCurrent", false, |t, _, _| call!(t, cuCtxGetCurrent(&mut null_mut()))),
        ("cuCtxGetDevice", false, |t, _, _| call!(t, cuCtxGetDevice(&mut 0))),
        ("cuCtxPushCurrent + PopCurrent", false, |t, o, _| {
            call!(t, cuCtxPushCurrent_v2(o.context))?;
            call!(t, cuCtxPopCurrent_v2(&mut null_mut()))
        }),
        ("cuDeviceGetAttribute", false, |t, _, _| {
            let wanted = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
            call!(t, cuDeviceGetAttribute(&mut 0, wanted, 0))
        }),
        ("cuDevicePrimaryCtxGetState", false, |t, _, _| {
            call!(t, cuDevicePrimaryCtxGetState(0, &mut 0, &mut 0))
        }),
        ("cuFuncGetAttribute", false, |t, o, _| {
            call!(
                t,
                cuFuncGetAttribute(
                    &mut 0,
                    CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS,
                    o.function
                )
            )
        }),
        ("cuKernelGetAttribute", false, |t, o, _| {
            call!(
                t,
                cuKernelGetAttribute(
                    &mut 0,
                    CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS,
                    o.kernel,
                    0
                )
            )
        }),
        ("cuStreamIsCapturing", false, |t, o, _| {
            let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
            call!(t, cuStreamIsCapturing(o.stream, &mut status))
        }),
        ("cuStreamGetCaptureInfo_v2", false, |t, o, _| {
            let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
            call!(
                t,
                cuStreamGetCaptureInfo_v2(
                    o.stream,
                    &mut status,
                    null_mut(),
                    null_mut(),
                    null_mut(),
                    null_mut()
                )
            )
        }),
        ("cuOccupancyMaxActiveBlocksPerMultiprocessor", false, |t, o, _| {
            call!(t, cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut 0, o.function, 128, 0))
        }),
        ("cuGetProcAddress_v2", false, |t, _, _| {
            call!(
                t,
                cuGetProcAddress_v2(
                    c"cuLaunchKernel".as_ptr(),
                    &mut null_mut(),
                    12000,
                    0,
                    null_mut()
                )
            )
        }),
        ("cuPointerGetAttributes, 3 of 100,000 allocations", false, |t, o, index| {
            let (mut kind, mut ordinal, mut managed) = (0u32, 0i32, 0u32);
            let mut wanted = [
                CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_IS_MANAGED,
            ];
            let mut out: [*mut c_void; 3] =
                [(&raw mut kind).cast(), (&raw mut ordinal).cast(), (&raw mut managed).cast()];
            // All over the allocations.
            let address = o.first + (index as u64).wrapping_mul(7919) % o.allocations * 512;
            call!(t, cuPointerGetAttributes(3, wanted.as_mut_ptr(), out.as_mut_ptr(), address))
        }),
        ("cuLaunchKernel, 8 parameters", true, |t, o, _| launch(t, o.function, o.stream)),
        ("cuLaunchKernel of a CUkernel", true, |t, o, _| launch(t, o.kernel.cast(), o.stream)),
        ("cuEventRecord", true, |t, o, _| call!(t, cuEventRecord(o.event, o.stream))),
        ("cuStreamWaitEvent", true, |t, o, _| call!(t, cuStreamWaitEvent(o.stream, o.event, 0))),
        ("cuMemsetD32Async", true, |t, o, _| call!(t, cuMemsetD32Async(o.memory, 0, 1, o.stream))),
    ]
}

fn launch(t: &Table, function: CUfunction, stream: CUstream) -> Result<()> {
    let (mut pointers, mut words) = ([0u64; 4], [0u32; 4]);
    let mut params: [*mut c_void; 8] = [null_mut(); 8];
    for (index, pointer) in pointers.iter_mut().enumerate() {
        params[index] = (&raw mut *pointer).cast();
    }
    for (index, word) in words.iter_mut().enumerate() {
        params[4 + index] = (&raw mut *word).cast();
    }
    call!(t, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params.as_mut_ptr(), null_mut()))
}

/// Makes each call whose name begins with one of those wanted, some times.
fn repeat(t: Table, wanted: &str, calls: usize) -> Result<()> {
    let o = objects(&t, COUNTED_ALLOCATIONS)?;
    for (name, _, run) in cases() {
        if wanted.split(',').any(|wanted| name.split([' ', ',']).next() == Some(wanted)) {
            (0..calls).try_for_each(|index| run(&t, &o, index))?;
            call!(t, cuStreamSynchronize(o.stream))?;
        }
    }
    Ok(())
}

fn objects(t: &Table, allocations: usize) -> Result<Objects> {
    let mut o = Objects {
        context: null_mut(),
        stream: null_mut(),
        event: null_mut(),
        function: null_mut(),
        kernel: null_mut(),
        memory: 0,
        first: 0,
        allocations: allocations as u64,
    };
    call!(t, cuInit(0))?;
    call!(t, cuDevicePrimaryCtxRetain(&mut o.context, 0))?;
    call!(t, cuCtxSetCurrent(o.context))?;
    let (mut module, mut library) = (null_mut(), null_mut());
    call!(t, cuModuleLoadData(&mut module, PTX.as_ptr().cast()))?;
    call!(t, cuModuleGetFunction(&mut o.function, module, c"eight".as_ptr()))?;
    call!(
        t,
        cuLibraryLoadData(
            &mut library,
            PTX.as_ptr().cast(),
            null_mut(),
            null_mut(),
            0,
            null_mut(),
            null_mut(),
            0
        )
    )?;
    call!(t, cuLibraryGetKernel(&mut o.kernel, library, c"eight".as_ptr()))?;
    call!(t, cuMemAlloc_v2(&mut o.memory, 4096))?;
    // Small allocations lie next to each other; one that is cut in pieces would not do, as it is
    // one allocation.
    let mut all = Vec::with_capacity(allocations);
    for _ in 0..allocations {
        let mut address = 0;
        call!(t, cuMemAlloc_v2(&mut address, 512))?;
        all.push(address);
    }
    o.first = all.iter().copied().min().unwrap_or(0);
    let mut stream = null_mut();
    call!(t, cuStreamCreate(&mut stream, 1 as c_uint))?;
    let mut event = null_mut();
    call!(t, cuEventCreate(&mut event, 2 as c_uint))?;
    Ok(Objects { stream, event, ..o })
}

/// The processor time of the calling thread.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The best round of calls by each of several threads, each with a stream and an event of its own:
/// nanoseconds a call, of processor and wall time.
fn time(
    t: &Table,
    all: &[Objects],
    posted: bool,
    run: fn(&Table, &Objects, usize) -> Result<()>,
) -> Result<[f64; 2]> {
    let (calls, batches) = if posted { (BATCH, 10) } else { (200_000, 1) };
    let barrier = Barrier::new(all.len());
    let round = |o: &Objects| -> Result<[Duration; 2]> {
        call!(t, cuCtxSetCurrent(o.context))?;
        (0..64).try_for_each(|index| run(t, o, index))?;
        call!(t, cuStreamSynchronize(o.stream))?;
        let mut taken = [Duration::ZERO; 2];
        for _ in 0..batches {
            barrier.wait();
            let start = (processor_time(), Instant::now());
            (0..calls).try_for_each(|index| run(t, o, index))?;
            taken[0] += processor_time() - start.0;
            taken[1] += start.1.elapsed();
            if posted {
                call!(t, cuStreamSynchronize(o.stream))?;
            }
        }
        Ok(taken)
    };
    let mut best = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        let times: Vec<Result<[Duration; 2]>> = std::thread::scope(|scope| {
            let threads: Vec<_> = all.iter().map(|o| scope.spawn(|| round(o))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or(Err(CUresult::CUDA_ERROR_UNKNOWN)))
                .collect()
        });
        let slowest = times.into_iter().try_fold([Duration::ZERO; 2], |most, time| {
            time.map(|time| [time[0].max(most[0]), time[1].max(most[1])])
        })?;
        best = [best[0].min(slowest[0]), best[1].min(slowest[1])];
    }
    Ok(best.map(|best| best.as_nanos() as f64 / (calls * batches) as f64))
}

#[allow(clippy::print_stdout)]
fn measure(t: Table, threads: usize) -> Result<()> {
    let shared = objects(&t, ALLOCATIONS)?;
    let mut all = Vec::new();
    for _ in 0..threads.max(1) {
        let mut own = shared;
        call!(t, cuStreamCreate(&mut own.stream, 1 as c_uint))?;
        call!(t, cuEventCreate(&mut own.event, 2 as c_uint))?;
        all.push(own);
    }
    let many = format!("{threads} threads");
    println!(
        "{:<52} {:>10} {:>10} {:>10} {:>10}",
        "nanoseconds a call: processor, wall", "1 thread", "", many, ""
    );
    for (name, posted, run) in cases() {
        match (time(&t, &all[..1], posted, run), time(&t, &all, posted, run)) {
            (Ok([one, one_wall]), Ok([many, many_wall])) => {
                println!("{name:<52} {one:>10.1} {one_wall:>10.1} {many:>10.1} {many_wall:>10.1}");
            }
            (Err(error), _) | (_, Err(error)) => println!("{name:<52} error {}", error.0 as c_int),
        }
    }
    Ok(())
}
