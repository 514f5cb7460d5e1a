//! Reads and writes that wait until they are complete.

use std::io::{self, IoSlice};
use std::time::{Duration, Instant};

use crate::stream::{Interest, Readiness, Stream};
use crate::touch;

/// Writes all of `bytes`, waiting as needed.
///
/// # Errors
/// The stream's error. Some bytes may have been written then.
pub fn write_all(stream: &dyn Stream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(&[IoSlice::new(bytes)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                block(stream, Interest::WRITE, None)?
            }
            Err(error) if touch::is_closed(&error) => touch::to_read(bytes),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fills `buffer`, waiting as needed; the end before that is [`io::ErrorKind::UnexpectedEof`].
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] if the stream ends before, or the stream's error.
pub fn read_exact(stream: &dyn Stream, buffer: &mut [u8]) -> io::Result<()> {
    read_exact_unless_silent(stream, buffer, None)
}

/// As [`read_exact`]; [`io::ErrorKind::TimedOut`] if no byte arrives for the time `silence`.
///
/// # Errors
/// As [`read_exact`], and [`io::ErrorKind::TimedOut`].
pub fn read_exact_unless_silent(
    stream: &dyn Stream,
    mut buffer: &mut [u8],
    silence: Option<Duration>,
) -> io::Result<()> {
    while !buffer.is_empty() {
        match stream.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => buffer = &mut buffer[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                block(stream, Interest::READ, silence)?
            }
            Err(error) if touch::is_closed(&error) => touch::to_write(buffer),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Like [`read_exact`], but fails with [`io::ErrorKind::TimedOut`] when `deadline` has passed.
///
/// # Errors
/// As [`read_exact`], and [`io::ErrorKind::TimedOut`].
pub fn read_exact_until(
    stream: &dyn Stream,
    mut buffer: &mut [u8],
    deadline: Instant,
) -> io::Result<()> {
    while !buffer.is_empty() {
        match stream.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => buffer = &mut buffer[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                stream.wait(Interest::READ, None, Some(left))?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// How often a waiting thread calls [`Stream::check_peer`].
pub const PEER_CHECK: Duration = Duration::from_secs(2);

/// Waits in the middle of a frame, for at most `silence` if there is a limit, and notices a peer
/// that no longer answers. A wait counts for as long as it was to last: if it took longer, this
/// thread did not run meanwhile, and perhaps the peer did not either.
pub(crate) fn block(
    stream: &dyn Stream,
    interest: Interest,
    silence: Option<Duration>,
) -> io::Result<()> {
    block_and_check(stream, interest, silence, PEER_CHECK)
}

fn block_and_check(
    stream: &dyn Stream,
    interest: Interest,
    silence: Option<Duration>,
    every: Duration,
) -> io::Result<()> {
    let mut left = silence;
    loop {
        let time = left.map_or(every, |left| left.min(every));
        if time.is_zero() {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the other side stopped in the middle of a frame",
            ));
        }
        let began = Instant::now();
        if stream.wait(interest, None, Some(time))? != Readiness::default() {
            return Ok(());
        }
        stream.check_peer()?;
        left = left.map(|left| left - began.elapsed().min(time));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::stream::Capabilities;
    use crate::waker::Waker;

    const EVERY: Duration = Duration::from_millis(1);

    /// Something comes after some waits, each of which lasts ten times as long as it was to last.
    #[derive(Debug)]
    struct Late(AtomicU32);

    impl Stream for Late {
        fn read(&self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn write(&self, _: &[IoSlice<'_>]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn wait(
            &self,
            interest: Interest,
            _: Option<&Waker>,
            timeout: Option<Duration>,
        ) -> io::Result<Readiness> {
            assert_eq!(timeout, Some(EVERY));
            std::thread::sleep(10 * EVERY);
            let left = self.0.fetch_sub(1, Ordering::Relaxed);
            Ok(Readiness { read: left == 1 && interest.read, ..Readiness::default() })
        }

        fn shutdown(&self) -> io::Result<()> {
            Ok(())
        }

        fn abandon(&self) -> io::Result<()> {
            Ok(())
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities::default()
        }

        fn transport(&self) -> &'static str {
            "late"
        }

        fn peer(&self) -> String {
            "nobody".to_owned()
        }
    }

    #[test]
    fn silence_is_waited_for_and_not_what_happens_to_pass() {
        let wait = |waits| {
            let late = Late(AtomicU32::new(waits));
            block_and_check(&late, Interest::READ, Some(5 * EVERY), EVERY)
        };
        assert!(wait(1).is_ok() && wait(5).is_ok());
        assert_eq!(wait(6).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
