//! What a process says, line by line, for tests that wait for a line.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use crate::PATIENCE;

/// The lines of a pipe. It is read to its end, so that who writes never waits for the test.
#[derive(Debug)]
pub struct Lines(Receiver<String>);

impl Lines {
    /// Of a child's standard output or standard error.
    pub fn of(pipe: Option<impl Read + Send + 'static>) -> Lines {
        let pipe = BufReader::new(pipe.expect("it is piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in pipe.lines().map_while(Result::ok) {
                // Nobody has to listen.
                let _ = sender.send(line);
            }
        });
        Lines(lines)
    }

    /// The next line that contains a text. Panics if there is none within [`PATIENCE`].
    pub fn find(&self, text: &str) -> String {
        self.until(text).pop().expect("the line that was found")
    }

    /// The same, behind all lines before it.
    pub fn until(&self, text: &str) -> Vec<String> {
        let before = self.until_or_end(text);
        let is_there = before.last().is_some_and(|line| line.contains(text));
        assert!(is_there, "the end came before a line with {text:?}, behind {before:?}");
        before
    }

    /// The lines that have come since.
    pub fn so_far(&self) -> Vec<String> {
        self.0.try_iter().collect()
    }

    /// As `until`; all lines if the end comes before.
    pub fn until_or_end(&self, text: &str) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut before = Vec::new();
        loop {
            match self.0.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let is_it = line.contains(text);
                    before.push(line);
                    if is_it {
                        return before;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("no line with {text:?} within {PATIENCE:?}, but {before:?}")
                }
                Err(RecvTimeoutError::Disconnected) => return before,
            }
        }
    }
}
