//! Accepts clients and starts a worker process for each.
//!
//! The supervisor reads one bounded message from a client, its hello, and hands the connection to a
//! worker. It never loads a driver library. For a client it holds an entry in a table and a
//! process.

mod about;
pub mod admin;
mod admin_socket;
mod admit;
mod adopt;
pub mod auth;
mod beats;
mod bytes_only;
pub mod calls;
pub mod cgroup;
mod changes;
pub mod closing;
mod collectives;
mod command;
mod config;
mod descriptors;
pub mod dial;
mod doors;
mod drain;
mod error;
mod files;
mod gauges;
mod guests;
mod lease_ends;
mod left_over;
mod library;
mod local;
pub mod logs;
pub mod metrics;
mod newcomer;
mod notify;
mod once;
mod orphan;
mod outside;
mod over;
mod own_workers;
mod peer;
pub mod pool;
mod queues;
mod records;
mod regions;
pub mod resume;
mod secure;
mod sessions;
mod shares;
pub mod sharing;
pub mod standing;
mod supervisor;
mod tally;
mod totals;
pub mod traces;
mod upgrade;
pub mod vsock;
pub mod warm;
mod workers;
mod workers_log;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use outboard_transport::tcp;
use outboard_wire::Code;
use outboard_wire::handshake::VERSION;

use crate::auth::Gate;
pub use command::WorkerCommand;
pub use config::Config;
use descriptors::Parts;
use doors::Doors;
use drain::{Asked, Drain, Signals};
pub use error::ServeError;
use local::Door;
pub use local::{Access, Socket, usual as usual_socket, usual_folders};
use outboard_auth::hellos::Hellos;
use outboard_auth::sparing::STRANGERS;
use outside::Outside;
use shares::Descriptors;
use supervisor::Supervisor;
use upgrade::{Asker, Coming, Counter, Inherited};
pub use upgrade::{INHERITS, LISTENS_AT, could_serve};
use warm::Warm;

/// Serves until SIGTERM or SIGINT, lets sessions finish for [a while](standing::Config::drain),
/// then stops all workers and returns. Must be called on the thread that lives as long as the
/// process: workers die with the thread that started them.
pub fn serve(config: Config) -> Result<(), ServeError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run(config))
}

/// Divides the descriptors, which limits the sessions and the workers for clients that only send
/// queries.
fn divide(config: &mut Config) -> Result<(Parts, usize), ServeError> {
    let limit = descriptors::raise_limit();
    config.warm = config.warm.within(limit);
    if config.pool.is_set() {
        // Which devices there are is known from a worker that has started the driver.
        config.warm.least = config.warm.least.max(1);
        config.warm.most = config.warm.most.max(1);
    }
    let parts = Parts::of(limit, config).ok_or(ServeError::FewDescriptors { limit })?;
    let mut questions = config.max_questions.min(config.max_sessions);
    if parts.sessions < config.max_sessions {
        questions = questions.min(parts.sessions / 4).max(1);
        let sessions = parts.sessions.saturating_sub(questions).max(1);
        let sessions = config.sharing.sessions.map_or(sessions, |most| most.min(sessions));
        config.sharing.sessions = Some(sessions);
        tracing::warn!(
            limit,
            sessions,
            "the limit on open files leaves room for fewer sessions; raise it (LimitNOFILE=, `ulimit -Hn`)"
        );
    }
    config.sharing.queue = parts.queue;
    Ok((parts, questions))
}

async fn run(mut config: Config) -> Result<(), ServeError> {
    let (parts, questions) = divide(&mut config)?;
    let keepalive = config.resume.keepalive.as_secs().to_string();
    config.worker.env.push((tcp::KEEPALIVE_VARIABLE.into(), keepalive.into()));
    let mut signals = Signals::new()?;
    upgrade::take_signals();
    let inherited = Inherited::take();
    let upgrades = inherited.upgrades;
    let doors = Doors::open(&config, inherited).await?;
    let (address, door) = (doors.address()?, &doors.door);
    let gate = Gate::open(&config.auth, address, vsock::are_let_in(&config.guests))?;
    let pool = pool::Pool::open(&config.pool)?.map(Rc::new);
    let beats = config
        .pool
        .broker
        .as_ref()
        .map(|broker| beats::Beats::new(broker, address, config.auth.state.as_deref()));
    let beats = beats.transpose()?;
    let local = door.as_ref().and_then(Door::told);
    let desk = unless_upgraded(upgrades, admin_socket::Desk::open(&config, address.port()))?;
    left_over::sweep(&local::usual_folders().swap_remove(0));
    let metrics = unless_upgraded(
        upgrades,
        metrics::Listener::open(&config.metrics).await.map_err(ServeError::from),
    )?;
    let tasks = tokio::task::LocalSet::new();
    // With lending, memory is not reserved in advance.
    let queue = sharing::Queue::new(&config.sharing, config.sharing.oversubscribe.is_none());
    let traces = Rc::new(traces::Traces::new(&config.traces));
    let shared = Descriptors { all: parts.shared, of_a_session: parts.shared_of_a_session() };
    let (sessions, late) = tasks
        .run_until(adopt::sessions(
            &config,
            address,
            Outside::new(&config, local.clone()),
            (&queue, pool.as_ref()),
            &traces,
            shared,
        ))
        .await?;
    if upgrades > 0 {
        upgrade::reap();
    }
    let socket = local.as_ref().map_or("none", |local| &local.path);
    tracing::info!(%address, socket, driver = config.driver, sessions = sessions.len(), max_sessions = config.sharing.sessions, upgrades, version = env!("CARGO_PKG_VERSION"), protocol = %VERSION, "serving");
    if let Some(on_ready) = config.on_ready.take() {
        on_ready(address);
    }
    let hellos = Hellos::new(parts.hellos, parts.local_hellos);
    let warm = Rc::new(Warm::new(&config));
    let (drain, coming, started) = (Drain::default(), Coming::default(), std::time::Instant::now());
    let tally = tally::Tally::default();
    let (counter, mut askers) = Counter::open();
    let supervisor = Rc::new(Supervisor {
        config,
        local,
        sessions,
        warm,
        gauges: gauges::Gauges::default(),
        hellos,
        parts,
        questions,
        drain,
        started,
        queue,
        gate,
        pool,
        tally,
        coming,
        upgrades: counter,
        unanswered: Cell::new(late),
    });
    if late > 0 {
        tasks.spawn_local(adopt::later(Rc::clone(&supervisor)));
    }
    let config = &supervisor.config;
    tasks.spawn_local(Warm::keep(Rc::clone(&supervisor)));
    if let Some(desk) = desk {
        tasks.spawn_local(desk.serve(Rc::clone(&supervisor)));
    }
    tasks.spawn_local(revoke(Rc::clone(&supervisor)));
    let mut sign_off = None;
    if let Some(pool) = &supervisor.pool {
        let watch = lease_ends::end_those_that_are_over(Rc::clone(&supervisor), Rc::clone(pool));
        tasks.spawn_local(watch);
        if let Some(beats) = beats {
            sign_off = Some(beats.sign_off());
            tasks.spawn_local(beats.run(Rc::clone(&supervisor), Rc::clone(pool)));
        }
    }
    tasks.spawn_local(Rc::clone(&traces).run());
    tasks.spawn_local(gauges::Gauges::keep(Rc::clone(&supervisor)));
    if let Some(metrics) = metrics {
        tasks.spawn_local(metrics.serve(Rc::clone(&supervisor)));
    }
    tasks.spawn_local(notify::watchdog());
    tasks.spawn_local(tell_left_out());
    notify::ready();
    let mut clients = once::Clients::none_yet(config.standing.once);
    let reason = loop {
        let asked = async {
            tokio::select! {
                asked = signals.next(&mut askers) => asked,
                why = clients.gone(&supervisor) => Asked::Stop(why),
            }
        };
        match tasks.run_until(doors.accept_while(&supervisor, asked)).await {
            Asked::Stop(signal) => break signal,
            Asked::Upgrade(asker) => {
                let upgrade = tasks.run_until(try_upgrade(
                    &supervisor,
                    &doors,
                    upgrades + 1,
                    &asker,
                    &mut signals,
                ));
                if let Some(signal) = upgrade.await {
                    break signal;
                }
            }
        }
    };
    tracing::info!(reason, sessions = supervisor.sessions.len(), "stopping");
    supervisor.upgrades.close();
    drop(askers);
    notify::stopping(supervisor.sessions.len());
    supervisor.drain.begin();
    let drained = drain::wait(&supervisor.sessions, config.standing.drain, &mut signals);
    // New clients are told that the server stops; sessions may still open lanes.
    let (sessions, warm) = (&supervisor.sessions, &supervisor.warm);
    let signed_off = async {
        if let Some(sign_off) = sign_off {
            sign_off.wait().await;
        }
    };
    tasks
        .run_until(async {
            tokio::join!(doors.accept_while(&supervisor, drained), warm.stop(), signed_off)
        })
        .await;
    drop(doors);
    tasks.run_until(sessions.stop_all()).await;
    tasks.run_until(traces.finish()).await;
    if let Some(pool) = &supervisor.pool {
        pool.forget();
    }
    tracing::info!("stopped");
    Ok(())
}

/// A server that others already use does not end for want of something optional.
fn unless_upgraded<T>(
    upgrades: u64,
    opened: Result<Option<T>, ServeError>,
) -> Result<Option<T>, ServeError> {
    match opened {
        Err(error) if upgrades > 0 => {
            tracing::error!(%error, code = %error.code(), "the server goes on without");
            Ok(None)
        }
        opened => opened,
    }
}

/// Becomes another release. Returns only if that is not to be: then perhaps because of a signal
/// that stops the server.
async fn try_upgrade(
    supervisor: &Rc<Supervisor>,
    doors: &Doors,
    upgrades: u64,
    asker: &Asker,
    signals: &mut Signals,
) -> Option<&'static str> {
    let _under_way = supervisor.upgrades.begin();
    tokio::select! {
        biased;
        // The new program would know nothing of it.
        signal = signals.next_stop() => {
            asker.stays("it is stopping").await;
            Some(signal)
        }
        reason = doors.upgrade(supervisor, upgrades, asker) => {
            asker.stays(&reason).await;
            tracing::error!(reason, code = %Code::NotUpgraded, "the server is not upgraded; it goes on as it is");
            notify::ready();
            None
        }
    }
}

/// How often the tokens are looked at for what was revoked.
const REVOKE_EVERY: Duration = Duration::from_millis(500);

/// Ends the sessions of tokens that are revoked. Never ends.
async fn revoke(supervisor: Rc<Supervisor>) {
    // The first look is for sessions of the server before, whose tokens may have been revoked
    // meanwhile.
    let mut is_first = true;
    loop {
        tokio::time::sleep(REVOKE_EVERY).await;
        if let Some(is_over) = supervisor.gate.refresh() {
            let ended = supervisor.sessions.end_those(is_over);
            if ended > 0 || !is_first {
                tracing::info!(ended, "the tokens have changed");
            }
        }
        is_first = false;
    }
}

/// How often the log says of how many lines it was spared.
const LEFT_OUT_EVERY: Duration = Duration::from_secs(2);

/// Logs how many lines were suppressed, if no later line of their kind does. Never ends.
async fn tell_left_out() {
    loop {
        tokio::time::sleep(LEFT_OUT_EVERY).await;
        for (kind, left_out) in STRANGERS.left_out() {
            tracing::info!(
                kind,
                left_out,
                "lines were left out of this log: there were too many of their kind"
            );
        }
    }
}
