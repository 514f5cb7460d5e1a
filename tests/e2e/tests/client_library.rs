//! The client library that a server hands out: what a client takes, and what it does not.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use outboard_e2e::{Folder, Program, Server, command, dist, one_line, outboard};
use outboard_test_support::skip;
use outboard_wire::handshake::{HELLO_LIMIT, Hello, Preamble, Purpose, VERSION, file};

const LIBRARY: &str = "libcuda.so.1";

/// A folder of client libraries, a key that signs it, and a client with caches of its own.
struct World {
    folder: Folder,
    key: String,
    public: String,
}

/// All that it said, in one line.
fn text(output: &Output) -> String {
    one_line(&[&output.stderr[..], &output.stdout].concat())
}

/// Fails with this code; what it said.
#[track_caller]
fn refused(output: &Output, code: &str) -> String {
    let said = text(output);
    assert!(!output.status.success() && said.contains(code), "{code} is not in: {said}");
    said
}

/// What the command prints, in one line.
#[track_caller]
fn printed(args: &[&str]) -> String {
    let output = outboard(args);
    assert!(output.status.success(), "{}", text(&output));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

impl World {
    /// The library is not one that a program could load: what happens to it is of interest.
    fn new() -> World {
        let world = World::with(|path| fs::write(path, "x".repeat(100_000)).map(drop));
        world.sign(&world.key, &[]);
        world
    }

    fn with(make: impl FnOnce(&Path) -> std::io::Result<()>) -> World {
        let folder = Folder::create();
        fs::create_dir(folder.path("handed")).expect("a folder can be made");
        make(&folder.join("handed").join(LIBRARY)).expect("the library can be made");
        let key = folder.path("key");
        let public = printed(&["library", "key", &key]);
        World { folder, key, public }
    }

    fn handed(&self, name: &str) -> PathBuf {
        self.folder.join("handed").join(name)
    }

    fn sign(&self, key: &str, more: &[&str]) {
        let handed = self.folder.path("handed");
        printed(&[&["library", "sign", "--key", key, &handed], more].concat());
    }

    fn serve(&self, more: &[&str]) -> Server {
        let handed = self.folder.path("handed");
        Server::start_with(&[&["--driver", "cpu", "--client-library", &handed], more].concat(), &[])
    }

    /// A client that uses the library of whatever server, if it is good.
    fn client(&self, server: &str) -> Command {
        let mut client = self.stranger(server);
        client.env("OUTBOARD_RELEASE_KEYS", &self.public);
        client
    }

    /// One that knows no key.
    fn stranger(&self, server: &str) -> Command {
        let mut client = command();
        client.env("XDG_CACHE_HOME", self.folder.path("caches"));
        client.env("OUTBOARD_LIBRARY_FROM_SERVER", "always");
        client.env_remove("LD_LIBRARY_PATH");
        client.args(["run", "--server", server, "--", "printenv", "LD_LIBRARY_PATH"]);
        client
    }

    /// The folders of libraries that are kept, and anything beside them.
    fn kept(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path("caches/outboard/libraries"));
        entries.into_iter().flatten().map(|entry| entry.expect("an entry").path()).collect()
    }

    /// The client used the one library that is kept, and it is what the server has.
    #[track_caller]
    fn expect_used(&self, output: &Output) -> PathBuf {
        let said = text(output);
        assert!(output.status.success(), "{said}");
        let kept = self.kept();
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert!(said.ends_with(kept[0].to_str().expect("a plain path")), "{said}");
        let same = fs::read(kept[0].join(LIBRARY)).ok() == fs::read(self.handed(LIBRARY)).ok();
        assert!(same, "it is the server's");
        kept[0].clone()
    }
}

fn run(mut client: Command) -> Output {
    client.output().expect("outboard starts")
}

#[test]
fn a_program_runs_with_the_library_of_its_server() {
    let own = dist().join("lib/outboard/client").join(LIBRARY);
    let world = World::with(|path| fs::copy(own, path).map(drop));
    world.sign(&world.key, &[]);
    let server = world.serve(&[]);
    let kept = world.expect_used(&run(world.client(server.address())));
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&kept), 0o700);
    assert_eq!(fs::read_link(kept.join("libcuda.so")).ok(), Some(LIBRARY.into()));

    // It is fetched once, and is what programs load.
    fs::remove_file(world.handed(LIBRARY)).expect("the server has it no more");
    let program = Program::new("vector_add")
        .env("XDG_CACHE_HOME", &world.folder.path("caches"))
        .env("OUTBOARD_LIBRARY_FROM_SERVER", "always")
        .env("OUTBOARD_RELEASE_KEYS", &world.public);
    program.through(&server).expect_success("a program with the server's library");
}

#[test]
fn nothing_is_taken_unless_the_person_allows_it_or_if_releases_are_the_same() {
    let world = World::new();
    let server = world.serve(&[]);
    world.expect_used(&run(world.client(server.address())));
    for when in ["off", "differing"] {
        let mut client = world.client(server.address());
        client.env("OUTBOARD_LIBRARY_FROM_SERVER", when);
        let said = text(&run(client));
        assert!(said.ends_with("lib/outboard/client"), "{when}: {said}");
    }
}

#[test]
fn nobody_but_a_release_key_says_what_runs_here() {
    let world = World::new();
    let server = world.serve(&[]);
    let said = refused(&run(world.stranger(server.address())), "OB0710");
    assert!(said.contains("no release key is known here"), "{said}");

    // Somebody else's key, and nobody's.
    let other = world.folder.path("other");
    printed(&["library", "key", &other]);
    world.sign(&other, &[]);
    let said = refused(&run(world.client(server.address())), "OB0710");
    assert!(said.contains("none of the 1 keys that have signed it is trusted"), "{said}");
    fs::write(world.handed("client.manifest.sig"), "").expect("it can be written");
    let said = refused(&run(world.client(server.address())), "OB0710");
    assert!(said.contains("it is not signed"), "{said}");
    fs::remove_file(world.handed("client.manifest.sig")).expect("it can be removed");
    refused(&run(world.client(server.address())), "OB0709");
    assert!(world.kept().is_empty(), "{:?}", world.kept());
}

#[test]
fn a_certificate_never_suffices() {
    let world = World::new();
    let state = world.folder.path("state");
    let token = ["token", "create", "--json", "--owner", "alice", "--state", &state];
    let token: serde_json::Value = serde_json::from_str(&printed(&token)).expect("JSON");
    let server = world.serve(&["--tls", "on", "--require-authentication", "--state", &state]);
    let known = |mut client: Command| {
        client.env("OUTBOARD_TOKEN", token["token"].as_str().expect("a text"));
        client.env("OUTBOARD_TLS_FINGERPRINT", token["fingerprint"].as_str().expect("a text"));
        client
    };
    // The server is who it should be, and that is all.
    let said = refused(&run(known(world.stranger(server.address()))), "OB0710");
    assert!(said.contains("no release key is known here"), "{said}");
    world.expect_used(&run(known(world.client(server.address()))));
    // Nor does a release key open the server.
    let mut client = world.client(server.address());
    client.env("OUTBOARD_TLS_FINGERPRINT", token["fingerprint"].as_str().expect("a text"));
    refused(&run(client), "OB0401");
}

#[test]
fn other_machines_and_older_releases_are_not_taken() {
    let world = World::new();
    let server = world.serve(&[]);
    world.sign(&world.key, &["--architecture", "sparc64"]);
    let said = refused(&run(world.client(server.address())), "OB0709");
    assert!(said.contains("it is for sparc64"), "{said}");

    world.sign(&world.key, &["--release", "0.0.9"]);
    let said = refused(&run(world.client(server.address())), "OB0709");
    assert!(said.contains("it is of release 0.0.9, which is older than"), "{said}");
    let mut client = world.client(server.address());
    client.env("OUTBOARD_OLDEST_LIBRARY", "0.0.9");
    world.expect_used(&run(client));
}

#[test]
fn what_was_changed_after_it_was_signed_is_not_taken() {
    let world = World::new();
    let server = world.serve(&[]);
    fs::write(world.handed(LIBRARY), "y".repeat(100_000)).expect("it can be written");
    let said = refused(&run(world.client(server.address())), "OB0710");
    assert!(said.contains("not those that were signed"), "{said}");
    fs::write(world.handed(LIBRARY), "x".repeat(100_001)).expect("it can be written");
    let said = refused(&run(world.client(server.address())), "OB0710");
    assert!(said.contains("100001 bytes, and the manifest says 100000"), "{said}");
    let manifest = fs::read_to_string(world.handed("client.manifest")).expect("a text");
    let more = manifest.replace(" 100000 ", " 100001 ");
    fs::write(world.handed("client.manifest"), more).expect("it can be written");
    let said = refused(&run(world.client(server.address())), "OB0710");
    assert!(said.contains("does not hold: it was changed"), "{said}");
    assert!(world.kept().is_empty(), "{:?}", world.kept());
}

#[test]
fn what_is_kept_is_compared_at_each_use() {
    let world = World::new();
    let server = world.serve(&[]);
    let kept = world.expect_used(&run(world.client(server.address())));
    let library = kept.join(LIBRARY);
    let writable = |path: &Path| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("it is the test's");
    };
    let changes: [&dyn Fn(); 3] = [
        &|| {
            writable(&library);
            fs::write(&library, "z".repeat(100_000)).expect("it can be written");
        },
        &|| fs::write(kept.join("libc.so.6"), "evil").expect("it can be written"),
        &|| {
            fs::remove_file(&library).expect("it can be removed");
            std::os::unix::fs::symlink("/dev/null", &library).expect("a link can be made");
        },
    ];
    for change in changes {
        change();
        let output = run(world.client(server.address()));
        assert!(text(&output).contains("was changed; it is replaced"), "{}", text(&output));
        world.expect_used(&output);
        assert!(!kept.join("libc.so.6").exists());
    }

    // A folder in which others could put something is not used at all.
    let all = kept.parent().expect("a folder");
    fs::set_permissions(all, fs::Permissions::from_mode(0o777)).expect("it is the test's");
    let said = refused(&run(world.client(server.address())), "OB0704");
    assert!(said.contains("could have been changed by other users"), "{said}");
}

#[test]
fn processes_may_fetch_it_at_once() {
    let world = World::new();
    let server = world.serve(&[]);
    let outputs: Vec<Output> = std::thread::scope(|scope| {
        let one = || scope.spawn(|| run(world.client(server.address())));
        let all: Vec<_> = (0..4).map(|_| one()).collect();
        all.into_iter().map(|one| one.join().expect("no panic")).collect()
    });
    for output in outputs {
        world.expect_used(&output);
    }
}

/// Somebody on the way to a server: for clients that come for this, answers with what the server
/// sends at hand. Returns where.
fn meddler(server: &Server, purpose: Purpose, meddle: fn(TcpStream, TcpStream)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address").to_string();
    let server = server.address().to_owned();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut hello = vec![0; Preamble::SIZE];
            if client.read_exact(&mut hello).is_err() {
                continue;
            }
            let head = hello[..].try_into().expect("a preamble");
            let preamble = Preamble::decode(&head, HELLO_LIMIT).expect("a hello");
            hello.resize(Preamble::SIZE + preamble.len as usize, 0);
            client.read_exact(&mut hello[Preamble::SIZE..]).expect("a hello");
            let asks = Hello::decode(&preamble, &hello[Preamble::SIZE..], VERSION);
            let asked = asks.expect("a hello").purpose;
            let mut upstream = TcpStream::connect(&server).expect("the server listens");
            upstream.write_all(&hello).expect("the server reads");
            if asked == purpose {
                meddle(client, upstream);
            } else {
                let _ = std::io::copy(&mut upstream, &mut client);
            }
        }
    });
    address
}

fn of(file: &str) -> Purpose {
    Purpose::Library { file: file.to_owned() }
}

#[test]
fn a_server_of_a_release_before_that_is_not_asked() {
    let world = World::new();
    let server = world.serve(&[]);
    let address = meddler(&server, Purpose::Probe, |mut client, mut upstream| {
        let mut welcome = Vec::new();
        upstream.read_to_end(&mut welcome).expect("the server answers");
        let minor = 4_u16.to_le_bytes();
        welcome[10..12].copy_from_slice(&minor);
        let _ = client.write_all(&welcome);
    });
    let said = refused(&run(world.client(&address)), "OB0709");
    assert!(said.contains("which hands out no library"), "{said}");
}

#[test]
fn a_server_that_stops_half_way_leaves_nothing() {
    let world = World::new();
    let server = world.serve(&[]);
    let address = meddler(&server, of(LIBRARY), |mut client, upstream| {
        let _ = std::io::copy(&mut upstream.take(50_000), &mut client);
    });
    let said = refused(&run(world.client(&address)), "OB0709");
    assert!(said.contains(&format!("stopped while it sent {LIBRARY}")), "{said}");
    assert!(world.kept().is_empty(), "{:?}", world.kept());
    world.expect_used(&run(world.client(server.address())));
}

/// Has a command see a folder of caches with room for 64 KiB, and lists what is in it afterwards.
const LITTLE_ROOM: &str = r#"
mount -t tmpfs -o size=64k,mode=700 tmpfs "$1" || exit 99
caches=$1
shift
"$@"
status=$?
find "$caches" -mindepth 1 -printf 'left:%P\n'
exit $status
"#;

#[test]
fn a_full_disk_leaves_nothing_half_written() {
    let world = World::new();
    let server = world.serve(&[]);
    let caches = world.folder.path("caches");
    fs::create_dir(&caches).expect("a folder can be made");
    let client = world.client(server.address());
    let mut small = Command::new("unshare");
    small.args(["--user", "--map-root-user", "--mount", "sh", "-c", LITTLE_ROOM, "sh", &caches]);
    small.arg(client.get_program()).args(client.get_args());
    for (name, value) in client.get_envs() {
        match value {
            Some(value) => small.env(name, value),
            None => small.env_remove(name),
        };
    }
    let output = run(small);
    if output.status.code() == Some(99) || text(&output).starts_with("unshare:") {
        skip!("no file system can be mounted here: {}", text(&output));
    }
    let said = refused(&output, "OB0704");
    assert!(said.contains(&format!("cannot keep {LIBRARY} of")), "{said}");
    assert!(said.contains("make room in the folder for caches"), "{said}");
    let left: Vec<&str> = said.split("left:").skip(1).map(str::trim).collect();
    assert_eq!(left, ["outboard", "outboard/libraries"], "nothing but folders");
    // With room it comes.
    world.expect_used(&run(world.client(server.address())));
}

#[test]
fn several_servers_must_hand_out_the_same() {
    let (world, other) = (World::new(), World::new());
    other.sign(&world.key, &[]);
    let servers = [world.serve(&[]), other.serve(&[])];
    let both = format!("{},{}", servers[0].address(), servers[1].address());
    world.expect_used(&run(world.client(&both)));

    fs::write(other.handed(LIBRARY), "y".repeat(100_000)).expect("it can be written");
    other.sign(&world.key, &[]);
    let said = refused(&run(world.client(&both)), "OB0709");
    assert!(said.contains("hand out different client libraries"), "{said}");
}

#[test]
fn no_length_that_a_server_says_is_believed() {
    let world = World::new();
    let server = world.serve(&[]);
    for name in ["client.manifest", "client.manifest.sig", LIBRARY] {
        let address = meddler(&server, of(name), |mut client, _| {
            let _ = client.write_all(&file(VERSION, u64::MAX));
        });
        let said = refused(&run(world.client(&address)), "OB0710");
        assert!(said.contains(&format!("it has {} bytes", u64::MAX)), "{name}: {said}");
    }
    assert!(world.kept().is_empty(), "{:?}", world.kept());
}
