//! Reading and writing frames of bulk lanes.

use std::io::{self, IoSlice};
use std::time::Duration;

use outboard_wire::lane::LaneHeader;

use crate::blocking::block;
use crate::stream::{Interest, Stream};
use crate::touch;

/// Reads the next header, waiting for it without a limit: a lane may be quiet for hours. Before
/// each time the thread would block, it calls `keep_looking`, and polls again while that returns
/// `true`.
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] at the end of the stream, [`io::ErrorKind::InvalidData`] for a
/// malformed header, or the stream's error.
pub fn read_header(
    stream: &dyn Stream,
    keep_looking: impl FnMut() -> bool,
) -> io::Result<LaneHeader> {
    Ok(read_numbered(stream, None, keep_looking)?.0)
}

/// As [`read_header`]; also returns the low half of the number of frames that the other side has
/// received. Once a header has begun, nothing may come for at most `silence`.
///
/// # Errors
/// As [`read_header`], and [`io::ErrorKind::TimedOut`] after `silence`.
pub fn read_numbered(
    stream: &dyn Stream,
    silence: Option<Duration>,
    mut keep_looking: impl FnMut() -> bool,
) -> io::Result<(LaneHeader, u32)> {
    let mut bytes = [0; LaneHeader::SIZE];
    let mut filled = 0;
    while filled < bytes.len() {
        match stream.read(&mut bytes[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if keep_looking() {
                    std::thread::yield_now();
                } else if filled > 0 {
                    block(stream, Interest::READ, silence)?;
                } else {
                    stream.wait(Interest::READ, None, None)?;
                }
            }
            Err(error) => return Err(error),
        }
    }
    let header = LaneHeader::decode(&bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok((header, LaneHeader::received(&bytes)))
}

/// Writes a header and the bytes that belong to it, straight from where they are.
///
/// # Errors
/// The stream's error. Part of the frame may have been written then.
pub fn write_frame(stream: &dyn Stream, header: &LaneHeader, body: &[u8]) -> io::Result<()> {
    write_numbered(stream, header, 0, body)
}

/// As [`write_frame`], and tells the other side how many frames this side has received.
///
/// # Errors
/// As [`write_frame`].
pub fn write_numbered(
    stream: &dyn Stream,
    header: &LaneHeader,
    received: u64,
    body: &[u8],
) -> io::Result<()> {
    let head = header.encode_with(received);
    let mut buffers = [IoSlice::new(&head), IoSlice::new(body)];
    let mut left = &mut buffers[..];
    // Also drops an empty body.
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match stream.write(left) {
            Ok(count) => IoSlice::advance_slices(&mut left, count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                block(stream, Interest::WRITE, None)?
            }
            Err(error) if touch::is_closed(&error) => {
                left.iter().for_each(|bytes| touch::to_read(bytes));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use outboard_wire::lane::LaneKind;

    use super::*;
    use crate::{pipe, read_exact};

    #[test]
    fn frames_arrive_whole() {
        let (here, there) = pipe::pair().unwrap();
        let body: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
        let chunk =
            LaneHeader { kind: LaneKind::Chunk, transfer: 7, index: 3, len: body.len() as u32 };
        let done = LaneHeader { kind: LaneKind::Done, transfer: 7, index: 0, len: 0 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                write_frame(&*here, &chunk, &body).unwrap();
                write_frame(&*here, &done, &[]).unwrap();
            });
            assert_eq!(read_header(&*there, || false).unwrap(), chunk);
            let mut received = vec![0; body.len()];
            read_exact(&*there, &mut received).unwrap();
            assert!(received == body);
            assert_eq!(read_header(&*there, || true).unwrap(), done);
        });
        drop(here);
        assert_eq!(
            read_header(&*there, || false).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }
}
