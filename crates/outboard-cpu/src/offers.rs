//! Files of this process that others of the same user may have if they know their secrets.
//!
//! All of them exist only as open descriptors. A socket of the process, which exists from the first
//! offer on, hands out a copy of a descriptor to whoever tells the secret of the file. Looking it
//! up under `/proc` would be shorter, but a process in a sandbox sees only itself there. One that
//! may open no sockets either passes the files on by itself ([`open_no_socket`], [`file`],
//! [`give`]).

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use outboard_abi::CUresult;
use outboard_front::backend::Result;
use outboard_transport::passing;
use parking_lot::Mutex;
use rustix::net::sockopt::socket_peercred;

/// Both sides are on one machine and at hand.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where a file is to be had.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Offer {
    /// The process, and its socket: a number may be used again for another process.
    pub(crate) process: u64,
    pub(crate) socket: u64,
    pub(crate) secret: u64,
}

/// Whether the process opens no socket for what it offers.
static WITHOUT_SOCKET: AtomicBool = AtomicBool::new(false);

/// The file that this process was given last, until it is taken.
static GIVEN: Mutex<Option<(Offer, OwnedFd)>> = Mutex::new(None);

/// What this process offers.
struct Counter {
    process: u64,
    socket: u64,
    files: HashMap<u64, OwnedFd>,
}

static COUNTER: Mutex<Option<Counter>> = Mutex::new(None);

fn failed<E>(_: E) -> CUresult {
    CUresult::CUDA_ERROR_OPERATING_SYSTEM
}

fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    // So few bytes come at once or not at all.
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(CUresult::CUDA_ERROR_OPERATING_SYSTEM),
    }
}

fn address(process: u64, socket: u64) -> Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("outboard-cpu-{process}-{socket:016x}")).map_err(failed)
}

/// Offers a file.
pub(crate) fn offer(file: BorrowedFd<'_>) -> Result<Offer> {
    let process = u64::from(std::process::id());
    let (file, secret) = (file.try_clone_to_owned().map_err(failed)?, random()?);
    let mut counter = COUNTER.lock();
    // A forked child has neither the thread nor the files' owners.
    if counter.as_ref().is_none_or(|counter| counter.process != process) {
        let socket = random()?;
        if !WITHOUT_SOCKET.load(Ordering::Relaxed) {
            listen(&address(process, socket)?).map_err(failed)?;
        }
        *counter = Some(Counter { process, socket, files: HashMap::new() });
    }
    let counter = counter.as_mut().ok_or(CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
    counter.files.insert(secret, file);
    Ok(Offer { process, socket: counter.socket, secret })
}

/// Hands out what this process offers.
fn listen(address: &SocketAddr) -> std::io::Result<()> {
    let listener = UnixListener::bind_addr(address)?;
    let serve = move || listener.incoming().for_each(|client| drop(client.map(hand_out)));
    outboard_threads::start("outboard-offers", serve).map(drop)
}

/// From now on, whoever wants a file of this process gets it by [`file`].
pub(crate) fn open_no_socket() {
    WITHOUT_SOCKET.store(true, Ordering::Relaxed);
}

/// A duplicate of a file that this process offers.
pub(crate) fn file(offer: &Offer) -> Option<OwnedFd> {
    let counter = COUNTER.lock();
    let own = counter
        .as_ref()
        .filter(|counter| (counter.process, counter.socket) == (offer.process, offer.socket))?;
    own.files.get(&offer.secret)?.try_clone().ok()
}

/// Keeps a file that another process offers for the next [`Offer::take`].
pub(crate) fn give(offer: Offer, file: BorrowedFd<'_>) -> Result<()> {
    *GIVEN.lock() = Some((offer, file.try_clone_to_owned().map_err(failed)?));
    Ok(())
}

/// Takes an offer back.
pub(crate) fn withdraw(offer: &Offer) {
    if let Some(counter) = COUNTER.lock().as_mut().filter(|counter| counter.socket == offer.socket)
    {
        counter.files.remove(&offer.secret);
    }
}

/// Gives a client the file that it names. Whoever is slow, a stranger or wrong gets nothing.
fn hand_out(mut client: UnixStream) -> std::io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    let user = socket_peercred(&client)?.uid;
    if user != rustix::process::geteuid() {
        return Ok(());
    }
    let mut secret = [0; 8];
    client.read_exact(&mut secret)?;
    let counter = COUNTER.lock();
    let file = counter.as_ref().and_then(|counter| counter.files.get(&u64::from_ne_bytes(secret)));
    match file {
        Some(file) => passing::send(client.as_fd(), &[1], &[file.as_fd()]),
        None => client.write_all(&[0]),
    }
}

impl Offer {
    /// The file, if it is offered still.
    pub(crate) fn take(&self) -> Result<OwnedFd> {
        // Natively a process cannot open what it has exported itself, since it is there already.
        if self.process == u64::from(std::process::id()) {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        if let Some((_, file)) = GIVEN.lock().take_if(|(offer, _)| offer == self) {
            return Ok(file);
        }
        self.ask().map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    fn ask(&self) -> std::io::Result<OwnedFd> {
        let address =
            address(self.process, self.socket).map_err(|_| std::io::ErrorKind::InvalidInput)?;
        let mut server = UnixStream::connect_addr(&address)?;
        server.write_all(&self.secret.to_ne_bytes())?;
        let files = passing::receive(server.as_fd(), &mut [0], Instant::now() + PATIENCE)?;
        files.into_iter().next().ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_knows_the_secret_gets_the_file_until_it_is_withdrawn() {
        let file = outboard_simt::memory_file(4096).expect("a file");
        let offer = offer(file.as_fd()).expect("an offer");
        let inode = |file: BorrowedFd<'_>| rustix::fs::fstat(file).expect("an open file").st_ino;
        assert_eq!(offer.take().err(), Some(CUresult::CUDA_ERROR_INVALID_CONTEXT), "one's own");
        let taken = offer.ask().expect("the file");
        assert_eq!(inode(taken.as_fd()), inode(file.as_fd()));
        let guess = Offer { secret: offer.secret ^ 1, ..offer };
        assert!(guess.ask().is_err() && Offer { socket: offer.socket ^ 1, ..offer }.ask().is_err());
        // A client that says nothing keeps nobody else from being served.
        let silent =
            UnixStream::connect_addr(&address(offer.process, offer.socket).expect("an address"));
        drop(silent.expect("a connection"));
        assert!(offer.ask().is_ok());
        withdraw(&offer);
        assert!(offer.ask().is_err());
    }
}
