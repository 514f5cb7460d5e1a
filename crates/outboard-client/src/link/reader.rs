//! What the worker says: who reads it, for whom it is, and when it has been silent for too long.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use outboard_session::ProtocolError;
use outboard_session::client::{Event, Incoming, PendingCalls};
use outboard_transport::{Patience, Spin, Stream};
use outboard_wire::notice::ENDED;
use outboard_wire::plain;

use super::config::Config;
use super::connection::Current;
use super::landing::Landing;
use super::locks::{lock, try_lock};
use super::reply::{Recipient, Reply};
use super::silence::Silence;
use super::stats::Counter;
use super::taken::{Received, TakenOver};

/// So many bytes of a frame that is not complete are a sign of life. The heartbeats of a worker are
/// far fewer bytes within the time of silence: they must not prolong the wait for a frame that
/// never ends.
const PART: usize = 1 << 10;

/// Takes what the worker says unasked: the code and the encoded payload. It runs on whichever
/// thread reads, which holds the right to read meanwhile: it must be quick and must not use the
/// link.
pub type NoticeHandler = Box<dyn Fn(u16, &[u8]) + Send + Sync>;

/// The receiving half of a link.
pub(super) struct Reader {
    /// Held by the one thread that reads.
    read: Mutex<Reading>,
    calls: Mutex<Calls>,
    taken: TakenOver,
    notices: NoticeHandler,
    /// Looking for bytes costs next to nothing.
    quick: bool,
    /// The system itself writes what is read to where it belongs.
    lands: bool,
    /// For how long threads that wait for replies spin.
    patience: Patience,
    start: Instant,
    /// A worker that says nothing for so long has stopped.
    most_silence: Option<Duration>,
    silence: Silence,
    bytes: Counter,
}

/// What the thread that reads has.
#[derive(Debug)]
pub(super) struct Reading {
    current: Current,
    incoming: Incoming,
    /// Whether anything may be read: not while the connection is being replaced.
    up: bool,
    /// Bytes of a frame that is not complete, as of when they were last taken for a sign of life.
    part: usize,
}

/// The calls that wait for their replies.
#[derive(Debug, Default)]
struct Calls {
    pending: PendingCalls<Recipient>,
    closed: bool,
}

/// A successful look for bytes.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// Whether there were any.
    pub(super) any: bool,
    /// What is to be acknowledged at once.
    pub(super) due: Option<Received>,
}

/// Why nothing can be read.
#[derive(Debug)]
pub(super) enum ReadError {
    Io(io::Error),
    /// The server has ended the session, and says why.
    Ended(String),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        ReadError::Io(error)
    }
}

fn invalid(error: ProtocolError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Reading {
    /// The epoch of the connection from which it reads.
    pub(super) fn epoch(&self) -> u64 {
        self.current.epoch
    }

    pub(super) fn stream(&self) -> &dyn Stream {
        &*self.current.stream
    }

    /// Whether anything may be read.
    pub(super) fn is_up(&self) -> bool {
        self.up
    }

    /// This thread reads no more to there.
    pub(super) fn leave(&mut self, landing: &Landing) {
        landing.leave(&mut self.incoming);
    }

    /// Nothing is read from a broken connection any more; how many frames have been received.
    pub(super) fn stop(&mut self) -> u64 {
        self.up = false;
        self.incoming.resume();
        self.incoming.received()
    }

    /// Reads from another connection from now on.
    pub(super) fn go_on(&mut self, current: Current) {
        self.current = current;
        (self.up, self.part) = (true, 0);
    }
}

impl Reader {
    /// Reads from that connection.
    pub(super) fn new(
        current: Current,
        quick: bool,
        lands: bool,
        config: &Config,
        notices: NoticeHandler,
    ) -> Reader {
        // A thread that never spins does not adjust the time to spin.
        let most = if config.spin.is_zero() { Duration::ZERO } else { config.most_spin };
        Reader {
            read: Mutex::new(Reading { current, incoming: Incoming::new(), up: true, part: 0 }),
            calls: Mutex::default(),
            taken: TakenOver::default(),
            notices,
            quick,
            lands,
            patience: Patience::new(config.spin, most),
            start: Instant::now(),
            most_silence: config.silence,
            silence: Silence::default(),
            bytes: Counter::default(),
        }
    }

    /// The right to read, unless another thread has it.
    pub(super) fn try_read(&self) -> Option<MutexGuard<'_, Reading>> {
        try_lock(&self.read)
    }

    /// The right to read.
    pub(super) fn read(&self) -> MutexGuard<'_, Reading> {
        lock(&self.read)
    }

    /// Whether the system can write what is read to where it belongs.
    pub(super) fn lands(&self) -> bool {
        self.lands
    }

    /// For how long waits are worth spinning for.
    pub(super) fn patience(&self) -> &Patience {
        &self.patience
    }

    /// Spins for as long as waits are worth it, at most `most`.
    pub(super) fn spin(&self, most: Duration) -> Spin {
        Spin::when(self.quick, self.patience.window().min(most))
    }

    /// Bytes read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// How far the two sides have taken over what the other has sent.
    pub(super) fn taken(&self) -> &TakenOver {
        &self.taken
    }

    /// The reply to command `seq`, which has not been sent, is for `recipient`. False if no replies
    /// come any more.
    pub(super) fn expect(&self, seq: u64, recipient: Recipient) -> bool {
        let mut calls = lock(&self.calls);
        if !calls.closed {
            calls.pending.insert(seq, recipient);
        }
        !calls.closed
    }

    /// No replies come any more: who waits for some.
    pub(super) fn close(&self) -> Vec<Recipient> {
        let mut calls = lock(&self.calls);
        calls.closed = true;
        calls.pending.drain().map(|(_, recipient)| recipient).collect()
    }

    fn complete(&self, answers: u64) -> io::Result<Recipient> {
        lock(&self.calls).pending.complete(answers).map_err(invalid)
    }

    /// Call it after releasing the right to read: wakes a thread that waits for a reply, which
    /// reads from then on.
    pub(super) fn pass_leadership(&self) {
        let calls = lock(&self.calls);
        if let Some(slot) = calls.pending.find(Recipient::thread) {
            slot.nudge();
        }
    }

    /// The worker has said something.
    #[inline]
    pub(super) fn heard(&self) {
        self.silence.end();
    }

    /// A thread has waited for so long, at most [`PEER_CHECK`](outboard_transport::PEER_CHECK), has
    /// looked, and nothing has come. An error if a worker that lives would have said something:
    /// however busy its device is, it says now and then that it is there.
    pub(super) fn not_heard(&self, waited: Duration) -> io::Result<()> {
        let Some(most) = self.most_silence else { return Ok(()) };
        if self.silence.look(self.start.elapsed(), waited) < most {
            return Ok(());
        }
        self.heard();
        let why = format!("the server's worker has said nothing for {} seconds", most.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    }

    /// Reads what is there and hands it out. Bytes that belong where `landing` says go there. With
    /// `acknowledges`, the two sides say how far they have come.
    pub(super) fn read_some(
        &self,
        reading: &mut Reading,
        landing: &mut Option<Landing>,
        acknowledges: bool,
    ) -> Result<Read, ReadError> {
        if !reading.up {
            return Err(io::Error::from(io::ErrorKind::NotConnected).into());
        }
        if let Some(to) = landing
            && reading.incoming.open_bytes().is_some()
        {
            if let Some(read) = self.read_open(reading, to, acknowledges)? {
                return Ok(read);
            }
            // The program is to meet the fault by itself.
            to.leave(&mut reading.incoming);
            *landing = None;
        }
        let incoming = &mut reading.incoming;
        let most = landing.as_ref().map_or(usize::MAX, |_| Landing::most_before(incoming));
        let room = incoming.buffer().room();
        let room_len = room.len().min(most);
        let count = match reading.current.stream.read(&mut room[..room_len]) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Read::default()),
            Err(error) => return Err(error.into()),
        };
        self.bytes.add(count as u64);
        incoming.buffer().filled(count);
        if let Some(landing) = landing
            && landing.open(incoming).map_err(invalid)?
        {
            self.heard();
            reading.part = 0;
        }
        let unread = incoming.buffer().unread().len();
        while let Some(event) = incoming.next_event().map_err(invalid)? {
            self.heard();
            match event {
                Event::Notice { code, payload } => {
                    // This thread reads for others: a panic here must not leave them without a
                    // reader.
                    let _ = catch_unwind(AssertUnwindSafe(|| (self.notices)(code, payload)));
                    if code == ENDED {
                        let sentence: &str = outboard_wire::Reader::new(payload)
                            .get()
                            .unwrap_or("the server ended it");
                        return Err(ReadError::Ended(plain(sentence)));
                    }
                }
                Event::Reply { answers, status, payload } => {
                    let recipient = self.complete(answers)?;
                    let payload = payload.to_vec();
                    recipient.deliver(Ok(Reply { seq: answers, status, payload, landed: false }));
                }
            }
        }
        let left = incoming.buffer().unread().len();
        if left < unread || left >= reading.part + PART {
            self.heard();
            reading.part = left;
        } else {
            self.not_heard(Duration::ZERO)?;
        }
        let due = acknowledges.then(|| self.taken.note(incoming, count)).flatten();
        Ok(Read { any: true, due })
    }

    /// Reads what is there of the open answer to where it belongs. `None` if it cannot be written
    /// there.
    fn read_open(
        &self,
        reading: &mut Reading,
        landing: &Landing,
        acknowledges: bool,
    ) -> io::Result<Option<Read>> {
        let Reading { current, incoming, part, .. } = reading;
        let (count, complete) = match landing.read(incoming, |to| current.stream.read(to)) {
            Ok(Some(read)) => read,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Some(Read::default()));
            }
            Err(error) => return Err(error),
        };
        self.bytes.add(count as u64);
        let come = incoming.open_bytes().unwrap_or(0);
        if complete || come >= *part + PART {
            self.heard();
            *part = come;
        } else {
            self.not_heard(Duration::ZERO)?;
        }
        let due = acknowledges.then(|| self.taken.note(incoming, count)).flatten();
        if complete {
            let seq = landing.seq();
            let recipient = self.complete(seq)?;
            recipient.deliver(Ok(Reply { seq, status: 0, payload: Vec::new(), landed: true }));
        }
        Ok(Some(Read { any: true, due }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use outboard_session::server::Outgoing;
    use outboard_transport::{PEER_CHECK, pipe, write_all};

    use super::super::error::LinkError;
    use super::super::reply::Slot;
    use super::*;

    /// A reader, what its handler of notices hears, and the worker's end.
    struct Fixture {
        reader: Reader,
        heard: mpsc::Receiver<u16>,
        stream: Arc<dyn Stream>,
        worker: Outgoing,
    }

    fn fixture(config: &Config) -> Fixture {
        let (here, stream) = pipe::pair().unwrap();
        let (say, heard) = mpsc::channel();
        let notices = Box::new(move |code, _: &[u8]| _ = say.send(code));
        let current = Current { stream: here, epoch: 0 };
        let reader = Reader::new(current, false, false, config, notices);
        Fixture { reader, heard, stream, worker: Outgoing::new(false) }
    }

    impl Fixture {
        fn write(&mut self) {
            let batch = self.worker.take().unwrap();
            write_all(&*self.stream, batch.bytes()).unwrap();
            self.worker.done(batch);
        }

        fn read(&self) -> Result<Read, ReadError> {
            self.reader.read_some(&mut self.reader.read(), &mut None, true)
        }
    }

    #[test]
    fn each_reply_gets_to_whom_it_is_for() {
        let mut fixture = fixture(&Config::default());
        let slots = [Arc::new(Slot::default()), Arc::new(Slot::default())];
        for (seq, slot) in slots.iter().enumerate() {
            assert!(fixture.reader.expect(seq as u64, Recipient::Thread(Arc::clone(slot))));
        }
        assert!(!fixture.read().unwrap().any, "nothing has come");
        fixture.worker.reply(1, 7, 1, |writer| writer.u32(5)).unwrap();
        fixture.worker.notice(9, 1, |_| ()).unwrap();
        fixture.write();
        assert!(fixture.read().unwrap().any);
        let reply = slots[1].take().unwrap().unwrap();
        assert_eq!((reply.seq, reply.status, reply.payload), (1, 7, vec![5, 0, 0, 0]));
        assert!(slots[0].take().is_none());
        assert_eq!(fixture.heard.try_recv(), Ok(9));
        assert_eq!(fixture.reader.taken().received().frames, 2);
        fixture.worker.reply(1, 0, 1, |_| ()).unwrap();
        fixture.write();
        assert!(matches!(fixture.read(), Err(ReadError::Io(_))), "nobody waits for this one");
    }

    #[test]
    fn who_waits_is_told_of_the_end_and_nobody_waits_after_it() {
        let mut fixture = fixture(&Config::default());
        let (slot, late) = (Arc::new(Slot::default()), Arc::new(Slot::default()));
        fixture.reader.expect(1, Recipient::Thread(Arc::clone(&slot)));
        fixture.worker.notice(ENDED, 0, |writer| writer.put("it is\nover")).unwrap();
        fixture.write();
        match fixture.read() {
            Err(ReadError::Ended(sentence)) => assert_eq!(sentence, "it is?over"),
            other => panic!("{other:?}"),
        }
        let lost = LinkError::Lost("it is over".into());
        fixture.reader.close().into_iter().for_each(|one| one.deliver(Err(lost.clone())));
        assert_eq!(slot.take(), Some(Err(lost)));
        assert!(!fixture.reader.expect(2, Recipient::Thread(late)));
    }

    #[test]
    fn nothing_is_read_while_the_connection_is_replaced() {
        let mut fixture = fixture(&Config::default());
        fixture.worker.notice(9, 0, |_| ()).unwrap();
        fixture.write();
        assert_eq!(fixture.reader.read().stop(), 0);
        match fixture.read() {
            Err(ReadError::Io(error)) => assert_eq!(error.kind(), io::ErrorKind::NotConnected),
            other => panic!("{other:?}"),
        }
        let (here, there) = pipe::pair().unwrap();
        fixture.reader.read().go_on(Current { stream: here, epoch: 1 });
        (fixture.stream, fixture.worker) = (there, Outgoing::new(false));
        assert!(!fixture.read().unwrap().any, "what came over the old one is gone");
        fixture.worker.notice(8, 0, |_| ()).unwrap();
        fixture.write();
        assert!(fixture.read().unwrap().any && fixture.reader.read().epoch() == 1);
        assert_eq!(fixture.heard.try_iter().collect::<Vec<_>>(), [8]);
    }

    #[test]
    fn a_worker_that_says_nothing_for_too_long_has_stopped() {
        let silence = Some(3 * PEER_CHECK);
        let mut reader = fixture(&Config { silence, ..Config::default() }).reader;
        let mut wait = |time| {
            reader.start -= time;
            reader.not_heard(PEER_CHECK).map_err(|error| error.kind())
        };
        assert_eq!([wait(PEER_CHECK), wait(PEER_CHECK)], [Ok(()); 2]);
        assert_eq!(wait(PEER_CHECK), Err(io::ErrorKind::TimedOut));
        assert_eq!(wait(PEER_CHECK), Ok(()), "it counts from the start after that");
        assert_eq!(wait(3600 * PEER_CHECK), Ok(()), "nobody looked for an hour");
        assert_eq!(wait(PEER_CHECK), Err(io::ErrorKind::TimedOut));
        let mut patient = fixture(&Config { silence: None, ..Config::default() }).reader;
        for _ in 0..100 {
            patient.start -= PEER_CHECK;
            assert!(patient.not_heard(PEER_CHECK).is_ok());
        }
    }
}
