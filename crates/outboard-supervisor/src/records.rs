//! Records of the server's sessions, from which the next server at the same address adopts them.
//!
//! For each session there is a file with all that a supervisor must know of it, and a socket at
//! which its worker waits for the next supervisor when its own has ended. Both lie in a folder that
//! only the server's user can enter. Workers may be of that user: their sandbox lets them connect,
//! and read no file there. So a process that knows the secret in a file is a supervisor, and a
//! supervisor wrote the files. A worker is never asked what it may do.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::about::{About, Kind};
use super::local;
use super::pool::{Holding, Notes};
use super::sharing::{AdmittedPlace, Request};
use super::standing::Folder;
use outboard_control::identity::Identity;
use outboard_control::messages::Start;
use outboard_control::meter::Meter;
use outboard_control::number::Number;
use outboard_pool::words::LeaseNumber;
use outboard_transport::random;

/// The folder.
#[derive(Debug)]
pub(super) struct Records {
    path: PathBuf,
    /// The same, open: a socket's path may be 107 bytes long at most, and the way through this is
    /// short.
    folder: File,
}

/// The record of a session. Fields are only ever added, with a default: the reader may be of
/// another release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Number and key, in hexadecimal digits.
    session: String,
    key: String,
    /// The worker's process.
    pub(super) worker: u32,
    /// The client's name for itself, and its address.
    pub(super) client: String,
    #[serde(default)]
    peer: String,
    /// The purpose of the connection.
    #[serde(default)]
    kind: Kind,
    /// The devices that it asked for.
    #[serde(default)]
    pub(super) devices: Vec<u32>,
    /// Whose session it is.
    pub(super) identity: Identity,
    /// How others name its holder.
    #[serde(default)]
    holder: String,
    /// Whether its connections are encrypted.
    #[serde(default)]
    pub(super) secure: bool,
    /// What the session's supervisors have and no worker, in hexadecimal digits. A worker of an
    /// earlier release believes without.
    #[serde(default)]
    secret: String,
    /// Its admission, if it needed one.
    #[serde(default)]
    pub(super) place: Option<Request>,
    /// The number of its lease, if it was admitted by one.
    #[serde(default)]
    pub(super) lease: Option<LeaseNumber>,
    /// Its seat at the lease's account.
    #[serde(default)]
    pub(super) seat: Option<u32>,
    /// When it began, in milliseconds of the system's clock that never steps.
    #[serde(default)]
    since: u64,
    /// What the board and the meter look like that the worker keeps.
    pub(super) board: String,
    #[serde(default)]
    pub(super) meter: String,
}

/// Milliseconds of the system's clock that never steps; the same for all processes while the system
/// runs.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1000 + now.tv_nsec.cast_unsigned() / 1_000_000
}

impl Record {
    pub(super) fn new(
        start: &Start,
        about: &About,
        worker: u32,
        board: String,
    ) -> io::Result<Record> {
        let secret = u128::from_le_bytes(random()?);
        Ok(Record {
            session: Number(start.session).to_string(),
            key: format!("{:032x}", start.key),
            worker,
            client: start.client.clone(),
            peer: about.peer.clone(),
            kind: about.kind,
            devices: start.devices.clone(),
            identity: about.identity.clone(),
            holder: about.holder.clone(),
            secure: start.secure.is_some(),
            secret: format!("{secret:032x}"),
            place: about.place.as_ref().and_then(|place| place.request()),
            lease: about.lease.as_ref().map(|held| held.number()),
            seat: None,
            since: now(),
            board,
            meter: Meter::layout(),
        })
    }

    pub(super) fn session(&self) -> Option<u64> {
        u64::from_str_radix(&self.session, 16).ok()
    }

    pub(super) fn key(&self) -> Option<u128> {
        u128::from_str_radix(&self.key, 16).ok()
    }

    /// What proves to the worker that this process is its next supervisor, if it asks for proof.
    pub(super) fn secret(&self) -> Option<u128> {
        u128::from_str_radix(&self.secret, 16).ok()
    }

    pub(super) fn about(
        &self,
        place: Option<Rc<AdmittedPlace>>,
        lease: Option<Rc<Holding>>,
    ) -> About {
        let (identity, holder, peer) =
            (self.identity.clone(), self.holder.clone(), self.peer.clone());
        let asker = holder.clone();
        About { identity, holder, asker, peer, kind: self.kind, place, lease, parent: None }
    }

    /// When the session began, by the calendar.
    pub(super) fn began(&self) -> Timestamp {
        let now = Timestamp::now();
        now.checked_sub(self.since().elapsed()).unwrap_or(now)
    }

    /// When the session began.
    pub(super) fn since(&self) -> Instant {
        let (age, now) = (Duration::from_millis(now().saturating_sub(self.since)), Instant::now());
        now.checked_sub(age).unwrap_or(now)
    }
}

/// How many supervisors may knock at a worker at once: there is one.
const BACKLOG: i32 = 4;

fn note(session: u64) -> String {
    format!("{}.json", Number(session))
}

fn home(session: u64) -> String {
    format!("{}.sock", Number(session))
}

/// The folder in which the server at this address notes its sessions with these settings, if it is
/// to do so.
pub(super) fn place(folder: &Folder, address: SocketAddr) -> Option<PathBuf> {
    let under = match folder {
        Folder::Off => return None,
        Folder::At(path) => path.clone(),
        Folder::Usual => local::usual_folders().swap_remove(0),
    };
    Some(under.join(format!("{address}.sessions")))
}

impl Records {
    /// Opens the folder of the server at this address, if there is to be one.
    pub(super) fn open(folder: &Folder, address: SocketAddr) -> io::Result<Option<Records>> {
        let Some(path) = place(folder, address) else { return Ok(None) };
        if *folder == Folder::Usual
            && let Err(error) = local::make_usual_folder()
        {
            return without(&error);
        }
        match Records::make(&path) {
            Ok(records) => Ok(Some(records)),
            Err(error) if *folder == Folder::Usual => without(&error),
            Err(error) => Err(error),
        }
    }

    fn make(path: &Path) -> io::Result<Records> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        local::check_folder(path, 0o077)?;
        Ok(Records { path: path.to_owned(), folder: File::open(path)? })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What is noted there of the server's pool.
    pub(super) fn pool_notes(&self) -> Notes {
        Notes::in_folder(&self.path)
    }

    fn address(&self, name: &str) -> io::Result<SocketAddrUnix> {
        Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", self.folder.as_raw_fd()))?)
    }

    fn socket() -> io::Result<OwnedFd> {
        Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
    }

    /// Notes a session, and makes the socket that is for its worker.
    pub(super) fn add(&self, session: u64, record: &Record) -> io::Result<OwnedFd> {
        let socket = Records::socket()?;
        bind(&socket, &self.address(&home(session))?)?;
        listen(&socket, BACKLOG)?;
        self.write(&note(session), &serde_json::to_vec(record)?)?;
        Ok(socket)
    }

    /// Writes a file, whole or not at all: the server may be killed meanwhile.
    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let unfinished = self.path.join(format!("{name}.part"));
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&unfinished)?;
        file.write_all(bytes)?;
        fs::rename(&unfinished, self.path.join(name))
    }

    /// Forgets a session.
    pub(super) fn remove(&self, session: u64) {
        for name in [note(session), home(session)] {
            // It may never have been there.
            let _ = fs::remove_file(self.path.join(name));
        }
    }

    /// All sessions that are noted, and how many files make no sense.
    pub(super) fn all(&self) -> Vec<(u64, Record)> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(number) = name.to_str().and_then(|name| name.strip_suffix(".json")) else {
                continue;
            };
            let Ok(session) = u64::from_str_radix(number, 16) else { continue };
            match read(&entry.path())
                .filter(|record| record.session() == Some(session) && record.key().is_some())
            {
                Some(record) => all.push((session, record)),
                None => {
                    tracing::warn!(file = %entry.path().display(), "what is noted of a session makes no sense; the session is left alone")
                }
            }
        }
        all
    }

    /// Connects to the worker of a session; an error of kind `ConnectionRefused` or `NotFound` says
    /// that there is none.
    pub(super) fn connect(&self, session: u64) -> io::Result<OwnedFd> {
        let socket = Records::socket()?;
        // Else a worker that does not take connections would hold up the server.
        rustix::io::ioctl_fionbio(&socket, true)?;
        connect(&socket, &self.address(&home(session))?)?;
        Ok(socket)
    }

    /// Removes what is left of sessions that were never noted whole. For a server that has no
    /// session yet.
    pub(super) fn sweep(&self) {
        let leases: Vec<LeaseNumber> =
            self.all().iter().filter_map(|(_, record)| record.lease).collect();
        self.pool_notes().keep_leases(&leases);
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let noted = |number: &str| self.path.join(format!("{number}.json")).exists();
            if name.ends_with(".part")
                || name.strip_suffix(".sock").is_some_and(|number| !noted(number))
            {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        // It is empty unless something is left for the next server.
        let _ = fs::remove_dir(&self.path);
    }
}

fn read(path: &Path) -> Option<Record> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn without(error: &io::Error) -> io::Result<Option<Records>> {
    tracing::warn!(%error, "nothing can be noted for the next server: sessions end with this one; `outboard serve --records DIR` names another folder");
    Ok(None)
}

#[cfg(test)]
mod tests {
    use outboard_wire::handshake::Process;

    use super::*;

    fn start() -> Start {
        Start {
            only_questions: false,
            parts: Vec::new(),
            session: 0xabc,
            key: 1 << 100,
            lanes: 4,
            probe: false,
            devices: vec![1, 0],
            client: "test".into(),
            process: Process { id: 3, machine: 4 },
            identity: Identity::user(6),
            secure: None,
            lends: false,
            supervisor: 5,
            grace: None,
            guest: false,
            local: None,
            peers: None,
            window: None,
            rdma: None,
            client_has_adapters: false,
            no_region: None,
            platform: None,
        }
    }

    fn about() -> About {
        let (identity, holder, peer) = (Identity::user(6), "user:6".to_owned(), "here".to_owned());
        let asker = holder.clone();
        let kind = Kind::Management;
        About { identity, holder, asker, peer, kind, place: None, lease: None, parent: None }
    }

    #[test]
    fn what_is_noted_is_found_by_the_next_server() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("records");
        let at = Folder::At(folder.clone());
        let address = "127.0.0.1:1".parse().unwrap();
        let records = Records::open(&at, address).unwrap().unwrap();
        let record = Record::new(&start(), &about(), 77, "board".into()).unwrap();
        let socket = records.add(0xabc, &record).unwrap();
        assert_eq!((record.session(), record.key()), (Some(0xabc), Some(1 << 100)));
        assert!(
            record.since() <= Instant::now() && record.since().elapsed() < Duration::from_secs(60)
        );

        let other = Records::open(&at, "127.0.0.1:2".parse().unwrap()).unwrap().unwrap();
        assert!(other.all().is_empty(), "each address has a folder of its own");
        let next = Records::open(&at, address).unwrap().unwrap();
        assert_eq!(next.all(), [(0xabc, record.clone())]);
        next.connect(0xabc).unwrap();
        drop(socket);
        assert_eq!(next.connect(0xabc).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);

        // A file that is damaged, and one that says it is another.
        fs::write(next.path.join(note(1)), "{").unwrap();
        fs::write(next.path.join(note(2)), serde_json::to_vec(&record).unwrap()).unwrap();
        fs::write(next.path.join(home(3)), "").unwrap();
        next.sweep();
        assert!(!next.path.join(home(3)).exists());
        assert_eq!(next.all().len(), 1);
        for session in [1, 2, 0xabc] {
            next.remove(session);
        }
        drop((records, other, next));
        fs::remove_dir(&folder).expect("nothing is left");
    }

    #[test]
    fn fields_of_other_releases_do_no_harm() {
        let record = Record::new(&start(), &about(), 77, "board".into()).unwrap();
        let mut value = serde_json::to_value(&record).unwrap();
        value["later"] = serde_json::json!({"more": [1, 2]});
        assert_eq!(serde_json::from_value::<Record>(value.clone()).unwrap(), record);
        // One that an earlier release has written.
        value.as_object_mut().unwrap().remove("secret");
        assert_eq!(serde_json::from_value::<Record>(value).unwrap().secret(), None);
    }

    #[test]
    fn each_session_has_a_secret_of_its_own() {
        let record = || Record::new(&start(), &about(), 77, "board".into()).unwrap().secret();
        assert!(record().is_some() && record() != record());
    }

    #[test]
    fn a_folder_that_others_can_look_into_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("127.0.0.1:1.sessions");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let at = Folder::At(folder.path().to_owned());
        let error = Records::open(&at, "127.0.0.1:1".parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
