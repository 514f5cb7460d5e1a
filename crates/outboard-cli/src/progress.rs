//! How far something is that takes long: a line that changes, at a terminal. Elsewhere it is one
//! line at the beginning.

use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressStyle};
use outboard_wire::plain;

/// Something that goes on; its line goes when this does.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// So many bytes are to be moved.
    pub(crate) fn of_bytes(what: &str, bytes: u64) -> Progress {
        let what = plain(what).to_string();
        let bar = ProgressBar::new(bytes);
        if bar.is_hidden() {
            eprintln!("outboard: {what} ({} MB)", bytes.div_ceil(1_000_000));
        }
        let style = "{msg}: {decimal_bytes} of {decimal_total_bytes}, \
                     {decimal_bytes_per_sec}, {eta} left";
        bar.set_style(ProgressStyle::with_template(style).expect("the template is one"));
        bar.set_message(what);
        Progress { bar }
    }

    /// Counts what is written.
    pub(crate) fn counted<W: Write>(&self, to: W) -> impl Write {
        Counted { to, bar: &self.bar }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

struct Counted<'a, W> {
    to: W,
    bar: &'a ProgressBar,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.bar.inc(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_counted_and_arrives() {
        let progress = Progress::of_bytes("copying", 5);
        let mut got = Vec::new();
        progress.counted(&mut got).write_all(b"abc").unwrap();
        assert_eq!((progress.bar.position(), got.as_slice()), (3, b"abc".as_slice()));
    }
}
