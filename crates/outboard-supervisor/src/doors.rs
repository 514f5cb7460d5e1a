//! The listening sockets, and the loop that accepts clients.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::about::Kind;
use super::bytes_only::BytesOnly;
use super::config::Config;
use super::error::ServeError;
use super::guests::{self, GuestStream};
use super::local::{Door, Socket};
use super::newcomer::accept;
use super::peer::Peer;
use super::records::Records;
use super::standing::Program;
use super::supervisor::Supervisor;
use super::upgrade::{self, Asker, Inherited};
use super::vsock::Guest;
use super::{closing, notify, secure};
use crate::admin::Becoming;
use outboard_auth::sparing::STRANGERS;
use outboard_control::number::Number;

/// After a failure to accept for want of descriptors, the next attempt waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What [`Config::listen`] says of a server that only its Unix socket leads to.
const NOWHERE: &str = "none";

/// The listening sockets.
pub(super) struct Doors {
    listener: Option<TcpListener>,
    pub(super) door: Option<Door>,
    guests: guests::Doors,
}

impl Doors {
    /// Opens them, or uses those that are open already.
    pub(super) async fn open(
        config: &Config,
        mut inherited: Inherited,
    ) -> Result<Doors, ServeError> {
        let cannot_listen = |error| ServeError::Listen { address: config.listen.clone(), error };
        let listener = match inherited.tcp.take() {
            Some(listener) => {
                listener.set_nonblocking(true)?;
                Some(TcpListener::from_std(listener)?)
            }
            None if config.listen == NOWHERE => None,
            None => Some(TcpListener::bind(&config.listen).await.map_err(cannot_listen)?),
        };
        let port = address_of(listener.as_ref())?.port();
        listener.iter().for_each(widen);
        let guests = guests::Doors::open(&config.guests, config.access, &mut inherited)?;
        let door = match inherited.take_other_unix() {
            Some(socket) => Door::go_on(socket, config.access)?,
            None => Door::open(&config.socket, config.access, port).map_err(|error| {
                ServeError::Listen {
                    address: if let Socket::At(path) = &config.socket {
                        path.display().to_string()
                    } else {
                        String::new()
                    },
                    error,
                }
            })?,
        };
        Ok(Doors { listener, door, guests })
    }

    /// Where the server listens for other machines; without a port if it does not.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        address_of(self.listener.as_ref())
    }

    /// Replaces this process by the program that now has its path; returns only if that cannot be,
    /// with the reason.
    pub(super) async fn upgrade(
        &self,
        supervisor: &Rc<Supervisor>,
        upgrades: u64,
        asker: &Asker,
    ) -> String {
        let Some(program) = &supervisor.config.standing.program else {
            return "it does not know where its program lies".to_owned();
        };
        tracing::info!(program = %program.path.display(), "an upgrade is asked for");
        if supervisor.sessions.records().is_none() && supervisor.sessions.len() > 0 {
            return "sessions would be lost, as they are not noted (--records none)".to_owned();
        }
        let Some(listener) = &self.listener else {
            return "its next release would not find its address, as it has none (--listen none)"
                .to_owned();
        };
        let address = match listener.local_addr() {
            Ok(address) => address,
            Err(error) => return format!("it does not know where it listens: {error}"),
        };
        let records = supervisor.sessions.records();
        let notes = records.as_deref().map(Records::path);
        let checked = self.accept_while(supervisor, upgrade::check(program, address, notes)).await;
        let inherits = match checked {
            Ok(inherits) => inherits,
            Err(reason) => return reason,
        };
        notify::reloading();
        supervisor.drain.pause(true);
        // Clients that connect from now on wait until the new program accepts them.
        supervisor.coming.settle().await;
        tokio::join!(supervisor.warm.stop(), supervisor.gauges.stop());
        let reason = match timeout(upgrade::SETTLE, supervisor.sessions.hold_lending()).await {
            Ok(_settled) => {
                if !inherits {
                    tracing::warn!(
                        "the next release cannot show sessions that it is their server: they take the first process of this user for it"
                    );
                    supervisor.sessions.unseal().await;
                }
                asker.becomes(|| becoming(supervisor, program)).await;
                let door = self.door.as_ref().map(Door::as_fd);
                let sockets = [listener.as_fd()].into_iter().chain(door);
                let sockets: Vec<_> = sockets.chain(self.guests.descriptors()).collect();
                let error = upgrade::become_program(program, upgrades, &sockets);
                format!("{} cannot be started: {error}", program.path.display())
            }
            Err(_) => {
                let seconds = upgrade::SETTLE.as_secs();
                format!(
                    "sessions have been suspended or resumed for more than {seconds} seconds; ask again"
                )
            }
        };
        if !inherits {
            supervisor.sessions.seal_again();
        }
        supervisor.drain.pause(false);
        supervisor.warm.go_on();
        supervisor.gauges.go_on();
        reason
    }

    /// Looks after clients that come until something else has happened.
    pub(super) async fn accept_while<T>(
        &self,
        supervisor: &Rc<Supervisor>,
        until: impl Future<Output = T>,
    ) -> T {
        let mut until = std::pin::pin!(until);
        loop {
            tokio::select! {
                accepted = call(self.listener.as_ref()) => match accepted {
                    Ok((stream, peer)) => accept(supervisor, secure::Unknown(stream), Peer::Remote(peer)),
                    Err(error) => cannot_accept(&error).await,
                },
                accepted = knock(supervisor, self.door.as_ref()) => match accepted {
                    Ok((stream, peer)) => accept(supervisor, stream, peer),
                    Err(error) => cannot_accept(&error).await,
                },
                accepted = self.guests.accept() => match accepted {
                    Ok((stream, Guest::Of { hypervisor })) if supervisor.is_worker(hypervisor) => {
                        turn_away(stream, hypervisor);
                    }
                    Ok((stream, guest)) => {
                        accept(supervisor, secure::Unknown(stream), Peer::Guest(guest));
                    }
                    Err(error) => cannot_accept(&error).await,
                },
                outcome = &mut until => break outcome,
            }
            // The connection that makes room for this one is closed before the next one is
            // accepted: a seat is a descriptor.
            yield_now().await;
        }
    }
}

/// Connections that may wait to be accepted: a client that finds no room there tries again after a
/// second only.
const BACKLOG: i32 = 4096;

/// Lets more connections wait than is usual.
pub(super) fn widen(listener: &TcpListener) {
    if let Err(error) = rustix::net::listen(listener, BACKLOG) {
        tracing::debug!(%error, "few connections may wait to be accepted");
    }
}

pub(super) async fn cannot_accept(error: &io::Error) {
    tracing::warn!(%error, "cannot accept a client");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// A worker of this server's has come where hypervisors do.
fn turn_away(stream: GuestStream, worker: u32) {
    if let Some(left_out) = STRANGERS.admits("worker_as_guest") {
        tracing::warn!(worker, left_out, "a worker came to a socket for virtual machines");
    }
    closing::elsewhere(stream.into_inner());
}

/// The answers to administrators before the upgrade.
fn becoming(supervisor: &Supervisor, program: &Program) -> Becoming {
    let mut sessions = Vec::new();
    supervisor.sessions.each(|shown| {
        if shown.about.kind == Kind::Session {
            sessions.push(Number(shown.session).to_string());
        }
    });
    Becoming {
        software: env!("CARGO_PKG_VERSION").to_owned(),
        process: std::process::id(),
        program: program.path.clone(),
        same_program: upgrade::is_running(&program.path),
        sessions,
    }
}

fn address_of(listener: Option<&TcpListener>) -> io::Result<SocketAddr> {
    listener.map_or(Ok((Ipv4Addr::LOCALHOST, 0).into()), TcpListener::local_addr)
}

/// The next client from anywhere, if the server listens for any.
async fn call(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    let Some(listener) = listener else { return std::future::pending().await };
    listener.accept().await
}

/// The next client at the socket, if there is one.
async fn knock(supervisor: &Supervisor, door: Option<&Door>) -> io::Result<(BytesOnly, Peer)> {
    let Some(door) = door else { return std::future::pending().await };
    let stream = BytesOnly::new(door.accept().await?);
    let connection = stream.stream();
    let user = connection.peer_cred().map_or(u32::MAX, |peer| peer.uid());
    let admitted = door.admits(connection) && !supervisor.is_workers(connection);
    let peer = Peer::Local { user, admitted };
    Ok((stream, peer))
}
