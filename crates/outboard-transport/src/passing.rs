//! Descriptors that travel along with bytes over a Unix socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::descriptor::{apart, poll_until};

/// Descriptors that one message can bring.
pub const MOST: usize = 8;

/// Sends a short message with descriptors. It fits into the socket's empty buffer, so this does not
/// wait.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for more descriptors than a message carries,
/// [`io::ErrorKind::WriteZero`] if only a part was sent, or the system's error.
pub fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(count) if count == bytes.len() => return Ok(()),
            Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives a message of that length with its descriptors, before the deadline.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] after the deadline, [`io::ErrorKind::UnexpectedEof`] if the peer has
/// gone, or the system's error.
pub fn receive(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    deadline: Instant,
) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    loop {
        wait_until(socket, deadline)?;
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = match recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags) {
            Err(Errno::INTR | Errno::AGAIN) => continue,
            result => result?,
        };
        let descriptors = ancillary.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect::<Vec<_>>(),
            _ => Vec::new(),
        });
        let descriptors = descriptors.map(apart).collect::<io::Result<Vec<OwnedFd>>>()?;
        return match received.bytes {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            // Descriptors beyond the room in the buffer, or beyond this process's limit, are lost.
            count if count == bytes.len() && !received.flags.intersects(ReturnFlags::CTRUNC) => {
                Ok(descriptors)
            }
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a message with descriptors came in part",
            )),
        };
    }
}

/// Waits until there is something to read.
fn wait_until(socket: BorrowedFd<'_>, deadline: Instant) -> io::Result<()> {
    match poll_until(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], Some(deadline))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn descriptors_arrive_with_their_message_or_not_at_all() {
        let (here, there) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        send(here.as_fd(), b"two", &[here.as_fd(), there.as_fd()]).unwrap();
        let mut bytes = [0; 3];
        assert_eq!(
            (receive(there.as_fd(), &mut bytes, deadline).unwrap().len(), &bytes),
            (2, b"two")
        );
        send(here.as_fd(), b"x", &[]).unwrap();
        assert!(receive(there.as_fd(), &mut bytes, deadline).is_err(), "too short");
        let soon = Instant::now() + Duration::from_millis(10);
        assert_eq!(
            receive(there.as_fd(), &mut bytes, soon).unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        drop(here);
        assert_eq!(
            receive(there.as_fd(), &mut bytes, deadline).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }
}
