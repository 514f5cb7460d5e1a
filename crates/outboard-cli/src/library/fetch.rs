//! Asks a server for files of its client library.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboard_client::link::{Config, ask_for_file};
use outboard_client::target::Target;
use outboard_signed::MOST_TEXT;
use outboard_transport::{Any, Stream, Transport, read_exact_until};
use outboard_wire::Code;
use outboard_wire::handshake::{Extensions, Hello, Process, Purpose, VERSION, Version};
use ring::digest::{Context, SHA256};

use crate::failure::Failure;
use crate::probe;

/// Since this version servers can be asked.
pub(super) const SINCE: Version = Version { major: 1, minor: 5 };

/// How long a server may take to answer, and to send the next piece.
const PATIENCE: Duration = Duration::from_secs(20);
const PIECE: usize = 256 << 10;

/// A connection on which so many bytes of a file come next.
struct Coming {
    stream: Arc<dyn Stream>,
    bytes: u64,
    address: String,
    name: String,
}

/// A short file.
pub(super) fn text(server: &Target, name: &str) -> Result<Vec<u8>, Failure> {
    let coming = ask(server, name)?;
    if coming.bytes > MOST_TEXT as u64 {
        return Err(coming.unfit(&format!("it has {} bytes", coming.bytes)));
    }
    let mut text = vec![0; coming.bytes as usize];
    coming.read(&mut text)?;
    Ok(text)
}

/// Writes a file that the manifest lists to `to`, if it is what the manifest says.
pub(super) fn file(
    server: &Target,
    file: &outboard_signed::File,
    to: &mut File,
) -> Result<(), Failure> {
    let coming = ask(server, &file.name)?;
    if coming.bytes != file.size {
        let why = format!("it has {} bytes, and the manifest says {}", coming.bytes, file.size);
        return Err(coming.unfit(&why));
    }
    let (mut left, mut piece, mut hash) = (file.size, vec![0; PIECE], Context::new(&SHA256));
    while left > 0 {
        let count = PIECE.min(usize::try_from(left).unwrap_or(PIECE));
        coming.read(&mut piece[..count])?;
        hash.update(&piece[..count]);
        to.write_all(&piece[..count]).map_err(|error| coming.not_written(&error))?;
        left -= count as u64;
    }
    to.sync_all().map_err(|error| coming.not_written(&error))?;
    if hash.finish().as_ref() != file.sha256 {
        return Err(coming.unfit("its contents are not those that were signed"));
    }
    Ok(())
}

fn ask(server: &Target, name: &str) -> Result<Coming, Failure> {
    let address = server.address.to_string();
    let hello = Hello {
        version: VERSION,
        software: env!("CARGO_PKG_VERSION").to_owned(),
        client: format!("outboard, process {}", std::process::id()),
        purpose: Purpose::Library { file: name.to_owned() },
        process: Process::default(),
        more: Extensions::default(),
    };
    let stream =
        Any.connect(&address, PATIENCE).map_err(|error| probe::no_connection(&address, &error))?;
    let config = Config::of_server(server);
    let deadline = Instant::now() + PATIENCE;
    let (stream, bytes) = ask_for_file(stream, &address, &hello, &config.security, deadline)
        .map_err(|error| probe::explain(&address, &error))?;
    Ok(Coming { stream, bytes, address, name: name.to_owned() })
}

impl Coming {
    fn read(&self, room: &mut [u8]) -> Result<(), Failure> {
        let read = read_exact_until(&*self.stream, room, Instant::now() + PATIENCE);
        read.map_err(|error| {
            Failure::new(
                Code::NoLibrary,
                format!("{} stopped while it sent {}: {error}", self.address, self.name),
                "try again; if it stays so, the server's log says more",
            )
        })
    }

    fn unfit(&self, why: &str) -> Failure {
        Failure::new(
            Code::LibraryNotTrusted,
            format!("{} that {} hands out is not used: {why}", self.name, self.address),
            "tell who runs the server: the files in its --client-library are not those that were signed, or were changed on the way",
        )
    }

    fn not_written(&self, error: &io::Error) -> Failure {
        let sentence = format!("cannot keep {} of {}: {error}", self.name, self.address);
        let help = "make room in the folder for caches ($XDG_CACHE_HOME or ~/.cache), or name another one by XDG_CACHE_HOME";
        Failure::new(Code::FileUnusable, sentence, help)
    }
}
