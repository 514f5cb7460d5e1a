//! What becomes of a call whose back end fails: it returns that failure, and leaves everything as
//! it was.

use outboard_abi::CUresult;

use super::cases::{Case, ENDINGS, OTHERS};
use super::program::Program;
use super::*;

/// An error that nothing in the front makes itself.
const FAILURE: CUresult = CUresult::CUDA_ERROR_SYSTEM_NOT_READY;
const STICKY: CUresult = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;

/// Runs a test of each case with a program of its own, in a thread of its own, and says which
/// failed.
fn each(cases: &[Case], test: fn(Program, &Case)) {
    let mut failed = Vec::new();
    for case in cases {
        let outcome =
            std::thread::scope(|scope| scope.spawn(|| test(Program::current(), case)).join());
        if outcome.is_err() {
            failed.push(case.name);
        }
    }
    assert!(failed.is_empty(), "of {} cases, {} failed: {failed:?}", cases.len(), failed.len());
}

#[test]
fn a_failure_is_returned_and_leaves_nothing_behind() {
    each(OTHERS, |program, case| {
        let call = (case.prepare)(program);
        let before = program.process.counts();
        program.fail_next(case.method, FAILURE);
        assert_eq!(call(), Err(FAILURE), "{}", case.name);
        assert_eq!(program.process.counts(), before, "{}", case.name);
        assert_eq!(call(), Ok(()), "{}: a later call has nothing to do with it", case.name);
    });
}

#[test]
fn a_failure_is_asked_again() {
    each(OTHERS, |program, case| {
        let call = (case.prepare)(program);
        program.fail_next(case.method, FAILURE);
        let asked = program.methods_of(|| {
            let _ = call();
            let _ = call();
        });
        let times = asked.iter().filter(|method| **method == case.method).count();
        // What the device is told of a graph it is told once.
        let is_told = matches!(case.method, "graph_create" | "graph_edit");
        assert!(times >= 2 || is_told, "{}: {asked:?}", case.name);
    });
}

#[test]
fn what_ends_has_ended_even_if_the_back_end_fails() {
    each(ENDINGS, |program, case| {
        let call = (case.prepare)(program);
        program.fail_next(case.method, FAILURE);
        assert_eq!(call(), Err(FAILURE), "{}", case.name);
        let after = program.process.counts();
        let other = std::thread::spawn({
            let prepare = case.prepare;
            move || {
                let program = Program::current();
                assert_eq!(prepare(program)(), Ok(()));
                program.process.counts()
            }
        });
        assert_eq!(after, other.join().expect("it works without a failure"), "{}", case.name);
        assert_ne!(call(), Ok(()), "{}: it has ended", case.name);
    });
}

/// Whether the last call of a method was in the context that is current.
fn was_in_the_context(program: Program, method: &str) -> bool {
    let calls = program.recorder.calls();
    let last = calls.iter().rfind(|call| call.method == method).expect("it was called");
    !method.starts_with("context_") && last.arguments.starts_with("ctx: ContextId(1)")
}

fn stays(program: Program, case: &Case) {
    let call = (case.prepare)(program);
    program.fail_next(case.method, STICKY);
    let outcome = call();
    if !was_in_the_context(program, case.method) {
        return;
    }
    // With its context gone there is nothing left to unload.
    assert!(outcome == Err(STICKY) || case.name == "cuLibraryUnload", "{}", case.name);
    let asked = program
        .asked_by(|| assert_eq!(call!(program, cuCtxSynchronize), Err(STICKY), "{}", case.name));
    assert!(asked.is_empty(), "{}: {asked:?}", case.name);
}

#[test]
fn a_sticky_failure_stays_with_its_context() {
    each(OTHERS, stays);
}

#[test]
fn a_sticky_failure_to_end_something_stays_with_its_context() {
    each(ENDINGS, stays);
}
