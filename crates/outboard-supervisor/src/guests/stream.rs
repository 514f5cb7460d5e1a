//! A connection that vsock has led here, whatever kind of socket it is.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use crate::auth::Way;
use crate::peer::{Connection, Peer};
use crate::secure::Raw;

/// Such a connection.
pub(crate) struct GuestStream(AsyncFd<OwnedFd>);

impl GuestStream {
    pub(super) fn new(socket: OwnedFd) -> io::Result<GuestStream> {
        // SAFETY: an open descriptor that the AsyncFd owns; nothing takes it out or changes what it
        // refers to.
        let socket = unsafe { AsyncFd::register(socket) };
        Ok(GuestStream(socket.map_err(io::Error::from)?))
    }

    pub(crate) fn into_inner(self) -> OwnedFd {
        self.0.into_inner()
    }
}

impl Raw for GuestStream {
    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_io(Interest::WRITABLE, |socket| Ok(send(socket, bytes, SendFlags::NOSIGNAL)?))
    }

    async fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        self.0
            .async_io(Interest::READABLE, |socket| Ok(recv(socket, &mut *into, RecvFlags::PEEK)?.0))
            .await
    }
}

impl Connection for GuestStream {
    fn way(&self, _: Peer) -> Way {
        Way::Plain
    }
}

impl AsFd for GuestStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsyncRead for GuestStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            let room = buffer.initialize_unfilled();
            match ready.try_io(|socket| Ok(recv(socket, &mut *room, RecvFlags::empty())?.0)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(read) => {
                    buffer.advance(read?);
                    return Poll::Ready(Ok(()));
                }
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for GuestStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(cx))?;
            match ready.try_io(|socket| Ok(send(socket, bytes, SendFlags::NOSIGNAL)?)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(written) => return Poll::Ready(written),
                Err(_would_block) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(shutdown(self.0.get_ref(), Shutdown::Write)?))
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketType, socketpair};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn bytes_are_looked_at_read_and_written() {
        let kind = SocketType::STREAM;
        let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
        let (here, there) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
        let (mut stream, mut peer) = (GuestStream::new(here).unwrap(), UnixStream::from(there));
        peer.write_all(b"hello").unwrap();
        let mut seen = [0; 2];
        assert_eq!(stream.peek(&mut seen).await.unwrap(), 2);
        let mut read = [0; 5];
        stream.read_exact(&mut read).await.unwrap();
        assert_eq!((&seen, &read), (b"he", b"hello"));
        stream.write_all(b"answer").await.unwrap();
        stream.shutdown().await.unwrap();
        peer.set_nonblocking(false).unwrap();
        let mut answer = String::new();
        peer.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "answer");
        drop(peer);
        assert_eq!(stream.read(&mut read).await.unwrap(), 0);
    }
}
