//! Questions that a program asks many times for each launch. Each is asked by one thread, and by
//! several at once.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use outboard_abi::*;

use super::measure::Measure;
use super::sampling::{Prepared, turn};
use crate::lab::{Lab, Result, driver};
use crate::results::{Group, Unit};

/// Threads that ask at once.
const THREADS: usize = 4;
/// Questions for a sample.
const BATCH: u32 = 2_000;
/// Allocations that live while pointers are asked about.
const ALLOCATIONS: usize = 100_000;

const QUESTIONS: [(&str, &str); 5] = [
    ("device", "cuCtxGetDevice"),
    ("primary", "cuDevicePrimaryCtxGetState"),
    ("kernel", "cuKernelGetAttribute"),
    ("capturing", "cuStreamIsCapturing"),
    ("pointer", "cuPointerGetAttributes (3 attributes, 100,000 live allocations)"),
];

pub(super) fn catalogue() -> Vec<Measure> {
    let mut all = Vec::new();
    for (name, title) in QUESTIONS {
        all.push(Measure::new(format!("local.{name}"), title, Unit::Time, Group::Local));
        let title = format!("{title}, {THREADS} threads at once");
        all.push(Measure::new(format!("local.{name}.threads"), title, Unit::Time, Group::Local));
    }
    all
}

/// What a question needs.
#[derive(Clone)]
struct Question {
    lab: Lab,
    kernel: Option<Kernel>,
    pointers: Vec<CUdeviceptr>,
}

#[derive(Clone, Copy)]
struct Kernel(CUkernel);

// SAFETY: the driver's handles may be used from any thread of the process.
unsafe impl Send for Kernel {}
// SAFETY: as above; the field is never changed.
unsafe impl Sync for Kernel {}

pub(super) fn prepare(lab: &Lab, measure: &str, budget: Duration) -> Result<Option<Prepared>> {
    let (name, threads) = match measure.strip_suffix(".threads") {
        Some(name) => (name, THREADS),
        None => (measure, 1),
    };
    let mut question = Question { lab: *lab, kernel: None, pointers: Vec::new() };
    let ask: fn(&Question, u32) -> Result<()> = match name {
        "local.device" => device,
        "local.primary" => primary,
        "local.kernel" => {
            question.kernel = Some(Kernel(lab.library_kernel()?));
            kernel
        }
        "local.capturing" => capturing,
        "local.pointer" => {
            question.pointers =
                (0..ALLOCATIONS).map(|_| lab.allocate(256)).collect::<Result<_>>()?;
            pointer
        }
        _ => return Ok(None),
    };
    ask(&question, 0)?;
    let measure = measure.to_owned();
    Ok(Some(Box::new(move || {
        let started = Instant::now();
        let barrier = &Barrier::new(threads);
        let each = std::thread::scope(|scope| {
            let question = &question;
            let asking: Vec<_> = (0..threads)
                .map(|thread| {
                    scope.spawn(move || asker(question, ask, thread as u32, barrier, budget))
                })
                .collect();
            asking
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Ok(Vec::new())))
                .collect::<Result<Vec<_>>>()
        })?;
        let samples: Vec<f64> = each.into_iter().flatten().collect();
        let operations = samples.len() as u64 * u64::from(BATCH);
        Ok(turn(&measure, samples, operations, started))
    })))
}

/// Asks until the time is up; returns the mean times of batches.
fn asker(
    question: &Question,
    ask: fn(&Question, u32) -> Result<()>,
    thread: u32,
    barrier: &Barrier,
    budget: Duration,
) -> Result<Vec<f64>> {
    question.lab.enter()?;
    let mut samples = Vec::new();
    barrier.wait();
    let started = Instant::now();
    let mut number = thread.wrapping_mul(7919);
    while samples.len() < 3 || started.elapsed() < budget {
        let begun = Instant::now();
        for _ in 0..BATCH {
            ask(question, number)?;
            number = number.wrapping_add(1);
        }
        samples.push(begun.elapsed().as_secs_f64() / f64::from(BATCH));
    }
    Ok(samples)
}

fn device(question: &Question, _: u32) -> Result<()> {
    let mut device = 0;
    driver!(question.lab.table, cuCtxGetDevice(&mut device))
}

fn primary(question: &Question, _: u32) -> Result<()> {
    let (mut flags, mut active): (c_uint, c_int) = (0, 0);
    driver!(
        question.lab.table,
        cuDevicePrimaryCtxGetState(question.lab.device, &mut flags, &mut active)
    )
}

fn kernel(question: &Question, _: u32) -> Result<()> {
    let Some(Kernel(kernel)) = question.kernel else { return Ok(()) };
    let mut threads = 0;
    let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    driver!(
        question.lab.table,
        cuKernelGetAttribute(&mut threads, attribute, kernel, question.lab.device)
    )
}

fn capturing(question: &Question, _: u32) -> Result<()> {
    let mut status = CUstreamCaptureStatus_enum(0);
    driver!(question.lab.table, cuStreamIsCapturing(question.lab.stream, &mut status))
}

/// The three attributes that a runtime asks for when it is given a pointer.
fn pointer(question: &Question, number: u32) -> Result<()> {
    // Neighbouring questions are about far allocations.
    let at = number.wrapping_mul(2_654_435_761) as usize % question.pointers.len().max(1);
    let Some(address) = question.pointers.get(at) else { return Ok(()) };
    let mut attributes = [
        CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    ];
    let (mut kind, mut pointer, mut ordinal) = (0u32, 0u64, 0i32);
    let mut places: [*mut c_void; 3] =
        [(&raw mut kind).cast(), (&raw mut pointer).cast(), (&raw mut ordinal).cast()];
    let (attributes, places) = (attributes.as_mut_ptr(), places.as_mut_ptr());
    driver!(question.lab.table, cuPointerGetAttributes(3, attributes, places, *address))
}
