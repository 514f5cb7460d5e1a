//! The connection that carries a link's commands: the one as of now, whether it is broken, and
//! whether the link is lost for good.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use outboard_transport::Stream;
use outboard_wire::handshake::resume::Point;

use super::error::{ConnectError, LinkError};
use super::locks::lock;

/// Connects once more, to a session that goes on at this point; within about so long.
pub(super) type Again =
    Box<dyn Fn(Point, Duration) -> Result<(Arc<dyn Stream>, Point), ConnectError> + Send + Sync>;

/// How a link connects again after its connection was lost.
pub(super) struct Resume {
    pub(super) again: Again,
    /// For how long it tries.
    pub(super) grace: Duration,
}

/// One connection out of those that a link has in turn.
#[derive(Debug, Clone)]
pub(super) struct Current {
    pub(super) stream: Arc<dyn Stream>,
    pub(super) epoch: u64,
}

pub(super) struct Connection {
    now: Mutex<Now>,
    /// Whether it is broken.
    down: AtomicBool,
    changed: Condvar,
    resume: Option<Resume>,
    /// The only connection there will be.
    only: Option<Arc<dyn Stream>>,
    /// The descriptor of the connection as of now, for forked children; negative if there is none.
    descriptor: AtomicI32,
    /// Why the link is lost, if it is.
    lost: OnceLock<Arc<str>>,
    /// The process is ending, or the link is.
    leaving: AtomicBool,
}

struct Now {
    current: Current,
    broken: Option<Broken>,
}

/// When a connection broke, and why.
#[derive(Clone)]
pub(super) struct Broken {
    pub(super) since: Instant,
    pub(super) reason: String,
}

/// The longest that one attempt may take to connect, and then to be answered.
pub(super) const ATTEMPT: Duration = Duration::from_secs(2);

/// The descriptor of a stream, as forked children take it.
pub(super) fn descriptor(stream: &dyn Stream) -> i32 {
    stream.socket().map_or(-1, |fd| fd.as_raw_fd())
}

impl Connection {
    pub(super) fn new(stream: Arc<dyn Stream>, resume: Option<Resume>) -> Connection {
        let only = resume.is_none().then(|| Arc::clone(&stream));
        let descriptor = AtomicI32::new(descriptor(&*stream));
        let now = Mutex::new(Now { current: Current { stream, epoch: 0 }, broken: None });
        Connection {
            now,
            down: AtomicBool::new(false),
            changed: Condvar::new(),
            resume,
            only,
            descriptor,
            lost: OnceLock::new(),
            leaving: AtomicBool::new(false),
        }
    }

    pub(super) fn is_resumable(&self) -> bool {
        self.resume.is_some()
    }

    /// How it is replaced, if it can be.
    pub(super) fn resume(&self) -> Option<&Resume> {
        self.resume.as_ref()
    }

    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Why the link is lost, for who needs it.
    pub(super) fn lost(&self) -> LinkError {
        LinkError::Lost(
            self.lost.get().cloned().unwrap_or_else(|| "the reason is not known".into()),
        )
    }

    /// The link is lost; false if it was before, for another reason.
    pub(super) fn lose(&self, reason: &str) -> bool {
        self.lost.set(reason.into()).is_ok()
    }

    /// Whether the process is ending, or the link is.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    pub(super) fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// The connection of that epoch has failed; false if that is known, or no longer matters.
    pub(super) fn fail(&self, epoch: u64, error: &io::Error) -> bool {
        let stream = {
            let mut now = lock(&self.now);
            if now.current.epoch != epoch || now.broken.is_some() || self.is_lost() {
                return false;
            }
            let reason = match error.kind() {
                io::ErrorKind::UnexpectedEof => "it was closed".to_owned(),
                _ => error.to_string(),
            };
            self.down.store(true, Ordering::Release);
            now.broken = Some(Broken { since: Instant::now(), reason });
            Arc::clone(&now.current.stream)
        };
        // Threads that are blocked on it return.
        let _ = stream.shutdown();
        true
    }

    /// When it broke, and why, if it is broken.
    pub(super) fn failure(&self) -> Option<Broken> {
        lock(&self.now).broken.clone()
    }

    /// Waits until the connection of that epoch has been replaced, or the link is lost.
    pub(super) fn wait_for_next(&self, epoch: u64) {
        let mut now = lock(&self.now);
        while now.current.epoch == epoch && now.broken.is_some() && !self.is_lost() {
            now = self.changed.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for so long, or until the link is lost.
    pub(super) fn pause(&self, time: Duration) {
        let now = lock(&self.now);
        if !self.is_lost() {
            drop(self.changed.wait_timeout(now, time));
        }
    }

    /// Takes another connection in place of the broken one, whose stream is returned. No thread
    /// sees it before `switch` is done; those that wait for it are [told](Self::tell) afterwards.
    pub(super) fn replace(
        &self,
        stream: &Arc<dyn Stream>,
        switch: impl FnOnce(&Current),
    ) -> Arc<dyn Stream> {
        let mut now = lock(&self.now);
        let old = std::mem::replace(&mut now.current.stream, Arc::clone(stream));
        now.current.epoch += 1;
        now.broken = None;
        self.down.store(false, Ordering::Release);
        // A child that is forked here keeps one of the two open at worst, until it ends or becomes
        // another program.
        self.descriptor.store(descriptor(&**stream), Ordering::Release);
        switch(&now.current);
        old
    }

    /// Wakes the threads that wait for another connection.
    pub(super) fn tell(&self) {
        self.changed.notify_all();
    }

    pub(super) fn current(&self) -> Current {
        lock(&self.now).current.clone()
    }

    pub(super) fn is_broken(&self) -> bool {
        self.down.load(Ordering::Acquire)
    }

    /// Ends the connection as of now, and wakes all who wait for another.
    pub(super) fn shutdown(&self) {
        let stream = self.current().stream;
        // It may be shut down already; those blocked on it return in any case.
        let _ = stream.shutdown();
        self.changed.notify_all();
    }

    /// In a forked child: closes the child's descriptor of the connection and leaves the parent's
    /// alone. Takes no locks.
    pub(super) fn abandon(&self) {
        match &self.only {
            // The child has no one to tell of an error.
            Some(only) => drop(only.abandon()),
            None => drop(outboard_transport::abandon(self.descriptor.load(Ordering::Acquire))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use outboard_transport::pipe;

    use super::*;

    fn stream() -> Arc<dyn Stream> {
        let (stream, _) = pipe::pair().unwrap();
        stream
    }

    fn resumable() -> Connection {
        let again = |_: Point, _| Err(ConnectError::Local(io::ErrorKind::NotConnected.into()));
        let resume = Resume { again: Box::new(again), grace: Duration::from_secs(1) };
        Connection::new(stream(), Some(resume))
    }

    fn failure() -> io::Error {
        io::ErrorKind::UnexpectedEof.into()
    }

    #[test]
    fn a_failure_counts_once_and_only_for_the_connection_that_met_it() {
        let connection = resumable();
        assert!(!connection.fail(1, &failure()) && !connection.is_broken());
        assert!(connection.fail(0, &failure()) && connection.is_broken());
        assert_eq!(connection.failure().unwrap().reason, "it was closed");
        assert!(!connection.fail(0, &failure()));
        let mut epoch = 0;
        connection.replace(&stream(), |current| epoch = current.epoch);
        assert_eq!((epoch, connection.is_broken()), (1, false));
        assert!(!connection.fail(0, &failure()), "a late thread does no harm");
        assert!(connection.failure().is_none());
    }

    #[test]
    fn who_waits_for_another_connection_goes_on_with_it_or_with_the_end() {
        for ends in [false, true] {
            let connection = resumable();
            connection.fail(0, &failure());
            thread::scope(|scope| {
                let waiting = scope.spawn(|| connection.wait_for_next(0));
                if ends {
                    assert!(connection.lose("it is over"));
                    connection.shutdown();
                } else {
                    connection.replace(&stream(), |_| ());
                    connection.tell();
                }
                waiting.join().unwrap();
            });
            assert_eq!(connection.is_lost(), ends);
        }
    }

    #[test]
    fn the_first_reason_for_the_end_stays() {
        let connection = resumable();
        assert!(connection.lose("first") && !connection.lose("second"));
        assert_eq!(connection.lost(), LinkError::Lost("first".into()));
        connection.pause(Duration::MAX);
        assert!(!connection.fail(0, &failure()) && !connection.is_broken());
    }
}
