//! What supervisor and worker say to each other, over a socket pair that keeps messages apart. The worker finds its
//! end as standard input.
//!
//! A worker that has a session goes on when its supervisor is gone, and the next supervisor, perhaps of another release, takes it over. So what
//! is said after a session has begun never changes its form or number: there is a new message instead, and who does not know one skips it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use outboard_wire::codec::decode_all;
use outboard_wire::handshake::resume::{Point, Terms};
use outboard_wire::handshake::{Local, Process, RefusalCode};
use outboard_wire::{Decode, DecodeError, Encode, Reader, Writer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::trace::Span;

use crate::identity::Identity;

/// Supervisor to worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToWorker {
    /// Get ready for a client that comes later; the start follows then.
    Warm(Warm),
    /// Serve the client whose connection comes along.
    Start(Box<Start>),
    /// The board comes along; it follows the start.
    Board,
    /// The session's meter comes along; it follows the board.
    Meter,
    /// Spans are wanted from now on, as parts of this one; or no longer.
    Trace { on: bool, root: u64 },
    /// The session is to end now; the client is told this.
    End { sentence: String },
    /// The connection that comes along is one more lane of the session, or takes the place of one; if `secure`, it is encrypted.
    Lane { secure: bool, point: Option<Point> },
    /// The session's commands go on over the connection that comes along.
    GoOn { secure: bool, point: Point },
    /// The session, which has sent no command yet, goes on through memory that the connection that comes along brings.
    Memory,
    /// Take up no command, if none is at hand: the driver is to be suspended.
    Suspend,
    /// The driver goes on, or was not suspended.
    Resume,
    /// The answer to a request: what was asked for, perhaps with a descriptor; none if it is not there or was not taken.
    Answer { request: u64, payload: Option<Vec<u8>> },
    /// The socket that comes along is where the next supervisor will connect, should this one go. So many seconds the worker waits for it, or as
    /// long as its client is there.
    Home { outlive: Option<u64> },
    /// The descriptor that comes along is for the next supervisor.
    Keep { tag: u8 },
    /// Something that a supervisor of another release says.
    Unknown(u8),
}

/// Descriptors that workers keep for the next supervisor.
pub(crate) mod tags {
    /// The board.
    pub(crate) const BOARD: u8 = 1;
    /// The session's meter.
    pub(crate) const METER: u8 = 2;
}

/// What a worker is to have ready before it has a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warm {
    /// Ordinals of the devices whose primary context it is to hold.
    pub contexts: Vec<u32>,
    /// The supervisor's process.
    pub supervisor: u32,
}

/// What a worker is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The session's number.
    pub session: u64,
    /// What a lane shows to join.
    pub key: u128,
    /// How many bulk lanes to suggest to the client.
    pub lanes: u32,
    /// Only the welcome is wanted.
    pub probe: bool,
    /// Indices of the devices that the client wants to see, in order; empty for all.
    pub devices: Vec<u32>,
    /// Who the client is, in its own words.
    pub client: String,
    /// The client's process, by its own account.
    pub process: Process,
    /// Whose session it is, and what it may have.
    pub identity: Identity,
    /// With what its connections are encrypted, if they are.
    pub secure: Option<Secure>,
    /// Memory is lent: the supervisor is asked for it, and may suspend the session.
    pub lends: bool,
    /// Its client may ask NVML's questions, and nothing of a device.
    pub only_questions: bool,
    /// The supervisor's process, so that a worker can tell that it is gone.
    pub supervisor: u32,
    /// What the client is told of the socket for clients on this machine.
    pub local: Option<Local>,
    /// What the platform is known to be, for a session that needs no more than that: no driver is started for it.
    pub platform: Option<Vec<u8>>,
    /// How long the session is kept without a connection, if its client can take it up again.
    pub grace: Option<Grace>,
}

/// How long a session is kept that has lost its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// If nothing is heard of the client any more.
    pub silent: Duration,
    /// If the connection was closed, as it is when the client's process was killed.
    pub closed: Duration,
}

/// A certificate of the session's own, and its key, in DER.
#[derive(Clone, PartialEq, Eq)]
pub struct Secure {
    /// The certificate, whose fingerprint the client has been told.
    pub certificate: Vec<u8>,
    /// Its private key.
    pub key: Vec<u8>,
}

/// Nobody finds a key in a log.
impl std::fmt::Debug for Secure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secure(..)")
    }
}

impl Encode for Secure {
    fn encode(&self, writer: &mut Writer) {
        writer.bytes(&self.certificate);
        writer.bytes(&self.key);
    }
}

impl<'a> Decode<'a> for Secure {
    fn decode(reader: &mut Reader<'a>) -> Result<Secure, DecodeError> {
        Ok(Secure { certificate: reader.bytes()?.to_vec(), key: reader.bytes()?.to_vec() })
    }
}

/// Worker to supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToSupervisor {
    /// The worker is warm; this is what a welcome would tell of the platform, or nothing if that is too long for a message.
    Ready { snapshot: Vec<u8> },
    /// The client has been welcomed and is the worker's from now on.
    Welcomed,
    /// The client cannot be served.
    Failed { code: RefusalCode, sentence: String },
    /// Keep this, and the descriptor that comes along, for other sessions that show the token.
    Share { request: u64, token: u128, kind: u8, payload: Vec<u8> },
    /// Do so no longer.
    Unshare { token: u128 },
    /// Whether no command is taken up from now on.
    Quiet { quiet: bool },
    /// The client of a suspended session has something to do.
    Wake,
    /// Room, please, for so many bytes of a device in all; the driver has refused it, perhaps.
    Room { request: u64, device: u32, bytes: u64, failed: bool },
    /// No more than that is needed of a device.
    Holds { device: u32, bytes: u64 },
    /// What took how long; how many spans there was no room for since the last time; whether no more come.
    Spans { spans: Vec<Span>, dropped: u64, last: bool },
    /// What has that token?
    Find { request: u64, token: u128, kind: u8 },
    /// The worker's supervisor has gone, it has a session, and it takes whoever connected for the next supervisor. What was kept and what is shared
    /// follows.
    Orphan,
    /// The descriptor that comes along was kept.
    Kept { tag: u8 },
    /// That was all; from here on it is as with any worker.
    Told,
    /// Something that a worker of another release says.
    Unknown(u8),
}

/// A message is never longer.
pub(crate) const LONGEST: usize = 128 << 10;

/// The two ends. Both close on exec and block.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends a message, and perhaps a descriptor with it. Doesn't wait for a receiver that is behind.
pub(crate) fn send(to: BorrowedFd<'_>, message: &impl Encode, with: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut writer = Writer::new();
    writer.put(message);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = with.map(|fd| [fd]);
    if let Some(descriptors) = &descriptors {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(to, &[IoSlice::new(writer.as_slice())], &mut ancillary, flags)?;
    Ok(())
}

/// Whether what was not sent has no receiver any more.
pub(crate) fn has_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected)
}

/// As [`send`], but waits for a receiver that is behind, not longer than `patience`.
pub(crate) fn send_patiently(
    to: BorrowedFd<'_>,
    message: &impl Encode,
    with: Option<BorrowedFd<'_>>,
    patience: Duration,
) -> io::Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        match send(to, message, with) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            outcome => return outcome,
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut room = [PollFd::from_borrowed_fd(to, PollFlags::OUT)];
        match poll(
            &mut room,
            Some(&Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() }),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives the next message; `None` when the other end is closed. Waits unless the socket is non-blocking.
pub(crate) fn receive<T: for<'a> Decode<'a>>(from: BorrowedFd<'_>) -> io::Result<Option<(T, Option<OwnedFd>)>> {
    let mut bytes = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(from, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            // The other end was closed with messages unread. That is said once, before what still lies in this end's queue.
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
            result => break result?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.intersects(ReturnFlags::TRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a control message is too long"));
    }
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let message =
        decode_all(&bytes[..received.bytes]).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Some((message, descriptor)))
}

impl Encode for ToWorker {
    fn encode(&self, writer: &mut Writer) {
        match self {
            ToWorker::Start(start) => {
                writer.u8(0);
                writer.u64(start.session);
                writer.u128(start.key);
                writer.u32(start.lanes);
                writer.put(&start.probe);
                writer.put(&start.devices);
                writer.str(&start.client);
                writer.put(&start.process);
                writer.put(&start.identity);
                writer.put(&start.secure);
                writer.put(&start.lends);
                writer.put(&start.only_questions);
                writer.u32(start.supervisor);
                writer.put(&start.local);
                writer.put(&start.platform);
                writer.put(&start.grace);
            }
            ToWorker::GoOn { secure, point } => {
                writer.u8(20);
                writer.put(secure);
                writer.put(point);
            }
            ToWorker::Lane { secure, point: None } => {
                writer.u8(1);
                writer.put(secure);
            }
            ToWorker::Lane { secure, point: Some(point) } => {
                writer.u8(21);
                writer.put(secure);
                writer.put(point);
            }
            ToWorker::Board => writer.u8(2),
            ToWorker::Memory => writer.u8(4),
            ToWorker::Suspend => writer.u8(50),
            ToWorker::Resume => writer.u8(51),
            ToWorker::Meter => writer.u8(40),
            ToWorker::Trace { on, root } => {
                writer.u8(42);
                writer.put(on);
                writer.u64(*root);
            }
            ToWorker::End { sentence } => {
                writer.u8(41);
                writer.str(sentence);
            }
            ToWorker::Answer { request, payload } => {
                writer.u8(3);
                writer.u64(*request);
                writer.put(payload);
            }
            ToWorker::Warm(warm) => {
                writer.u8(5);
                writer.put(&warm.contexts);
                writer.u32(warm.supervisor);
            }
            ToWorker::Home { outlive } => {
                writer.u8(32);
                writer.put(outlive);
            }
            ToWorker::Keep { tag } => {
                writer.u8(33);
                writer.u8(*tag);
            }
            ToWorker::Unknown(number) => writer.u8(*number),
        }
    }
}

impl<'a> Decode<'a> for ToWorker {
    fn decode(reader: &mut Reader<'a>) -> Result<ToWorker, DecodeError> {
        match reader.u8()? {
            0 => Ok(ToWorker::Start(Box::new(Start {
                session: reader.u64()?,
                key: reader.u128()?,
                lanes: reader.u32()?,
                probe: reader.get()?,
                devices: reader.get()?,
                client: reader.get()?,
                process: reader.get()?,
                identity: reader.get()?,
                secure: reader.get()?,
                lends: reader.get()?,
                only_questions: reader.get()?,
                supervisor: reader.u32()?,
                local: reader.get()?,
                platform: reader.get()?,
                grace: reader.get()?,
            }))),
            1 => Ok(ToWorker::Lane { secure: reader.get()?, point: None }),
            21 => Ok(ToWorker::Lane { secure: reader.get()?, point: Some(reader.get()?) }),
            20 => Ok(ToWorker::GoOn { secure: reader.get()?, point: reader.get()? }),
            2 => Ok(ToWorker::Board),
            4 => Ok(ToWorker::Memory),
            50 => Ok(ToWorker::Suspend),
            51 => Ok(ToWorker::Resume),
            40 => Ok(ToWorker::Meter),
            42 => Ok(ToWorker::Trace { on: reader.get()?, root: reader.u64()? }),
            41 => Ok(ToWorker::End { sentence: reader.get()? }),
            3 => Ok(ToWorker::Answer { request: reader.u64()?, payload: reader.get()? }),
            5 => Ok(ToWorker::Warm(Warm { contexts: reader.get()?, supervisor: reader.u32()? })),
            32 => Ok(ToWorker::Home { outlive: reader.get()? }),
            33 => Ok(ToWorker::Keep { tag: reader.u8()? }),
            number => {
                reader.take_rest();
                Ok(ToWorker::Unknown(number))
            }
        }
    }
}

impl Encode for Grace {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&Terms { grace: self.silent });
        writer.put(&Terms { grace: self.closed });
    }
}

impl<'a> Decode<'a> for Grace {
    fn decode(reader: &mut Reader<'a>) -> Result<Grace, DecodeError> {
        let (silent, closed): (Terms, Terms) = (reader.get()?, reader.get()?);
        Ok(Grace { silent: silent.grace, closed: closed.grace })
    }
}

impl Encode for ToSupervisor {
    fn encode(&self, writer: &mut Writer) {
        match self {
            ToSupervisor::Welcomed => writer.u8(0),
            ToSupervisor::Failed { code, sentence } => {
                writer.u8(1);
                writer.u16(code.number());
                writer.str(sentence);
            }
            ToSupervisor::Share { request, token, kind, payload } => {
                writer.u8(2);
                writer.u64(*request);
                writer.u128(*token);
                writer.u8(*kind);
                writer.put(payload);
            }
            ToSupervisor::Spans { spans, dropped, last } => {
                writer.u8(40);
                writer.put(spans);
                writer.u64(*dropped);
                writer.put(last);
            }
            ToSupervisor::Unshare { token } => {
                writer.u8(3);
                writer.u128(*token);
            }
            ToSupervisor::Find { request, token, kind } => {
                writer.u8(4);
                writer.u64(*request);
                writer.u128(*token);
                writer.u8(*kind);
            }
            ToSupervisor::Quiet { quiet } => {
                writer.u8(50);
                writer.put(quiet);
            }
            ToSupervisor::Wake => writer.u8(51),
            ToSupervisor::Room { request, device, bytes, failed } => {
                writer.u8(52);
                writer.u64(*request);
                writer.u32(*device);
                writer.u64(*bytes);
                writer.put(failed);
            }
            ToSupervisor::Holds { device, bytes } => {
                writer.u8(53);
                writer.u32(*device);
                writer.u64(*bytes);
            }
            ToSupervisor::Ready { snapshot } => {
                writer.u8(5);
                writer.bytes(snapshot);
            }
            ToSupervisor::Orphan => writer.u8(32),
            ToSupervisor::Kept { tag } => {
                writer.u8(33);
                writer.u8(*tag);
            }
            ToSupervisor::Told => writer.u8(34),
            ToSupervisor::Unknown(number) => writer.u8(*number),
        }
    }
}

impl<'a> Decode<'a> for ToSupervisor {
    fn decode(reader: &mut Reader<'a>) -> Result<ToSupervisor, DecodeError> {
        match reader.u8()? {
            0 => Ok(ToSupervisor::Welcomed),
            1 => Ok(ToSupervisor::Failed { code: RefusalCode::from_number(reader.u16()?), sentence: reader.get()? }),
            2 => Ok(ToSupervisor::Share {
                request: reader.u64()?,
                token: reader.u128()?,
                kind: reader.u8()?,
                payload: reader.get()?,
            }),
            40 => Ok(ToSupervisor::Spans { spans: reader.get()?, dropped: reader.u64()?, last: reader.get()? }),
            3 => Ok(ToSupervisor::Unshare { token: reader.u128()? }),
            4 => Ok(ToSupervisor::Find { request: reader.u64()?, token: reader.u128()?, kind: reader.u8()? }),
            50 => Ok(ToSupervisor::Quiet { quiet: reader.get()? }),
            51 => Ok(ToSupervisor::Wake),
            52 => Ok(ToSupervisor::Room {
                request: reader.u64()?,
                device: reader.u32()?,
                bytes: reader.u64()?,
                failed: reader.get()?,
            }),
            53 => Ok(ToSupervisor::Holds { device: reader.u32()?, bytes: reader.u64()? }),
            5 => Ok(ToSupervisor::Ready { snapshot: reader.bytes()?.to_vec() }),
            32 => Ok(ToSupervisor::Orphan),
            33 => Ok(ToSupervisor::Kept { tag: reader.u8()? }),
            34 => Ok(ToSupervisor::Told),
            number => {
                reader.take_rest();
                Ok(ToSupervisor::Unknown(number))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn messages_and_descriptors_arrive() {
        let (here, there) = pair().unwrap();
        let start = Start {
            session: 1,
            key: 2,
            lanes: 4,
            probe: false,
            devices: vec![1, 0],
            client: "test".into(),
            process: Process { id: 3, machine: 4 },
            identity: Identity::user(6),
            secure: Some(Secure { certificate: vec![1, 2], key: vec![3] }),
            lends: true,
            only_questions: true,
            supervisor: 5,
            local: Some(Local { host: 6, user: 7, path: "/run/outboard/1.sock".into() }),
            platform: Some(vec![8, 9]),
            grace: Some(Grace { silent: Duration::from_secs(60), closed: Duration::from_millis(5) }),
        };
        send(here.as_fd(), &ToWorker::Start(Box::new(start.clone())), Some(here.as_fd())).unwrap();
        let point = Point { lane: 1, attempt: 2, received: 3 };
        let lanes = [
            ToWorker::Lane { secure: true, point: None },
            ToWorker::Lane { secure: false, point: Some(point) },
            ToWorker::GoOn { secure: true, point },
        ];
        for lane in &lanes {
            send(here.as_fd(), lane, None).unwrap();
        }
        let warm = ToWorker::Warm(Warm { contexts: vec![0, 2], supervisor: 5 });
        send(here.as_fd(), &warm, None).unwrap();
        let end = ToWorker::End { sentence: "enough".into() };
        send(here.as_fd(), &end, None).unwrap();
        let (message, descriptor) = receive::<ToWorker>(there.as_fd()).unwrap().unwrap();
        assert_eq!(message, ToWorker::Start(Box::new(start)));
        let descriptor = descriptor.expect("a descriptor came along");
        assert!(rustix::io::fcntl_getfd(&descriptor).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        for lane in lanes {
            let (message, descriptor) = receive::<ToWorker>(there.as_fd()).unwrap().unwrap();
            assert_eq!((message, descriptor.is_none()), (lane, true));
        }
        assert_eq!(receive::<ToWorker>(there.as_fd()).unwrap().unwrap().0, warm);
        assert_eq!(receive::<ToWorker>(there.as_fd()).unwrap().unwrap().0, end);

        let failed = ToSupervisor::Failed { code: RefusalCode::NoDevice, sentence: "no device".into() };
        send(there.as_fd(), &failed, None).unwrap();
        assert_eq!(receive::<ToSupervisor>(here.as_fd()).unwrap().unwrap().0, failed);

        let share = ToSupervisor::Share { request: 3, token: u128::MAX, kind: 4, payload: vec![1, 2] };
        let find = ToSupervisor::Find { request: 5, token: 6, kind: 7 };
        let ready = ToSupervisor::Ready { snapshot: vec![7; 100] };
        for message in [share, find, ToSupervisor::Unshare { token: 8 }, ready] {
            send(there.as_fd(), &message, None).unwrap();
            assert_eq!(receive::<ToSupervisor>(here.as_fd()).unwrap().unwrap().0, message);
        }
        for payload in [None, Some(vec![9])] {
            let answer = ToWorker::Answer { request: 1, payload };
            send(here.as_fd(), &answer, None).unwrap();
            assert_eq!(receive::<ToWorker>(there.as_fd()).unwrap().unwrap().0, answer);
        }

        for message in [ToSupervisor::Orphan, ToSupervisor::Kept { tag: 1 }, ToSupervisor::Told] {
            send(there.as_fd(), &message, None).unwrap();
            assert_eq!(receive::<ToSupervisor>(here.as_fd()).unwrap().unwrap().0, message);
        }
        for message in
            [ToWorker::Home { outlive: Some(9) }, ToWorker::Home { outlive: None }, ToWorker::Keep { tag: 2 }]
        {
            send(here.as_fd(), &message, None).unwrap();
            assert_eq!(receive::<ToWorker>(there.as_fd()).unwrap().unwrap().0, message);
        }

        drop(there);
        drop(descriptor);
        assert!(receive::<ToSupervisor>(here.as_fd()).unwrap().is_none());
    }

    #[test]
    fn what_was_sent_before_an_end_arrives_even_if_that_end_left_messages_unread() {
        let (here, there) = pair().unwrap();
        send(here.as_fd(), &ToWorker::Lane { secure: false, point: None }, None).unwrap();
        send(there.as_fd(), &ToSupervisor::Welcomed, None).unwrap();
        send(there.as_fd(), &ToSupervisor::Told, None).unwrap();
        drop(there);
        assert_eq!(receive::<ToSupervisor>(here.as_fd()).unwrap().unwrap().0, ToSupervisor::Welcomed);
        assert_eq!(receive::<ToSupervisor>(here.as_fd()).unwrap().unwrap().0, ToSupervisor::Told);
        assert!(receive::<ToSupervisor>(here.as_fd()).unwrap().is_none());
    }

    fn bytes(message: &impl Encode) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.put(message);
        writer.into_vec()
    }

    /// Supervisors and workers of different releases say these to each other.
    #[test]
    fn what_releases_say_to_each_other_stays_as_it_is() {
        let point = Point { lane: 2, attempt: 3, received: 4 };
        let lane = [21, 1, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];
        let mut back = lane;
        back[0] = 20;
        let to_workers: [(ToWorker, &[u8]); 11] = [
            (ToWorker::Lane { secure: true, point: None }, &[1, 1]),
            (ToWorker::Lane { secure: true, point: Some(point) }, &lane),
            (ToWorker::GoOn { secure: true, point }, &back),
            (ToWorker::Memory, &[4]),
            (ToWorker::Answer { request: 0x0102, payload: None }, &[3, 2, 1, 0, 0, 0, 0, 0, 0, 0]),
            (ToWorker::Answer { request: 1, payload: Some(vec![7]) }, &[3, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 7]),
            (ToWorker::Home { outlive: Some(5) }, &[32, 1, 5, 0, 0, 0, 0, 0, 0, 0]),
            (ToWorker::Keep { tag: 3 }, &[33, 3]),
            (ToWorker::Suspend, &[50]),
            (ToWorker::Resume, &[51]),
            (ToWorker::Unknown(200), &[200]),
        ];
        for (message, wanted) in to_workers {
            assert_eq!(bytes(&message), wanted, "{message:?}");
            assert_eq!(decode_all::<ToWorker>(wanted).unwrap(), message);
        }
        let token = 0x0f_u128;
        let mut share = vec![2, 1, 0, 0, 0, 0, 0, 0, 0, 15];
        share.extend([0; 15]);
        let (mut find, mut unshare) = (share.clone(), vec![3, 15]);
        unshare.extend([0; 15]);
        share.extend([9, 1, 0, 0, 0, 7]);
        find[0] = 4;
        find.push(9);
        let room = [52, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1];
        let to_supervisors: [(ToSupervisor, &[u8]); 10] = [
            (ToSupervisor::Share { request: 1, token, kind: 9, payload: vec![7] }, &share),
            (ToSupervisor::Find { request: 1, token, kind: 9 }, &find),
            (ToSupervisor::Unshare { token }, &unshare),
            (ToSupervisor::Orphan, &[32]),
            (ToSupervisor::Kept { tag: 3 }, &[33, 3]),
            (ToSupervisor::Told, &[34]),
            (ToSupervisor::Quiet { quiet: true }, &[50, 1]),
            (ToSupervisor::Wake, &[51]),
            (ToSupervisor::Room { request: 1, device: 2, bytes: 3, failed: true }, &room),
            (ToSupervisor::Holds { device: 2, bytes: 3 }, &[53, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (message, wanted) in to_supervisors {
            assert_eq!(bytes(&message), wanted, "{message:?}");
            assert_eq!(decode_all::<ToSupervisor>(wanted).unwrap(), message);
        }
        // Whatever a later release adds.
        assert_eq!(decode_all::<ToWorker>(&[99, 1, 2, 3]).unwrap(), ToWorker::Unknown(99));
        assert_eq!(decode_all::<ToSupervisor>(&[99, 1, 2, 3]).unwrap(), ToSupervisor::Unknown(99));
    }
}
