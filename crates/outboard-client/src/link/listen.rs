//! Hearing requests: while the worker may make one, a thread must read the link even when no thread
//! of the program waits for an answer.
//!
//! One of the [`RequestThreads`] listens while there is an [`Expectation`]. It only waits for
//! bytes; the thread that holds the right to read takes them, so a thread that waits for its answer
//! still reads it itself.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use outboard_transport::{Interest, PEER_CHECK, Patience, Readiness, Spin, Stream};

use super::bulk;
use super::error::LinkError;
use super::request_threads::{RequestThreads, Source};
use super::shared::Shared;

/// The worker may ask something as long as this lives.
#[derive(Debug)]
pub struct Expectation {
    shared: Arc<Shared>,
}

/// Answers requests, from any thread.
#[derive(Debug, Clone)]
pub struct Answers {
    shared: Arc<Shared>,
}

/// Makes sure that requests are heard and can be answered.
pub(super) fn expect(shared: &Arc<Shared>) -> Result<Expectation, LinkError> {
    let listening = &shared.listening;
    if !listening.started.load(Ordering::Acquire) {
        // Answers travel on lanes.
        bulk::open_lanes(shared)?;
        listening.started.store(true, Ordering::Release);
    }
    let expectation = Expectation { shared: Arc::clone(shared) };
    if listening.expected.fetch_add(1, Ordering::AcqRel) == 0 {
        let source: Arc<dyn Source> = shared.clone();
        if let Err(error) = listening.threads.listen_to(Arc::downgrade(&source)) {
            shared.lose(&format!("a thread cannot be started: {error}"));
            return Err(shared.lost());
        }
    }
    Ok(expectation)
}

impl Drop for Expectation {
    fn drop(&mut self) {
        // The thread that listens notices when it next looks.
        self.shared.listening.expected.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Answers {
    pub(super) fn new(shared: &Arc<Shared>) -> Answers {
        Answers { shared: Arc::clone(shared) }
    }

    /// Answers request `number` with a CUresult and at most
    /// [`MAX_ANSWER`](outboard_wire::request::MAX_ANSWER) bytes. If the connection is lost, no
    /// thread waits for the answer.
    pub fn answer(&self, number: u64, status: u32, body: &[u8]) {
        if let Err(error) = bulk::answer(&self.shared, number, status, body) {
            self.shared.lose_to(&error);
        }
    }
}

impl Answers {
    /// The worker has broken the rules: the link ends.
    pub(crate) fn lose(&self, reason: &str) {
        self.shared.lose(reason);
    }

    /// The threads that serve requests.
    pub(crate) fn threads(&self) -> Arc<RequestThreads> {
        Arc::clone(&self.shared.listening.threads)
    }
}

impl Source for Shared {
    fn is_expecting(&self) -> bool {
        self.listening.is_on() && !self.is_lost()
    }

    fn listen(&self, has_job: &dyn Fn() -> bool) {
        let patience = self.listening.threads.patience();
        while self.is_expecting() && !has_job() {
            let current = self.connection.current();
            if let Err(error) = self.listen_once(&*current.stream, patience) {
                self.broken(current.epoch, &error);
                if !has_job() {
                    self.wait_for_connection(current.epoch);
                }
            }
        }
    }
}

impl Shared {
    /// Waits for bytes and reads them, unless another thread reads: then, until it has stopped.
    fn listen_once(&self, stream: &dyn Stream, patience: &Patience) -> io::Result<()> {
        let ready = poll_then_wait(stream, patience)?;
        if ready == Readiness::default() {
            self.bulk.check_lanes();
            stream.check_peer()?;
            return self.reader.not_heard(PEER_CHECK);
        }
        match self.reader.try_read() {
            Some(mut reading) => {
                let result = self.read_some(&mut reading);
                drop(reading);
                self.reader.pass_leadership();
                result.map(drop)
            }
            None => {
                drop(self.reader.read());
                self.reader.pass_leadership();
                Ok(())
            }
        }
    }
}

/// Waits for bytes. Polls at first: requests often follow one another, and waking a thread takes
/// longer than serving one.
fn poll_then_wait(stream: &dyn Stream, patience: &Patience) -> io::Result<Readiness> {
    let start = Instant::now();
    // Each look is a system call, whatever the stream.
    let mut spin = Spin::when(false, patience.window());
    loop {
        let ready = stream.wait(Interest::READ, None, Some(Duration::ZERO))?;
        if ready != Readiness::default() {
            return Ok(ready);
        }
        if !spin.again() {
            break;
        }
    }
    let ready = stream.wait(Interest::READ, None, Some(PEER_CHECK))?;
    patience.waited(start.elapsed());
    Ok(ready)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use outboard_session::server::{Incoming, Outgoing};
    use outboard_transport::lane::read_header;
    use outboard_transport::{pipe, read_exact, write_all};
    use outboard_wire::ContextId;
    use outboard_wire::lane::{LaneHeader, LaneKind};

    use super::super::bulk::state::Bulk;
    use super::super::{Config, ConnectError, Link};
    use super::*;

    /// Only keeps a defect from hanging the tests.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A link with what its handler of notices hears, and the worker's end of its connection and of
    /// its lane.
    struct Fixture {
        link: Link,
        heard: mpsc::Receiver<Vec<u8>>,
        worker: Worker,
        lane: mpsc::Receiver<Arc<dyn Stream>>,
    }

    struct Worker {
        stream: Arc<dyn Stream>,
        outgoing: Outgoing,
        incoming: Incoming,
    }

    fn fixture() -> Fixture {
        let (client, stream) = pipe::pair().unwrap();
        let (opened, lane) = mpsc::channel();
        let dial = Box::new(move |_| {
            let (here, there): (Arc<dyn Stream>, Arc<dyn Stream>) =
                pipe::pair().map_err(ConnectError::Local)?;
            let _ = opened.send(there);
            Ok((here, None))
        });
        let (say, heard) = mpsc::channel();
        let notices = Box::new(move |_, payload: &[u8]| drop(say.send(payload.to_vec())));
        let link = Link::assemble(
            client,
            Config::default(),
            notices,
            Bulk::new(Some(dial), 1, None, false, Arc::default()),
            None,
            None,
        )
        .unwrap();
        let worker = Worker { stream, outgoing: Outgoing::new(false), incoming: Incoming::new() };
        Fixture { link, heard, worker, lane }
    }

    impl Worker {
        fn write(&mut self) {
            let batch = self.outgoing.take().unwrap();
            write_all(&*self.stream, batch.bytes()).unwrap();
            self.outgoing.done(batch);
        }

        fn say(&mut self, text: &str) {
            self.outgoing.notice(5, 0, |writer| writer.fixed(text.as_bytes())).unwrap();
            self.write();
        }

        /// The number of the next command.
        fn take(&mut self) -> u64 {
            loop {
                if let Some(command) = self.incoming.next_command().unwrap() {
                    return command.seq;
                }
                self.stream.wait(Interest::READ, None, Some(PATIENCE)).unwrap();
                let count = self.stream.read(self.incoming.buffer().room()).unwrap();
                self.incoming.buffer().filled(count);
            }
        }

        fn answer(&mut self, seq: u64) {
            self.outgoing.reply(seq, 0, seq, |_| ()).unwrap();
            self.write();
        }
    }

    #[test]
    fn requests_are_heard_at_once_though_nobody_waits() {
        let Fixture { link, heard, mut worker, lane: _lane } = fixture();
        let expected = link.expect().unwrap();
        let mut total = Duration::ZERO;
        for round in 0..50 {
            // Just after a call the sender leaves reading to callers.
            std::thread::scope(|scope| {
                let call = scope.spawn(|| link.call(1, ContextId::NONE, |_| ()));
                let seq = worker.take();
                worker.answer(seq);
                call.join().unwrap().unwrap();
            });
            let start = Instant::now();
            worker.say(&round.to_string());
            assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), round.to_string().as_bytes());
            total += start.elapsed();
        }
        assert!(total < Duration::from_secs(2), "{total:?} for 50 requests");
        drop(expected);
        // Nothing is expected any more: a call is answered all the same.
        std::thread::scope(|scope| {
            let call = scope.spawn(|| link.call(1, ContextId::NONE, |_| ()));
            let seq = worker.take();
            worker.answer(seq);
            call.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_thread_that_waits_for_its_answer_hears_requests_and_so_does_the_listener_after_it() {
        let Fixture { link, heard, mut worker, lane: _lane } = fixture();
        let _expected = link.expect().unwrap();
        std::thread::scope(|scope| {
            let call = scope.spawn(|| link.call(1, ContextId::NONE, |_| ()));
            let seq = worker.take();
            for round in 0..20 {
                worker.say("while it waits");
                heard
                    .recv_timeout(PATIENCE)
                    .unwrap_or_else(|error| panic!("round {round}: {error}"));
            }
            worker.answer(seq);
            call.join().unwrap().unwrap();
        });
        worker.say("after it");
        assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), b"after it");
    }

    #[test]
    fn answers_travel_on_a_lane_while_commands_are_not_taken() {
        let Fixture { link, worker, lane, .. } = fixture();
        let _expected = link.expect().unwrap();
        link.post(1, ContextId::NONE, |writer| writer.fixed(&[0; 1000])).unwrap();
        link.answers().answer(7, 3, b"bytes");
        link.answers().answer(8, 0, &[]);
        let lane = lane.recv_timeout(PATIENCE).unwrap();
        let header = LaneHeader { kind: LaneKind::Answer, transfer: 7, index: 3, len: 5 };
        assert_eq!(read_header(&*lane, || false).unwrap(), header);
        let mut body = [0; 5];
        read_exact(&*lane, &mut body).unwrap();
        assert_eq!(&body, b"bytes");
        let header = LaneHeader { kind: LaneKind::Answer, transfer: 8, index: 0, len: 0 };
        assert_eq!(read_header(&*lane, || false).unwrap(), header);
        drop(worker);
    }

    #[test]
    fn the_end_of_the_connection_is_the_listeners_too() {
        let Fixture { link, worker, lane, .. } = fixture();
        let expected = link.expect().unwrap();
        drop(worker);
        let start = Instant::now();
        while link.is_alive() {
            assert!(start.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        // The thread has let go of the link.
        drop((link, expected, lane));
    }
}
