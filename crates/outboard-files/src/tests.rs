//! A server against clients that lie, and against what lies in its folders.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use outboard_test_support::{End, skip};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::process::{getegid, geteuid};
use tempfile::TempDir;

use crate::{
    Access, BadName, Difference, Identity, NoReference, Opened, Opener, Reference, Refused,
    Request, Share, Terms, Unopened, answer, changed_since,
};

/// A temporary folder.
pub(crate) struct Folder(pub(crate) TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        Folder(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir(&path).unwrap();
        path
    }

    /// With files for reading.
    fn opener(&self) -> Opener {
        opener_of(self.0.path())
    }

    /// With files to write, as a user.
    fn opener_as(&self, user: &str) -> Opener {
        let users = [("alice".to_owned(), user.parse().unwrap())].into();
        let terms = Terms { write: true, users, ..self.terms() };
        opener(vec![Share::new(SOURCE, terms).unwrap()])
    }

    fn terms(&self) -> Terms {
        Terms { folder: self.0.path().to_owned(), ..Terms::default() }
    }
}

const SOURCE: &str = "nfs1:/export";
const NOTHING: Identity = Identity { inode: 0, bytes: 0, modified: (0, 0) };

fn opener(shares: Vec<Share>) -> Opener {
    Opener::new(shares, Duration::from_secs(60)).unwrap()
}

fn opener_of(folder: &Path) -> Opener {
    let terms = Terms { folder: folder.to_owned(), ..Terms::default() };
    opener(vec![Share::new(SOURCE, terms).unwrap()])
}

fn own_user() -> String {
    format!("{}:{}", geteuid().as_raw(), getegid().as_raw())
}

fn request(path: &str, identity: Identity, access: Access) -> Request<'_> {
    Request { owner: "alice", source: SOURCE, path: path.as_bytes(), identity, access }
}

fn identity(path: &Path) -> Identity {
    Identity::of(File::open(path).unwrap()).unwrap()
}

/// Opens a file to read it, as whoever knows what it is.
fn open(opener: &Opener, folder: &Folder, path: &str) -> Result<Opened, Refused> {
    opener.open(&request(path, identity(&folder.path(path)), Access::Read))
}

/// What is in the way of opening a file, whatever its client says of it.
fn unopened(opener: &Opener, path: &str) -> Unopened {
    match opener.open(&request(path, NOTHING, Access::Read)) {
        Err(Refused::Unopened { why, .. }) => why,
        other => panic!("{path}: {other:?}"),
    }
}

fn share() -> String {
    SOURCE.to_owned()
}

#[test]
fn a_client_gets_a_file_that_it_can_read() {
    let folder = Folder::new();
    folder.folder("models");
    let path = folder.write("models/a", &[7; 100_000]);
    let opener = folder.opener();
    let client = File::open(&path).unwrap();
    let opened = open(&opener, &folder, "models/a").unwrap();
    let shown = answer(&client, opened.challenge().unwrap()).unwrap();
    let checked = opener.check(opened, Some(shown)).unwrap();
    assert_eq!(checked.identity, Identity::of(&client).unwrap());
    let mut bytes = [0; 8];
    assert_eq!(rustix::io::pread(&checked.file, &mut bytes, 99_996).unwrap(), 4);
    assert_eq!(bytes[..4], [7; 4]);
    assert!(rustix::io::write(&checked.file, b"x").is_err(), "it is open for reading");
    assert!(!changed_since(&checked.file, &checked.identity));
    File::options().append(true).open(&path).unwrap().write_all(b"x").unwrap();
    assert!(changed_since(&checked.file, &checked.identity));
}

/// With the reference of a file on this machine, whose source is the share's.
#[test]
fn a_reference_leads_a_server_to_the_file() {
    let folder = Folder::new();
    let file = File::open(folder.write("a file", b"12345")).unwrap();
    let Reference { source, path, identity, .. } = Reference::of(file.as_fd()).unwrap();
    let above = std::str::from_utf8(&path).unwrap().strip_suffix("/a file").unwrap();
    let above = format!("{}/{above}", source.trim_end_matches('/'));
    let share = Share::new(&above, folder.terms()).unwrap();
    let opener = opener(vec![share]);
    let access = Access::Read;
    let request = Request { owner: "alice", source: &source, path: &path, identity, access };
    let opened = opener.open(&request).unwrap();
    let shown = answer(&file, opened.challenge().unwrap()).unwrap();
    assert!(opener.check(opened, Some(shown)).is_ok());
}

#[test]
fn a_lie_is_refused() {
    let folder = Folder::new();
    let path = folder.write("a", &[7; 100_000]);
    let opener = folder.opener();
    let true_one = identity(&path);
    let (seconds, nanoseconds) = true_one.modified;
    for (lie, difference) in [
        (Identity { inode: true_one.inode + 1, ..true_one }, Difference::Inode),
        (Identity { bytes: 99_999, ..true_one }, Difference::Bytes),
        (Identity { modified: (seconds - 1, nanoseconds), ..true_one }, Difference::Modified),
        (Identity { modified: (seconds, nanoseconds ^ 1), ..true_one }, Difference::Modified),
    ] {
        let refused = opener.open(&request("a", lie, Access::Read)).unwrap_err();
        assert_eq!(refused, Refused::Differs { share: share(), difference });
    }
    let other = folder.write("b", &[8; 100_000]);
    let not_shown = Refused::NotShown { share: share() };
    let check = |answer: Option<[u8; 32]>| {
        let opened = open(&opener, &folder, "a").unwrap();
        opener.check(opened, answer).unwrap_err()
    };
    assert_eq!(check(None), not_shown);
    assert_eq!(check(Some([0; 32])), not_shown);
    // The answer to an earlier challenge, and one of other bytes.
    let earlier = open(&opener, &folder, "a").unwrap();
    let shown = answer(File::open(&path).unwrap(), earlier.challenge().unwrap()).unwrap();
    assert_eq!(check(Some(shown)), not_shown);
    let opener = folder.opener();
    let earlier = open(&opener, &folder, "a").unwrap();
    let guess = answer(File::open(other).unwrap(), earlier.challenge().unwrap()).unwrap();
    assert_eq!(opener.check(earlier, Some(guess)).unwrap_err(), not_shown);
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let outside = Folder::new();
    outside.write("secret", b"secret");
    let folder = Folder::new();
    folder.write("a", b"a");
    let opener = folder.opener();
    let name = outside.0.path().file_name().unwrap().to_str().unwrap();
    for (path, why) in [
        (format!("../{name}/secret"), BadName::Dots),
        (format!("a/../../{name}/secret"), BadName::Dots),
        (outside.path("secret").to_str().unwrap().to_owned(), BadName::Absolute),
        (String::new(), BadName::Empty),
        ("a/".to_owned(), BadName::Empty),
        ("a\0".to_owned(), BadName::Zero),
        ("x".repeat(4097), BadName::TooLong),
    ] {
        let refused = opener.open(&request(&path, NOTHING, Access::Read)).unwrap_err();
        assert_eq!(refused, Refused::Name(why), "{path:?}");
    }
    for source in ["nfs1:/export/..", "nfs1:/export/x/..", "nfs1:/export/.", ""] {
        let request = Request { source, ..request("a", NOTHING, Access::Read) };
        assert!(matches!(opener.open(&request), Err(Refused::Name(_))), "{source}");
    }
    for source in ["nfs2:/export", "nfs1:/", "nfs1:/exp", "nfs1:/export2", "/", "//"] {
        let request = Request { source, ..request("a", NOTHING, Access::Read) };
        let refused = opener.open(&request).unwrap_err();
        assert!(
            matches!(refused, Refused::NoShare { .. } | Refused::Name(BadName::Empty)),
            "{source}: {refused}"
        );
    }
    assert_eq!(unopened(&opener, "missing"), Unopened::Missing);
    assert_eq!(unopened(&opener, "a/b"), Unopened::Missing);
    assert!(matches!(unopened(&opener, &"x".repeat(4096)), Unopened::Other(_)));
}

#[test]
fn links_are_not_followed() {
    let outside = Folder::new();
    let secret = outside.write("secret", b"secret");
    let folder = Folder::new();
    folder.folder("folder");
    folder.write("folder/a", b"a");
    symlink(&secret, folder.path("last")).unwrap();
    symlink(&outside.0, folder.path("middle")).unwrap();
    symlink("folder/a", folder.path("inside")).unwrap();
    symlink("folder", folder.path("inside-middle")).unwrap();
    symlink("/proc/self/root", folder.path("magic")).unwrap();
    let opener = folder.opener();
    for path in ["last", "middle/secret", "inside", "inside-middle/a", "magic/etc/passwd"] {
        assert_eq!(unopened(&opener, path), Unopened::Link, "{path}");
    }
    assert!(open(&opener, &folder, "folder/a").is_ok());
}

#[test]
fn the_folder_itself_may_be_a_link_and_stays_what_it_was() {
    let folder = Folder::new();
    folder.write("a", b"a");
    let other = Folder::new();
    other.write("a", b"another");
    let above = Folder::new();
    let link = above.path("link");
    symlink(&folder.0, &link).unwrap();
    let terms = Terms { folder: link.clone(), ..Terms::default() };
    let opener = opener(vec![Share::new(SOURCE, terms).unwrap()]);
    assert!(open(&opener, &folder, "a").is_ok());
    std::fs::remove_file(&link).unwrap();
    symlink(&other.0, &link).unwrap();
    assert!(open(&opener, &folder, "a").is_ok());
    assert!(open(&opener, &other, "a").is_err());
}

/// While somebody exchanges a folder and a link to another one.
#[test]
fn a_rename_at_the_right_moment_leads_nowhere() {
    let outside = Folder::new();
    let secret = identity(&outside.write("a", b"secret"));
    let folder = Folder::new();
    folder.folder("folder");
    let inside = identity(&folder.write("folder/a", b"inside"));
    symlink(&outside.0, folder.path("link")).unwrap();
    let opener = folder.opener();
    let stop = AtomicBool::new(false);
    let (link, path) = (folder.path("link"), folder.path("folder"));
    let (mut opened, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        let _end = End(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(CWD, &link, CWD, &path, flags).unwrap();
            }
        });
        for _ in 0..2000 {
            // Whoever knows both files: none is the one outside.
            match opener.open(&request("folder/a", secret, Access::Read)) {
                Err(Refused::Differs { .. } | Refused::Unopened { why: Unopened::Link, .. }) => {}
                other => panic!("{other:?}"),
            }
            match opener.open(&request("folder/a", inside, Access::Read)) {
                Ok(_) => opened += 1,
                Err(Refused::Unopened { why: Unopened::Link, .. }) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
    });
    assert!(opened > 0 && refused > 0, "both were met: {opened}, {refused}");
}

/// While somebody exchanges a file and a FIFO, on which whoever opens it would wait.
#[test]
fn a_file_that_becomes_another_at_the_right_moment_does_no_harm() {
    let folder = Folder::new();
    let (file, fifo) = (folder.write("a", b"a"), folder.path("fifo"));
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from(0o600), 0).unwrap();
    let (true_one, opener) = (identity(&file), folder.opener());
    let stop = AtomicBool::new(false);
    let (mut opened, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        let _end = End(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(CWD, &fifo, CWD, &file, flags).unwrap();
            }
        });
        for _ in 0..2000 {
            match opener.open(&request("a", true_one, Access::Read)) {
                Ok(_) => opened += 1,
                Err(Refused::Unopened { why: Unopened::Kind("a FIFO"), .. }) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
    });
    assert!(opened > 0 && refused > 0, "both were met: {opened}, {refused}");
}

#[test]
fn only_regular_files_are_opened() {
    let folder = Folder::new();
    folder.folder("folder");
    let opener = folder.opener();
    mknodat(CWD, folder.path("fifo"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(folder.path("socket")).unwrap();
    let begun = Instant::now();
    assert_eq!(unopened(&opener, "fifo"), Unopened::Kind("a FIFO"));
    assert_eq!(unopened(&opener, "socket"), Unopened::Kind("a socket"));
    assert_eq!(unopened(&opener, "folder"), Unopened::Kind("a directory"));
    assert!(begun.elapsed() < Duration::from_secs(30), "nothing waits for a writer");
}

#[test]
fn devices_are_not_opened() {
    let folder = Folder::new();
    let null = rustix::fs::makedev(1, 3);
    let kind = FileType::CharacterDevice;
    if mknodat(CWD, folder.path("null"), kind, Mode::from(0o666), null).is_err() {
        skip!("this user may not make devices");
    }
    let loop0 = rustix::fs::makedev(7, 0);
    mknodat(CWD, folder.path("loop"), FileType::BlockDevice, Mode::from(0o666), loop0).unwrap();
    let opener = folder.opener_as(&own_user());
    for (path, kind) in [("null", "a character device"), ("loop", "a block device")] {
        assert_eq!(unopened(&opener, path), Unopened::Kind(kind));
        let refused = opener.open(&request(path, NOTHING, Access::ReadWrite)).unwrap_err();
        assert_eq!(refused, Refused::Unopened { share: share(), why: Unopened::Kind(kind) });
    }
}

#[test]
fn other_file_systems_beneath_are_not_entered() {
    let opener = opener_of(Path::new("/"));
    for path in ["proc/self/mem", "proc/1/environ", "proc/version", "proc/self/cwd/a"] {
        assert_eq!(unopened(&opener, path), Unopened::OtherFileSystem, "{path}");
    }
}

/// Where a test runs that mounts something.
enum Place {
    /// In a process with mounts of its own, which has this empty folder.
    Within(PathBuf),
    /// It has run there.
    Was,
    /// This user may not do that.
    Cannot,
}

/// Runs a test of this name again, in a process with mounts of its own.
fn in_process_with_mounts(test: &str) -> Place {
    const WITHIN: &str = "OUTBOARD_TEST_MOUNT";
    if let Some(folder) = std::env::var_os(WITHIN) {
        return Place::Within(folder.into());
    }
    let unshare = || std::process::Command::new("unshare");
    let may = unshare().args(["--mount", "true"]).output();
    if !may.is_ok_and(|output| output.status.success()) {
        return Place::Cannot;
    }
    let folder = Folder::new();
    let output = unshare()
        .arg("--mount")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("tests::{test}")])
        .env(WITHIN, folder.0.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    Place::Was
}

/// Of the same file system, too.
#[test]
fn a_bind_mount_beneath_is_not_entered() {
    let folder = match in_process_with_mounts("a_bind_mount_beneath_is_not_entered") {
        Place::Within(folder) => folder,
        Place::Was => return,
        Place::Cannot => skip!("this user may not mount anything, or there is no `unshare`"),
    };
    for name in ["outside", "share", "share/point"] {
        std::fs::create_dir(folder.join(name)).unwrap();
    }
    std::fs::write(folder.join("outside/secret"), "secret").unwrap();
    rustix::mount::mount_bind(folder.join("outside"), folder.join("share/point")).unwrap();
    assert!(folder.join("share/point/secret").exists());
    let opener = opener_of(&folder.join("share"));
    assert_eq!(unopened(&opener, "point/secret"), Unopened::OtherFileSystem);
}

/// With a file system in memory, which can be called as a file server's.
#[test]
fn a_file_has_one_name_through_each_mount() {
    use rustix::mount::{MountFlags, mount, mount_bind};
    let folder = match in_process_with_mounts("a_file_has_one_name_through_each_mount") {
        Place::Within(folder) => folder,
        Place::Was => return,
        Place::Cannot => skip!("this user may not mount anything, or there is no `unshare`"),
    };
    let [server, client] = ["server", "client's folder"].map(|name| folder.join(name));
    std::fs::create_dir(&server).unwrap();
    std::fs::create_dir(&client).unwrap();
    mount(SOURCE, &server, "tmpfs", MountFlags::empty(), None).unwrap();
    std::fs::create_dir(server.join("models")).unwrap();
    std::fs::write(server.join("models/a file"), [7; 100_000]).unwrap();
    mount_bind(server.join("models"), &client).unwrap();

    let file = File::open(client.join("a file")).unwrap();
    let reference = Reference::of(file.as_fd()).unwrap();
    assert_eq!(reference.source, SOURCE);
    assert_eq!(reference.path, b"models/a file");
    assert_eq!(reference.fs_type, "tmpfs");
    let also = File::open(server.join("models/a file")).unwrap();
    assert_eq!(Reference::of(also.as_fd()).unwrap(), reference);

    let Reference { source, path, identity, .. } = &reference;
    let (identity, access) = (*identity, Access::Read);
    let opener = opener_of(&server);
    let opened = opener.open(&Request { owner: "alice", source, path, identity, access }).unwrap();
    let shown = answer(&file, opened.challenge().unwrap()).unwrap();
    assert!(opener.check(opened, Some(shown)).is_ok());

    // A program in a folder without `/proc`.
    std::os::unix::fs::chroot(&client).unwrap();
    assert!(matches!(Reference::of(file.as_fd()), Err(NoReference::Proc(_))));
    // With one: the mount of `also` cannot be reached from there.
    std::fs::create_dir("/proc").unwrap();
    mount("proc", "/proc", "proc", MountFlags::empty(), None).unwrap();
    assert_eq!(Reference::of(file.as_fd()).unwrap(), reference);
    let outside = Reference::of(also.as_fd());
    assert!(matches!(outside, Err(NoReference::NoMount | NoReference::Outside)), "{outside:?}");
}

/// A server's user may read more than its clients.
#[test]
fn without_a_user_only_files_that_all_may_read_are_opened() {
    let folder = Folder::new();
    folder.folder("models");
    let within = folder.folder("models/new");
    let path = folder.write("models/new/a", b"a");
    let allow = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    let (plain, named) = (folder.opener(), folder.opener_as(&own_user()));
    let refused = || {
        assert!(open(&named, &folder, "models/new/a").is_ok(), "the user is named");
        assert_eq!(unopened(&plain, "models/new/a"), Unopened::NotForAll);
    };
    for mode in [0o600, 0o640, 0o661, 0o700, 0o773] {
        allow(&path, mode);
        refused();
    }
    for mode in [0o644, 0o604, 0o755] {
        allow(&path, mode);
        assert!(open(&plain, &folder, "models/new/a").is_ok(), "{mode:o}");
    }
    for folder in [&within, folder.0.path(), &folder.path("models")] {
        for mode in [0o700, 0o750, 0o754] {
            allow(folder, mode);
            refused();
        }
        allow(folder, 0o711);
    }
    assert!(open(&plain, &folder, "models/new/a").is_ok());
}

/// With four digits, ten thousand guesses are enough.
#[test]
fn who_guesses_a_file_gets_few_tries() {
    let folder = Folder::new();
    let path = folder.write("pin", b"4711");
    let identity = identity(&path);
    let opener = folder.opener();
    let ask = |owner| opener.open(&Request { owner, ..request("pin", identity, Access::Read) });
    let shown = |opened: Opened, digits: &str| {
        let guess = File::open(folder.write("guess", digits.as_bytes())).unwrap();
        let answer = answer(guess, opened.challenge().unwrap()).unwrap();
        opener.check(opened, Some(answer)).map(|_| ())
    };
    // Whoever asks often first has no more tries.
    let mut asked: Vec<Opened> = (0..10).map(|_| ask("alice").unwrap()).collect();
    for digits in ["0000", "0001", "0002"] {
        let refused = shown(asked.pop().unwrap(), digits);
        assert_eq!(refused, Err(Refused::NotShown { share: share() }));
    }
    for digits in ["0003", "4711"] {
        let refused = shown(asked.pop().unwrap(), digits).unwrap_err();
        assert!(matches!(refused, Refused::Guessed { wrong: 3, .. }), "{refused}");
    }
    assert!(matches!(ask("alice"), Err(Refused::Guessed { .. })));
    assert_eq!(shown(ask("bob").unwrap(), "4711"), Ok(()), "others have their own tries");
    // Of a file with a user named, too.
    let opener = folder.opener_as(&own_user());
    let refused: Vec<_> = (0..4)
        .map(|_| {
            let opened = opener.open(&request("pin", identity, Access::ReadWrite))?;
            opener.check(opened, Some([0; 32])).map(|_| ())
        })
        .collect();
    assert!(matches!(refused[3], Err(Refused::Guessed { .. })), "{refused:?}");
}

/// With other blocks each time, who knows half of a file would meet the half that it knows.
#[test]
fn who_asks_again_is_asked_for_the_same_blocks() {
    let folder = Folder::new();
    folder.write("a", &[7; 10 << 20]);
    let opener = folder.opener();
    let blocks = || open(&opener, &folder, "a").unwrap().challenge().unwrap().blocks().to_vec();
    let first = blocks();
    assert!((0..100).all(|_| blocks() == first));
    // For somebody else, and by another server, they are others.
    let bob = Request { owner: "bob", ..request("a", identity(&folder.path("a")), Access::Read) };
    assert_ne!(opener.open(&bob).unwrap().challenge().unwrap().blocks(), first);
    let other = folder.opener();
    assert_ne!(open(&other, &folder, "a").unwrap().challenge().unwrap().blocks(), first);
}

#[test]
fn the_kernel_judges_the_owners_user() {
    if !geteuid().is_root() {
        skip!("only root may open files as another user");
    }
    let folder = Folder::new();
    let path = folder.write("a", b"of user 1000");
    let identity = identity(&path);
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    chown(&path, Some(1000), Some(100)).unwrap();
    let as_user = |user: &str, access: Access| {
        let opened = folder.opener_as(user).open(&request("a", identity, access));
        opened.map(|_| ())
    };
    let denied = Err(Refused::Unopened { share: share(), why: Unopened::Denied });
    for access in [Access::Read, Access::Write, Access::ReadWrite] {
        assert_eq!(as_user("1000:1000", access), Ok(()), "{access:?}");
        assert_eq!(as_user("1001:100", access), denied, "{access:?}");
    }
    // What the group may: as its own group, and as a further one.
    std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    for user in ["1001:100", "1001:5,100"] {
        assert_eq!(as_user(user, Access::Read), Ok(()), "{user}");
        assert_eq!(as_user(user, Access::ReadWrite), denied, "{user}");
    }
    assert_eq!(as_user("1001:5", Access::Read), denied, "it has none of root's groups");
    // A folder that only its user may enter.
    std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let within = folder.folder("own");
    std::fs::rename(&path, within.join("a")).unwrap();
    std::fs::set_permissions(&within, Permissions::from_mode(0o700)).unwrap();
    let request = request("own/a", identity, Access::Read);
    assert!(folder.opener_as("1001:100").open(&request).is_err());
    assert!(folder.opener_as("0:0").open(&request).is_ok(), "as the server's own user");
    assert!(geteuid().is_root());
}

/// As a service of systemd: no root, but capabilities, which the kernel does not take from such a
/// one when it becomes another user.
#[test]
fn what_a_service_may_does_not_count() {
    use rustix::thread::{
        CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities, set_thread_res_uid,
    };
    if !geteuid().is_root() {
        skip!("only root may be a service");
    }
    let folder = Folder::new();
    let path = folder.write("a", b"of user 1000");
    let identity = identity(&path);
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    chown(&path, Some(1000), Some(100)).unwrap();
    let [own, as_owner, as_other] =
        ["4242:4242", "1000:1000", "1001:100"].map(|user| folder.opener_as(user));
    let service = move || {
        let few = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::DAC_OVERRIDE;
        let user = rustix::process::Uid::from_raw(4242);
        set_keep_capabilities(true).unwrap();
        set_thread_res_uid(user, user, user).unwrap();
        let empty = CapabilitySet::empty();
        let sets = CapabilitySets { effective: few, permitted: few, inheritable: empty };
        set_capabilities(None, sets).unwrap();
        let request = request("a", identity, Access::Read);
        assert!(own.open(&request).is_ok(), "it may read all files");
        assert!(as_owner.open(&request).is_ok());
        assert!(own.open(&request).is_ok(), "of this thread nothing has changed");
        as_other.open(&request).unwrap_err()
    };
    let refused = std::thread::spawn(service).join().unwrap();
    assert_eq!(refused, Refused::Unopened { share: share(), why: Unopened::Denied });
}

#[test]
fn a_server_that_is_not_root_says_so() {
    let folder = Folder::new();
    let path = folder.write("a", b"a");
    let identity = identity(&path);
    let other = folder.opener_as("4242:4242");
    let refused = std::thread::spawn(move || {
        // As in a process of an ordinary user.
        if geteuid().is_root() {
            "1000:1000".parse::<crate::User>().unwrap().become_for_good().ok()?;
        }
        Some(other.open(&request("a", identity, Access::Read)).unwrap_err())
    });
    match refused.join().unwrap() {
        Some(refused) => {
            assert!(matches!(refused, Refused::OtherUser { uid: 4242, .. }), "{refused}")
        }
        None => skip!("this process may neither change users nor be an ordinary one"),
    }
}

#[test]
fn writing_needs_a_user_and_a_share_for_it() {
    let folder = Folder::new();
    let path = folder.write("a", b"12345");
    let identity = identity(&path);
    let request = |access| request("a", identity, access);
    let write = Access::Write;
    let reading = folder.opener().open(&request(write)).unwrap_err();
    assert_eq!(reading, Refused::ReadOnly { share: share() });
    let opener = folder.opener_as(&own_user());
    let bob = Request { owner: "bob", ..request(write) };
    let refused = opener.open(&bob).unwrap_err();
    assert_eq!(refused, Refused::NoUser { share: share(), owner: "bob".into() });
    assert!(opener.open(&Request { owner: "bob", ..request(Access::Read) }).is_ok());

    let opened = opener.open(&request(write)).unwrap();
    assert_eq!(opened.challenge(), None, "who may only write need not read");
    let checked = opener.check(opened, None).unwrap();
    assert_eq!(rustix::io::pwrite(&checked.file, b"x", 1).unwrap(), 1);
    assert!(rustix::io::pread(&checked.file, &mut [0; 1], 0).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"1x345");

    let identity = Identity::of(File::open(&path).unwrap()).unwrap();
    let both = crate::tests::request("a", identity, Access::ReadWrite);
    let opened = opener.open(&both).unwrap();
    assert!(opened.challenge().is_some());
    assert_eq!(opener.check(opened, None).unwrap_err(), Refused::NotShown { share: share() });

    std::fs::set_permissions(&path, Permissions::from_mode(0o4755)).unwrap();
    let refused = opener.open(&both).unwrap_err();
    assert_eq!(refused, Refused::Unopened { share: share(), why: Unopened::SetId });
}

#[test]
fn a_share_is_for_its_owners_even_in_another_share() {
    let folder = Folder::new();
    let own = folder.folder("own");
    let path = folder.write("own/a", b"a");
    let identity = identity(&path);
    let owners = Some(["alice".to_owned()].into());
    let terms = Terms { folder: own, owners, ..Terms::default() };
    let opener = opener(vec![
        Share::new(SOURCE, folder.terms()).unwrap(),
        Share::new("nfs1:/export/own", terms).unwrap(),
    ]);
    let alice = request("own/a", identity, Access::Read);
    assert!(opener.open(&alice).is_ok());
    let bob = opener.open(&Request { owner: "bob", ..alice }).unwrap_err();
    assert_eq!(bob, Refused::NotYours { share: "nfs1:/export/own".into(), owner: "bob".into() });
}

#[test]
fn a_sparse_file_is_a_file() {
    let folder = Folder::new();
    let path = folder.write("a", b"begins");
    let file = File::options().write(true).open(&path).unwrap();
    if file.set_len(1 << 40).is_err() {
        skip!("the file system takes no file of 1 TiB");
    }
    let opener = folder.opener();
    let opened = open(&opener, &folder, "a").unwrap();
    let shown = answer(File::open(&path).unwrap(), opened.challenge().unwrap()).unwrap();
    assert_eq!(opener.check(opened, Some(shown)).unwrap().identity.bytes, 1 << 40);
}

#[test]
fn an_empty_file_is_a_file() {
    let folder = Folder::new();
    let path = folder.write("a", b"");
    let opener = folder.opener();
    let opened = open(&opener, &folder, "a").unwrap();
    let shown = answer(File::open(&path).unwrap(), opened.challenge().unwrap()).unwrap();
    assert!(opener.check(opened, Some(shown)).is_ok());
}

#[test]
fn a_file_that_changes_meanwhile_is_refused() {
    let folder = Folder::new();
    let path = folder.write("a", &[7; 10_000]);
    let client = File::options().read(true).write(true).open(&path).unwrap();
    let opener = folder.opener();
    let changed = Refused::Changed { share: share() };
    let after = |change: &dyn Fn()| {
        let opened = open(&opener, &folder, "a").unwrap();
        let shown = answer(&client, opened.challenge().unwrap()).unwrap();
        change();
        opener.check(opened, Some(shown)).unwrap_err()
    };
    assert_eq!(after(&|| client.set_len(10_001).unwrap()), changed);
    assert_eq!(after(&|| client.set_len(5_000).unwrap()), changed);
    assert_eq!(after(&|| client.set_len(0).unwrap()), changed);
    client.set_len(10_000).unwrap();
    assert_eq!(after(&|| client.set_modified(std::time::UNIX_EPOCH).unwrap()), changed);
    // One that grows all the time.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = End(&stop);
        scope.spawn(|| {
            let mut writer = File::options().append(true).open(&path).unwrap();
            while !stop.load(Ordering::Relaxed) {
                writer.write_all(b"more").unwrap();
            }
        });
        for _ in 0..200 {
            let was = Identity::of(&client).unwrap();
            std::thread::sleep(Duration::from_millis(1));
            match opener.open(&request("a", was, Access::Read)) {
                Err(Refused::Differs { .. }) => {}
                Ok(opened) => {
                    let shown = answer(&client, opened.challenge().unwrap()).unwrap();
                    std::thread::sleep(Duration::from_millis(1));
                    // If nothing was written between, it was the same file all the time.
                    if let Ok(checked) = opener.check(opened, Some(shown)) {
                        assert_eq!(checked.identity, was);
                    }
                }
                Err(other) => panic!("{other}"),
            }
        }
    });
}

#[test]
fn no_descriptor_stays() {
    let folder = Folder::new();
    let path = folder.write("a", b"a");
    symlink("a", folder.path("link")).unwrap();
    let (identity, opener) = (identity(&path), folder.opener());
    let lie = Identity { bytes: 2, ..identity };
    for number in 0..10_000 {
        match number % 4 {
            0 => drop(opener.open(&request("a", identity, Access::Read)).unwrap()),
            1 => drop(opener.open(&request("a", lie, Access::Read)).unwrap_err()),
            2 => drop(opener.open(&request("link", identity, Access::Read)).unwrap_err()),
            _ => {
                // One that has not failed yet.
                let owner = &number.to_string();
                let request = Request { owner, ..request("a", identity, Access::Read) };
                let opened = opener.open(&request).unwrap();
                drop(opener.check(opened, Some([0; 32])).unwrap_err());
            }
        }
    }
    // Only those of this folder: other tests have theirs.
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let ours = links.filter(|link| std::fs::read_link(link.path()).is_ok_and(|to| to == path));
    assert_eq!(ours.count(), 0);
}

#[test]
fn what_is_given_out_is_plain() {
    let folder = Folder::new();
    let path = folder.write("a", b"a");
    let opener = folder.opener();
    let opened = open(&opener, &folder, "a").unwrap();
    let shown = answer(File::open(&path).unwrap(), opened.challenge().unwrap()).unwrap();
    let checked = opener.check(opened, Some(shown)).unwrap();
    let flags = rustix::io::fcntl_getfd(&checked.file).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    let flags = rustix::fs::fcntl_getfl(&checked.file).unwrap();
    assert_eq!(flags & OFlags::ACCMODE, OFlags::RDONLY);
    assert!(!flags.contains(OFlags::NONBLOCK), "`io_uring` is to wait for its bytes");
}
