//! Finding a server's socket for administrators.

use std::io;
use std::net::{ToSocketAddrs, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use outboard_client::target::{Target, VARIABLE};
use outboard_supervisor::admin::{Admin, beside};
use outboard_supervisor::usual_folders;
use outboard_transport::{DEFAULT_PORT, Endpoint};
use outboard_wire::Code;

use crate::config::keys;
use crate::failure::Failure;
use crate::folders::own_user;

#[derive(clap::Args, Clone)]
pub(crate) struct AdminArgs {
    /// The server, HOST[:PORT] or unix:PATH, on this machine.
    #[arg(long, env = VARIABLE, default_value = "localhost")]
    pub(crate) server: Target,
    /// The server's socket for administrators, if it is not the usual one.
    #[arg(long, value_name = "PATH")]
    admin: Option<PathBuf>,
}

/// What a server on the other end of the socket declined, or did not answer.
pub(crate) fn failed(error: &io::Error) -> Failure {
    let sentence = error.to_string();
    let code = Code::at_end_of(&sentence).unwrap_or(Code::AdminFailed);
    let help = match error.kind() {
        io::ErrorKind::Other => "`outboard sessions` lists what there is",
        io::ErrorKind::InvalidData => "install the same release as the server's",
        _ => "the server may have stopped; its log says more",
    };
    Failure::new(code, sentence, help)
}

/// Whether an address is this machine's: only then can something listen there.
fn is_here(address: &str) -> bool {
    let addresses = address.to_socket_addrs().into_iter().flatten();
    addresses
        .into_iter()
        .any(|address| address.ip().is_loopback() || UdpSocket::bind((address.ip(), 0)).is_ok())
}

/// Whether no other user can have put a socket into a folder. A missing folder holds none.
fn is_trusted(folder: &Path) -> bool {
    let own = own_user();
    let owner = std::fs::symlink_metadata(folder).map(|found| found.uid());
    // Below /run only root makes folders, and gives them to services.
    owner.map_or(true, |owner| owner == 0 || owner == own || folder.starts_with("/run"))
}

/// The folders in which servers usually have sockets.
pub(crate) fn folders() -> impl Iterator<Item = PathBuf> {
    usual_folders().into_iter().filter(|folder| is_trusted(folder))
}

/// The sockets for administrators that there are: the one that is set, and all that are where they
/// usually are.
pub(crate) fn sockets() -> Vec<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(keys::variable(name)).map(PathBuf::from).filter(|path| path.is_absolute())
    };
    let named = set("admin").into_iter().chain(set("socket").map(|socket| beside(&socket)));
    let usual = folders().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let usual = usual
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().ends_with(".admin.sock"));
    named.chain(usual).collect()
}

/// Connects to the server that is this process, whatever its address is: service managers know no
/// more of it.
pub(crate) fn of_process(process: u32) -> Result<Admin, Failure> {
    let mut denied = None;
    for path in sockets() {
        match Admin::connect(&path) {
            Ok(mut admin) => {
                if admin.listing().is_ok_and(|listing| listing.process == process) {
                    return Ok(admin);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                denied = Some((path, error))
            }
            Err(_) => {}
        }
    }
    if let Some((path, error)) = denied {
        return Err(explain(&path, &error, &format!("process {process}")));
    }
    let places: Vec<String> = folders().map(|folder| folder.display().to_string()).collect();
    Err(Failure::new(
        Code::NoAdmin,
        format!("process {process} has no socket for administrators in {}", places.join(" or ")),
        "a server started with --admin PATH is found by the same --admin here; one with --admin none is asked by the signal SIGUSR2",
    ))
}

impl AdminArgs {
    /// Those of a server whose socket is the usual one.
    pub(crate) fn of(server: Target) -> AdminArgs {
        AdminArgs { server, admin: None }
    }

    /// Connects to the server that is meant.
    pub(crate) fn connect(&self) -> Result<Admin, Failure> {
        let candidates = self.candidates()?;
        let mut reason: Option<(PathBuf, io::Error)> = None;
        for path in candidates {
            match Admin::connect(&path) {
                Ok(admin) => return Ok(admin),
                // Of several, the one that is there says more.
                Err(error) if reason.is_none() || error.kind() != io::ErrorKind::NotFound => {
                    reason = Some((path, error));
                }
                Err(_) => {}
            }
        }
        let (path, error) = reason.unwrap_or((PathBuf::new(), io::ErrorKind::NotFound.into()));
        Err(explain(&path, &error, &self.server.address.to_string()))
    }

    /// Where the socket may be.
    pub(crate) fn candidates(&self) -> Result<Vec<PathBuf>, Failure> {
        if let Some(path) = &self.admin {
            return Ok(vec![path.clone()]);
        }
        let server = self.server.address.to_string();
        if let Some(path) = Endpoint::unix_path(&server) {
            return Ok(vec![beside(Path::new(path))]);
        }
        // The sessions of another server would not be the user's.
        if !is_here(&server) {
            return Err(Failure::new(
                Code::NoAdmin,
                format!("{server} is another machine, and a server is administered on its own"),
                "run this there, as the server's user or root: `ssh HOST outboard sessions`; name a socket of this machine with --admin PATH",
            ));
        }
        let port =
            server.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(DEFAULT_PORT);
        Ok(folders().map(|folder| folder.join(format!("{port}.admin.sock"))).collect())
    }
}

/// Why there is no connection to a socket, which was looked for because of `server`.
fn explain(path: &Path, error: &io::Error, server: &str) -> Failure {
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(
            Code::NoAdmin,
            format!(
                "no server's socket for administrators was found for {server}: there is no {shown}"
            ),
            "run this on the server's machine, as the server's user or root (`ssh` does); name the socket that the server's log tells \
             with --admin PATH",
        ),
        io::ErrorKind::PermissionDenied => Failure::new(
            Code::AdminDenied,
            format!(
                "this user may not administer the server: {shown} is for its own user and root"
            ),
            "run this as the user who runs `outboard serve`, or as root",
        ),
        io::ErrorKind::ConnectionRefused => Failure::new(
            Code::NoAdmin,
            format!("no server listens at {shown} any more"),
            "start it again with `outboard serve`",
        ),
        _ => Failure::new(
            Code::NoAdmin,
            format!("cannot connect to {shown}: {error}"),
            "check the path and whose it is: `ls -l` shows both",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(server: &str, admin: Option<&str>) -> Vec<PathBuf> {
        AdminArgs { server: server.parse().unwrap(), admin: admin.map(PathBuf::from) }
            .candidates()
            .unwrap_or_default()
    }

    #[test]
    fn the_socket_is_found_by_the_servers_address() {
        assert!(candidates("localhost", None).iter().all(|path| path.ends_with("9470.admin.sock")));
        assert!(
            candidates("127.0.0.1:81/2", None).iter().all(|path| path.ends_with("81.admin.sock"))
        );
        assert_eq!(candidates("unix:/run/x/1.sock", None), [Path::new("/run/x/1.admin.sock")]);
        assert_eq!(candidates("gpu1", Some("/run/y")), [Path::new("/run/y")]);
        // An address of no machine.
        let elsewhere = AdminArgs { server: "192.0.2.1:9470".parse().unwrap(), admin: None };
        assert!(
            elsewhere
                .candidates()
                .is_err_and(|error| error.to_string().contains("another machine"))
        );
    }
}
