//! Between a client's commands and a driver that may be suspended.
//!
//! While the dispatcher has commands, or waits for the device on their behalf, the gate is busy.
//! Otherwise the supervisor may have it closed, and then the next command waits until the
//! supervisor has had the driver resumed.

use outboard_control::meter;
use parking_lot::{Condvar, Mutex, MutexGuard};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GateState {
    Busy,
    Idle,
    Closed,
    /// Closed, and a command waits.
    Awaited,
}

impl GateState {
    fn is_closed(self) -> bool {
        matches!(self, GateState::Closed | GateState::Awaited)
    }
}

/// The gate.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<GateState>,
    opened: Condvar,
}

impl Gate {
    pub(super) fn new() -> Gate {
        Gate { state: Mutex::new(GateState::Busy), opened: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock()
    }

    /// Commands have come. If the gate is closed, says so by `wake`, and waits.
    pub(super) fn enter(&self, wake: impl FnOnce()) {
        let mut state = self.lock();
        if state.is_closed() {
            *state = GateState::Awaited;
            wake();
            while state.is_closed() {
                self.opened.wait(&mut state);
            }
        }
        *state = GateState::Busy;
    }

    /// Nothing is left to do.
    pub(super) fn leave(&self) {
        let mut state = self.lock();
        if *state == GateState::Busy {
            *state = GateState::Idle;
        }
    }

    /// Closes the gate if nothing is to do; whether it is closed.
    pub(super) fn close(&self) -> bool {
        let mut state = self.lock();
        if *state == GateState::Idle {
            *state = GateState::Closed;
            meter::page().set_suspended(true);
        }
        state.is_closed()
    }

    /// Whether it is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed()
    }

    /// Whether it is closed and a command waits.
    pub(super) fn is_awaited(&self) -> bool {
        *self.lock() == GateState::Awaited
    }

    /// Opens it again.
    pub(super) fn open(&self) {
        let mut state = self.lock();
        if state.is_closed() {
            *state = GateState::Idle;
            meter::page().set_suspended(false);
            self.opened.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_closed_gate_holds_commands_up_until_it_opens() {
        let gate = Gate::new();
        assert!(!gate.close(), "there may be commands");
        gate.leave();
        assert!(gate.close() && gate.close());
        gate.leave();
        assert!(gate.is_closed() && !gate.is_awaited());
        let (asked, asked_for) = channel();
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| gate.enter(|| asked.send(()).unwrap()));
            asked_for.recv().unwrap();
            assert!(!inside.is_finished() && gate.close());
            // As soon as the command has let go of the gate.
            while !gate.is_awaited() {
                std::thread::yield_now();
            }
            gate.open();
            inside.join().unwrap();
        });
        assert!(!gate.is_closed() && !gate.is_awaited());
        assert!(!gate.close(), "the command is being carried out");
        gate.enter(|| panic!("it is open"));
    }
}
