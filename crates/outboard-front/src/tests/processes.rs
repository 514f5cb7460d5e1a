//! Two processes at once: what one has is not there for the other.

use crate::backend::DevicePtr;
use crate::backend::Faults as _;
use outboard_abi::CUresult;

use super::program::{Program, two_sides};
use super::*;

/// What a program has made, as numbers: pointers stay in their threads.
struct Made {
    context: u64,
    stream: u64,
    event: u64,
    module: u64,
    function: u64,
    memory: u64,
}

/// Makes one of each after `before` others, so that the handles are not those of a program that
/// makes fewer.
fn make(program: Program, before: usize) -> Made {
    program.make_current(0);
    let mut made = None;
    for _ in 0..=before {
        made = Some(Made {
            context: ask!(program, cuCtxCreate_v2, 0, 0).expect("the recorder opens contexts")
                as u64,
            stream: program.stream() as u64,
            event: program.event() as u64,
            module: program.module() as u64,
            function: program.function() as u64,
            memory: program.memory(64),
        });
    }
    made.expect("one at least")
}

/// What a program says to handles and addresses that are not its own.
fn use_foreign(program: Program, foreign: &Made) {
    let gone = Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
    let invalid_handle = Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    let invalid_value = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    assert_eq!(call!(program, cuCtxSetCurrent, foreign.context as _), gone);
    assert_eq!(call!(program, cuCtxDestroy_v2, foreign.context as _), gone);
    assert_eq!(call!(program, cuStreamSynchronize, foreign.stream as _), gone);
    assert_eq!(call!(program, cuStreamDestroy_v2, foreign.stream as _), gone);
    assert_eq!(call!(program, cuEventQuery, foreign.event as _), gone);
    assert_eq!(call!(program, cuEventDestroy_v2, foreign.event as _), gone);
    assert_eq!(call!(program, cuModuleUnload, foreign.module as _), invalid_handle);
    assert_eq!(program.launch(foreign.function as _, core::ptr::null_mut()), invalid_handle);
    assert_eq!(call!(program, cuMemFree_v2, foreign.memory), invalid_value);
    assert_eq!(
        call!(program, cuMemsetD32_v2, foreign.memory, 0, 16, DefaultStream::Legacy),
        invalid_value
    );
}

/// One that gives addresses where others give none: a device has them of its own.
fn elsewhere() -> Program {
    let program = Program::ready();
    program.recorder.answer_with("memory_alloc", DevicePtr(0x7f00_0000_0000));
    program
}

#[test]
fn programs_at_once_know_nothing_of_each_other() {
    let (many, few) = (Program::ready(), elsewhere());
    let (side, other_side) = two_sides();
    let of_many = &std::sync::OnceLock::new();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            of_many.get_or_init(|| make(many, 2));
            let asked = many.asked_by(|| {
                side.meet();
                // Meanwhile the other one works.
                side.meet();
            });
            assert!(asked.is_empty(), "{asked:?}");
            assert_eq!(call!(many, cuCtxSynchronize), Ok(()));
        });
        scope.spawn(move || {
            make(few, 0);
            other_side.meet();
            let of_many = of_many.get().expect("it has been made");
            let asked = few.methods_of(|| use_foreign(few, of_many));
            make(few, 0);
            other_side.meet();
            assert!(asked.is_empty(), "{asked:?}");
        });
    });
}

#[test]
fn one_program_after_the_other_begins_afresh() {
    let run = |program: Program| {
        std::thread::scope(|scope| {
            scope
                .spawn(move || {
                    assert_eq!(
                        ask!(program, cuCtxGetCurrent).map(|context| context as u64),
                        Ok(0),
                        "of no other thread"
                    );
                    let made = make(program, 1);
                    assert_eq!(call!(program, cuMemFree_v2, made.memory), Ok(()));
                    assert_eq!(call!(program, cuStreamDestroy_v2, made.stream as _), Ok(()));
                    program.recorder.calls().iter().map(ToString::to_string).collect::<Vec<_>>()
                })
                .join()
                .expect("it works")
        })
    };
    let (first, second) = (run(Program::ready()), run(Program::ready()));
    let without_attach = |calls: &[String]| calls[1..].to_vec();
    assert_eq!(
        without_attach(&first),
        without_attach(&second),
        "the second is asked what the first was"
    );
    assert!(first.len() > 10, "{first:?}");
}

#[test]
fn a_fault_is_of_its_process() {
    let (faulty, sound) = (Program::ready(), Program::ready());
    let work = |program: Program| {
        move || {
            program.make_current(0);
            call!(program, cuCtxSynchronize)
        }
    };
    assert_eq!(std::thread::spawn(work(faulty)).join().ok(), Some(Ok(())));
    assert_eq!(std::thread::spawn(work(sound)).join().ok(), Some(Ok(())));
    let error = CUresult::CUDA_ERROR_ASSERT;
    faulty.process.fault(crate::backend::ContextId(1), error);
    assert_eq!(std::thread::spawn(work(faulty)).join().ok(), Some(Err(error)));
    assert_eq!(
        std::thread::spawn(work(sound)).join().ok(),
        Some(Ok(())),
        "it has a context of that number too"
    );
}

#[test]
fn a_program_that_has_not_begun_is_not_begun_by_another() {
    let begun = Program::ready();
    let other = Program::new();
    assert_eq!(ask!(begun, cuDeviceGetCount), Ok(2));
    assert_eq!(ask!(other, cuDeviceGetCount), Err(CUresult::CUDA_ERROR_NOT_INITIALIZED));
    assert!(other.recorder.calls().is_empty());
}
