//! A worker's connections: commands in, replies out.
//!
//! The process's main thread takes commands in their one order and hands each to the [`Handler`],
//! which must not block in it for long: waits for the device belong on helper threads, which answer
//! through a clone of the [`Replier`]. When the client or the supervisor goes, the process ends at
//! once: the system and the driver clean up better than any code here could.

mod adapters;
mod arrival;
mod brokered;
mod bulk;
mod connection;
mod dispatch;
mod ending;
mod exit;
mod gate;
mod handler;
mod home;
mod link_adapters;
mod looking;
mod moving;
mod neighbour;
mod opening;
mod pace;
mod peers;
mod places;
mod region;
mod registry;
mod replier;
mod requests;
mod secure;
mod stays;
mod stream_switch;
mod watch;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use outboard_transport::{tcp, write_all};
use outboard_wire::handshake::arena::ARENA;
use outboard_wire::handshake::beats::BEATS;
use outboard_wire::handshake::files::{FILES, Files};
use outboard_wire::handshake::ivshmem::{IVSHMEM, Offer};
use outboard_wire::handshake::peers::{PEERS, SHARING, Sharing};
use outboard_wire::handshake::queued::{QUEUED, Queued};
use outboard_wire::handshake::rdma::RDMA;
use outboard_wire::handshake::resume::{RESUME, Terms};
use outboard_wire::handshake::windows::WINDOWS;
use outboard_wire::handshake::{Extensions, Refusal, RefusalCode, VERSION, Welcome};

use crate::sandbox::{self, Sandbox};
use adapters::{Adapters, Wanted};
use arrival::Arrival;
use connection::Connection;
use dispatch::dispatch;
use ending::Ending;
pub(crate) use ending::end_session;
#[cfg(fuzzing)]
pub(crate) use exit::Violation;
use exit::{BROKEN, REFUSED, SERVED, end_with_any_panic, exit};
pub use handler::{Build, Handler, NextPoll};
use outboard_control::messages::{self, ToSupervisor, ToWorker};
use outboard_control::meter;
use outboard_control::number::Number;

pub use bulk::DeviceBytes;
use bulk::Direct;
pub(crate) use bulk::Half;
pub(crate) use bulk::KnownMemory;
#[cfg(fuzzing)]
pub use bulk::hostile_peer;
pub use bulk::{Bulk, Sink};
use link_adapters::LinkAdapters;
use moving::Moving;
use opening::Opening;
pub use outboard_control::messages::{ContextMemory, Gauge, Start, Warm};
pub use outboard_session::server::Command;
use pace::Pace;
pub(crate) use peers::{Called, Peers};
pub(crate) use registry::Registry;
pub use replier::Replier;
use secure::Secure;
pub(crate) use stays::Stay;
use stream_switch::StreamSwitch;

/// How long the supervisor may be behind with the messages of a worker that confines itself.
const TELLING: std::time::Duration = std::time::Duration::from_secs(10);

/// In nanoseconds.
const TIMER_SLACK: u64 = 1000;

/// The main function of a worker process: serves the client that the supervisor hands over, and
/// ends the process.
///
/// It must have one thread still.
pub fn run(sandbox: &Sandbox, build: impl Build) -> ! {
    end_with_any_panic();
    let code = match serve(sandbox, build) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(%error, "the worker failed");
            BROKEN
        }
    };
    exit(code)
}

fn serve<B: Build>(sandbox: &Sandbox, build: B) -> io::Result<i32> {
    let control = take_standard_input()?;
    // Otherwise the system may wake a thread that sleeps for some microseconds 50 microseconds
    // late. An error here is ignored.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(TIMER_SLACK));
    let confined = sandbox.before_the_driver();
    watch::die_with_the_supervisor()?;
    tcp::keepalive_from_env();
    let tell = |listener: OwnedFd| {
        let with = Some(listener.as_fd());
        messages::send_patiently(control.as_fd(), &ToSupervisor::Calls, with, TELLING)
    };
    let unconfined = |error: sandbox::Incomplete| Refusal {
        code: RefusalCode::WorkerFailed,
        sentence: error.to_string(),
    };
    let first = match messages::receive(control.as_fd())? {
        Some((ToWorker::Watch(watch), Some(board))) => {
            let rest = || {
                confined.and_then(|()| sandbox.before_the_client(Some(&tell))).map_err(unconfined)
            };
            return looking::serve(build, &control, &watch, board.as_fd(), rest);
        }
        first => first,
    };
    let Some(Arrival { prepared, start, connection, home, region }) =
        arrival::wait(build, &control, first)?
    else {
        return Ok(SERVED);
    };
    let session = start.session;
    // A client that does not accept it, or has named no windows, gets none.
    let window =
        prepared.as_ref().ok().and_then(B::window).filter(|window| start.window == Some(*window));
    let built =
        confined.map_err(unconfined).and(prepared).and_then(|prepared| B::build(prepared, &start));
    let built = built.and_then(|handler| {
        sandbox.before_the_client(Some(&tell)).map_err(unconfined).map(|()| handler)
    });
    let mut handler = match built {
        Ok(handler) => handler,
        Err(Refusal { code, sentence }) => {
            messages::send(control.as_fd(), &ToSupervisor::Failed { code, sentence }, None)?;
            return Ok(REFUSED);
        }
    };
    let (stream, socket) = stream_switch::stream(connection)?;
    // A hypervisor that forwards bytes passes no descriptors on.
    let on_this_machine = socket.filter(|_| !start.guest);
    let secure = Secure::new(&start)?;
    let grace = start.grace.filter(|_| on_this_machine.is_none());
    let mut more = Extensions::default();
    more.set(BEATS, &watch::beats());
    more.set(QUEUED, &Queued);
    more.set(FILES, &Files);
    if let Some(window) = window {
        more.set(WINDOWS, &window);
        if let Some(arena) = handler.arena() {
            more.set(ARENA, &arena);
        }
    }
    if let Some(addresses) = start.peers.clone() {
        more.set(PEERS, &outboard_wire::handshake::peers::Peers { addresses });
        if start.local.is_some() {
            more.set(SHARING, &Sharing);
        }
    }
    let wanted = start.rdma.as_ref().map(|rdma| Wanted::new(rdma, || handler.pci_devices()));
    if let Some(missing) = &start.no_region {
        more.set(IVSHMEM, &Offer { missing: missing.clone(), ..Offer::default() });
    }
    if let Some(region) = &region {
        more.set(IVSHMEM, &region.offer());
    }
    // A client in a virtual machine of this host needs no network.
    let may_ask = start.client_has_adapters && region.is_none();
    let adapters = wanted.as_ref().filter(|_| may_ask).map(Wanted::find);
    if let Some(found) = &adapters {
        let kind = (grace.is_some(), secure.is_some());
        more.set(RDMA, &Adapters::offer_or_reason(found, kind));
    }
    if let Some(grace) = grace {
        more.set(RESUME, &Terms { grace: grace.silent });
    }
    let welcome = Welcome {
        version: VERSION,
        software: env!("CARGO_PKG_VERSION").to_owned(),
        session,
        key: start.key,
        lanes: start.lanes,
        snapshot: handler.snapshot(),
        local: start.local.clone(),
        more,
    };
    let message = welcome.encode();
    if message.len() > outboard_wire::handshake::ANSWER_LIMIT {
        let sentence =
            "the server's description of its devices is too long for a welcome".to_owned();
        let failed = ToSupervisor::Failed { code: RefusalCode::WorkerFailed, sentence };
        messages::send(control.as_fd(), &failed, None)?;
        return Ok(REFUSED);
    }
    let stream = match &secure {
        None => stream,
        Some(secure) => {
            // Only then does the supervisor send the client here.
            messages::send(control.as_fd(), &ToSupervisor::Welcomed, None)?;
            match secure.accept(stream) {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::info!(session = %Number(session), %error, "the client did not come over");
                    return Ok(SERVED);
                }
            }
        }
    };
    // A welcomed client is served even if the supervisor ends.
    watch::outlive_the_supervisor()?;
    write_all(&*stream, &message)?;
    if secure.is_none()
        && let Err(error) = messages::send(control.as_fd(), &ToSupervisor::Welcomed, None)
        && !messages::has_gone(&error)
    {
        return Err(error);
    }
    if start.probe {
        return Ok(SERVED);
    }
    let adapters = adapters.and_then(Result::ok);
    let moving = adapters.clone().map(Moving::Adapters).or_else(|| region.map(Moving::Region));
    let borrowing = Arc::new(Direct::default());
    let stream = match &moving {
        None => stream,
        Some(moving) => match moving.settle(stream, secure.as_ref(), &borrowing) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::info!(session = %Number(session), %error, "the client has not moved, nor stayed");
                return Ok(SERVED);
            }
        },
    };
    let pace = start.identity.limits.bandwidth.map(Pace::new);
    let links = LinkAdapters::new(wanted, adapters);
    let peers = Peers::new(pace.clone(), start.lanes, links);
    let bulk = Bulk::new(pace, Arc::clone(&borrowing));
    let again =
        Welcome { snapshot: Vec::new(), local: None, more: Extensions::default(), ..welcome };
    let control = Arc::new(control);
    let registry = Registry::new(Arc::clone(&control), start.lends);
    let switch = Arc::new(StreamSwitch::new()?);
    let connection = Arc::new(Connection::new(Arc::clone(&stream), grace));
    let mut replier = Replier::new(Arc::clone(&connection), bulk.clone(), peers, registry.clone());
    let ending = Arc::new(Ending::default());
    let further = watch::Further {
        welcome: again,
        opening: Opening::new(secure, moving, borrowing),
        bulk: bulk.clone(),
        registry,
        switch: Arc::clone(&switch),
        replier: replier.clone(),
        ending: Arc::clone(&ending),
        home,
    };
    watch::supervisor(control, Arc::new(further))?;
    let (stream, memory) = match switch.settle(stream, on_this_machine) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(SERVED),
        settled => settled?,
    };
    meter::page().set_transport(stream.transport());
    if let Some(memory) = memory {
        connection.settle(stream);
        replier.share(memory);
    }
    watch::client(Arc::clone(&connection), replier.clone())?;
    ending.serve(&replier)?;
    let result = dispatch(&connection, &replier, &mut handler);
    super::spans::finish();
    handler.closed();
    match result {
        Ok(()) => {
            tracing::debug!(session = %Number(session), "the client has gone");
            Ok(SERVED)
        }
        Err(error) => {
            tracing::warn!(session = %Number(session), client = start.client, %error, "the session ends");
            Ok(BROKEN)
        }
    }
}

/// Moves the supervisor's socket away from descriptor 0, so that nothing that reads standard input
/// finds it.
fn take_standard_input() -> io::Result<OwnedFd> {
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let null =
        rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(control)
}
