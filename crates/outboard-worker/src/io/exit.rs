//! How a worker process ends.

#[cfg(not(feature = "fuzzing"))]
use std::{sync::mpsc, time::Duration};

#[cfg(not(feature = "fuzzing"))]
use outboard_wire::notice::ENDED;

use super::replier::Replier;

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

/// For how long the client of a session that ends at once is told why. Nothing is read meanwhile.
#[cfg(not(feature = "fuzzing"))]
const TELLING: Duration = Duration::from_millis(100);

/// Ends this session and its process: the client broke the protocol. It is told so, if it reads.
#[cfg(not(feature = "fuzzing"))]
pub(crate) fn end_session(replier: Option<&Replier>, sentence: &str) -> ! {
    if let Some(replier) = replier.cloned() {
        let sentence = sentence.to_owned();
        let (done, told) = mpsc::channel();
        let tell = move || {
            let _ = replier.notice(ENDED, |writer| writer.str(&sentence));
            let _ = done.send(());
        };
        if std::thread::Builder::new().name("end".into()).spawn(tell).is_ok() {
            let _ = told.recv_timeout(TELLING);
        }
    }
    exit(BROKEN)
}

#[cfg(feature = "fuzzing")]
pub(crate) fn end_session(_replier: Option<&Replier>, _sentence: &str) -> ! {
    std::panic::resume_unwind(Box::new(Violation));
}

/// Ends the process without running exit handlers: the driver's may wait for the device.
pub(super) fn exit(code: i32) -> ! {
    // SAFETY: _exit has no preconditions; no destructor of this process needs to run.
    unsafe { libc::_exit(code) }
}

/// What ends a session, instead of its process.
#[cfg(feature = "fuzzing")]
pub(crate) struct Violation;
