//! A server that does not keep to the rules: between a real program and a real worker, it asks for
//! what nobody needs, answers for the worker, holds back and repeats. All else goes through as it
//! came, so that the program's session is a real one.
//!
//! The program must run with `OUTBOARD_RECONNECT=0` unless nothing is put in: frames that are
//! counted in both directions would not add up.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use outboard_wire::frame::{CommandHeader, ReplyHeader, ReplyKind, flags};
use outboard_wire::handshake::{
    ANSWER_LIMIT, Answer, HELLO_LIMIT, Hello, Preamble, Purpose, VERSION, Welcome,
};
use outboard_wire::lane::{LaneHeader, LaneKind};
use outboard_wire::limits::MAX_FRAME;
use outboard_wire::notice::REQUEST;
use outboard_wire::request::Request;
use outboard_wire::{ContextId, Reader, Writer};

/// Requests of our own have numbers from here on.
const OURS: u64 = 1 << 40;
/// Only keeps a defect from hanging the tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the worker has asked of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// By which the answer names it.
    pub number: u64,
    /// What is asked.
    pub kind: u32,
    /// The program's name for the context.
    pub ctx: u32,
    /// What belongs to the kind.
    pub body: Vec<u8>,
}

/// Changes a welcome before the program sees it.
pub type Rewrite = Box<dyn Fn(&mut Welcome, &Purpose) + Send + Sync>;

#[derive(Default)]
struct State {
    /// The program's connection for commands, and the number of the last frame that went there.
    commands: Option<TcpStream>,
    last: u32,
    taken: u32,
    asked: Vec<Asked>,
    own: u64,
    answers: HashMap<u64, (u32, Vec<u8>)>,
    /// Calls that are answered at once, and replies that are not passed on therefore.
    forged: HashSet<u16>,
    dropped: HashSet<u32>,
    /// Requests of these kinds, and notices of these codes, are kept back.
    kept_requests: HashSet<u32>,
    kept_notices: HashSet<u16>,
    /// Lanes to the program stand still.
    lanes_stand: bool,
    /// Nothing at all goes to the program any more.
    silent: bool,
    lanes: Vec<TcpStream>,
    /// Chunks that the program has sent: transfer, and the first byte of each.
    chunks: Vec<(u64, u8)>,
    connections: usize,
}

struct Inner {
    server: String,
    state: Mutex<State>,
    changed: Condvar,
    rewrite: Option<Rewrite>,
}

/// Such a server.
pub struct Hostile {
    inner: Arc<Inner>,
    address: String,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with it")
    }

    fn change<T>(&self, what: impl FnOnce(&mut State) -> T) -> T {
        let result = what(&mut self.state());
        self.changed.notify_all();
        result
    }

    fn wait_for<T>(&self, what: &str, mut look: impl FnMut(&mut State) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.state();
        loop {
            if let Some(found) = look(&mut state) {
                return found;
            }
            let left = deadline
                .checked_duration_since(Instant::now())
                .unwrap_or_else(|| panic!("no {what}"));
            state = self.changed.wait_timeout(state, left).expect("no thread panics with it").0;
        }
    }
}

impl State {
    /// Sends the program a frame, under the next number.
    fn send(&mut self, mut header: ReplyHeader, payload: &[u8]) {
        let Some(mut stream) = self.commands.as_ref() else { return };
        if self.silent {
            return;
        }
        if header.kind != ReplyKind::Acknowledge {
            self.last = self.last.wrapping_add(1);
            header.seq = self.last;
        }
        let mut writer = Writer::new();
        header.len = payload.len() as u32;
        header.encode(&mut writer);
        writer.fixed(payload);
        // The program may have had enough.
        let _ = stream.write_all(writer.as_slice());
    }
}

impl Hostile {
    /// In front of a server.
    pub fn before(server: &str) -> Hostile {
        Hostile::start(server, None)
    }

    /// In front of a server whose welcomes are changed.
    pub fn with_welcome(server: &str, rewrite: Rewrite) -> Hostile {
        Hostile::start(server, Some(rewrite))
    }

    fn start(server: &str, rewrite: Option<Rewrite>) -> Hostile {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address").to_string();
        let inner = Arc::new(Inner {
            server: server.to_owned(),
            state: Mutex::default(),
            changed: Condvar::new(),
            rewrite,
        });
        let own = Arc::clone(&inner);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let inner = Arc::clone(&own);
                std::thread::spawn(move || {
                    // A connection that fails ends, as both sides see.
                    let _ = serve(&inner, client);
                });
            }
        });
        Hostile { inner, address }
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Tells the program something that no command asked for.
    pub fn notice(&self, code: u16, payload: &[u8]) {
        self.inner.change(|state| {
            let taken = state.taken;
            let header = ReplyHeader {
                len: 0,
                kind: ReplyKind::Notice,
                code,
                seq: 0,
                taken,
                answers: 0,
                status: 0,
            };
            state.send(header, payload);
        });
    }

    /// Asks the program for something, and does not wait for the answer.
    pub fn order(&self, number: u64, kind: u32, ctx: u32, body: &[u8]) {
        let mut writer = Writer::new();
        writer.put(&Request { number, kind, ctx: ContextId(ctx), body });
        self.notice(REQUEST, writer.as_slice());
    }

    /// Asks the program for something: status and body of its answer; `None` if the connection ends
    /// instead.
    pub fn ask(&self, kind: u32, ctx: u32, body: &[u8]) -> Option<(u32, Vec<u8>)> {
        let number = self.inner.change(|state| {
            state.own += 1;
            OURS + state.own
        });
        self.order(number, kind, ctx, body);
        self.inner.wait_for("answer", |state| match state.answers.remove(&number) {
            None if state.commands.is_none() => Some(None),
            found => found.map(Some),
        })
    }

    /// The first request of a kind that the worker has made.
    pub fn first_asked(&self, kind: u32) -> Asked {
        self.inner.wait_for("request", |state| {
            state.asked.iter().find(|asked| asked.kind == kind).cloned()
        })
    }

    /// The same, unless the program leaves instead.
    pub fn first_asked_unless_left(&self, kind: u32) -> Option<Asked> {
        self.inner.wait_for("request", |state| {
            match state.asked.iter().find(|asked| asked.kind == kind) {
                None if state.commands.is_none() => Some(None),
                found => found.cloned().map(Some),
            }
        })
    }

    /// Answers calls of these numbers with success as soon as they come.
    pub fn forge(&self, op: u16) {
        self.inner.change(|state| state.forged.insert(op));
    }

    /// Keeps the worker's requests of a kind to itself.
    pub fn keep_requests(&self, kind: u32) {
        self.inner.change(|state| state.kept_requests.insert(kind));
    }

    /// Keeps the worker's notices of a code to itself.
    pub fn keep_notices(&self, code: u16) {
        self.inner.change(|state| state.kept_notices.insert(code));
    }

    /// Lets nothing through on lanes to the program, or does again.
    pub fn hold_lanes(&self, hold: bool) {
        self.inner.change(|state| state.lanes_stand = hold);
    }

    /// Lets nothing more through to the program, and says nothing, with the connections open.
    pub fn fall_silent(&self) {
        self.inner.change(|state| (state.silent, state.lanes_stand) = (true, true));
    }

    /// Begins a frame that never ends. What the worker says afterwards becomes a part of it.
    pub fn begin_a_frame(&self) {
        self.inner.change(|state| {
            let header = ReplyHeader {
                len: MAX_FRAME as u32,
                kind: ReplyKind::Notice,
                code: REQUEST,
                seq: state.last.wrapping_add(1),
                taken: state.taken,
                answers: 0,
                status: 0,
            };
            let mut writer = Writer::new();
            header.encode(&mut writer);
            let mut stream = state.commands.as_ref().expect("the program has a session");
            stream.write_all(writer.as_slice()).expect("there is room");
        });
    }

    /// Sends the program a frame on a lane.
    pub fn on_a_lane(&self, header: &LaneHeader, body: &[u8]) {
        let stream = self
            .inner
            .wait_for("lane", |state| state.lanes.first().and_then(|lane| lane.try_clone().ok()));
        let mut bytes = header.encode().to_vec();
        bytes.extend_from_slice(body);
        // The program may have ended the connection.
        let _ = (&stream).write_all(&bytes);
    }

    /// Begins a header on a lane, and does not end it.
    pub fn begin_on_a_lane(&self) {
        self.hold_lanes(true);
        let mut stream = self
            .inner
            .wait_for("lane", |state| state.lanes.first().and_then(|lane| lane.try_clone().ok()));
        stream.write_all(&[LaneKind::Grant as u8, 0, 0]).expect("there is room");
    }

    /// Cuts the connection that carries commands.
    pub fn cut(&self) {
        let stream = self.inner.change(|state| state.commands.take());
        stream.map(|stream| stream.shutdown(Shutdown::Both));
    }

    /// Whether the program has ended the connection that carries commands, or was cut off.
    pub fn is_left(&self) -> bool {
        self.inner.state().commands.is_none()
    }

    /// First bytes of the chunks that the program has sent.
    pub fn chunks(&self) -> Vec<u8> {
        self.inner.state().chunks.iter().map(|(_, first)| *first).collect()
    }

    /// How many connections have been made.
    pub fn connections(&self) -> usize {
        self.inner.state().connections
    }
}

/// A message of the handshake, with its preamble.
fn message(stream: &mut impl Read, limit: usize) -> io::Result<(Preamble, Vec<u8>, Vec<u8>)> {
    let mut head = [0; Preamble::SIZE];
    stream.read_exact(&mut head)?;
    let preamble = Preamble::decode(&head, limit).map_err(io::Error::other)?;
    let mut body = vec![0; preamble.len as usize];
    stream.read_exact(&mut body)?;
    let whole = [&head[..], &body].concat();
    Ok((preamble, body, whole))
}

fn serve(inner: &Arc<Inner>, mut client: TcpStream) -> io::Result<()> {
    inner.change(|state| state.connections += 1);
    let (preamble, body, hello) = message(&mut client, HELLO_LIMIT)?;
    let purpose = Hello::decode(&preamble, &body, VERSION).map_err(io::Error::other)?.purpose;
    let mut server = TcpStream::connect(&inner.server)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    server.write_all(&hello)?;
    let (preamble, body, mut whole) = message(&mut server, ANSWER_LIMIT)?;
    if inner.state().silent {
        inner.wait_for("end", |state| (!state.silent).then_some(()));
    }
    if let Some(rewrite) = &inner.rewrite
        && let Ok(Answer::Welcome(mut welcome)) = Answer::decode(&preamble, &body, VERSION)
    {
        rewrite(&mut welcome, &purpose);
        whole = welcome.encode();
    }
    client.write_all(&whole)?;
    let is_lane = matches!(purpose, Purpose::Lane { .. });
    let kept = client.try_clone()?;
    inner.change(|state| {
        if is_lane {
            state.lanes.push(kept)
        } else {
            (state.commands, state.last) = (Some(kept), 0)
        }
    });
    let (from, to, own) = (server.try_clone()?, client.try_clone()?, Arc::clone(inner));
    std::thread::spawn(move || {
        let _ = if is_lane { lane_down(&own, &from, &to) } else { replies(&own, &from) };
        let _ = to.shutdown(Shutdown::Both);
    });
    let _ =
        if is_lane { lane_up(inner, &client, &server) } else { commands(inner, &client, &server) };
    let _ = server.shutdown(Shutdown::Both);
    if !is_lane {
        inner.change(|state| state.commands = None);
    }
    Ok(())
}

fn body(mut stream: &TcpStream, len: u32) -> io::Result<Vec<u8>> {
    let mut body = vec![0; len as usize];
    stream.read_exact(&mut body).map(|()| body)
}

/// Commands of the program.
fn commands(inner: &Inner, mut client: &TcpStream, mut server: &TcpStream) -> io::Result<()> {
    loop {
        let mut head = [0; CommandHeader::SIZE];
        client.read_exact(&mut head)?;
        let header = CommandHeader::decode(&head).map_err(io::Error::other)?;
        let payload = body(client, header.len)?;
        if header.flags & flags::WANTS_REPLY != 0 {
            inner.change(|state| {
                if state.forged.contains(&header.op) {
                    state.dropped.insert(header.seq);
                    let (kind, answers, taken) = (ReplyKind::Reply, header.seq, header.seq);
                    state.send(
                        ReplyHeader { len: 0, kind, code: 0, seq: 0, taken, answers, status: 0 },
                        &[],
                    );
                }
            });
        }
        server.write_all(&[&head[..], &payload].concat())?;
    }
}

/// What the worker says.
fn replies(inner: &Inner, mut server: &TcpStream) -> io::Result<()> {
    loop {
        let mut head = [0; ReplyHeader::SIZE];
        server.read_exact(&mut head)?;
        let header = ReplyHeader::decode(&head).map_err(io::Error::other)?;
        let payload = body(server, header.len)?;
        inner.change(|state| {
            state.taken = header.taken;
            let mut kept = match header.kind {
                ReplyKind::Reply => state.dropped.remove(&header.answers),
                ReplyKind::Notice => state.kept_notices.contains(&header.code),
                ReplyKind::Acknowledge => false,
            };
            if header.kind == ReplyKind::Notice
                && header.code == REQUEST
                && let Ok(request) = Reader::new(&payload).get::<Request<'_>>()
            {
                let Request { number, kind, ctx, body } = request;
                state.asked.push(Asked { number, kind, ctx: ctx.0, body: body.to_vec() });
                kept |= state.kept_requests.contains(&kind);
            }
            if !kept {
                state.send(header, &payload);
            }
        });
    }
}

/// What comes to the program on a lane.
fn lane_down(inner: &Inner, mut server: &TcpStream, mut client: &TcpStream) -> io::Result<()> {
    loop {
        let mut head = [0; LaneHeader::SIZE];
        server.read_exact(&mut head)?;
        let header = LaneHeader::decode(&head).map_err(io::Error::other)?;
        let payload = body(server, header.len)?;
        inner.wait_for("end of the stand", |state| (!state.lanes_stand).then_some(()));
        client.write_all(&[&head[..], &payload].concat())?;
    }
}

/// What the program sends on a lane.
fn lane_up(inner: &Inner, mut client: &TcpStream, mut server: &TcpStream) -> io::Result<()> {
    loop {
        let mut head = [0; LaneHeader::SIZE];
        client.read_exact(&mut head)?;
        let header = LaneHeader::decode(&head).map_err(io::Error::other)?;
        let payload = body(client, header.len)?;
        if header.kind == LaneKind::Answer && header.transfer > OURS {
            inner.change(|state| state.answers.insert(header.transfer, (header.index, payload)));
            continue;
        }
        if header.kind == LaneKind::Chunk {
            let first = payload.first().copied().unwrap_or(0);
            inner.change(|state| state.chunks.push((header.transfer, first)));
        }
        server.write_all(&[&head[..], &payload].concat())?;
    }
}
