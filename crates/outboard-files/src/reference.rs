//! How a client names an open file: by where it lies in the source of its mount.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;

use rustix::fs::FileType;

use crate::identity::{Identity, Status, kind_name};
use crate::limits::LONGEST_TEXT;
use crate::mounts;

/// An open file, by names that another machine with the same file system understands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// What its mount shows, such as `nfs1:/export`; at most [`LONGEST_TEXT`] bytes.
    pub source: String,
    /// Where it lies there, without a `/` in front; at most [`LONGEST_TEXT`] bytes.
    pub path: Vec<u8>,
    /// What the client sees of it.
    pub identity: Identity,
    /// The kind of file system, such as `nfs4`.
    pub fs_type: String,
}

/// Why an open file has no name that another machine would understand.
#[derive(Debug, thiserror::Error)]
pub enum NoReference {
    /// Only regular files have one.
    #[error("it is no regular file but {0}")]
    Kind(&'static str),
    /// It is nowhere any more.
    #[error("it was deleted after it was opened")]
    Deleted,
    /// `/proc` is not there, or of another process.
    #[error("/proc does not say where it lies: {0}")]
    Proc(#[source] io::Error),
    /// The list of mounts is of what the process can reach.
    #[error("its file system is none that this process can reach")]
    NoMount,
    /// Its path leads elsewhere, as after `chroot`, or when one file alone is mounted.
    #[error("its path is not below the place where its file system is mounted")]
    Outside,
    /// The mount's source is a word that is no name.
    #[error("its file system has no name, or one that is no text of {LONGEST_TEXT} bytes")]
    Source,
    /// The path is too long.
    #[error("its path has more than {LONGEST_TEXT} bytes")]
    LongPath,
    /// The file system does not say what it is.
    #[error("its file system does not describe it: {0}")]
    Status(#[source] io::Error),
}

impl Reference {
    /// That of an open file. It may be renamed at any time; whoever opens it by this name must
    /// compare its identity.
    ///
    /// # Errors
    /// [`NoReference`] says why it has none.
    pub fn of(file: BorrowedFd<'_>) -> Result<Reference, NoReference> {
        let status = Status::of(file).map_err(NoReference::Status)?;
        if status.kind != FileType::RegularFile {
            return Err(NoReference::Kind(kind_name(status.kind)));
        }
        // Not `/proc/self`: it is unreadable once a process has lost its first thread.
        let number = file.as_raw_fd();
        let link = format!("/proc/thread-self/fd/{number}");
        let path = std::fs::read_link(link).map_err(NoReference::Proc)?;
        let read = |path: &str| std::fs::read(path).map_err(NoReference::Proc);
        let fdinfo = read(&format!("/proc/thread-self/fdinfo/{number}"))?;
        let mountinfo = read("/proc/thread-self/mountinfo")?;
        let (source, path, fs_type) =
            place(&path.into_os_string().into_vec(), &fdinfo, &mountinfo)?;
        Ok(Reference { source, path, identity: status.identity, fs_type })
    }
}

/// Source, path below it and kind of file system, out of what `/proc` says.
fn place(
    path: &[u8],
    fdinfo: &[u8],
    mountinfo: &[u8],
) -> Result<(String, Vec<u8>, String), NoReference> {
    if path.ends_with(b" (deleted)") {
        return Err(NoReference::Deleted);
    }
    let number = mounts::number(fdinfo).ok_or(NoReference::NoMount)?;
    let mount = mounts::find(mountinfo, number).ok_or(NoReference::NoMount)?;
    let below = mount.below_source(path).ok_or(NoReference::Outside)?;
    if below.len() > LONGEST_TEXT {
        return Err(NoReference::LongPath);
    }
    let is_name = |source: &String| (1..=LONGEST_TEXT).contains(&source.len());
    let source = String::from_utf8(mount.source).ok().filter(is_name);
    let fs_type = String::from_utf8_lossy(&mount.fs_type).into_owned();
    Ok((source.ok_or(NoReference::Source)?, below, fs_type))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;
    use crate::tests::Folder;

    fn reference(file: impl AsFd) -> Result<Reference, NoReference> {
        Reference::of(file.as_fd())
    }

    #[test]
    fn an_open_file_has_a_reference() {
        let folder = Folder::new();
        let path = folder.write("a file", b"12345");
        let file = File::open(&path).unwrap();
        let found = reference(&file).unwrap();
        assert_eq!(found.identity, Identity::of(&file).unwrap());
        let end = path.file_name().unwrap().to_str().unwrap();
        assert!(found.path.ends_with(end.as_bytes()), "{found:?}");
        assert!(!found.path.starts_with(b"/") && !found.source.is_empty(), "{found:?}");
        // Through another descriptor, and after the file was renamed.
        let moved = folder.path("b");
        std::fs::rename(&path, &moved).unwrap();
        assert!(reference(file.try_clone().unwrap()).unwrap().path.ends_with(b"/b"));
        std::fs::remove_file(&moved).unwrap();
        assert!(matches!(reference(&file), Err(NoReference::Deleted)));
    }

    #[test]
    fn other_things_have_none() {
        let folder = Folder::new();
        let open = |path: &str| File::open(path).unwrap();
        let is = |file: File| reference(file).unwrap_err().to_string();
        assert_eq!(
            is(File::open(folder.0.path()).unwrap()),
            "it is no regular file but a directory"
        );
        assert_eq!(is(open("/dev/null")), "it is no regular file but a character device");
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(matches!(reference(&one), Err(NoReference::Kind("a socket"))));
        let memory = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(reference(&memory).is_err());
    }

    #[test]
    fn what_lies_nowhere_is_refused() {
        const FDINFO: &[u8] = b"pos:\t0\nmnt_id:\t40\n";
        let of = |path: &str, source: &str| {
            let line = format!("40 28 0:45 / /mnt rw - nfs4 {source} rw\n");
            place(path.as_bytes(), FDINFO, line.as_bytes())
        };
        let found = of("/mnt/a", "nfs1:/export").unwrap();
        assert_eq!(found, ("nfs1:/export".to_owned(), b"a".to_vec(), "nfs4".to_owned()));
        assert!(matches!(of("/mnt/a (deleted)", "x"), Err(NoReference::Deleted)));
        // As the kernel writes what lies outside a process's root.
        assert!(matches!(of("(unreachable)/mnt/a", "x"), Err(NoReference::Outside)));
        assert!(matches!(of("/srv/a", "x"), Err(NoReference::Outside)));
        assert!(matches!(of("/mnt/a", ""), Err(NoReference::Source)));
        assert!(matches!(of("/mnt/a", &"x".repeat(4097)), Err(NoReference::Source)));
        let long = format!("/mnt/{}", "x/".repeat(2049));
        assert!(matches!(of(&long, "x"), Err(NoReference::LongPath)));
        assert!(matches!(place(b"/mnt/a", FDINFO, b""), Err(NoReference::NoMount)));
        assert!(matches!(place(b"/mnt/a", b"", b""), Err(NoReference::NoMount)));
    }
}
