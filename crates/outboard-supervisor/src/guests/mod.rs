//! Clients in virtual machines, which vsock leads here: by the kernel, or by a hypervisor that
//! forwards it to a Unix socket.

mod stream;

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll};

use outboard_transport::vsock;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::closing;
use super::error::ServeError;
use super::local::{Access, Door};
use super::upgrade::Inherited;
use super::vsock::{Guest, Place};
pub(super) use stream::GuestStream;

/// The sockets at which such clients come.
pub(super) struct Doors(Vec<GuestDoor>);

enum GuestDoor {
    Kernel(AsyncFd<OwnedFd>),
    Forwarded(Door),
}

impl Doors {
    /// Opens them, or uses those that are open already.
    pub(super) fn open(
        places: &[Place],
        access: Access,
        inherited: &mut Inherited,
    ) -> Result<Doors, ServeError> {
        let doors = places.iter().map(|place| {
            GuestDoor::open(place, access, inherited)
                .map_err(|error| ServeError::Listen { address: place.to_string(), error })
        });
        doors.collect::<Result<_, _>>().map(Doors)
    }

    /// The next client. Waits forever if there is no socket.
    pub(super) async fn accept(&self) -> io::Result<(GuestStream, Guest)> {
        poll_fn(|cx| {
            let came = self.0.iter().find_map(|door| match door.poll_accept(cx) {
                Poll::Ready(came) => Some(came),
                Poll::Pending => None,
            });
            came.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|door| match door {
            GuestDoor::Kernel(listener) => listener.as_fd(),
            GuestDoor::Forwarded(door) => door.as_fd(),
        })
    }
}

impl GuestDoor {
    fn open(place: &Place, access: Access, inherited: &mut Inherited) -> io::Result<GuestDoor> {
        match place {
            Place::Kernel(address) => {
                let listener = match inherited.take_vsock(*address) {
                    Some(listener) => listener,
                    None => vsock::open(*address)?,
                };
                // SAFETY: an open descriptor that the AsyncFd owns; nothing takes it out or changes
                // what it refers to.
                let listener =
                    unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE) };
                Ok(GuestDoor::Kernel(listener.map_err(io::Error::from)?))
            }
            Place::Forwarded { socket, port } => {
                let path = Place::forwarded_to(socket, *port);
                let door = inherited.take_unix(&path).map(|open| Door::go_on(open, access));
                match door.transpose()?.flatten() {
                    Some(door) => Ok(door),
                    None => Door::listen(&path, access),
                }
                .map(GuestDoor::Forwarded)
            }
        }
    }

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(GuestStream, Guest)>> {
        match self {
            GuestDoor::Kernel(listener) => loop {
                let mut ready = std::task::ready!(listener.poll_read_ready(cx))?;
                match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                    Ok(socket) => return Poll::Ready(numbered(socket)),
                    Err(Errno::AGAIN) => ready.clear_ready(),
                    Err(Errno::INTR) => {}
                    Err(error) => return Poll::Ready(Err(error.into())),
                }
            },
            GuestDoor::Forwarded(door) => {
                let stream = loop {
                    let stream = std::task::ready!(door.poll_accept(cx))?;
                    if door.admits(&stream) {
                        break stream;
                    }
                    closing::elsewhere(stream.into_std()?);
                };
                let hypervisor = stream.peer_cred()?.pid().and_then(|id| u32::try_from(id).ok());
                let guest = Guest::Of { hypervisor: hypervisor.unwrap_or(0) };
                let stream = GuestStream::new(stream.into_std()?.into())?;
                Poll::Ready(Ok((stream, guest)))
            }
        }
    }
}

fn numbered(socket: OwnedFd) -> io::Result<(GuestStream, Guest)> {
    let guest = Guest::Numbered(vsock::peer_address(&socket)?);
    Ok((GuestStream::new(socket)?, guest))
}
