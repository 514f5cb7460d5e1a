//! A client of no library: it says what a test wants said, and reads only when the test does.
//!
//! Over TCP of this machine and in the clear. What the server answers is checked as little as the
//! test asks for.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use outboard_session::client::{Event, Incoming};
use outboard_wire::device_id::DeviceId;
use outboard_wire::frame::{CommandHeader, flags};
use outboard_wire::handshake::{
    ANSWER_LIMIT, Answer, Extensions, Hello, Preamble, Purpose, Refusal, VERSION, Welcome,
};
use outboard_wire::lane::{LaneHeader, LaneKind};
use outboard_wire::messages::{Call, ContextOpen, MemoryAlloc, Message};
use outboard_wire::{ContextId, Decode, Encode, Reader, Writer, notice};

use crate::Server;

/// Only keeps a server that does not answer from hanging a test.
const LIMIT: Duration = Duration::from_secs(60);

/// What became of a command that waits for a reply: its bytes, or the `CUresult` that it failed
/// with.
pub type Reply = Result<Vec<u8>, u32>;

/// A session of its own, with the connection that carries its commands.
pub struct RawClient {
    address: String,
    stream: TcpStream,
    welcome: Welcome,
    incoming: Incoming,
    /// The number of the last command.
    sent: u32,
    /// Replies that have come and nobody has asked for.
    replies: Vec<(u32, Reply)>,
    /// What posted commands have failed with so far, as far as notices have been read.
    pub failures: Vec<u32>,
    /// Why the server ends the session, if it has said so as far as notices have been read.
    pub ended: Option<String>,
    /// The context that commands are of.
    pub ctx: u32,
}

/// Says hello; the stream, once the server has welcomed it.
pub fn hello(address: &str, purpose: Purpose) -> Result<(TcpStream, Welcome), Refusal> {
    hello_over(TcpStream::connect(address).expect("the server listens"), purpose)
}

/// The same over a connection that is there already.
pub fn hello_over(stream: TcpStream, purpose: Purpose) -> Result<(TcpStream, Welcome), Refusal> {
    hello_saying(stream, purpose, Extensions::default())
}

/// The same with more to say.
pub fn hello_saying(
    stream: TcpStream,
    purpose: Purpose,
    more: Extensions,
) -> Result<(TcpStream, Welcome), Refusal> {
    let mut stream = prepared(stream);
    let welcome = greet(&mut stream, purpose, more)?;
    Ok((stream, welcome))
}

fn prepared(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
    stream.set_nodelay(true).expect("an option");
    stream
}

/// Says hello over a connection of any kind, and waits for the welcome.
pub fn greet(
    stream: &mut (impl Read + Write),
    purpose: Purpose,
    more: Extensions,
) -> Result<Welcome, Refusal> {
    let hello = Hello {
        version: VERSION,
        software: "test".into(),
        client: "raw client".into(),
        purpose,
        process: Default::default(),
        more,
    };
    stream.write_all(&hello.encode()).expect("the server reads");
    welcome(stream)
}

fn welcome(stream: &mut impl Read) -> Result<Welcome, Refusal> {
    loop {
        match answer(stream) {
            Answer::Welcome(welcome) => return Ok(welcome),
            Answer::Refusal(refusal) => return Err(refusal),
            Answer::Waiting(_) => {}
            Answer::Secure(_) | Answer::File(_) => panic!("nobody asked for that"),
        }
    }
}

fn answer(stream: &mut impl Read) -> Answer {
    let mut head = [0; Preamble::SIZE];
    stream.read_exact(&mut head).expect("an answer");
    let preamble = Preamble::decode(&head, ANSWER_LIMIT).expect("a preamble");
    let mut body = vec![0; preamble.len as usize];
    stream.read_exact(&mut body).expect("an answer");
    Answer::decode(&preamble, &body, VERSION).expect("an answer")
}

impl RawClient {
    /// A session with all devices of the server.
    pub fn connect(server: &Server) -> RawClient {
        RawClient::connect_to(server.address())
            .unwrap_or_else(|refusal| panic!("a session: {}", refusal.sentence))
    }

    /// The same at this address; or why the server refuses it.
    pub fn connect_to(address: &str) -> Result<RawClient, Refusal> {
        RawClient::connect_saying(address, Extensions::default())
    }

    /// The same, with more to say.
    pub fn connect_saying(address: &str, more: Extensions) -> Result<RawClient, Refusal> {
        let stream = TcpStream::connect(address).expect("the server listens");
        let (stream, welcome) = hello_saying(stream, Purpose::Session { devices: vec![] }, more)?;
        Ok(RawClient::welcomed(address, stream, welcome))
    }

    /// A session whose hello somebody else has written.
    pub fn resay(address: &str, hello: &[u8]) -> Result<RawClient, Refusal> {
        let mut stream = prepared(TcpStream::connect(address).expect("the server listens"));
        stream.write_all(hello).expect("the server reads");
        let welcome = welcome(&mut stream)?;
        Ok(RawClient::welcomed(address, stream, welcome))
    }

    /// Sends a command as somebody else has sent it, with its header.
    pub fn resend(&mut self, command: &[u8]) {
        self.write(command);
    }

    fn welcomed(address: &str, stream: TcpStream, welcome: Welcome) -> RawClient {
        let address = address.to_owned();
        let (incoming, replies, failures) = (Incoming::new(), Vec::new(), Vec::new());
        RawClient {
            address,
            stream,
            welcome,
            incoming,
            sent: 0,
            replies,
            failures,
            ended: None,
            ctx: 0,
        }
    }

    /// What the server said when it let this in.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// The connection of the commands.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// One more lane of the session. It is read when the test reads it.
    pub fn lane(&self) -> TcpStream {
        let purpose = Purpose::Lane { session: self.welcome.session, key: self.welcome.key };
        hello(&self.address, purpose)
            .unwrap_or_else(|refusal| panic!("a lane: {}", refusal.sentence))
            .0
    }

    /// Opens the primary context of the first device under the name 1, and goes on in it.
    pub fn open(&mut self) {
        self.ctx = 1;
        self.call(&ContextOpen { device: DeviceId::new(0), flags: 0, primary: true }, |_| ())
            .expect("a context");
    }

    /// Allocates memory of the device.
    pub fn alloc(&mut self, bytes: u64) -> Result<u64, u32> {
        self.call(&MemoryAlloc { bytes }, |reply| reply.address.0)
    }

    /// Sends a command that nobody answers.
    pub fn post<M: Message>(&mut self, message: &M) {
        self.send(M::OP, 0, message);
    }

    /// Sends a command of any number and any bytes, which nobody answers.
    pub fn post_raw(&mut self, op: u16, payload: &[u8]) {
        let mut writer = Writer::new();
        self.sent += 1;
        let len = payload.len() as u32;
        CommandHeader { len, op, flags: 0, ctx: ContextId(self.ctx), seq: self.sent }
            .encode(&mut writer);
        writer.fixed(payload);
        self.write(writer.as_slice());
    }

    /// Sends several of them at once.
    pub fn post_all<M: Message>(&mut self, messages: impl IntoIterator<Item = M>) {
        let mut writer = Writer::new();
        for message in messages {
            self.append(M::OP, 0, &message, &mut writer);
        }
        self.write(writer.as_slice());
    }

    /// Sends a command that is answered, and does not wait: its number.
    pub fn ask<M: Call>(&mut self, message: &M) -> u32 {
        self.send(M::OP, flags::WANTS_REPLY, message)
    }

    /// Sends several of them at once: the number of the last one.
    pub fn ask_all<M: Call>(&mut self, messages: impl IntoIterator<Item = M>) -> u32 {
        let mut writer = Writer::new();
        for message in messages {
            self.append(M::OP, flags::WANTS_REPLY, &message, &mut writer);
        }
        self.write(writer.as_slice());
        self.sent
    }

    /// Sends a command and waits for its answer, which `take` gets; or what it failed with.
    pub fn call<M: Call, T>(
        &mut self,
        message: &M,
        take: impl FnOnce(M::Reply<'_>) -> T,
    ) -> Result<T, u32> {
        let number = self.ask(message);
        let reply = self.reply(number)?;
        Ok(take(M::Reply::decode(&mut Reader::new(&reply)).expect("a reply of that message")))
    }

    /// Waits for the answer to a command.
    pub fn reply(&mut self, number: u32) -> Reply {
        self.try_reply(number).expect("the session goes on")
    }

    /// The same; none if the session ends before.
    pub fn try_reply(&mut self, number: u32) -> Option<Reply> {
        loop {
            if let Some(place) = self.replies.iter().position(|(answers, _)| *answers == number) {
                return Some(self.replies.swap_remove(place).1);
            }
            if !self.read() {
                return None;
            }
        }
    }

    /// Reads what the server sends next; false once it has ended the connection.
    pub fn read(&mut self) -> bool {
        let mut piece = [0; 65536];
        let Ok(count @ 1..) = self.stream.read(&mut piece) else { return false };
        self.incoming.buffer().push(&piece[..count]);
        while let Some(event) = self.incoming.next_event().expect("frames of a worker") {
            match event {
                Event::Reply { answers, status, payload } => {
                    let reply = if status == 0 { Ok(payload.to_vec()) } else { Err(status) };
                    self.replies.push((answers as u32, reply));
                }
                Event::Notice { code: notice::FAILURE, payload } => {
                    let failure =
                        notice::Failure::decode(&mut Reader::new(payload)).expect("a failure");
                    self.failures.push(failure.status);
                }
                Event::Notice { code: notice::ENDED, payload } => {
                    let why: &str = Reader::new(payload).get().expect("a sentence");
                    self.ended = Some(why.into());
                }
                Event::Notice { .. } => {}
            }
        }
        true
    }

    fn send(&mut self, op: u16, flags: u16, message: &impl Encode) -> u32 {
        let mut writer = Writer::new();
        let number = self.append(op, flags, message, &mut writer);
        self.write(writer.as_slice());
        number
    }

    fn append(&mut self, op: u16, flags: u16, message: &impl Encode, writer: &mut Writer) -> u32 {
        self.sent += 1;
        let at = writer.len();
        CommandHeader { len: 0, op, flags, ctx: ContextId(self.ctx), seq: self.sent }
            .encode(writer);
        writer.put(message);
        let len = writer.len() - at - CommandHeader::SIZE;
        writer.patch_u32(at, u32::try_from(len).expect("a small command"));
        self.sent
    }

    fn write(&mut self, bytes: &[u8]) {
        // The server may have ended the session, which who reads finds out.
        let _ = self.stream.write_all(bytes);
    }
}

/// Reads one frame from a lane: its header, and its bytes if it has any; none once the lane has
/// ended.
pub fn read_frame(lane: &mut TcpStream) -> Option<(LaneHeader, Vec<u8>)> {
    let mut head = [0; LaneHeader::SIZE];
    lane.read_exact(&mut head).ok()?;
    let header = LaneHeader::decode(&head).expect("a header of a worker");
    let mut bytes = vec![0; header.len as usize];
    lane.read_exact(&mut bytes).ok()?;
    Some((header, bytes))
}

/// Writes a chunk of a transfer to a lane.
pub fn write_chunk(lane: &mut TcpStream, transfer: u64, index: u32, bytes: &[u8]) {
    let header = LaneHeader { kind: LaneKind::Chunk, transfer, index, len: bytes.len() as u32 };
    // The server may have ended the session.
    let _ = lane.write_all(&header.encode()).and_then(|()| lane.write_all(bytes));
}
