//! The link against a worker made of a thread, over TCP and over a pipe.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use outboard_client::link::{Config, Link, LinkError, NoticeHandler, Reply};
use outboard_session::server::{Command, Incoming, Outgoing};
use outboard_transport::tcp::Tcp;
use outboard_transport::{Interest, Stream, Transport, pipe, write_all};
use outboard_wire::{ContextId, Reader, Writer};

/// Only keeps a broken link from hanging the suite.
const PATIENCE: Duration = Duration::from_secs(60);

/// Commands of the worker below.
const ADD: u16 = 1;
const READ: u16 = 2;
const ECHO: u16 = 3;
const SAY: u16 = 4;
const DIE: u16 = 5;
const ANSWER_UNASKED: u16 = 6;
/// As `ECHO`, and succeeds.
const RETURN: u16 = 7;

fn tcp_pair() -> (Arc<dyn Stream>, Arc<dyn Stream>) {
    let listener = Tcp.listen("127.0.0.1:0").unwrap();
    let client = Tcp.connect(&listener.address().unwrap(), PATIENCE).unwrap();
    (client, listener.accept().unwrap())
}

/// Reads what is there, waiting for something; 0 is the end.
fn read_more(stream: &dyn Stream, incoming: &mut Incoming) -> usize {
    loop {
        match stream.read(incoming.buffer().room()) {
            Ok(count) => {
                incoming.buffer().filled(count);
                return count;
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                stream.wait(Interest::READ, None, Some(PATIENCE)).unwrap();
            }
            Err(_) => return 0,
        }
    }
}

fn write_out(stream: &dyn Stream, outgoing: &mut Outgoing) {
    if let Some(batch) = outgoing.take() {
        // A client that is gone is noticed when reading.
        let _ = write_all(stream, batch.bytes());
        outgoing.done(batch);
    }
}

/// What became of the commands.
#[derive(Debug, Default)]
struct Served {
    commands: u64,
    counter: u64,
}

/// A worker that keeps a counter.
fn worker(stream: Arc<dyn Stream>) -> JoinHandle<Served> {
    std::thread::spawn(move || {
        let mut incoming = Incoming::new();
        let mut outgoing = Outgoing::new(false);
        let mut served = Served::default();
        loop {
            while let Some(Command { seq, op, payload, .. }) = incoming.next_command().unwrap() {
                served.commands += 1;
                match op {
                    ADD => served.counter += 1,
                    READ => {
                        let counter = served.counter;
                        outgoing.reply(seq, 0, seq, |writer| writer.u64(counter)).unwrap();
                    }
                    ECHO => outgoing.reply(seq, 77, seq, |writer| writer.fixed(payload)).unwrap(),
                    RETURN => outgoing.reply(seq, 0, seq, |writer| writer.fixed(payload)).unwrap(),
                    SAY => outgoing.notice(9, seq, |writer| writer.fixed(payload)).unwrap(),
                    DIE => {
                        stream.shutdown().unwrap();
                        return served;
                    }
                    ANSWER_UNASKED => outgoing.reply(seq, 0, seq, |_| ()).unwrap(),
                    _ => unreachable!("the tests know their commands"),
                }
            }
            write_out(&*stream, &mut outgoing);
            if read_more(&*stream, &mut incoming) == 0 {
                return served;
            }
        }
    })
}

fn ignore() -> NoticeHandler {
    Box::new(|_, _| ())
}

fn start(config: Config) -> (Link, JoinHandle<Served>) {
    let (client, server) = tcp_pair();
    (Link::start(client, config, ignore()).unwrap(), worker(server))
}

fn is_lost<T>(result: &Result<T, LinkError>) -> bool {
    matches!(result, Err(LinkError::Lost(_)))
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what} did not happen");
        std::thread::yield_now();
    }
}

#[test]
fn a_burst_leaves_in_few_writes_and_arrives_in_order() {
    let (link, worker) = start(Config::default());
    let launch = [7; 84];
    for _ in 0..10_000 {
        link.post(ADD, ContextId(1), |writer| writer.fixed(&launch)).unwrap();
    }
    let reply = link.call(READ, ContextId(1), |_| ()).unwrap();
    assert_eq!(reply.payload, 10_000u64.to_le_bytes());
    let stats = link.stats();
    assert_eq!((stats.posted, stats.calls), (10_000, 1));
    assert_eq!(stats.sent, 10_000 * 100 + 16);
    assert!(stats.sends <= 500, "{} writes for one burst", stats.sends);
    drop(link);
    assert_eq!(worker.join().unwrap().commands, 10_001);
}

#[test]
fn a_single_post_leaves_without_a_call() {
    let (client, server) = tcp_pair();
    let link = Link::start(client, Config::default(), ignore()).unwrap();
    let mut incoming = Incoming::new();
    for round in 1..=20 {
        link.post(ADD, ContextId::NONE, |_| ()).unwrap();
        while incoming.next_command().unwrap().is_none() {
            assert_ne!(read_more(&*server, &mut incoming), 0);
        }
        assert_eq!(incoming.taken(), round);
    }
}

#[test]
fn what_is_sent_is_written_with_all_before_it() {
    let (link, worker) = start(Config::default());
    for round in 1..=20 {
        link.post(ADD, ContextId::NONE, |_| ()).unwrap();
        link.send(ADD, ContextId::NONE, |_| ()).unwrap();
        assert_eq!(link.stats().sent, round * 2 * 16);
    }
    link.call(READ, ContextId::NONE, |_| ()).unwrap();
    drop(link);
    assert_eq!(worker.join().unwrap().counter, 40);
}

#[test]
fn what_returned_in_one_thread_is_before_what_starts_in_another() {
    for posts in [1, 16, 64, 256] {
        let (link, _worker) = start(Config::default());
        let (link, turn) = (Arc::new(link), Arc::new(AtomicU64::new(0)));
        let poster = std::thread::spawn({
            let (link, turn) = (Arc::clone(&link), Arc::clone(&turn));
            move || {
                for round in 0..100 {
                    wait_until("the poster's turn", || turn.load(Ordering::Acquire) == 2 * round);
                    for _ in 0..posts {
                        link.post(ADD, ContextId::NONE, |_| ()).unwrap();
                    }
                    turn.store(2 * round + 1, Ordering::Release);
                }
            }
        });
        for round in 0..100 {
            wait_until("the reader's turn", || turn.load(Ordering::Acquire) == 2 * round + 1);
            let reply = link.call(READ, ContextId::NONE, |_| ()).unwrap();
            assert_eq!(reply.payload, ((round + 1) * posts).to_le_bytes());
            turn.store(2 * round + 2, Ordering::Release);
        }
        poster.join().unwrap();
    }
}

#[test]
fn many_threads_get_their_own_replies() {
    for spin in [Duration::ZERO, Duration::from_micros(50)] {
        let (link, worker) = start(Config { spin, ..Config::default() });
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let link = &link;
                scope.spawn(move || {
                    for i in 0..500u64 {
                        let sent = [thread.to_le_bytes(), i.to_le_bytes()].concat();
                        link.post(ADD, ContextId::NONE, |_| ()).unwrap();
                        let reply =
                            link.call(ECHO, ContextId::NONE, |writer| writer.fixed(&sent)).unwrap();
                        assert_eq!((reply.payload, reply.status), (sent, 77));
                    }
                });
            }
        });
        assert_eq!(link.stats().calls, 4000);
        drop(link);
        assert_eq!(worker.join().unwrap().counter, 4000);
    }
}

#[test]
fn replies_of_any_size_come_back() {
    let (link, _worker) = start(Config::default());
    for len in [0, 1, 65_535, 65_536, 1 << 20, outboard_wire::limits::MAX_FRAME] {
        let sent = vec![3; len];
        assert!(
            link.call(ECHO, ContextId::NONE, |writer| writer.fixed(&sent)).unwrap().payload == sent
        );
    }
    let huge = vec![0; outboard_wire::limits::MAX_FRAME + 1];
    assert!(matches!(
        link.call(ECHO, ContextId::NONE, |writer| writer.fixed(&huge)),
        Err(LinkError::TooLong(_))
    ));
    assert!(link.is_alive());
}

/// What a command returns of which this is the number: a string of bytes.
fn string(seq: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (seq as usize * 37 + i * 7 + i / 251) as u8).collect()
}

/// Memory of the program, with a byte on each side that must stay as it is.
struct Guarded(Vec<u8>);

const UNTOUCHED: u8 = 0xee;

impl Guarded {
    fn new(len: usize) -> Guarded {
        Guarded(vec![UNTOUCHED; len + 2])
    }

    fn memory(&mut self) -> (*mut u8, usize) {
        let len = self.0.len() - 2;
        (self.0[1..].as_mut_ptr(), len)
    }

    fn bytes(&self) -> &[u8] {
        assert_eq!((self.0.first(), self.0.last()), (Some(&UNTOUCHED), Some(&UNTOUCHED)));
        &self.0[1..self.0.len() - 1]
    }

    /// A call whose answer may land here.
    fn call(&mut self, link: &Link) -> Result<Reply, LinkError> {
        let memory = Some(self.memory());
        // SAFETY: the memory is this value's, which is borrowed meanwhile.
        unsafe { link.call_for_bytes(READ, ContextId::NONE, |_| (), memory) }
    }
}

/// Answers each command, in its turn, with what `answer` makes of its number: the bytes of frames,
/// written in the pieces that it gives. The stream is shut down behind the last one.
fn answering(
    stream: Arc<dyn Stream>,
    count: usize,
    mut answer: impl FnMut(&mut Outgoing, u64) -> Vec<Range<usize>> + Send + 'static,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let (mut incoming, mut outgoing) = (Incoming::new(), Outgoing::new(false));
        for _ in 0..count {
            let seq = loop {
                if let Some(command) = incoming.next_command().unwrap() {
                    break command.seq;
                }
                assert!(read_more(&*stream, &mut incoming) > 0);
            };
            let pieces = answer(&mut outgoing, seq);
            let batch = outgoing.take().unwrap();
            for piece in pieces {
                let end = piece.end.min(batch.bytes().len());
                write_all(&*stream, &batch.bytes()[piece.start.min(end)..end]).unwrap();
                std::thread::sleep(Duration::from_micros(300));
            }
            outgoing.done(batch);
        }
        stream.shutdown().unwrap();
    })
}

/// All bytes of a frame with `len` bytes, in pieces that end there.
fn pieces(len: usize, ends: &[usize]) -> Vec<Range<usize>> {
    let ends: Vec<usize> = ends.iter().copied().filter(|end| *end < len).chain([len]).collect();
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(ends.iter().copied()).map(|(start, end)| start..end).collect()
}

#[test]
fn bytes_land_where_they_belong_however_they_come() {
    const LEN: usize = 64 << 10;
    const FRAME: usize = 24 + 4 + LEN;
    let ends: [&[usize]; 8] = [
        &[],
        &[1],
        &[24],
        &[27, 28, 29],
        &[28],
        &[10, 1000, 40_000],
        &[FRAME - 1],
        // What comes behind it comes with its last bytes.
        &[28, 30_000, FRAME + 3],
    ];
    let (client, server) = tcp_pair();
    let link = Link::start(client, Config::default(), ignore()).unwrap();
    let worker = answering(server, 2 * ends.len(), move |outgoing, seq| {
        let round = (seq as usize - 1) % ends.len();
        let before = (seq as usize > ends.len()).then(|| {
            // Nothing of it may be taken for the answer.
            outgoing.notice(9, seq, |writer| writer.u64(seq)).unwrap();
            24 + 8
        });
        outgoing.reply(seq, 0, seq, |writer| writer.bytes(&string(seq, LEN))).unwrap();
        outgoing.notice(9, seq, |writer| writer.u64(seq)).unwrap();
        let before = before.unwrap_or(0);
        let ends: Vec<usize> = ends[round].iter().map(|end| before + end).collect();
        pieces(before + FRAME + 24 + 8, &ends)
    });
    let mut landed = 0;
    for seq in 1..=2 * ends.len() as u64 {
        let mut memory = Guarded::new(LEN);
        let reply = memory.call(&link).unwrap();
        assert_eq!((reply.seq, reply.status), (seq, 0));
        if reply.landed {
            assert_eq!(reply.payload, [0; 0]);
            assert!(memory.bytes() == string(seq, LEN), "call {seq}");
            landed += 1;
        } else {
            assert_eq!(Reader::new(&reply.payload).bytes(), Ok(&string(seq, LEN)[..]));
        }
    }
    // Those with nothing before them, at least, if the notice behind the one before has been read.
    assert!(landed > 0, "none has landed");
    worker.join().unwrap();
}

#[test]
fn what_is_not_what_was_asked_for_does_not_land() {
    const LEN: usize = 64 << 10;
    let answers: [fn(&mut Writer); 6] = [
        |writer| writer.bytes(&[1; LEN + 1]),
        |writer| writer.bytes(&[1; LEN - 1]),
        |writer| {
            writer.u32(u32::MAX);
            writer.fixed(&[1; LEN]);
        },
        |writer| {
            writer.u32(LEN as u32);
            writer.fixed(&[1; LEN + 1]);
        },
        |_| (),
        |writer| writer.fixed(&[1; 1 << 20]),
    ];
    let (client, server) = tcp_pair();
    let link = Link::start(client, Config::default(), ignore()).unwrap();
    let worker = answering(server, answers.len() + 2, move |outgoing, seq| {
        match answers.get(seq as usize - 1) {
            Some(answer) => outgoing.reply(seq, 0, seq, answer).unwrap(),
            // An error, though with bytes.
            None => outgoing.reply(seq, 700, seq, |writer| writer.bytes(&[1; LEN])).unwrap(),
        }
        pieces(outgoing.pending_bytes(), &[28, 5000])
    });
    let mut memory = Guarded::new(LEN);
    for (index, answer) in answers.iter().enumerate() {
        let mut expected = Writer::new();
        answer(&mut expected);
        let reply = memory.call(&link).unwrap();
        assert!(!reply.landed && reply.payload == expected.as_slice(), "answer {index}");
    }
    let reply = memory.call(&link).unwrap();
    assert!(!reply.landed && reply.status == 700);
    assert!(memory.bytes().iter().all(|byte| *byte == UNTOUCHED), "nothing was written");
    // A short string is copied.
    let mut short = Guarded::new(64);
    assert_eq!(short.call(&link).unwrap().status, 700);
    worker.join().unwrap();
}

#[test]
fn memory_that_cannot_be_written_gets_its_bytes_from_the_answer() {
    const LEN: usize = 64 << 10;
    const PAGE: usize = 4096;
    let (client, server) = tcp_pair();
    let link = Link::start(client, Config::default(), ignore()).unwrap();
    // Of eight, so many pages can be written.
    let written = [16, 4, 1, 0];
    let worker = answering(server, written.len(), |outgoing, seq| {
        outgoing.reply(seq, 0, seq, |writer| writer.bytes(&string(seq, LEN))).unwrap();
        pieces(outgoing.pending_bytes(), &[28, 28 + 6000])
    });
    for (index, pages) in written.into_iter().enumerate() {
        let seq = index as u64 + 1;
        // SAFETY: new memory, at an address that the system chooses.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(memory, libc::MAP_FAILED);
        // SAFETY: the last pages of that memory, which nothing refers to.
        let protected = unsafe {
            libc::mprotect(memory.add(pages * PAGE), LEN - pages * PAGE, libc::PROT_NONE)
        };
        assert_eq!(protected, 0);
        let memory = memory.cast::<u8>();
        // SAFETY: nobody else has the memory; the system does not write what is protected.
        let reply =
            unsafe { link.call_for_bytes(READ, ContextId::NONE, |_| (), Some((memory, LEN))) };
        let reply = reply.unwrap();
        assert_eq!(reply.landed, pages == 16, "{pages} pages");
        if !reply.landed {
            assert_eq!(Reader::new(&reply.payload).bytes(), Ok(&string(seq, LEN)[..]));
        }
        // SAFETY: mapped above, and not used any more.
        unsafe { libc::munmap(memory.cast(), LEN) };
    }
    worker.join().unwrap();
}

#[test]
fn a_connection_that_ends_within_an_answer_ends_the_call() {
    const LEN: usize = 64 << 10;
    for most in [5, 24, 28, 29, 40_000] {
        let (client, server) = tcp_pair();
        let link = Link::start(client, Config::default(), ignore()).unwrap();
        let worker = answering(server, 1, move |outgoing, seq| {
            outgoing.reply(seq, 0, seq, |writer| writer.bytes(&string(seq, LEN))).unwrap();
            std::iter::once(0..most).collect()
        });
        let mut memory = Guarded::new(LEN);
        assert!(is_lost(&memory.call(&link)));
        worker.join().unwrap();
        let come = most.saturating_sub(28);
        assert!(memory.bytes()[..come] == string(1, LEN)[..come]);
        assert!(memory.bytes()[come..].iter().all(|byte| *byte == UNTOUCHED));
    }
}

#[test]
fn many_threads_get_their_own_bytes() {
    const LEN: usize = 20 << 10;
    let (link, worker) = start(Config::default());
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let link = &link;
            scope.spawn(move || {
                for i in 0..200u64 {
                    let mut memory = Guarded::new(LEN);
                    let (sent, at) = (string(thread + 7 * i, LEN), memory.memory());
                    // SAFETY: nobody else has the memory until this returns.
                    let reply = unsafe {
                        let encode = |writer: &mut Writer| writer.bytes(&sent);
                        link.call_for_bytes(RETURN, ContextId::NONE, encode, Some(at))
                    };
                    let reply = reply.unwrap();
                    if reply.landed {
                        assert!(memory.bytes() == sent);
                    } else {
                        assert_eq!(Reader::new(&reply.payload).bytes(), Ok(&sent[..]));
                    }
                }
            });
        }
    });
    drop(link);
    assert_eq!(worker.join().unwrap().commands, 1200);
}

#[test]
fn notices_keep_their_place_among_replies() {
    let (client, server) = tcp_pair();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let notices = {
        let heard = Arc::clone(&heard);
        Box::new(move |code, payload: &[u8]| heard.lock().unwrap().push((code, payload.to_vec())))
    };
    let link = Link::start(client, Config::default(), notices).unwrap();
    let _worker = worker(server);
    for i in 0..100u8 {
        link.post(SAY, ContextId::NONE, |writer| writer.u8(i)).unwrap();
        link.call(READ, ContextId::NONE, |_| ()).unwrap();
        assert_eq!(
            heard.lock().unwrap().last(),
            Some(&(9, vec![i])),
            "the notice came before the later reply"
        );
    }
    assert_eq!(heard.lock().unwrap().len(), 100);
}

#[test]
fn a_notice_is_read_when_nobody_waits() {
    let (client, server) = tcp_pair();
    let (send, heard) = mpsc::channel();
    let notices = Box::new(move |_, payload: &[u8]| send.send(payload.to_vec()).unwrap());
    let link = Link::start(client, Config::default(), notices).unwrap();
    let _worker = worker(server);
    for i in 0..3u8 {
        // Also after a call, when callers had been the ones to read.
        link.call(READ, ContextId::NONE, |_| ()).unwrap();
        link.post(SAY, ContextId::NONE, |writer| writer.u8(i)).unwrap();
        assert_eq!(heard.recv_timeout(PATIENCE), Ok(vec![i]));
    }
}

#[test]
fn a_full_queue_blocks_the_poster_and_holds_no_more() {
    const COUNT: u64 = 2000;
    const SIZE: usize = 64 << 10;
    let (client, server) = tcp_pair();
    let queue = 256 << 10;
    let link =
        Arc::new(Link::start(client, Config { queue, ..Config::default() }, ignore()).unwrap());
    let (done, posted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    // Far more than the queue and any socket buffers hold.
    let poster = std::thread::spawn({
        let (link, done, posted) = (Arc::clone(&link), Arc::clone(&done), Arc::clone(&posted));
        move || {
            for _ in 0..COUNT {
                link.post(ADD, ContextId::NONE, |writer| writer.fixed(&[1; SIZE])).unwrap();
                posted.fetch_add(1, Ordering::Relaxed);
            }
            done.store(true, Ordering::Relaxed);
        }
    });
    // The worker reads nothing, so the poster comes to a halt.
    let mut last = 0;
    wait_until("the halt", || {
        std::thread::sleep(Duration::from_millis(100));
        let now = posted.load(Ordering::Relaxed);
        let halted = now > 0 && now == last;
        last = now;
        halted
    });
    assert!(!done.load(Ordering::Relaxed), "the queue has no bound");
    let held = (last * SIZE as u64).saturating_sub(link.stats().sent);
    assert!(held <= (2 * queue + 2 * SIZE) as u64, "{held} bytes are held");
    let worker = worker(server);
    poster.join().unwrap();
    assert_eq!(link.call(READ, ContextId::NONE, |_| ()).unwrap().payload, COUNT.to_le_bytes());
    drop(link);
    worker.join().unwrap();
}

#[test]
fn a_worker_that_talks_before_it_listens_is_heard() {
    // Both sides have more to say than any socket buffer holds; the worker does not read before it
    // has said all.
    const SAID: u64 = 64 << 20;
    let (client, server) = tcp_pair();
    let heard = Arc::new(AtomicU64::new(0));
    let notices = {
        let heard = Arc::clone(&heard);
        Box::new(move |_, payload: &[u8]| {
            heard.fetch_add(payload.len() as u64, Ordering::Relaxed);
        })
    };
    let link = Link::start(client, Config::default(), notices).unwrap();
    let talker = std::thread::spawn(move || {
        let mut outgoing = Outgoing::new(false);
        for _ in 0..SAID >> 20 {
            outgoing.notice(1, 0, |writer| writer.fixed(&vec![0; 1 << 20])).unwrap();
            write_out(&*server, &mut outgoing);
        }
        worker(server)
    });
    for _ in 0..1000 {
        link.post(ADD, ContextId::NONE, |writer| writer.fixed(&[1; 64 << 10])).unwrap();
    }
    wait_until("hearing all", || heard.load(Ordering::Relaxed) == SAID);
    link.flush().unwrap();
    let worker = talker.join().unwrap();
    drop(link);
    assert_eq!(worker.join().unwrap().counter, 1000);
}

#[test]
fn death_ends_a_waiting_call_and_all_later_ones() {
    let (link, worker) = start(Config::default());
    link.call(READ, ContextId::NONE, |_| ()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                // Each sees its own end, whoever leads and whoever follows.
                while link.call(ECHO, ContextId::NONE, |_| ()).is_ok() {}
                assert!(is_lost(&link.call(ECHO, ContextId::NONE, |_| ())));
            });
        }
        link.post(DIE, ContextId::NONE, |_| ()).unwrap();
    });
    worker.join().unwrap();
    assert!(!link.is_alive());
    assert!(is_lost(&link.post(ADD, ContextId::NONE, |_| ())));
    assert!(is_lost(&link.call(READ, ContextId::NONE, |_| ())));
}

#[test]
fn death_is_noticed_when_nobody_waits() {
    for after_call in [false, true] {
        let (link, worker) = start(Config::default());
        if after_call {
            link.call(READ, ContextId::NONE, |_| ()).unwrap();
        }
        link.post(DIE, ContextId::NONE, |_| ()).unwrap();
        worker.join().unwrap();
        wait_until("noticing", || !link.is_alive());
        assert!(is_lost(&link.post(ADD, ContextId::NONE, |_| ())));
    }
}

#[test]
fn last_words_are_heard() {
    let (client, server) = tcp_pair();
    let (send, heard) = mpsc::channel();
    let notices = Box::new(move |_, payload: &[u8]| send.send(payload.to_vec()).unwrap());
    let link = Link::start(client, Config::default(), notices).unwrap();
    let mut outgoing = Outgoing::new(false);
    outgoing.notice(1, 0, |writer| writer.fixed(b"the reason")).unwrap();
    write_out(&*server, &mut outgoing);
    drop(server);
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), b"the reason");
    wait_until("noticing", || !link.is_alive());
}

#[test]
fn a_reply_nobody_asked_for_ends_the_link() {
    let (link, _worker) = start(Config::default());
    link.post(ANSWER_UNASKED, ContextId::NONE, |_| ()).unwrap();
    wait_until("noticing", || !link.is_alive());
    match link.call(READ, ContextId::NONE, |_| ()) {
        Err(LinkError::Lost(reason)) => assert!(reason.contains("waits for none"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn closing_ends_waiting_calls() {
    let (client, _server) = pipe::pair().unwrap();
    let link = Link::start(client, Config::default(), ignore()).unwrap();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| link.call(READ, ContextId::NONE, |_| ()));
        wait_until("the call", || link.last() == 1);
        link.close();
        assert!(is_lost(&call.join().unwrap()));
    });
}

#[test]
fn a_panic_while_encoding_harms_nothing() {
    let (link, _worker) = start(Config::default());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        link.post(ADD, ContextId::NONE, |writer| {
            writer.u64(5);
            panic!("on purpose");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(link.call(READ, ContextId::NONE, |_| ()).unwrap().payload, 0u64.to_le_bytes());
}

#[test]
fn a_panic_in_the_notice_handler_harms_nothing() {
    let (client, server) = tcp_pair();
    let link =
        Link::start(client, Config::default(), Box::new(|_, _| panic!("on purpose"))).unwrap();
    let _worker = worker(server);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    link.post(SAY, ContextId::NONE, |_| ()).unwrap();
                    assert_eq!(link.call(READ, ContextId::NONE, |_| ()).unwrap().status, 0);
                }
            });
        }
    });
    assert!(link.is_alive());
}

#[test]
fn a_forked_child_lets_go_and_its_parent_goes_on() {
    let (client, server) = tcp_pair();
    let link = Link::start(Arc::clone(&client), Config::default(), ignore()).unwrap();
    let _worker = worker(server);
    link.call(READ, ContextId::NONE, |_| ()).unwrap();
    // SAFETY: the child makes one system call and ends without running exit handlers.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let gone = client
            .read(&mut [0])
            .is_err_and(|error| error.kind() != std::io::ErrorKind::WouldBlock);
        // SAFETY: see above.
        unsafe { libc::_exit(if gone { 7 } else { 1 }) };
    }
    assert!(child > 0);
    let mut status = -1;
    // SAFETY: `status` is a place for the status; the child is ours and not waited for elsewhere.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 7, "the child still had the connection");
    assert_eq!(link.call(READ, ContextId::NONE, |_| ()).unwrap().status, 0);
    assert!(link.is_alive());
}
