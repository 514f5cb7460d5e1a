//! Bytes that move in pieces through two buffers: while one is emptied, the other is filled.

use std::sync::mpsc::{Receiver, Sender, channel};

use outboard_threads::beside;

use super::{Failure, Outcome};
use crate::parts::files::{Buffer, Buffers};

/// Bytes that have moved, and why no more have.
pub(super) type Moved = (usize, Option<Failure>);

/// A buffer with bytes in it.
struct Piece<'a> {
    buffer: Buffer<'a>,
    at: usize,
    len: usize,
}

/// Moves `bytes`. `fill` puts bytes from a place on into a piece, fewer than fit where they end;
/// `drain` takes them from it. If there is more than one piece, `fill` has a thread of its own.
pub(super) fn pull(
    buffers: &Buffers,
    bytes: usize,
    mut fill: impl FnMut(&mut [u8], usize) -> Outcome + Send,
    mut drain: impl FnMut(&[u8], usize) -> Outcome,
) -> Moved {
    let overlapped = ways(buffers, bytes).and_then(|((empty, empties), (full, fulls))| {
        let (fill, drain) = (&mut fill, &mut drain);
        let filling = move || fill_all(bytes, &empties, &full, fill);
        let draining = move || drain_all(fulls, &empty, drain);
        let (filled, (moved, failure)) = beside(NAME, filling, draining).ok()?;
        Some((moved, failure.or(filled.unwrap_or(BUG))))
    });
    overlapped.unwrap_or_else(|| in_turn(buffers, bytes, fill, drain))
}

/// As [`pull`], but `drain` has the thread of its own.
pub(super) fn push(
    buffers: &Buffers,
    bytes: usize,
    mut fill: impl FnMut(&mut [u8], usize) -> Outcome,
    mut drain: impl FnMut(&[u8], usize) -> Outcome + Send,
) -> Moved {
    let overlapped = ways(buffers, bytes).and_then(|((empty, empties), (full, fulls))| {
        let (fill, drain) = (&mut fill, &mut drain);
        let draining = move || drain_all(fulls, &empty, drain);
        let filling = move || fill_all(bytes, &empties, &full, fill);
        let (drained, failure) = beside(NAME, draining, filling).ok()?;
        let (moved, drained) = drained.unwrap_or((0, BUG));
        Some((moved, drained.or(failure)))
    });
    overlapped.unwrap_or_else(|| in_turn(buffers, bytes, fill, drain))
}

/// The name of the other thread.
const NAME: &str = "outboard-file";
/// It has panicked, which would be a bug of ours.
const BUG: Option<Failure> = Some(Failure::File(libc::EIO));

/// A way for empty buffers and one for full ones.
type Ways<'a> = (Way<Buffer<'a>>, Way<Piece<'a>>);
type Way<T> = (Sender<T>, Receiver<T>);

/// The ways, with two empty buffers, if that is worth a thread.
fn ways(buffers: &Buffers, bytes: usize) -> Option<Ways<'_>> {
    if bytes <= Buffers::BYTES {
        return None;
    }
    let (empty, empties) = channel();
    for _ in 0..2 {
        empty.send(buffers.take()).ok()?;
    }
    Some(((empty, empties), channel()))
}

/// Fills buffers as they come, until all bytes are on their way or nobody takes them.
fn fill_all<'a>(
    bytes: usize,
    empties: &Receiver<Buffer<'a>>,
    full: &Sender<Piece<'a>>,
    mut fill: impl FnMut(&mut [u8], usize) -> Outcome,
) -> Option<Failure> {
    let mut at = 0;
    while at < bytes {
        let Ok(mut buffer) = empties.recv() else { break };
        let room = buffer.len().min(bytes - at);
        let len = match fill(&mut buffer[..room], at) {
            Ok(len) => len,
            Err(failure) => return Some(failure),
        };
        if full.send(Piece { buffer, at, len }).is_err() || len < room {
            break;
        }
        at += len;
    }
    None
}

/// Empties buffers as they come, until no more come or one cannot be emptied.
fn drain_all<'a>(
    fulls: Receiver<Piece<'a>>,
    empty: &Sender<Buffer<'a>>,
    mut drain: impl FnMut(&[u8], usize) -> Outcome,
) -> Moved {
    let mut moved = 0;
    for Piece { buffer, at, len } in fulls {
        match drain(&buffer[..len], at) {
            Ok(drained) => {
                moved += drained;
                if drained < len {
                    break;
                }
            }
            Err(failure) => return (moved, Some(failure)),
        }
        // Nobody takes it when all has been filled.
        let _ = empty.send(buffer);
    }
    (moved, None)
}

/// Moves one piece after the other on this thread.
fn in_turn(
    buffers: &Buffers,
    bytes: usize,
    mut fill: impl FnMut(&mut [u8], usize) -> Outcome,
    mut drain: impl FnMut(&[u8], usize) -> Outcome,
) -> Moved {
    let (mut buffer, mut moved) = (buffers.take(), 0);
    while moved < bytes {
        let room = buffer.len().min(bytes - moved);
        let step = fill(&mut buffer[..room], moved)
            .and_then(|len| drain(&buffer[..len], moved).map(|drained| (len, drained)));
        match step {
            Ok((len, drained)) => {
                moved += drained;
                if len < room || drained < len {
                    break;
                }
            }
            Err(failure) => return (moved, Some(failure)),
        }
    }
    (moved, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read of a file that has so many bytes.
    fn read(has: usize, bytes: usize) -> (Vec<u8>, Moved) {
        let (buffers, mut got) = (Buffers::new(), vec![0; bytes]);
        let fill = |piece: &mut [u8], at: usize| {
            let len = piece.len().min(has.saturating_sub(at));
            piece[..len].iter_mut().zip(at..).for_each(|(byte, at)| *byte = (at % 251) as u8);
            Ok(len)
        };
        let drain = |piece: &[u8], at: usize| {
            got[at..at + piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        };
        let moved = pull(&buffers, bytes, fill, drain);
        (got, moved)
    }

    #[test]
    fn all_bytes_arrive_where_they_belong() {
        let piece = Buffers::BYTES;
        for bytes in [0, 1, piece, piece + 1, 3 * piece + 5] {
            let (got, moved) = read(bytes, bytes);
            assert_eq!(moved, (bytes, None));
            assert!(got.iter().zip(0..).all(|(byte, at): (&u8, usize)| *byte == (at % 251) as u8));
        }
        for (has, bytes) in [(0, 10), (piece, 2 * piece), (piece + 3, 4 * piece)] {
            assert_eq!(read(has, bytes).1, (has, None), "the file ends");
        }
    }

    #[test]
    fn a_failure_ends_both_sides() {
        let (buffers, piece) = (Buffers::new(), Buffers::BYTES);
        let broken = Failure::File(libc::EIO);
        let all = |piece: &mut [u8], _: usize| Ok(piece.len());
        let until = |at_most: usize| {
            move |at: usize, len: usize| if at < at_most { Ok(len) } else { Err(broken) }
        };
        let some = until(2 * piece);
        let drain = |piece: &[u8], at: usize| some(at, piece.len());
        assert_eq!(push(&buffers, 9 * piece, all, drain), (2 * piece, Some(broken)));
        assert_eq!(pull(&buffers, 9 * piece, all, drain), (2 * piece, Some(broken)));
        let fill = |piece: &mut [u8], at: usize| some(at, piece.len());
        let drain = |piece: &[u8], _: usize| Ok(piece.len());
        assert_eq!(push(&buffers, 9 * piece, fill, drain), (2 * piece, Some(broken)));
        assert_eq!(pull(&buffers, 9 * piece, fill, drain), (2 * piece, Some(broken)));
        let full_disk = |bytes: &[u8], at: usize| Ok(if at < piece { bytes.len() } else { 7 });
        assert_eq!(push(&buffers, 9 * piece, all, full_disk), (piece + 7, None));
    }
}
