//! The administrators' socket: lists and ends sessions. For the server's own user and root, but not
//! for workers, which may be of that user.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use outboard_wire::Code;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::about::{About, Kind};
use super::bytes_only::BytesOnly;
use super::config::Config;
use super::error::ServeError;
use super::local::{self, Access, Door, Socket};
use super::sessions::Shown;
use super::sharing::{self, Mode, Modes};
use super::supervisor::Supervisor;
use super::traces::LAST_SPANS;
use super::upgrade::Step;
use crate::admin::secret::{Draft, Secret};
use crate::admin::{
    Answer, Ask, Held, KeptPlace, LONGEST_QUESTION, Listing, Memory, PATIENCE, Question, Reply,
    Session, VERSION, Which, beside, framed,
};
use outboard_auth::sparing::STRANGERS;
use outboard_control::meter::{CLASSES, ERRORS, Reading, WAYS};
use outboard_control::number::Number;

/// The shortest beginning of a session's number that names it, in digits.
const SHORTEST: usize = 4;
/// The reason that a client gets when an administrator ends its session.
const ENDED: &str = "ended by the server's administrator";

/// The socket, open.
pub(super) struct Desk {
    door: Door,
    secret: Rc<Secret>,
}

impl Desk {
    /// Opens the socket, if there is to be one.
    pub(super) fn open(config: &Config, port: u16) -> Result<Option<Desk>, ServeError> {
        let listening = |path: &Path| {
            let draft = Draft::make(path)?;
            let door = Door::listen(path, Access::Owner)?;
            Ok((door, draft.place()?))
        };
        let opened = |path: &Path| {
            let folder = path.parent().unwrap_or(Path::new("/"));
            local::make_folder(folder, Access::Owner).and_then(|()| listening(path))
        };
        let (door, secret) = match (&config.admin, &config.socket) {
            (Socket::Off, _) => return Ok(None),
            (Socket::At(path), _) => listening(path).map_err(|error| ServeError::Listen {
                address: path.display().to_string(),
                error,
            })?,
            (Socket::Usual, socket) => {
                let path: PathBuf = match socket {
                    Socket::At(path) => beside(path),
                    _ => beside(&local::usual(port)),
                };
                match opened(&path) {
                    Ok(opened) => opened,
                    Err(error) => {
                        tracing::warn!(path = %path.display(), %error, "no socket for administrators");
                        return Ok(None);
                    }
                }
            }
        };
        tracing::info!(path = %door.path().display(), "a socket for administrators");
        Ok(Some(Desk { door, secret: Rc::new(secret) }))
    }

    /// Serves administrators. Never ends.
    pub(super) async fn serve(self, supervisor: Rc<Supervisor>) {
        let places = Arc::new(Semaphore::new(supervisor.parts.administrators));
        loop {
            let stream = match self.door.accept().await {
                Ok(stream) => BytesOnly::new(stream),
                Err(error) => {
                    super::doors::cannot_accept(&error).await;
                    continue;
                }
            };
            if !self.door.admits(stream.stream()) || supervisor.is_workers(stream.stream()) {
                if let Some(left_out) = STRANGERS.admits("administrator") {
                    tracing::warn!(peer = ?stream.stream().peer_cred().ok(), left_out, "somebody else came to the administrators' socket");
                }
                continue;
            }
            // More of them are not expected, and see the connection closed.
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
            let (supervisor, secret) = (Rc::clone(&supervisor), Rc::clone(&self.secret));
            tokio::task::spawn_local(async move {
                if let Err(error) = attend(&supervisor, &secret, stream).await {
                    tracing::debug!(%error, "an administrator goes");
                }
                drop(place);
            });
        }
    }
}

/// Answers one administrator's questions until it goes.
async fn attend(supervisor: &Supervisor, secret: &Secret, mut stream: BytesOnly) -> io::Result<()> {
    loop {
        let mut len = [0; 4];
        // It may look on for as long as it likes.
        if let Err(error) = stream.read_exact(&mut len).await {
            return if error.kind() == io::ErrorKind::UnexpectedEof { Ok(()) } else { Err(error) };
        }
        let len = u32::from_le_bytes(len) as usize;
        if len > LONGEST_QUESTION {
            let answer = Answer::Error(format!("a question of {len} bytes is too long"));
            return reply(&mut stream, answer).await;
        }
        let mut bytes = vec![0; len];
        timeout(PATIENCE, stream.read_exact(&mut bytes)).await??;
        let answer = match serde_json::from_slice::<Question>(&bytes) {
            Ok(Question { secret: shown, .. }) if !secret.is(shown.as_deref()) => {
                return reply(&mut stream, Answer::Error(not_shown())).await;
            }
            Ok(Question { ask: Ask::Upgrade, .. }) => {
                upgrade(supervisor, &mut stream).await?;
                continue;
            }
            Ok(question) => answer(supervisor, question.ask).await,
            Err(error) => Answer::Error(format!(
                "this server ({}, administration {VERSION}) does not understand the question: {error}",
                env!("CARGO_PKG_VERSION")
            )),
        };
        reply(&mut stream, answer).await?;
    }
}

fn not_shown() -> String {
    Code::AdminDenied.end(&format!(
        "this server ({}) is administered by whoever shows the secret beside its socket, which this command did not: use the command of the server's release, or one that is newer; the signal SIGUSR2 upgrades the server without",
        env!("CARGO_PKG_VERSION")
    ))
}

/// Has the server become another release. What it answers last is why that is not to be: there is
/// nobody any more who could say that it is.
async fn upgrade(supervisor: &Supervisor, stream: &mut BytesOnly) -> io::Result<()> {
    let mut steps = match supervisor.upgrades.ask() {
        Ok(steps) => steps,
        Err(sentence) => return reply(stream, Answer::Error(sentence)).await,
    };
    let mut is_over = false;
    while let Some(Step { answer, passed_on }) = steps.recv().await {
        is_over = matches!(answer, Answer::Error(_));
        reply(stream, answer).await?;
        let _ = passed_on.send(());
    }
    if is_over { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

async fn reply(stream: &mut BytesOnly, answer: Answer) -> io::Result<()> {
    let bytes = framed(&Reply { version: VERSION, answer })?;
    timeout(PATIENCE, stream.write_all(&bytes)).await?
}

async fn answer(supervisor: &Supervisor, ask: Ask) -> Answer {
    match ask {
        Ask::Sessions => Answer::Sessions(listing(supervisor)),
        Ask::Kill(which) => match kill(supervisor, &which) {
            Ok(sessions) => Answer::Killed(sessions),
            Err(sentence) => Answer::Error(sentence),
        },
        Ask::Upgrade => Answer::Error("an upgrade is asked for alone".to_owned()),
        Ask::Trace { session, seconds } => match trace(supervisor, &session, seconds).await {
            Ok(trace) => Answer::Trace(trace),
            Err(sentence) => Answer::Error(sentence),
        },
    }
}

fn listing(supervisor: &Supervisor) -> Listing {
    let mut sessions = Vec::new();
    supervisor.sessions.each(|shown| sessions.push(session(&shown)));
    sessions.sort_by(|one: &Session, other| other.age_seconds.total_cmp(&one.age_seconds));
    Listing {
        software: env!("CARGO_PKG_VERSION").to_owned(),
        process: std::process::id(),
        age_seconds: supervisor.started.elapsed().as_secs_f64(),
        socket: supervisor.local.as_ref().map(|local| local.path.clone()),
        most_sessions: supervisor.most_sessions(),
        warm_workers: supervisor.warm.ready(),
        warm_wanted: supervisor.warm.wanted(supervisor.sessions_left()),
        warm_device_memory: supervisor
            .warm
            .device_memory()
            .into_iter()
            .map(|(device, bytes)| (device.to_string(), bytes))
            .collect(),
        warm_host_memory: supervisor.warm.host_memory(),
        waiting: supervisor.queue.waiting(),
        kept: kept(supervisor),
        held: held(supervisor),
        unanswered: supervisor.unanswered.get(),
        sharing: sharing(&supervisor.config.sharing.modes),
        sessions,
    }
}

fn kept(supervisor: &Supervisor) -> Vec<KeptPlace> {
    let mut all = Vec::new();
    supervisor.queue.each_kept(|client, devices, left| {
        all.push(KeptPlace {
            client: client.to_owned(),
            devices: devices.to_vec(),
            seconds: left.as_secs_f64(),
        });
    });
    all
}

fn held(supervisor: &Supervisor) -> Vec<Held> {
    let now = jiff::Timestamp::now();
    let holders = supervisor.queue.holders(supervisor.warm.known_devices().unwrap_or(0));
    let held = |one: sharing::Held| Held {
        device: one.device,
        owner: one.holder,
        seconds: now.duration_since(one.since).as_secs_f64().max(0.0),
    };
    holders.into_iter().map(held).collect()
}

fn sharing(modes: &Modes) -> BTreeMap<String, String> {
    let name = |mode: &Mode| match mode {
        Mode::Shared => "shared".to_owned(),
        Mode::Exclusive => "exclusive".to_owned(),
    };
    let named = modes.named.iter().map(|(index, mode)| (index.to_string(), name(mode)));
    named.chain([("*".to_owned(), name(&modes.usual))]).collect()
}

fn session(shown: &Shown<'_>) -> Session {
    let Shown { about: About { identity, lease, peer, kind, .. }, reading, .. } = shown;
    let named = |names: &[&str], counts: &[u64]| {
        names.iter().map(|name| (*name).to_owned()).zip(counts.iter().copied()).collect()
    };
    let kind = match kind {
        Kind::Session => "session",
        Kind::Management => "management",
        Kind::Probe => "probe",
    };
    Session {
        id: Number(shown.session).to_string(),
        owner: identity.owner.clone(),
        token: identity.token.clone(),
        lease: lease.as_ref().map(|held| held.number().0),
        client: shown.client.to_owned(),
        peer: peer.clone(),
        kind: kind.to_owned(),
        state: shown.state.to_owned(),
        transport: reading.transport().to_owned(),
        worker: shown.worker,
        devices: shown.devices.to_vec(),
        age_seconds: shown.age.as_secs_f64(),
        idle_seconds: reading.idle().min(shown.age).as_secs_f64(),
        memory: memory(reading),
        commands: named(&CLASSES, &reading.commands),
        bytes_to_device: named(&WAYS, &reading.bytes[0]),
        bytes_from_device: named(&WAYS, &reading.bytes[1]),
        waits: reading.waits.iter().fold(0, |sum, count| sum.saturating_add(*count)),
        wait_seconds: reading.wait_ns as f64 / 1e9,
        errors: named(&ERRORS, &reading.errors),
    }
}

fn memory(reading: &Reading) -> Vec<Memory> {
    let of = |device: usize| Memory {
        device: device as u32,
        context: reading.contexts >> device & 1 != 0,
        bytes: reading.held[device],
        peak: reading.peak[device],
    };
    (0..reading.held.len()).map(of).filter(|memory| memory.context || memory.bytes > 0).collect()
}

fn kill(supervisor: &Supervisor, which: &Which) -> Result<Vec<String>, String> {
    let ended = match which {
        Which::Session(beginning) => {
            let session = find(supervisor, beginning)?;
            supervisor.sessions.end(ENDED, |other, _| other == session)
        }
        Which::Owner(owner) => {
            supervisor.sessions.end(ENDED, |_, about| about.identity.owner == *owner)
        }
        Which::All => supervisor.sessions.end(ENDED, |_, _| true),
    };
    for session in &ended {
        tracing::info!(session = %Number(*session), "ended by an administrator");
    }
    Ok(ended.into_iter().map(|session| Number(session).to_string()).collect())
}

/// The longest trace, in seconds.
const LONGEST_TRACE: f64 = 600.0;

/// Has a session traced for a while.
async fn trace(
    supervisor: &Supervisor,
    beginning: &str,
    seconds: f64,
) -> Result<serde_json::Value, String> {
    let session = find(supervisor, beginning)?;
    let time = Duration::try_from_secs_f64(seconds.clamp(0.0, LONGEST_TRACE)).unwrap_or_default();
    let (sessions, traces) = (&supervisor.sessions, supervisor.sessions.traces());
    if !traces.ask(session) {
        return Err(format!("somebody else traces session {beginning} already"));
    }
    sessions.trace(session, true);
    traces.wait(session, time).await;
    if traces.all() {
        // The trace continues for the collector; what is on its way comes within one of the
        // worker's rounds.
        tokio::time::sleep(LAST_SPANS / 4).await;
    } else {
        sessions.trace(session, false);
        traces.wait(session, LAST_SPANS).await;
    }
    sessions.close_trace(session);
    Ok(traces.answer(session))
}

/// The session whose number begins so.
fn find(supervisor: &Supervisor, beginning: &str) -> Result<u64, String> {
    let wanted = beginning.to_ascii_lowercase();
    if wanted.len() < SHORTEST {
        let sentence = format!(
            "`{beginning}` is too short: {SHORTEST} digits of a session's number are needed"
        );
        return Err(Code::NoSuchSession.end(&sentence));
    }
    let mut found = Vec::new();
    supervisor.sessions.each(|shown| {
        if Number(shown.session).to_string().starts_with(&wanted) {
            found.push(shown.session);
        }
    });
    match found[..] {
        [session] => Ok(session),
        [] => Err(Code::NoSuchSession.end(&format!("there is no session {beginning}"))),
        _ => Err(Code::NoSuchSession
            .end(&format!("{} sessions begin with {beginning}; give more digits", found.len()))),
    }
}
