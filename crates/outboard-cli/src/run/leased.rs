//! A lease for a program: asked for, waited for, kept fresh and given back.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use jiff::Timestamp;
use outboard_auth::files::write_secret_as;
use outboard_auth::lease_key;
use outboard_broker_client::{AskError, Blocking, Method};
use outboard_pool::api::{Grant, Me, Reach};
use outboard_pool::words::{LeaseNumber, ServerName};
use outboard_wire::Code;

use super::wanted;
use crate::failure::Failure;
use crate::pool::asking::{PAUSE, patiently, wait};
use crate::pool::{access, end, shown};

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
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> io::Result<Folder> {
        let above = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let above = above.filter(|path| path.is_dir()).unwrap_or_else(std::env::temp_dir);
        let mut folder = tempfile::Builder::new();
        folder.prefix("outboard-lease-").permissions(Permissions::from_mode(0o700));
        folder.tempdir_in(above).map(Folder)
    }

    fn lease(&self) -> PathBuf {
        self.0.path().join("lease")
    }

    fn key(&self) -> PathBuf {
        self.0.path().join("key.pem")
    }
}

/// A file for its user's eyes.
fn put(path: &Path, text: &str) -> Result<(), Failure> {
    write_secret_as(path, text.as_bytes(), 0o400)
        .map_err(|error| Failure::file("write", path, &error))
}

/// What a program needs of a pool, and for how long to wait for it.
pub(super) struct Need<'a> {
    wanted: &'a wanted::Args,
    access: &'a access::Args,
    gpus: u32,
    no_wait: bool,
    until: Option<Instant>,
}

impl<'a> Need<'a> {
    /// The time to wait begins now.
    pub(super) fn new(
        wanted: &'a wanted::Args,
        access: &'a access::Args,
        gpus: u32,
        no_wait: bool,
    ) -> Need<'a> {
        let until = wanted.wait.and_then(|span| Instant::now().checked_add(span.0.unsigned_abs()));
        Need { wanted, access, gpus, no_wait, until }
    }

    /// Asks a broker for it, on servers other than these, and waits.
    pub(super) fn lease(&self, avoid: &[ServerName]) -> Result<Leased, Failure> {
        let folder = Folder::new()
            .map_err(|error| Failure::file("make a folder in", &std::env::temp_dir(), &error))?;
        let broker = self.access.broker()?;
        let me: Me = patiently(self.until, &say, || broker.ask(Method::GET, "/v1/me"))?;
        let (key, thumbprint) = lease_key::make().map_err(|error| {
            let sentence = format!("a key for the lease cannot be made: {error}");
            let help = "the system gives no randomness; try again";
            Failure::new(Code::FileUnusable, sentence, help)
        })?;
        let mut ask = self.wanted.ask(&me, self.gpus, self.no_wait, thumbprint);
        ask.request.avoid = avoid.to_vec();
        if let Some(until) = self.until {
            let left = until.saturating_duration_since(Instant::now()).as_secs_f64().ceil();
            ask.request.wait_seconds = ask.request.wait_seconds.min(left as u32);
        }
        let grant = wait(&broker, ask, self.until, &say)?;
        if grant.is_shortened {
            say(&format!(
                "the devices are lent: another request waits for them, and as long as it does, they \
                 are the program's until {} at the latest",
                grant.renewable_until
            ));
        }
        put(&folder.key(), &key)?;
        put(&folder.lease(), &grant.token)?;
        let number = grant.number;
        let keeper = keep_fresh(self.access.broker()?, grant.clone(), folder.lease());
        Ok(Leased { broker, number, folder, servers: grant.servers, keeper: Some(keeper) })
    }
}

/// Tells whoever waits for the program.
pub(super) fn say(sentence: &str) {
    eprintln!("outboard: {sentence}");
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
                    say(&format!("{sentence}; the program's devices are taken away"));
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
    /// Its number.
    pub(super) fn number(&self) -> LeaseNumber {
        self.number
    }

    /// Its servers.
    pub(super) fn servers(&self) -> &[Reach] {
        &self.servers
    }

    /// The variables by which the program finds its servers and shows them the lease.
    pub(super) fn variables(&self) -> BTreeMap<&'static str, OsString> {
        shown::variables(&self.servers, &self.folder.lease(), &self.folder.key())
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
            say(&format!("lease {number} ends by itself within a minute or so: {error}"));
        }
    }
}
