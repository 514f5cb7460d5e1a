//! Files that client and server have by NFS, in the machine of `cargo xtask nfs`, whose kernel
//! serves a folder and has mounted it twice.

use std::process::Command;
use std::time::{Duration, Instant};

use outboard_e2e::files::{fill, moved};
use outboard_e2e::{Folder, Program, Server};
use outboard_test_support::skip;
use serde_json::Value;

/// Where the machine was set up so: the folder that is served and the name of its disk; what the
/// mounts show as their source, the client's and the server's; what stops and starts NFS.
const PLACES: &str = "OUTBOARD_TEST_NFS";

struct Places {
    served: String,
    disk: String,
    source: String,
    clients: String,
    servers: String,
    stop: String,
    start: String,
}

fn places() -> Option<Places> {
    let said = std::env::var(PLACES).ok()?;
    let words: Vec<_> = said.split_whitespace().map(str::to_owned).collect();
    let [served, disk, source, clients, servers, stop, start] = words.try_into().ok()?;
    Some(Places { served, disk, source, clients, servers, stop, start })
}

macro_rules! needs_nfs {
    () => {
        match places() {
            Some(places) => places,
            None => skip!("{PLACES} names no places with NFS"),
        }
    };
}

fn server(source: &str, folder: &str) -> Server {
    let share = format!("{source}={folder}:rw:as=0:0");
    Server::start_with(&["--driver", "cpu", "--files", &share], &[])
}

fn profile(path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("it was written")).expect("JSON")
}

fn script(path: &str) {
    assert!(Command::new("sh").arg(path).status().expect("sh is there").success(), "{path}");
}

/// Whether the server has mounted the folder, or is the machine that serves it.
#[test]
fn the_server_reads_and_writes_and_the_client_sees_it() {
    let places = needs_nfs!();
    for (name, folder) in [("mounted", &places.servers), ("serving", &places.served)] {
        let server = server(&places.source, folder);
        let below = format!("{}/{name}", places.clients);
        std::fs::create_dir(&below).expect("it can be made");
        let path = format!("{below}/file");
        let sum = fill(&path, 8_000_000, 3);
        let program = Program::new("file_reads").arg(&path).arg("1");
        let said = program.through(&server);
        assert_eq!(said.stdout, format!("1: 8000000 bytes, sum {sum}\n"), "{name}");
        assert_eq!(moved(&program.statistics(&server)), (8_000_000, 0, 0, 0), "{name}");
        // All that the program writes, it finds in the file, by the client's own mount.
        let all = Program::new("cufile").arg("all").arg(&below).statistics(&server);
        let (read, _, written, _) = moved(&all);
        assert!(read > 150 << 20 && written > 60 << 20, "{name}: {all}");
    }
}

/// What a machine remembers of a file for some seconds is not taken for what it is.
#[test]
fn a_change_by_another_machine_is_noticed() {
    let (places, folder) = (needs_nfs!(), Folder::create());
    let server = server(&places.source, &places.servers);
    let [path, far] = [&places.clients, &places.served].map(|at| format!("{at}/changes"));
    let first = fill(&far, 5_000_000, 1);
    let told = folder.path("profile");
    let program = Program::new("file_reads").arg(&path).arg("3").env("OUTBOARD_PROFILE", &told);
    let mut running = program.start_through(&server);
    running.wait_for_line(&format!("1: 5000000 bytes, sum {first}"));
    let second = fill(&far, 5_000_000, 90);
    assert_ne!(first, second);
    for time in [2, 3] {
        std::fs::write(format!("{far}.{time}"), "").expect("written");
        running.wait_for_line(&format!("{time}: 5000000 bytes, sum {second}"));
    }
    running.finish().expect_success("after a change");
    assert_eq!(moved(&profile(&told)), (10_000_000, 5_000_000, 0, 0));
}

/// The client is on the machine with the disk; the server waits for NFS.
#[test]
fn a_server_whose_nfs_hangs_delays_a_read_for_seconds() {
    let (places, folder) = (needs_nfs!(), Folder::create());
    let server = server(&places.disk, &places.servers);
    let path = format!("{}/hangs", places.served);
    let sum = fill(&path, 5_000_000, 7);
    let told = folder.path("profile");
    let program = Program::new("file_reads").arg(&path).arg("3").env("OUTBOARD_PROFILE", &told);
    let mut running = program.start_through(&server);
    let line = |time: u32| format!("{time}: 5000000 bytes, sum {sum}");
    running.wait_for_line(&line(1));
    script(&places.stop);
    let begun = Instant::now();
    std::fs::write(format!("{path}.2"), "").expect("written");
    running.wait_for_line(&line(2));
    let waited = begun.elapsed();
    assert!(Duration::from_secs(9) < waited && waited < Duration::from_secs(60), "{waited:?}");
    let begun = Instant::now();
    std::fs::write(format!("{path}.3"), "").expect("written");
    running.wait_for_line(&line(3));
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    script(&places.start);
    running.finish().expect_success("while NFS hung");
    assert_eq!(moved(&profile(&told)), (5_000_000, 10_000_000, 0, 0));
}
