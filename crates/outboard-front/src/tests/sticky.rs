//! Before `cuInit`, and after a fault.

use crate::backend::Faults as _;
use outboard_abi::{CUlimit, CUresult};

use super::cases::{ENDINGS, OTHERS};
use super::program::Program;
use super::*;
use crate::backend::ContextId;

const FAULT: CUresult = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;

/// Calls that need the context that is current, or that of what they are given.
fn in_context(program: Program) -> Vec<Box<dyn Fn() -> crate::backend::Result<()>>> {
    let (stream, event, memory, function) =
        (program.stream(), program.event(), program.memory(64), program.function());
    vec![
        Box::new(move || call!(program, cuCtxSynchronize)),
        Box::new(move || ask!(program, cuMemAlloc_v2, 64).map(drop)),
        Box::new(move || ask!(program, cuStreamCreate, 0).map(drop)),
        Box::new(move || ask!(program, cuEventCreate, 0).map(drop)),
        Box::new(move || call!(program, cuStreamSynchronize, stream)),
        Box::new(move || call!(program, cuStreamQuery, stream)),
        Box::new(move || call!(program, cuEventRecord, event, stream)),
        Box::new(move || call!(program, cuEventSynchronize, event)),
        Box::new(move || call!(program, cuMemsetD32_v2, memory, 0, 16, DefaultStream::Legacy)),
        Box::new(move || program.launch(function, stream)),
        Box::new(move || ask!(program, cuCtxGetLimit, CUlimit::CU_LIMIT_STACK_SIZE).map(drop)),
    ]
}

#[test]
fn nothing_works_before_cu_init() {
    let begun = Program::current();
    let made = std::thread::scope(|scope| {
        // In a thread where nothing is current.
        let check = move || {
            let program = Program::new();
            let not_yet = CUresult::CUDA_ERROR_NOT_INITIALIZED;
            assert_eq!(ask!(program, cuDeviceGet, 0), Err(not_yet));
            assert_eq!(ask!(program, cuDevicePrimaryCtxRetain, 0).map(drop), Err(not_yet));
            assert_eq!(ask!(program, cuCtxCreate_v2, 0, 0).map(drop), Err(not_yet));
            assert_eq!(ask!(program, cuMemAlloc_v2, 64), Err(not_yet));
            assert_eq!(call!(program, cuMemFree_v2, 4096), Err(not_yet));
            assert_eq!(ask!(program, cuStreamCreate, 0).map(drop), Err(not_yet));
            assert_eq!(call!(program, cuStreamSynchronize, core::ptr::null_mut()), Err(not_yet));
            assert_eq!(call!(program, cuEventDestroy_v2, 64 as _), Err(not_yet));
            assert_eq!(program.launch(64 as _, core::ptr::null_mut()), Err(not_yet));
            assert_eq!(call!(program, cuModuleUnload, 64 as _), Err(not_yet));
            assert_eq!(ask!(program, cuGraphCreate, 0).map(drop), Err(not_yet));
            assert_eq!(call!(program, cuCtxSynchronize), Err(not_yet));
            assert!(program.recorder.calls().is_empty());
        };
        scope.spawn(check).join()
    });
    assert!(made.is_ok());
    assert_eq!(call!(begun, cuCtxSynchronize), Ok(()));
}

#[test]
fn a_cu_init_that_fails_is_tried_again() {
    let program = Program::new();
    program.fail_next("platform", CUresult::CUDA_ERROR_SYSTEM_NOT_READY);
    assert_eq!(call!(program, cuInit, 0), Err(CUresult::CUDA_ERROR_SYSTEM_NOT_READY));
    assert_eq!(ask!(program, cuDeviceGetCount), Err(CUresult::CUDA_ERROR_NOT_INITIALIZED));
    assert_eq!(call!(program, cuInit, 0), Ok(()));
    assert_eq!(call!(program, cuInit, 0), Ok(()));
    let asked: Vec<_> = program.recorder.calls().iter().map(|call| call.method).collect();
    assert_eq!(asked, ["attach", "platform", "attach", "platform"]);
    assert_eq!(ask!(program, cuDeviceGetCount), Ok(2));
}

#[test]
fn a_fault_is_returned_by_all_that_needs_the_context_and_by_no_other_one() {
    let program = Program::current();
    let faulty = in_context(program);
    let other = program.make_current(1);
    let sound = in_context(program);
    program.process.fault(ContextId(1), FAULT);
    for (index, call) in sound.iter().enumerate() {
        assert_eq!(call(), Ok(()), "call {index} in the other context");
    }
    let first = ask!(program, cuDevicePrimaryCtxRetain, 0).expect("it is active");
    call!(program, cuCtxSetCurrent, first).expect("it may be current with a fault");
    let asked = program.methods_of(|| {
        for (index, call) in faulty.iter().enumerate() {
            assert_eq!(call(), Err(FAULT), "call {index} in the context with the fault");
        }
    });
    assert!(asked.is_empty(), "{asked:?}");
    program.process.fault(ContextId(1), CUresult::CUDA_ERROR_ASSERT);
    assert_eq!(call!(program, cuCtxSynchronize), Err(FAULT), "the first one stays");
    call!(program, cuCtxSetCurrent, other).expect("it is active");
    assert_eq!(call!(program, cuCtxSynchronize), Ok(()));
}

#[test]
fn a_reset_takes_the_fault_and_all_that_was_there() {
    let program = Program::current();
    let (stream, memory) = (program.stream(), program.memory(64));
    program.process.fault(ContextId(1), FAULT);
    assert_eq!(call!(program, cuCtxSynchronize), Err(FAULT));
    let asked =
        program.asked_by(|| assert_eq!(call!(program, cuDevicePrimaryCtxReset_v2, 0), Ok(())));
    assert_eq!(asked, ["context_close(ctx: ContextId(1))"]);
    let ended = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
    assert_eq!(call!(program, cuCtxSynchronize), Err(ended), "until somebody retains it");
    let handle = ask!(program, cuCtxGetCurrent).expect("it stays current");
    assert_eq!(ask!(program, cuDevicePrimaryCtxRetain, 0), Ok(handle));
    assert_eq!(call!(program, cuCtxSynchronize), Ok(()), "the same handle is a fresh context");
    assert_eq!(
        call!(program, cuStreamSynchronize, stream),
        Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)
    );
    assert_eq!(call!(program, cuMemFree_v2, memory), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    program.process.fault(ContextId(1), FAULT);
    assert_eq!(call!(program, cuCtxSynchronize), Ok(()), "a fault of the old one comes too late");
}

#[test]
fn a_reset_that_fails_is_mended_by_who_retains_the_context() {
    let program = Program::current();
    let (not_ready, ended) =
        (CUresult::CUDA_ERROR_SYSTEM_NOT_READY, CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
    program.fail_next("context_close", not_ready);
    assert_eq!(call!(program, cuDevicePrimaryCtxReset_v2, 0), Err(not_ready));
    assert_eq!(call!(program, cuCtxSynchronize), Err(ended));
    program.fail_next("context_open", not_ready);
    assert_eq!(ask!(program, cuDevicePrimaryCtxRetain, 0), Err(not_ready));
    assert_eq!(call!(program, cuCtxSynchronize), Err(ended));
    program.make_current(0);
    assert_eq!(call!(program, cuCtxSynchronize), Ok(()));
}

#[test]
fn a_reset_takes_nobody_s_use_of_the_context_away() {
    let program = Program::current();
    let is_active = || {
        let (mut flags, mut active) = (0, 0);
        call!(program, cuDevicePrimaryCtxGetState, 0, &raw mut flags, &raw mut active)
            .map(|()| active)
    };
    program.make_current(0);
    assert_eq!(is_active(), Ok(1));
    call!(program, cuDevicePrimaryCtxReset_v2, 0).expect("nothing fails");
    assert_eq!(is_active(), Ok(0));
    assert_eq!(call!(program, cuDevicePrimaryCtxReset_v2, 0), Ok(()), "there is nothing to reset");
    program.make_current(0);
    assert_eq!(is_active(), Ok(1));
    for left in [true, true, false] {
        assert_eq!(call!(program, cuDevicePrimaryCtxRelease_v2, 0), Ok(()));
        assert_eq!(is_active(), Ok(left.into()));
    }
    let nobody_s = CUresult::CUDA_ERROR_INVALID_CONTEXT;
    assert_eq!(call!(program, cuDevicePrimaryCtxRelease_v2, 0), Err(nobody_s));
}

/// What the end of a context leaves behind nothing of.
const OF_CONTEXTS: [&str; 9] = [
    "streams",
    "events",
    "memory",
    "arrays",
    "textures",
    "references",
    "modules",
    "functions",
    "peers",
];

#[test]
fn a_context_takes_all_that_is_in_it_along() {
    for case in OTHERS.iter().chain(ENDINGS) {
        let run = || {
            let program = Program::current();
            (case.prepare)(program)().expect("nothing fails");
            for device in 0..2 {
                call!(program, cuDevicePrimaryCtxReset_v2, device).expect("nothing fails");
            }
            let left: Vec<_> =
                program.process.counts().into_iter().filter(|(_, count)| *count > 0).collect();
            // What is mapped is mapped in the process.
            let may_stay = |part: &str| {
                !OF_CONTEXTS.contains(&part) || (case.name == "cuMemMap" && part == "memory")
            };
            assert!(left.iter().all(|(part, _)| may_stay(part)), "{}: {left:?}", case.name);
        };
        assert!(std::thread::scope(|scope| scope.spawn(run).join()).is_ok(), "{}", case.name);
    }
}
