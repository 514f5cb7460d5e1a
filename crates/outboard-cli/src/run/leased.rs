//! A lease for a program: asked for, waited for, kept fresh and given back.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use miette::Result;
use outboard_auth::files::write_secret_as;
use outboard_auth::lease_key;
use outboard_broker_client::{AskError, Blocking, Method};
use outboard_client::{own_settings, target};
use outboard_pool::api::{Ask, Grant, Me, Reach, Standing};
use outboard_pool::words::LeaseNumber;
use outboard_wire::Code;

use super::wanted;
use crate::chosen::SAY_LOST;
use crate::failure::Failure;
use crate::pool::access::{self, failed};
use crate::pool::end;

/// A broker that is started anew is away for a moment: those who wait already wait for it, too.
const RESTART: Duration = Duration::from_secs(60);
/// How long to wait before a broker that is away is asked again.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the broker may keep each question after a request waiting.
const POLL: &str = "wait_ms=5000";

/// A lease that this process holds for a program.
pub(super) struct Leased {
    broker: Blocking,
    number: LeaseNumber,
    folder: Folder,
    servers: Vec<Reach>,
    /// Ends the thread that keeps the lease fresh.
    keeper: Option<(Sender<()>, JoinHandle<()>)>,
}

/// A folder of this process's own, which goes when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Folder> {
        let above = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let above = above.filter(|path| path.is_dir()).unwrap_or_else(std::env::temp_dir);
        // Processes in containers may have the same number, and the same folder above.
        let number = u64::from_le_bytes(outboard_transport::random()?);
        let path = above.join(format!("outboard-lease-{number:016x}"));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder(path))
    }

    fn lease(&self) -> PathBuf {
        self.0.join("lease")
    }

    fn key(&self) -> PathBuf {
        self.0.join("key.pem")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A file for its user's eyes.
fn put(path: &Path, text: &str) -> Result<(), Failure> {
    write_secret_as(path, text.as_bytes(), 0o400)
        .map_err(|error| Failure::file("write", path, &error))
}

/// Asks a broker for what the program needs, and waits for it.
pub(super) fn acquire(
    wanted: &wanted::Args,
    access: &access::Args,
    gpus: u32,
    no_wait: bool,
) -> Result<Leased> {
    let folder = Folder::new()
        .map_err(|error| Failure::file("make a folder in", &std::env::temp_dir(), &error))?;
    let broker = access.broker()?;
    let begin = Instant::now();
    let until = wanted.wait.and_then(|span| begin.checked_add(span.0.unsigned_abs()));
    let me: Me = patiently(until, || broker.ask(Method::GET, "/v1/me"))?;
    let (key, thumbprint) = lease_key::make().map_err(|error| {
        let sentence = format!("a key for the lease cannot be made: {error}");
        Failure::new(Code::FileUnusable, sentence, "the system gives no randomness; try again")
    })?;
    let ask = wanted.ask(&me, gpus, no_wait, thumbprint);
    let grant = wait(&broker, ask, until)?;
    put(&folder.key(), &key)?;
    put(&folder.lease(), &grant.token)?;
    let number = grant.number;
    let keeper = keep_fresh(access.broker()?, grant.clone(), folder.lease());
    Ok(Leased { broker, number, folder, servers: grant.servers, keeper: Some(keeper) })
}

/// Asks again while the broker is away and there is time.
fn patiently<T>(
    until: Option<Instant>,
    ask: impl Fn() -> Result<T, AskError>,
) -> Result<T, Failure> {
    let mut is_told = false;
    loop {
        match ask() {
            Err(error) if error.may_pass() && until.is_some_and(|end| Instant::now() < end) => {
                if !std::mem::replace(&mut is_told, true) {
                    eprintln!("outboard: {error}; waiting for it");
                }
                std::thread::sleep(PAUSE);
            }
            answer => return answer.map_err(|error| failed(&error)),
        }
    }
}

/// Waits in the queue, and says at which place and why.
fn wait(broker: &Blocking, mut ask: Ask, until: Option<Instant>) -> Result<Grant, Failure> {
    let ask_for = ask.request.wait_seconds;
    let begin = Instant::now();
    let request = |ask: &Ask, until| {
        patiently(until, || broker.tell::<Standing>(Method::POST, "/v1/requests", ask))
    };
    // It has just answered: if it is away now, it is being started anew.
    let again = until.or_else(|| (ask_for > 0).then(|| begin + RESTART));
    let mut standing = request(&ask, again)?;
    let mut told = None;
    loop {
        let ticket = match standing {
            Standing::Granted(grant) => return Ok(grant),
            Standing::Waiting { ticket, place, of, because } => {
                let now = (place, because);
                if told.as_ref() != Some(&now) {
                    eprintln!("outboard: waiting at place {place} of {of}: {}", now.1);
                    told = Some(now);
                }
                ticket
            }
        };
        let path = format!("/v1/requests/{ticket}?{POLL}");
        let again = Some(until.unwrap_or_else(|| Instant::now() + RESTART));
        let waited = begin.elapsed().as_secs();
        standing = match broker.ask(Method::GET, &path) {
            Ok(standing) => standing,
            // The queue is gone with the broker that had it.
            Err(AskError::Refused { status: 404, .. }) => {
                eprintln!("outboard: the broker has forgotten the request; asking again");
                let waited = u32::try_from(waited).unwrap_or(u32::MAX);
                if ask_for < u32::MAX {
                    ask.request.wait_seconds = ask_for.saturating_sub(waited).max(1);
                }
                request(&ask, again)?
            }
            Err(error) if error.may_pass() => {
                patiently(again, || match broker.ask(Method::GET, &path) {
                    // Told above, when it is asked once more.
                    Err(AskError::Refused { status: 404, .. }) => Ok(None),
                    answer => answer.map(Some),
                })?
                .map_or_else(|| request(&ask, again), Ok)?
            }
            Err(error) => return Err(failed(&error)),
        };
    }
}

/// Renews the lease while this process lives: the program's later processes need one that is good.
fn keep_fresh(broker: Blocking, mut grant: Grant, file: PathBuf) -> (Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = channel();
    let thread = std::thread::spawn(move || {
        let mut is_away = false;
        loop {
            let left = grant.expires.duration_since(Timestamp::now()).unsigned_abs();
            let pause = if is_away { 2 * PAUSE } else { (left / 3).max(PAUSE) };
            if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let path = format!("/v1/leases/{}/renew", grant.number);
            match broker.ask::<Grant>(Method::POST, &path) {
                Ok(renewed) => {
                    is_away = false;
                    // An older one may still be good.
                    if put(&file, &renewed.token).is_ok() {
                        grant = renewed;
                    }
                }
                Err(AskError::Refused { status: 404 | 409, sentence }) => {
                    eprintln!("outboard: {sentence}; the program's devices are taken away");
                    return;
                }
                // The program's sessions go on without a broker.
                Err(_) => is_away = true,
            }
        }
    });
    (stop, thread)
}

impl Leased {
    /// The variables by which the program finds its servers and shows them the lease.
    pub(super) fn variables(&self) -> BTreeMap<&'static str, OsString> {
        let (lease, key) = (self.folder.lease(), self.folder.key());
        let authorities = std::env::var("OUTBOARD_TLS_CA").ok();
        let mut own = serde_json::Map::new();
        for server in &self.servers {
            let mut settings = serde_json::json!({
                "lease": lease,
                "lease-key": key,
                "pool-name": server.name,
            });
            match (&server.fingerprint, &authorities) {
                (Some(fingerprint), _) => settings["tls-fingerprint"] = fingerprint.as_str().into(),
                (None, Some(path)) => settings["tls-ca"] = path.as_str().into(),
                (None, None) => {}
            }
            own.insert(server.address.clone(), settings);
        }
        let addresses = self.servers.iter().map(|server| server.address.as_str());
        let list = addresses.collect::<Vec<_>>().join(",");
        let mut variables = BTreeMap::from([
            (target::VARIABLE, list.into()),
            (own_settings::VARIABLE, serde_json::Value::from(own).to_string().into()),
            ("OUTBOARD_LEASE", lease.into()),
            ("OUTBOARD_LEASE_KEY", key.into()),
        ]);
        if self.servers.len() > 1 {
            variables.insert(SAY_LOST, "1".into());
        }
        variables
    }

    /// Gives it back.
    pub(super) fn give_back(mut self) {
        if let Some((stop, thread)) = self.keeper.take() {
            drop(stop);
            // It may be waiting for a broker that is away.
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
        // One that is not given back ends by itself.
        if let Err(error) = end(&self.broker, self.number)
            && !matches!(error, AskError::Refused { .. })
        {
            let number = self.number;
            eprintln!("outboard: lease {number} ends by itself within a minute or so: {error}");
        }
    }
}
