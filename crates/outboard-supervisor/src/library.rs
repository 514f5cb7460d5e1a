//! Hands out the client library of the server's release, with the signatures of its manifest.
//!
//! The server checks none of these: clients do, by keys that are their own. Only files that the
//! manifest names are handed out.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use outboard_signed::{MANIFEST, MOST_BYTES, MOST_TEXT, Manifest, SIGNATURES};
use outboard_wire::Code;
use outboard_wire::handshake::{Refusal, RefusalCode, VERSION, file};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::admit::failure::Failure;
use crate::peer::{Connection, Peer, too_many};
use crate::supervisor::Supervisor;

/// Bytes that are read and sent at a time: files are in memory, and reading delays nobody.
const PIECE: usize = 64 << 10;

/// Sends a file to a client that has been authenticated, and may leave as soon as it likes.
pub(crate) async fn hand_out(
    supervisor: &Supervisor,
    name: &str,
    stream: &mut impl Connection,
    peer: Peer,
) -> Result<(), Failure> {
    let folder = supervisor.config.library.as_deref();
    let folder = folder.ok_or_else(|| refuse("this server hands out no client library"))?;
    let (mut source, size) = open(folder, name).map_err(|error| {
        tracing::warn!(folder = %folder.display(), %error, "the client library cannot be handed out");
        refuse("the server has no such file of its client library; its log says more")
    })?;
    let seat =
        supervisor.hellos.enter(peer.origin()).ok_or_else(|| Failure::Refused(too_many()))?;
    tracing::debug!(%peer, file = name, size, "a file of the client library");
    let patience = supervisor.config.hello_timeout;
    let send = async {
        timeout(patience, stream.write_all(&file(VERSION, size))).await??;
        let (mut left, mut piece) = (size, vec![0; PIECE]);
        while left > 0 {
            let most = piece.len().min(usize::try_from(left).unwrap_or(PIECE));
            let count = source.read(&mut piece[..most])?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            timeout(patience, stream.write_all(&piece[..count])).await??;
            left -= count as u64;
        }
        timeout(patience, stream.flush()).await?
    };
    tokio::select! {
        biased;
        sent = send => sent.map_err(Failure::Broken),
        // Others want to say hello: this client asks again.
        () = seat.is_wanted() => Ok(()),
    }
}

fn refuse(sentence: &str) -> Failure {
    Failure::Refused(Refusal::new(RefusalCode::NotAllowed, Code::NoLibrary, sentence))
}

/// A file of the folder, and its length.
fn open(folder: &Path, name: &str) -> io::Result<(File, u64)> {
    if ![MANIFEST, SIGNATURES].contains(&name) {
        let mut text = Vec::new();
        File::open(folder.join(MANIFEST))?.take(MOST_TEXT as u64 + 1).read_to_end(&mut text)?;
        let manifest = Manifest::parse(&text).map_err(io::Error::other)?;
        if !manifest.files.iter().any(|file| file.name == name) {
            return Err(io::Error::other("a client asked for a file that the manifest has not"));
        }
    }
    let file = File::open(folder.join(name))?;
    let about = file.metadata()?;
    if !about.is_file() || about.len() > MOST_BYTES {
        return Err(io::Error::other("it is no file, or too large"));
    }
    Ok((file, about.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_manifest_names_is_opened() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path();
        std::fs::write(folder.join("libcuda.so.1"), "code").unwrap();
        std::fs::write(folder.join("secret"), "no").unwrap();
        assert!(open(folder, "libcuda.so.1").is_err(), "there is no manifest");
        let text = format!(
            "outboard client library 1\nrelease 0.1.0\narchitecture x86_64\n{} 4 libcuda.so.1\n",
            "00".repeat(32)
        );
        std::fs::write(folder.join(MANIFEST), text).unwrap();
        assert_eq!(open(folder, "libcuda.so.1").unwrap().1, 4);
        assert!(open(folder, MANIFEST).is_ok());
        for name in ["secret", "../secret", "/etc/passwd", "", ".", SIGNATURES] {
            assert!(open(folder, name).is_err(), "{name}");
        }
    }
}
