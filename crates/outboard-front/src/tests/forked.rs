//! A forked child: it shares no connection with its parent, so that nothing works there and nobody
//! is asked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use outboard_abi::CUresult;

use super::cases::{ENDINGS, OTHERS};
use super::program::Program;
use super::*;
use crate::entry::enter;

/// Runs `check` in a child, which ends with its answer, and gives that.
fn in_child(check: impl FnOnce() -> u8) -> i32 {
    // SAFETY: the child uses what its only thread has, and ends without anything that would run at
    // the end of a program.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let answer = catch_unwind(AssertUnwindSafe(check)).unwrap_or(PANICKED);
        // SAFETY: as above.
        unsafe { libc::_exit(answer.into()) };
    }
    assert!(child > 0, "there is no child");
    let mut status = 0;
    // SAFETY: a child of this thread's, waited for once.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert!(waited == child && libc::WIFEXITED(status), "status {status}");
    libc::WEXITSTATUS(status)
}

const FINE: u8 = 0;
const OTHER_OUTCOME: u8 = 1;
const ASKED: u8 = 2;
const PANICKED: u8 = 3;

const NOT_INITIALIZED: CUresult = CUresult::CUDA_ERROR_NOT_INITIALIZED;

#[test]
fn a_child_gets_an_error_and_its_parent_goes_on() {
    let mut wrong = Vec::new();
    for case in OTHERS.iter().chain(ENDINGS) {
        let run = || {
            let program = Program::current();
            let call = (case.prepare)(program);
            let asked = program.recorder.calls().len();
            let answer = in_child(|| match (call(), program.recorder.calls().len() == asked) {
                (Err(NOT_INITIALIZED), true) => FINE,
                (_, true) => OTHER_OUTCOME,
                (_, false) => ASKED,
            });
            assert_eq!(call(), Ok(()), "{}: the parent goes on", case.name);
            answer
        };
        match std::thread::scope(|scope| scope.spawn(run).join()) {
            Ok(answer) if answer == i32::from(FINE) => {}
            outcome => wrong.push((case.name, outcome.ok())),
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_child_waits_for_no_lock_of_its_parent() {
    let program = Program::current();
    let (stream, function) = (program.stream(), program.function());
    // As if another thread were about to write to them just now.
    let logs = &program.process.logs;
    let held = (logs.log.lock(), logs.listeners.lock());
    logs.listening.fetch_add(1, Ordering::Relaxed);
    let answer = in_child(|| {
        // SAFETY: an alarm that nobody handles ends the child.
        unsafe { libc::alarm(60) };
        match enter(program.process, 0, || program.launch(function, stream)) {
            NOT_INITIALIZED => FINE,
            _ => OTHER_OUTCOME,
        }
    });
    drop(held);
    assert_eq!(answer, i32::from(FINE));
}

#[test]
fn a_child_cannot_begin_again() {
    let program = Program::current();
    let (stream, function) = (program.stream(), program.function());
    let asked = program.recorder.calls().len();
    let answer = in_child(|| {
        let (mut flags, mut priority) = (0, 0);
        let outcomes = [
            call!(program, cuInit, 0),
            ask!(program, cuDeviceGetCount).map(drop),
            ask!(program, cuDeviceGet, 0).map(drop),
            ask!(program, cuCtxGetCurrent).map(drop),
            ask!(program, cuCtxGetDevice).map(drop),
            call!(program, cuStreamGetFlags, stream, &raw mut flags),
            call!(program, cuStreamGetPriority, stream, &raw mut priority),
            program.launch(function, stream),
        ];
        let fresh = Program::new();
        let none = outcomes.iter().all(|outcome| *outcome == Err(NOT_INITIALIZED));
        match (none && call!(fresh, cuInit, 0).is_err(), program.recorder.calls().len() == asked) {
            (true, true) if fresh.recorder.calls().is_empty() => FINE,
            (false, _) => OTHER_OUTCOME,
            _ => ASKED,
        }
    });
    assert_eq!(answer, i32::from(FINE));
    assert_eq!(ask!(program, cuDeviceGetCount), Ok(2));
    assert_eq!(program.launch(function, stream), Ok(()));
}

#[test]
fn a_child_can_be_forked_while_programs_begin() {
    let begin = || (0..150).for_each(|_| _ = Program::ready());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(begin)).collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            assert_eq!(in_child(|| FINE), i32::from(FINE));
        }
    });
}
