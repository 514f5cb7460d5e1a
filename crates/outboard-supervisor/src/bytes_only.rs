//! Connections of this machine's programs, which may attach descriptors to what they send. Nobody
//! asks them to before a worker has the connection, so they get none across: the kernel refuses
//! them (Linux 6.16), or they are closed where nobody waits.

use std::cell::Cell;
use std::io::{self, IoSliceMut};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;

use crate::closing;

/// Whether a socket takes descriptors: an option of sockets since Linux 6.16.
const SO_PASSRIGHTS: libc::c_int = 83;

/// A message cannot have more descriptors.
const MOST_DESCRIPTORS: usize = 253;

/// Has a socket, and those that it accepts, take descriptors or not. Whether the kernel can.
pub(crate) fn pass_descriptors(socket: BorrowedFd<'_>, pass: bool) -> bool {
    let value = libc::c_int::from(pass);
    // SAFETY: the option takes a number, which lives until the call returns.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    outcome == 0
}

/// A connection from which only bytes are taken.
#[derive(Debug)]
pub(crate) struct BytesOnly {
    stream: ManuallyDrop<UnixStream>,
    /// Whether the kernel refuses descriptors.
    is_guarded: Cell<bool>,
}

impl BytesOnly {
    pub(crate) fn new(stream: UnixStream) -> BytesOnly {
        let is_guarded = Cell::new(pass_descriptors(stream.as_fd(), false));
        BytesOnly { stream: ManuallyDrop::new(stream), is_guarded }
    }

    /// The connection, for a worker, which takes descriptors when it has asked for some.
    pub(crate) fn for_a_worker(&self) -> BorrowedFd<'_> {
        pass_descriptors(self.as_fd(), true);
        self.is_guarded.set(false);
        self.as_fd()
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.stream().try_write(bytes)
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    fn pinned(&mut self) -> Pin<&mut UnixStream> {
        Pin::new(&mut self.stream)
    }
}

impl AsFd for BytesOnly {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream().as_fd()
    }
}

impl AsyncRead for BytesOnly {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_guarded.get() {
            return self.pinned().poll_read(cx, into);
        }
        let stream = self.stream();
        loop {
            ready!(stream.poll_read_ready(cx))?;
            let room = into.initialize_unfilled();
            match stream.try_io(Interest::READABLE, || receive(stream.as_fd(), room)) {
                Ok(count) => {
                    into.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for BytesOnly {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.pinned().poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pinned().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pinned().poll_shutdown(cx)
    }
}

impl Drop for BytesOnly {
    fn drop(&mut self) {
        // SAFETY: it is taken once, as this value ends.
        let stream = unsafe { ManuallyDrop::take(&mut self.stream) };
        // What nobody has read may have descriptors attached, too.
        if !self.is_guarded.get()
            && let Ok(stream) = stream.into_std()
        {
            closing::elsewhere(stream);
        }
    }
}

/// Reads bytes. Who attaches a descriptor breaks the rules of the connection.
fn receive(from: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(from, &mut [IoSliceMut::new(into)], &mut ancillary, flags)?;
    let came: Vec<OwnedFd> = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    if came.is_empty() {
        return Ok(received.bytes);
    }
    closing::elsewhere(came);
    let sentence = "a descriptor is attached that nobody asked for";
    Err(io::Error::new(io::ErrorKind::InvalidData, sentence))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use tokio::io::AsyncReadExt;

    use super::*;

    fn attach(to: BorrowedFd<'_>, descriptor: BorrowedFd<'_>) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor];
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let bytes = [io::IoSlice::new(b"hello")];
        Ok(sendmsg(to, &bytes, &mut ancillary, SendFlags::empty())?)
    }

    /// Of a kernel that refuses descriptors and of one that does not.
    #[tokio::test]
    async fn a_lingering_socket_that_a_client_attaches_delays_nobody() {
        for is_guarded in [true, false] {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let mut ours = BytesOnly::new(ours);
            if is_guarded && !ours.is_guarded.get() {
                continue;
            }
            if !is_guarded {
                ours.for_a_worker();
            }
            let (socket, _peer) = closing::tests::lingering();
            let sent = attach(theirs.as_fd(), socket.as_fd());
            assert_eq!(sent.is_ok(), !is_guarded, "{sent:?}");
            // Where the kernel has refused it, this is its last close.
            closing::elsewhere(socket);
            let began = Instant::now();
            if sent.is_ok() {
                let error = ours.read(&mut [0; 16]).await.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            }
            // One that is not read at all.
            let (socket, _peer) = closing::tests::lingering();
            let _ = attach(theirs.as_fd(), socket.as_fd());
            closing::elsewhere(socket);
            drop(ours);
            assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        }
    }

    #[tokio::test]
    async fn bytes_come_as_they_were_sent_and_a_worker_gets_descriptors() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut ours = BytesOnly::new(ours);
        ours.is_guarded.set(false);
        assert_eq!(theirs.try_write(b"hello").unwrap(), 5);
        let mut read = [0; 5];
        ours.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"hello");
        let connection = ours.for_a_worker();
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(attach(theirs.as_fd(), null.as_fd()).unwrap(), 5);
        assert!(receive(connection, &mut read).is_err(), "it has come");
    }
}
