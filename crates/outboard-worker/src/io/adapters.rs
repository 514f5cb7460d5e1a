//! RDMA adapters, to which the client may move each connection of its session, and a worker those
//! of its links.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboard_control::messages;
use outboard_transport::rdma::{Allowed, Port, Settings, direct, move_to, nearest_ways, take_up};
use outboard_transport::{Outcome, Stream, read_exact_until, stay};
use outboard_wire::handshake::rdma::Adapters as Offer;

use super::bulk::Direct;
use super::secure::Secure;

/// How long the other side may take to say what it does, and to do it.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The adapters of this machine that a session may use.
#[derive(Debug, Clone)]
pub(super) struct Adapters {
    ports: Arc<[Port]>,
    settings: Settings,
    clear: bool,
    /// Whether they may know memory of devices.
    gpudirect: bool,
}

/// Which adapters of this machine a session may use, and how.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    rdma: messages::Rdma,
    near: Vec<String>,
}

impl Wanted {
    /// As the server says, for a session whose devices have these PCI addresses.
    pub(super) fn new(rdma: &messages::Rdma, devices: impl FnOnce() -> Vec<String>) -> Wanted {
        let near = if rdma.nearest { devices() } else { Vec::new() };
        Wanted { rdma: rdma.clone(), near }
    }

    /// Those of this machine, or why there are none.
    pub(super) fn find(&self) -> Result<Adapters, String> {
        let Wanted { rdma, near } = self;
        let networks = rdma.networks.iter().map(|network| network.parse());
        let networks = networks.collect::<Result<_, _>>().map_err(|error| format!("{error}"))?;
        let allowed = Allowed { devices: rdma.devices.clone(), networks, near: near.clone() };
        let ports = allowed.ports().map_err(|error| error.to_string())?.into();
        let settings = Settings::with(rdma.depth, rdma.mtu);
        Ok(Adapters { ports, settings, clear: rdma.clear, gpudirect: rdma.gpudirect })
    }
}

impl Adapters {
    /// What the other side is told.
    pub(super) fn offer(&self) -> Offer {
        Offer {
            addresses: self.ports.iter().map(Port::address).collect(),
            clear: self.clear,
            missing: String::new(),
            borrow: false,
        }
    }

    /// What a client is told: those that were found, or why there are none. Those of a session that
    /// can be resumed move bytes from and to memory of the client's, if that may be in the clear.
    pub(super) fn offer_or_reason(
        found: &Result<Adapters, String>,
        (resumable, encrypted): (bool, bool),
    ) -> Offer {
        match found {
            Ok(adapters) => {
                let borrow = resumable && (!encrypted || adapters.clear);
                Offer { borrow, ..adapters.offer() }
            }
            Err(missing) => Offer { missing: missing.clone(), ..Offer::default() },
        }
    }

    /// Waits for what the other side does with a connection that it has opened, and does the same.
    /// If a client lends memory over it, that is for `borrowing`; another worker lends none.
    pub(super) fn settle(
        &self,
        met: Arc<dyn Stream>,
        secure: Option<&Secure>,
        borrowing: Option<&Direct>,
    ) -> io::Result<Arc<dyn Stream>> {
        let deadline = Instant::now() + PATIENCE;
        let open = |place: usize| {
            let port = self.ports.get(place).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidInput, "it has no adapter of that number")
            })?;
            Ok(port.open()?)
        };
        match take_up(&met, open, self.settings, deadline)? {
            (Outcome::Moved(stream), None) => Ok(self.encrypt(stream, secure, deadline)?.0),
            (Outcome::Moved(stream), Some(place)) => {
                let wrong = |why| io::Error::new(io::ErrorKind::InvalidData, why);
                let Some(borrowing) = borrowing else {
                    return Err(wrong("another server's worker lends memory"));
                };
                let (stream, encrypts) = self.encrypt(stream, secure, deadline)?;
                if encrypts {
                    return Err(wrong("the client lends memory, and wants its bytes encrypted"));
                }
                match direct::take(&*stream, || open(place), self.settings, deadline)? {
                    Ok(mover) => {
                        mover.map_or(Ok(()), |mover| borrowing.begin(mover, self.gpudirect))?;
                    }
                    Err(error) => {
                        tracing::info!(%error, "no adapter moves copies by itself");
                    }
                }
                Ok(stream)
            }
            (Outcome::Stays(why), _) => {
                if let Some(error) = why {
                    tracing::info!(%error, "a connection does not move to RDMA");
                }
                Ok(met)
            }
        }
    }

    /// Moves a connection that this worker has opened to one of those that the other worker offers,
    /// if it can be. `turn`: how many connections came before.
    pub(super) fn move_there(
        &self,
        offer: &Offer,
        turn: usize,
        met: &Arc<dyn Stream>,
    ) -> io::Result<Outcome> {
        let way = nearest_ways(&self.ports, &offer.addresses).and_then(|ways| {
            let (place, port) = &ways[turn % ways.len()];
            Ok((u8::try_from(*place).map_err(io::Error::other)?, port.open()?))
        });
        match way {
            Ok((place, endpoint)) => {
                move_to(met, (place, false), endpoint, self.settings, Instant::now() + PATIENCE)
            }
            Err(why) => stay(&**met).map(|()| Outcome::Stays(Some(why))),
        }
    }

    /// Whether bytes may go in the clear, though the session's connections are encrypted.
    pub(super) fn clear(&self) -> bool {
        self.clear
    }

    /// Whether bytes are encrypted is for the other side to say where they need not be. Also
    /// returns whether they are.
    fn encrypt(
        &self,
        stream: Arc<dyn Stream>,
        secure: Option<&Secure>,
        deadline: Instant,
    ) -> io::Result<(Arc<dyn Stream>, bool)> {
        let Some(secure) = secure else { return Ok((stream, false)) };
        let mut encrypts = [0];
        read_exact_until(&*stream, &mut encrypts, deadline)?;
        match encrypts {
            [1] => Ok((secure.accept(stream)?, true)),
            [0] if self.clear => Ok((stream, false)),
            _ => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the other side wants its bytes in the clear, and this server does not",
            )),
        }
    }
}
