//! A worker that was taken over: by a driver library that does its work through the software device
//! and turns against the server's machine once the worker is in its sandbox.

use outboard_e2e::{Folder, Lines, Program, Server, command, dist, programs, within};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile_worker.c");
/// The software device, and the name by which it is known to those who are linked against it.
const DEVICE: &str = "lib/outboard/liboutboard-cpu.so";
const KNOWN_AS: &str = "libcuda.so.1";
/// How far a server's log may be behind.
const SOON: Duration = Duration::from_secs(20);

/// The library, beside the software device in a folder.
fn library(folder: &Folder) -> PathBuf {
    fs::copy(dist().join(DEVICE), folder.path(KNOWN_AS)).expect("a copy of the device");
    let library = PathBuf::from(folder.path("libhostile.so"));
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-pthread", "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN"])
        .arg("-o")
        .arg(&library)
        .arg(SOURCE)
        .arg("-L")
        .arg(library.parent().expect("it is in the folder"))
        .arg(format!("-l:{KNOWN_AS}"))
        .status()
        .expect("there is a compiler");
    assert!(built.success());
    library
}

/// What a worker says last.
const DONE: &str = "done, own threads go on";

/// What a worker says of its attempts once a program of its client runs: the program is told what
/// its worker writes.
fn attempts(server: &Server, victim: &Path) -> Vec<String> {
    let mut program = command();
    program.args(["run", "--server", server.address(), "--"]);
    program.arg(programs().join("endless")).arg("4").env("OUTBOARD_TRANSPORT", "tcp");
    let mut program =
        program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("outboard starts");
    Lines::of(program.stdout.take()).find("running");
    let stderr = Lines::of(program.stderr.take());
    fs::write(victim.join("begin"), "").expect("a file");
    let lines = stderr.until_or_end(DONE);
    let _ = program.kill();
    let _ = program.wait();
    let said = lines.iter().filter_map(|line| Some(line.split_once("hostile: ")?.1));
    said.map(|said| said.trim().to_owned()).collect()
}

/// A server whose workers are hostile, once one of them has tried everything, and what came of it.
fn attacked(calls: &str, victim: &Path, library: &Path) -> (Server, Vec<String>) {
    let secret = victim.join("secret");
    fs::write(&secret, "secret").expect("a file");
    let _ = fs::remove_file(victim.join("begin"));
    let listener = victim.join("listener");
    let _ = fs::remove_file(&listener);
    let _listener = UnixListener::bind(&listener).expect("a socket");
    let network = TcpListener::bind("127.0.0.1:0").expect("a port");
    network.set_nonblocking(true).expect("a socket that does not wait");
    let port = network.local_addr().expect("its address").port().to_string();
    let env = [
        ("OUTBOARD_TEST_VICTIM", victim.to_str().expect("a plain path")),
        ("OUTBOARD_TEST_PORT", &port),
    ];
    let driver = library.to_str().expect("a plain path");
    let server = Server::start_with(&["--driver", driver, "--sandbox-calls", calls], &env);
    let before = fs::metadata(&secret).expect("it is there");
    let said = attempts(&server, victim);
    assert_eq!(said.last().map(String::as_str), Some(DONE), "{said:?}");
    let after = fs::metadata(&secret).expect("it is still there");
    let noted =
        |found: &fs::Metadata| (found.mode(), found.ctime(), found.ctime_nsec(), found.len());
    assert_eq!(noted(&before), noted(&after), "{}", server.log());
    assert!(network.accept().is_err(), "nobody has come from the worker");
    (server, said)
}

#[test]
fn a_worker_that_was_taken_over_gets_nothing_of_the_machine() {
    let (folder, victim) = (Folder::create(), Folder::create());
    let library = library(&folder);
    let (server, said) = attacked("allow", &victim, &library);
    let passed: Vec<_> = said.iter().filter(|line| line.contains("PASSED")).collect();
    assert!(passed.is_empty(), "{passed:?}");
    assert!(said.len() > 35, "it has tried all: {said:?}");
    // The server says what it has refused, each once.
    for call in ["chmod", "utimensat", "inotify_init1", "io_uring_setup", "sendto", "1000"] {
        let named = |line: &&str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            let fields = line.get("fields").unwrap_or(&line);
            fields["call"] == call
        };
        let count = || server.log().lines().filter(named).count();
        within(SOON, || count() > 0);
        assert_eq!(count(), 1, "{call}: {}", server.log());
    }
}

/// The list of refused calls stops the same, but for Unix sockets, which are as open to a worker as
/// to its user, and calls that are only useless.
#[test]
fn the_list_of_refused_calls_stops_what_does_harm() {
    let (folder, victim) = (Folder::create(), Folder::create());
    let library = library(&folder);
    for calls in ["deny", "record"] {
        let (server, said) = attacked(calls, &victim, &library);
        let passed: Vec<_> =
            said.iter().filter_map(|line| Some(line.split_once(" PASSED")?.0)).collect();
        assert_eq!(passed, ["unix stream", "datagram pair", "folder"], "{calls}");
        let is_noted = || server.log().contains("`--sandbox-calls allow` refuses");
        let noted = within(if calls == "record" { SOON } else { Duration::ZERO }, is_noted);
        assert_eq!(noted, calls == "record", "{}", server.log());
    }
}

/// Programs do what they do elsewhere, and make no call that is refused.
#[test]
fn programs_make_no_call_that_is_refused() {
    let server = Server::start_with(&["--driver", "cpu", "--sandbox", "strict"], &[]);
    for program in ["thrust_algorithms", "ipc", "shareable_handles", "device_printf", "big_copy"] {
        Program::new(program).through(&server).expect_success(program);
    }
    let log = server.log();
    assert!(!log.contains("the sandbox refused a system call"), "{log}");
}
