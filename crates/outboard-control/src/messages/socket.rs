//! The socket pair, and what goes over it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use outboard_wire::codec::decode_all;
use outboard_wire::{Decode, Encode, Writer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};

/// A message is never longer.
pub const LONGEST: usize = 128 << 10;

/// The kernel attaches no more to a message.
const MOST_DESCRIPTORS: usize = 253;

/// The two ends. Both close on exec and block.
///
/// # Errors
/// The system's error if it has no further descriptors to give.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends a message, and perhaps a descriptor with it. Doesn't wait for a receiver that is behind.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if the receiver is behind, or the system's error.
pub fn send(
    to: BorrowedFd<'_>,
    message: &impl Encode,
    with: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
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
pub fn has_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected
    )
}

/// As [`send`], but waits for a receiver that is behind, not longer than `patience`.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] if the receiver is still behind, or the system's error.
pub fn send_patiently(
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
            Some(&Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            }),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives the next message; `None` when the other end is closed. Waits unless the socket is
/// non-blocking.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] for a malformed message, [`io::ErrorKind::WouldBlock`] if there
/// is none yet, or the system's error.
pub fn receive<T: for<'a> Decode<'a>>(
    from: BorrowedFd<'_>,
) -> io::Result<Option<(T, Option<OwnedFd>)>> {
    let mut attached = Vec::new();
    let message = receive_with(from, &mut attached)?;
    Ok(message.map(|message| (message, attached.into_iter().next())))
}

/// The same of a sender that is not trusted: all descriptors that come are `attached`, also of a
/// message that is an error, so that the caller decides where they are closed.
///
/// # Errors
/// As [`receive`].
pub fn receive_with<T: for<'a> Decode<'a>>(
    from: BorrowedFd<'_>,
    attached: &mut Vec<OwnedFd>,
) -> io::Result<Option<T>> {
    let mut bytes = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(
            from,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            // The other end was closed with messages unread. That is said once, before what still
            // lies in this end's queue.
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
            result => break result?,
        }
    };
    attached.extend(
        ancillary
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                _ => None,
            })
            .flatten(),
    );
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.intersects(ReturnFlags::TRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a control message is too long"));
    }
    let message = decode_all(&bytes[..received.bytes])
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Some(message))
}
