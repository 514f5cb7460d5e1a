//! Replacing a connection that is broken.
//!
//! A thread that meets an error calls [`Shared::broken`]; the sender thread then connects anew.
//! Meanwhile callers wait in [`Shared::wait_for_connection`], and posted commands wait in the
//! queue.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboard_transport::Stream;
use outboard_wire::handshake::resume::Point;

use super::connection::ATTEMPT;
use super::refusals::Refusals;
use super::shared::Shared;

/// The shortest that one attempt may take, when there is little time left.
const SHORTEST: Duration = Duration::from_millis(300);
/// Pauses between attempts: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

impl Shared {
    /// The connection of that epoch has failed. If it can be replaced it will be; otherwise this is
    /// the end.
    pub(super) fn broken(&self, epoch: u64, error: &io::Error) {
        // A violation of the protocol would happen again on a new connection.
        if !self.connection.is_resumable() || error.kind() == io::ErrorKind::InvalidData {
            return self.lose_to(error);
        }
        if self.connection.fail(epoch, error) {
            self.queue.waker().wake();
        }
    }

    /// Waits until the connection of that epoch has been replaced, or the link is lost.
    pub(super) fn wait_for_connection(&self, epoch: u64) {
        self.connection.wait_for_next(epoch);
    }

    /// Replaces the connection, if it is broken. Returns when there is one, or the link is lost.
    /// Only the sender thread calls this.
    pub(super) fn reconnect(&self) {
        let Some(resume) = self.connection.resume() else { return };
        let Some(broken) = self.connection.failure() else { return };
        let deadline = broken.since + resume.grace;
        let (mut pause, longest) = PAUSES;
        let mut refusals = Refusals::default();
        let received = self.stop_reading();
        self.say(&format_args!(
            "{}; trying for up to {} seconds to go on",
            broken.reason,
            resume.grace.as_secs_f32()
        ));
        while !self.is_lost() {
            let attempt = self.queue.writing().next_attempt();
            // Five times as long it may be until it is answered.
            let left = deadline.saturating_duration_since(Instant::now()) / 5;
            let timeout = ATTEMPT.min(left.max(SHORTEST));
            let error = match (resume.again)(Point { lane: 0, attempt, received }, timeout) {
                Ok((stream, point)) => return self.connected(&stream, point),
                Err(error) => error,
            };
            if refusals.is_final(&error) {
                return self
                    .lose(&format!("{}, and the session cannot go on: {error}", broken.reason));
            }
            if Instant::now() + pause >= deadline {
                let seconds = resume.grace.as_secs_f32();
                return self.lose(&format!(
                    "{}, and for {seconds} seconds there was no other: {error}",
                    broken.reason
                ));
            }
            self.connection.pause(pause);
            pause = (pause * 2).min(longest);
        }
    }

    /// Nothing is read from a broken connection any more; how many frames have been received.
    fn stop_reading(&self) -> u64 {
        let mut reading = self.reader.read();
        // What came before the end counts; the worker may have said why it ended the session.
        while reading.is_up() && matches!(self.read_some(&mut reading), Ok(true)) {}
        reading.stop()
    }

    /// The session goes on over `stream`; the worker has taken `point.received` commands.
    fn connected(&self, stream: &Arc<dyn Stream>, point: Point) {
        let mut writing = self.queue.writing();
        let mut reading = self.reader.read();
        if let Err(error) = self.queue.send_again(point.received) {
            drop((reading, writing));
            return self.lose(&format!("the server says that it has what was never sent: {error}"));
        }
        let old = self.connection.replace(stream, |current| {
            writing.current = current.clone();
            reading.go_on(current.clone());
            self.reader.heard();
        });
        drop((reading, writing, old));
        self.connection.tell();
        if self.is_lost() {
            // It was while nobody could tell the new connection.
            self.connection.shutdown();
        }
        self.say(&"the session goes on over a new connection");
        self.reader.pass_leadership();
    }
}
