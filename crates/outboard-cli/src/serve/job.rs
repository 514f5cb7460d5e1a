//! Servers that a batch job starts for its own programs: without a daemon, without root, and with
//! nothing that outlives the job.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use miette::{IntoDiagnostic, Result, WrapErr};
use outboard_auth::files;
use outboard_client::invitation::{self, Invitation};
use outboard_client::target::{name_of_server, of_job};
use outboard_supervisor::Config;
use outboard_supervisor::auth;
use outboard_supervisor::standing::{Folder, Once};
use outboard_transport::tls::Fingerprint;
use outboard_wire::Code;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open};

use super::one_time::OneTime;
use crate::failure::Failure;
use crate::private_folder::PrivateFolder;

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// End once the last client has gone, or none has come, or the process that has started this
    /// server is gone. Sessions then have 5 seconds to end.
    #[arg(long)]
    once: bool,
    /// With --once, for how many seconds the server waits for its first client.
    #[arg(long, default_value_t = 600, value_name = "SECONDS", value_parser = crate::serve::seconds())]
    once_within: u64,
    /// With --once, for how many seconds it waits for another client after the last has gone.
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = crate::serve::seconds())]
    once_after: u64,
    /// The folder in which the server writes where it is, with a token and a certificate that it
    /// makes for this run, for clients with --server @DIR:wait. It listens at all addresses and a
    /// free port, unless --listen says otherwise, and takes no client without that token.
    #[arg(long, value_name = "DIR")]
    rendezvous: Option<PathBuf>,
    /// The host name or address that it writes there. Without it this machine's name, or the
    /// address of --listen.
    #[arg(long, value_name = "HOST")]
    rendezvous_address: Option<String>,
    /// How many servers write themselves into that folder, for clients to wait for. Without it as
    /// many as srun or mpirun has started together, or one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    rendezvous_servers: Option<u32>,
}

/// Where such servers listen unless they are told.
const EVERYWHERE: &str = "0.0.0.0:0";
/// What `--listen` is unless it is given.
const UNTOLD: &str = "127.0.0.1";
/// How long sessions of a server that ends with its job have.
const DRAIN: Duration = Duration::from_secs(5);
/// Who the clients are for the server: whoever has its token, which is who has started it.
const OWNER: &str = "job";

/// The meeting that a server goes to.
pub(super) struct Rendezvous {
    /// The server's certificate and its token's hash.
    _state: PrivateFolder,
    /// The file, once it is written, or why it is not.
    written: Rc<RefCell<io::Result<Option<PathBuf>>>>,
    folder: PathBuf,
}

impl Args {
    /// Where the server listens.
    pub(super) fn listen(&self, told: String) -> Result<String, Failure> {
        match (&self.rendezvous, told.as_str()) {
            (Some(_), UNTOLD) => Ok(EVERYWHERE.to_owned()),
            (Some(_), "none") => {
                let sentence = "--rendezvous writes an address, and --listen none has none";
                let help = "leave --listen out, or name an address";
                Err(Failure::new(Code::BadUsage, sentence, help))
            }
            _ => Ok(told),
        }
    }

    /// Has the server end with its clients and its job, and go to its meeting.
    pub(super) fn apply(self, config: &mut Config) -> Result<Option<Rendezvous>> {
        if self.once {
            let seconds = Duration::from_secs;
            let (first, after) = (seconds(self.once_within), seconds(self.once_after));
            config.standing.once = Some(Once { first, after });
            config.standing.drain = config.standing.drain.min(DRAIN);
            // No other server will be at this port.
            config.standing.records = Folder::Off;
            end_with_parent().into_diagnostic().wrap_err("cannot watch this server's parent")?;
        }
        let Args { rendezvous, rendezvous_address, rendezvous_servers, .. } = self;
        let meet =
            |folder| Rendezvous::arrange(folder, rendezvous_address, rendezvous_servers, config);
        rendezvous.map(meet).transpose()
    }
}

/// Has this process asked to stop once its parent has ended.
fn end_with_parent() -> io::Result<()> {
    // A container's first process has no parent to wait for.
    let Some(parent) = getppid() else { return Ok(()) };
    let handle = pidfd_open(parent, PidfdFlags::empty())?;
    if getppid() != Some(parent) {
        return Err(io::Error::other("it has ended already"));
    }
    std::thread::Builder::new().name("parent".to_owned()).spawn(move || {
        let mut fds = [PollFd::new(&handle, PollFlags::IN)];
        while poll(&mut fds, None).is_err() {}
        tracing::info!("the process that has started this server is gone");
        let _ = kill_process(getpid(), Signal::TERM);
    })?;
    Ok(())
}

impl Rendezvous {
    /// Makes what clients know the server by, and has the server write it once they can connect.
    fn arrange(
        folder: PathBuf,
        address: Option<String>,
        servers: Option<u32>,
        config: &mut Config,
    ) -> Result<Rendezvous> {
        let unusable =
            |error: &io::Error| Failure::file("the folder of --rendezvous", &folder, error);
        files::own_folder(&folder).map_err(|error| unusable(&error))?;
        let OneTime { state, fingerprint, token } =
            OneTime::make(OWNER, auth::Tls::default(), config)?;
        let written = Rc::new(RefCell::new(Ok(None)));
        let (outcome, there) = (Rc::clone(&written), folder.clone());
        config.on_ready = Some(Box::new(move |at| {
            let file = write(&there, at, address, servers, fingerprint, token);
            if file.is_err() {
                // Nobody would find this server.
                let _ = kill_process(getpid(), Signal::TERM);
            }
            *outcome.borrow_mut() = file.map(Some);
        }));
        Ok(Rendezvous { _state: state, written, folder })
    }

    /// The server has ended, and nobody is to look for it any more.
    pub(super) fn end(self) -> Result<(), Failure> {
        match self.written.replace(Ok(None)) {
            // Somebody may have removed it already.
            Ok(file) => file.map_or(Ok(()), |file| {
                let _ = std::fs::remove_file(file);
                Ok(())
            }),
            Err(error) => Err(Failure::file("the folder of --rendezvous", &self.folder, &error)),
        }
    }
}

/// Writes a server into the folder; the file.
fn write(
    folder: &Path,
    at: SocketAddr,
    host: Option<String>,
    servers: Option<u32>,
    fingerprint: Fingerprint,
    token: String,
) -> io::Result<PathBuf> {
    let server = reached_at(at, host);
    let job = of_job().filter(|_| servers.is_none());
    let (name, count) = match job {
        Some((rank, size)) => (format!("{rank:05}"), size),
        // Names of hosts may have anything but a slash.
        None => (server.replace(':', "-"), servers.unwrap_or(1)),
    };
    let wrong = || io::Error::other(format!("`{server}` is no address that clients could use"));
    let server = invitation::address(&server).ok_or_else(wrong)?;
    let file = folder.join(name_of_server(&name, count));
    let text = format!("{}\n", Invitation { server, fingerprint, token });
    files::write_secret(&file, text.as_bytes())?;
    Ok(file)
}

/// Where clients on other machines reach a server that listens there.
fn reached_at(at: SocketAddr, host: Option<String>) -> String {
    let own = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host = host.or_else(|| at.ip().is_unspecified().then(own));
    match host {
        Some(host) if host.contains(':') && !host.starts_with('[') => {
            format!("[{host}]:{}", at.port())
        }
        Some(host) => format!("{host}:{}", at.port()),
        None => at.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_say_where_others_reach_them() {
        let at =
            |at: &str, host: Option<&str>| reached_at(at.parse().unwrap(), host.map(str::to_owned));
        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        assert_eq!(at("0.0.0.0:5", None), format!("{own}:5"));
        assert_eq!(at("[::]:5", Some("gpu1-ib")), "gpu1-ib:5");
        assert_eq!(at("127.0.0.1:5", None), "127.0.0.1:5");
        assert_eq!(at("[::1]:5", None), "[::1]:5");
        assert_eq!(at("0.0.0.0:5", Some("fe80::1")), "[fe80::1]:5");
    }

    #[test]
    fn a_server_writes_itself_for_its_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = PrivateFolder::create("job-test").unwrap();
        let fingerprint: Fingerprint = format!("sha256:{}", "1b".repeat(32)).parse().unwrap();
        let token = format!("obt_{}", "0a".repeat(32));
        let at = "127.0.0.1:5".parse().unwrap();
        let file = write(folder.path(), at, None, Some(3), fingerprint, token.clone()).unwrap();
        assert_eq!(file.file_name().unwrap(), "127.0.0.1-5-of-3.server");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text.parse::<Invitation>().unwrap().token, token);
        let wrong = write(folder.path(), at, Some("a b".to_owned()), Some(1), fingerprint, token);
        assert!(wrong.unwrap_err().to_string().contains("`a b:5` is no address"));
    }
}
