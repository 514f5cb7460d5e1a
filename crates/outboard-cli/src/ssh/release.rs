//! What a server needs of this installation, named by its contents.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use miette::{IntoDiagnostic, Result};
use ring::digest::{Context, SHA256};

use crate::failure::Failure;
use crate::install;

/// The command's place in an installation.
const COMMAND: &str = "bin/outboard";
/// The folder of the software device there.
const LIBRARIES: &str = "lib/outboard";

/// This release, as far as a server needs it.
pub(super) struct Release {
    parts: Vec<Part>,
}

/// A file.
struct Part {
    /// Where it lies below the release's folder.
    path: String,
    file: File,
    size: u64,
    sha256: String,
}

impl Release {
    /// Reads this installation's files; the software device only for servers that offer it.
    pub(super) fn read(with_device: bool) -> Result<Release> {
        // The running one, even if another one lies at its path by now.
        let mut parts = vec![Part::read(COMMAND.to_owned(), Path::new("/proc/self/exe"))?];
        if with_device {
            let path = format!("{LIBRARIES}/{}", install::CPU_DRIVER);
            parts.push(Part::read(path, &install::cpu_driver()?)?);
        }
        Ok(Release { parts })
    }

    /// The name of its folder there.
    pub(super) fn name(&self) -> String {
        let mut context = Context::new(&SHA256);
        context.update(self.sums().as_bytes());
        format!("{}-{}", env!("CARGO_PKG_VERSION"), hexadecimal(context))
    }

    /// What `sha256sum -c` reads.
    pub(super) fn sums(&self) -> String {
        let lines = self.parts.iter().map(|part| format!("{}  {}", part.sha256, part.path));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Sizes and places, in the order in which they are sent.
    pub(super) fn parts(&self) -> String {
        let parts = self.parts.iter().map(|part| format!("{}:{}", part.size, part.path));
        parts.collect::<Vec<_>>().join(" ")
    }

    /// All bytes of it.
    pub(super) fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.size).sum()
    }

    /// Sends the files' contents, one behind the other.
    pub(super) fn send(&self, to: &mut impl Write) -> io::Result<()> {
        for part in &self.parts {
            // Several servers may get it at once, and they share the place in an open file.
            let mut file = File::open(open_again(&part.file))?;
            io::copy(&mut Read::by_ref(&mut file).take(part.size), to)?;
        }
        to.flush()
    }
}

impl Part {
    fn read(path: String, from: &Path) -> Result<Part> {
        let unusable = |error: &io::Error| Failure::file("read", from, error);
        let mut file = File::open(from).map_err(|error| unusable(&error))?;
        let mut context = Context::new(&SHA256);
        let (mut size, mut room) = (0, vec![0; 1 << 20]);
        loop {
            let read = match file.read(&mut room) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(unusable(&error).into()),
            };
            context.update(&room[..read]);
            size += read as u64;
        }
        file.rewind().into_diagnostic()?;
        Ok(Part { path, file, size, sha256: hexadecimal(context) })
    }
}

/// The path by which an open file can be opened once more, whatever lies at its own.
fn open_again(file: &File) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn hexadecimal(context: Context) -> String {
    context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_named_by_what_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            Part::read(format!("bin/{name}"), &path).unwrap()
        };
        let one = Release { parts: vec![write("a", "abc"), write("b", "")] };
        assert_eq!(
            one.sums(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  bin/a\n\
             e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  bin/b"
        );
        assert_eq!((one.parts().as_str(), one.bytes()), ("3:bin/a 0:bin/b", 3));
        let other = Release { parts: vec![write("a", "abd"), write("b", "")] };
        assert_ne!(one.name(), other.name());
        for _ in 0..2 {
            let mut sent = Vec::new();
            other.send(&mut sent).unwrap();
            assert_eq!(sent, b"abd");
        }
    }
}
