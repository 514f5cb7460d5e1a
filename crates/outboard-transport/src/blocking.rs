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
/// that no longer answers.
pub(crate) fn block(
    stream: &dyn Stream,
    interest: Interest,
    silence: Option<Duration>,
) -> io::Result<()> {
    let began = Instant::now();
    loop {
        let left = silence.map_or(PEER_CHECK, |silence| silence.saturating_sub(began.elapsed()));
        if left.is_zero() {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the other side stopped in the middle of a frame",
            ));
        }
        if stream.wait(interest, None, Some(left.min(PEER_CHECK)))? != Readiness::default() {
            return Ok(());
        }
        stream.check_peer()?;
    }
}
