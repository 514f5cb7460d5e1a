//! Where a stream and what is to be done when it has come meet.

use parking_lot::Mutex;

use crate::backend::Result;

type Passed = Box<dyn FnOnce(Result<()>) + Send>;

/// Does something when a stream has come to it and it is known what that is, whichever is first.
#[derive(Default)]
pub(super) struct Gate(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    Closed,
    /// The stream has come.
    Come(Result<()>),
    Known(Passed),
    Passed,
}

impl Gate {
    /// The stream has come.
    pub(super) fn come_to(&self, outcome: Result<()>) {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, State::Passed) {
            State::Known(passed) => {
                drop(state);
                passed(outcome);
            }
            _ => *state = State::Come(outcome),
        }
    }

    /// This is to be done then.
    pub(super) fn pass_with(&self, passed: impl FnOnce(Result<()>) + Send + 'static) {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, State::Passed) {
            State::Come(outcome) => {
                drop(state);
                passed(outcome);
            }
            _ => *state = State::Known(Box::new(passed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use outboard_abi::CUresult;

    use super::*;

    #[test]
    fn it_is_done_once_whichever_is_first() {
        for stream_is_first in [true, false] {
            for outcome in [Ok(()), Err(CUresult::CUDA_ERROR_UNKNOWN)] {
                let (gate, done) = (Gate::default(), Arc::new(AtomicU32::new(0)));
                let count = || {
                    let done = Arc::clone(&done);
                    move |told| {
                        assert_eq!(told, outcome);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                };
                if stream_is_first {
                    gate.come_to(outcome);
                    assert_eq!(done.load(Ordering::Relaxed), 0);
                    gate.pass_with(count());
                } else {
                    gate.pass_with(count());
                    assert_eq!(done.load(Ordering::Relaxed), 0);
                    gate.come_to(outcome);
                }
                assert_eq!(done.load(Ordering::Relaxed), 1);
            }
        }
    }
}
