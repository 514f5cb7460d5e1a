//! What kernels print: kept until the program synchronises, then written to its own standard
//! streams.

use std::mem;

use outboard_simt::OutputStream;
use parking_lot::Mutex;

/// Text of a context's kernels that the program has not seen yet.
#[derive(Default)]
pub(crate) struct Output(Mutex<Vec<(OutputStream, Vec<u8>)>>);

/// Text that is kept for a program that does not synchronise; bytes, give or take a piece and what
/// one launch prints.
const MOST_KEPT: usize = 64 << 20;
/// Text is kept in pieces of about this size; bytes.
const PIECE: usize = 4 << 20;

/// Held while text is written, so that two synchronising threads do not mix theirs.
static WRITING: Mutex<()> = Mutex::new(());

impl Output {
    pub(crate) fn push(&self, stream: OutputStream, text: &[u8]) {
        let mut pieces = self.0.lock();
        if pieces.iter().map(|(_, piece)| piece.len()).sum::<usize>() > MOST_KEPT {
            // As on a GPU, whose buffer is a ring, the oldest is lost.
            pieces.remove(0);
        }
        match pieces.last_mut() {
            Some((last, piece)) if *last == stream && piece.len() < PIECE => {
                piece.extend_from_slice(text)
            }
            _ => pieces.push((stream, text.to_vec())),
        }
    }

    /// Writes what is there, in order, through the C library: so it takes its place among what the
    /// program prints itself.
    pub(crate) fn flush(&self) {
        if self.0.lock().is_empty() {
            return;
        }
        let _writing = WRITING.lock();
        for (stream, text) in self.take() {
            write(stream, &text);
        }
    }

    fn take(&self) -> Vec<(OutputStream, Vec<u8>)> {
        mem::take(&mut *self.0.lock())
    }
}

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
}

fn write(stream: OutputStream, text: &[u8]) {
    // SAFETY: the C library's streams are valid in the whole process, and the slice is readable.
    unsafe {
        let file = match stream {
            OutputStream::Stdout => stdout,
            OutputStream::Stderr => stderr,
        };
        libc::fwrite(text.as_ptr().cast(), 1, text.len(), file);
        libc::fflush(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_order_of_pieces() {
        let output = Output::default();
        for (stream, text) in [
            (OutputStream::Stdout, "a"),
            (OutputStream::Stdout, "b"),
            (OutputStream::Stderr, "c"),
            (OutputStream::Stdout, "d"),
        ] {
            output.push(stream, text.as_bytes());
        }
        let expected = [
            (OutputStream::Stdout, b"ab".to_vec()),
            (OutputStream::Stderr, b"c".to_vec()),
            (OutputStream::Stdout, b"d".to_vec()),
        ];
        assert_eq!(output.take(), expected);
        assert!(output.take().is_empty());
    }

    #[test]
    fn a_program_that_never_synchronises_loses_the_oldest() {
        let output = Output::default();
        output.push(OutputStream::Stderr, b"first");
        let block = vec![b'x'; 1 << 20];
        for _ in 0..200 {
            output.push(OutputStream::Stdout, &block);
        }
        output.push(OutputStream::Stdout, b"last");
        let kept = output.take();
        assert!(kept.iter().map(|(_, piece)| piece.len()).sum::<usize>() <= MOST_KEPT + 2 * PIECE);
        assert!(kept.iter().all(|(stream, _)| *stream == OutputStream::Stdout));
        assert!(kept.last().is_some_and(|(_, piece)| piece.ends_with(b"last")));
    }
}
