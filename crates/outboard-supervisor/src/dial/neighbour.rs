//! Other servers of this machine, by their Unix sockets: workers that meet there share memory.
//!
//! A client says where the other server's socket is, and its session's worker gets the connection.
//! So a server connects only to sockets with names that servers give theirs, where servers have
//! them, in a folder that nobody but their owner can write to, and that are its own user's, or
//! root's. Sockets for administrators are in the same folder, and have other names.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use outboard_wire::handshake::Local;
use rustix::process::geteuid;
use tokio::net::UnixStream;

use super::failure::Failure;
use crate::local::usual_folders;

/// Connects to a server; `own` is where this one has its socket, if it has one.
pub(crate) async fn connect(own: Option<&Local>, server: &Local) -> Result<UnixStream, Failure> {
    let own =
        own.ok_or_else(|| Failure::open("this server has no Unix socket, and shares no memory"))?;
    if own.host == 0 || own.host != server.host {
        return Err(Failure::open("the other server is not on this machine"));
    }
    let path = Path::new(&server.path);
    let here = usual_folders();
    check(
        path,
        server.user,
        here.iter().map(|folder| &**folder).chain(Path::new(&own.path).parent()),
    )?;
    let hidden = |reason: String| Failure::hidden(&server.path, reason);
    let failed = |error: io::Error| hidden(error.to_string());
    let stream = UnixStream::connect(path).await.map_err(failed)?;
    // Another process may have put its socket there since.
    match stream.peer_cred().map_err(failed)?.uid() {
        user if user == server.user => Ok(stream),
        _ => Err(hidden("it belongs to another user than the server".to_owned())),
    }
}

/// Whether a server's socket may be at a path: in one of these folders, and of a user whom this
/// server trusts.
fn check<'a>(
    path: &Path,
    user: u32,
    mut folders: impl Iterator<Item = &'a Path>,
) -> Result<(), Failure> {
    let shown = path.display();
    let trusted = |owner: u32| owner == 0 || owner == geteuid().as_raw();
    if !trusted(user) {
        return Err(Failure::open(format!("{shown} is the socket of another user")));
    }
    let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".sock"));
    if name.is_none_or(|name| name.parse::<u16>().is_err()) {
        return Err(Failure::open(format!(
            "{shown} is not named as servers name their sockets, PORT.sock"
        )));
    }
    let folder = path.parent().filter(|folder| folders.any(|other| other == *folder));
    let folder = folder
        .ok_or_else(|| Failure::open(format!("{shown} is not where servers have their sockets")))?;
    let hidden = |reason: &str| Failure::hidden(&shown.to_string(), reason.to_owned());
    let failed = |error: io::Error| hidden(&error.to_string());
    let found = std::fs::symlink_metadata(folder).map_err(failed)?;
    if !found.is_dir() || !trusted(found.uid()) || found.mode() & 0o022 != 0 {
        return Err(hidden("others than its owner can write to its folder"));
    }
    let found = std::fs::symlink_metadata(path).map_err(failed)?;
    if !found.file_type().is_socket() || found.uid() != user {
        return Err(hidden("it is not the server's socket"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::local::{Access, make_folder};

    #[tokio::test]
    async fn only_sockets_of_servers_are_connected_to() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("outer");
        make_folder(&folder, Access::Owner).unwrap();
        let inner = folder.join("inner");
        make_folder(&inner, Access::Owner).unwrap();
        let user = geteuid().as_raw();
        let at = |path: &Path| Local { host: 7, user, path: path.to_str().unwrap().to_owned() };
        let (own, theirs) = (at(&folder.join("1.sock")), folder.join("2.sock"));
        let _listener = UnixListener::bind(&theirs).unwrap();
        let _hidden = UnixListener::bind(inner.join("2.sock")).unwrap();
        let [_admin, _other] =
            ["2.admin.sock", "socket"].map(|name| UnixListener::bind(folder.join(name)).unwrap());
        std::fs::write(folder.join("4.sock"), "").unwrap();
        symlink(&theirs, folder.join("5.sock")).unwrap();
        let reach = async |own: Option<&Local>, server: Local| connect(own, &server).await;
        let refused = async |own: Option<&Local>, server: Local, why: &str| {
            let path = server.path.clone();
            let Failure { told, reason } = reach(own, server).await.unwrap_err();
            assert!(reason.as_ref().unwrap_or(&told).contains(why), "{told} ({reason:?})");
            // What only the system knows, a client is not told.
            if let Some(reason) = reason {
                assert_eq!(told, Failure::hidden(&path, reason).told);
            }
        };
        reach(Some(&own), at(&theirs)).await.unwrap();
        refused(None, at(&theirs), "no Unix socket").await;
        refused(Some(&own), Local { host: 8, ..at(&theirs) }, "not on this machine").await;
        let unknown = Local { host: 0, ..own.clone() };
        refused(Some(&unknown), Local { host: 0, ..at(&theirs) }, "not on this machine").await;
        refused(Some(&own), Local { user: user + 1, ..at(&theirs) }, "another user").await;
        refused(Some(&own), at(&inner.join("2.sock")), "not where servers").await;
        refused(Some(&own), at(&folder.join("inner/../2.sock")), "not where servers").await;
        for other in ["2.admin.sock", "socket", "x.sock", ".sock", "99999.sock", ".."] {
            refused(Some(&own), at(&folder.join(other)), "not named as servers").await;
        }
        refused(Some(&own), at(Path::new("/")), "not named as servers").await;
        for other in ["4.sock", "5.sock"] {
            refused(Some(&own), at(&folder.join(other)), "not the server's socket").await;
        }
        refused(Some(&own), at(&folder.join("3.sock")), "No such file").await;
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
        refused(Some(&own), at(&theirs), "can write to its folder").await;
    }
}
