//! The stream over which two sides have met before they moved to another transport.

use std::io;
use std::sync::{Arc, Mutex};

use crate::locks::lock;
use crate::stream::Stream;

/// Such a stream. Several threads hear of its end, and each learns why: the system says so once.
#[derive(Debug)]
pub(crate) struct Met {
    pub(crate) stream: Arc<dyn Stream>,
    failure: Mutex<Option<io::ErrorKind>>,
}

impl Met {
    pub(crate) fn new(stream: Arc<dyn Stream>) -> Met {
        Met { stream, failure: Mutex::default() }
    }

    /// As [`Stream::read`].
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // Another thread that is told of the end meanwhile waits for the reason.
        let mut failure = lock(&self.failure);
        self.stream.read(buffer).inspect_err(|error| {
            if error.kind() != io::ErrorKind::WouldBlock {
                failure.get_or_insert(error.kind());
            }
        })
    }

    /// Why the stream has failed, if it has.
    pub(crate) fn error(&self) -> Option<io::Error> {
        let mut failure = lock(&self.failure);
        if failure.is_none() {
            *failure = self.stream.error().map(|error| error.kind());
        }
        failure.map(io::Error::from)
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::stream::{Capabilities, Interest, Readiness};
    use crate::waker::Waker;

    /// A stream whose peer was silent for too long, which it says once.
    #[derive(Debug, Default)]
    struct Silent {
        is_said: AtomicBool,
    }

    impl Silent {
        fn once(&self) -> Option<io::Error> {
            let was_said = self.is_said.swap(true, Ordering::Relaxed);
            (!was_said).then(|| io::ErrorKind::TimedOut.into())
        }
    }

    impl Stream for Silent {
        fn read(&self, _: &mut [u8]) -> io::Result<usize> {
            self.once().map_or(Ok(0), Err)
        }

        fn write(&self, _: &[IoSlice<'_>]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn wait(
            &self,
            _: Interest,
            _: Option<&Waker>,
            _: Option<Duration>,
        ) -> io::Result<Readiness> {
            Ok(Readiness { hangup: true, ..Readiness::default() })
        }

        fn shutdown(&self) -> io::Result<()> {
            Ok(())
        }

        fn abandon(&self) -> io::Result<()> {
            Ok(())
        }

        fn error(&self) -> Option<io::Error> {
            self.once()
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities::default()
        }

        fn transport(&self) -> &'static str {
            "silent"
        }

        fn peer(&self) -> String {
            String::new()
        }
    }

    #[test]
    fn every_thread_learns_why_the_stream_has_ended() {
        let silent = || Met::new(Arc::new(Silent::default()));
        let met = silent();
        assert_eq!(met.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        for _ in 0..2 {
            assert_eq!(met.error().unwrap().kind(), io::ErrorKind::TimedOut);
        }
        let asked = silent();
        for _ in 0..2 {
            assert_eq!(asked.error().unwrap().kind(), io::ErrorKind::TimedOut);
        }
    }
}
