//! How a worker process ends.

/// Exit codes, for the supervisor's log.
pub(super) const SERVED: i32 = 0;
pub(super) const REFUSED: i32 = 3;
pub(super) const BROKEN: i32 = 4;
pub(super) const PANICKED: i32 = 101;

/// A worker with a dead thread would leave its client waiting without end; without a worker, the
/// client gets an error.
pub(super) fn end_with_any_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if tracing::dispatcher::has_been_set() {
            tracing::error!(panic = %info, "the worker ends");
        } else {
            report(info);
        }
        exit(PANICKED)
    }));
}

/// Ends the process without running exit handlers: the driver's may wait for the device.
pub(super) fn exit(code: i32) -> ! {
    // SAFETY: _exit has no preconditions; no destructor of this process needs to run.
    unsafe { libc::_exit(code) }
}

/// What ends a session, instead of its process.
#[cfg(fuzzing)]
pub(crate) struct Violation;
