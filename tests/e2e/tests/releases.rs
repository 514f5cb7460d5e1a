//! What a server says to clients of other releases than its own. `cargo xtask mixed` runs programs
//! with two releases.

use std::fs;
use std::path::{Path, PathBuf};

use outboard_e2e::{RawClient, Recording, Replay, Server};
use outboard_wire::frame::CommandHeader;
use outboard_wire::messages::{EventCreate, Message};
use outboard_wire::{Encode, ObjectId, Writer};

/// What the client is told when its session ends.
fn end(client: &mut RawClient) -> String {
    while client.read() {}
    client.ended.clone().expect("the server says why")
}

/// What this source speaks has no such command.
const UNKNOWN: u16 = 0xfe00;

#[test]
fn a_command_of_a_newer_release_ends_the_session_with_a_sentence() {
    let server = Server::start();
    let mut client = RawClient::connect(&server);
    client.open();
    client.post_raw(UNKNOWN, b"whatever");
    let why = end(&mut client);
    assert!(why.contains("has no command 65024"), "{why}");
    assert!(why.contains("use client and server of one release"), "{why}");

    // The server serves on.
    RawClient::connect(&server).open();
}

#[test]
fn a_command_that_has_grown_ends_the_session_with_a_sentence() {
    let server = Server::start();
    let mut client = RawClient::connect(&server);
    client.open();
    let mut longer = Writer::new();
    EventCreate { event: ObjectId(7), flags: 0 }.encode(&mut longer);
    longer.u32(1);
    client.post_raw(EventCreate::OP, longer.as_slice());
    let why = end(&mut client);
    assert!(why.starts_with("ended, as its client broke the protocol ("), "{why}");
}

/// Programs whose sessions were recorded: they use many commands and no lane.
const RECORDED: [&str; 2] = ["driver_api", "driver_objects"];

fn recordings(release: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings").join(release)
}

/// Set to a release, this has its sessions recorded; `OUTBOARD_TEST_DIST` is then an installation
/// of it, as `cargo xtask mixed` leaves them in `target/mixed`.
const RECORD: &str = "OUTBOARD_RECORD";

/// A server that answers the same each time and on each machine: it knows no images from before,
/// and its device has as much memory everywhere, which decides where allocations may lie.
fn recorded_server() -> Server {
    let variables = [("OUTBOARD_CPU_MEMORY", "8G")];
    Server::start_with(&["--driver", "cpu", "--image-cache", "off"], &variables)
}

#[test]
fn sessions_of_earlier_releases_go_as_they_went() {
    let server = recorded_server();
    if let Ok(release) = std::env::var(RECORD) {
        fs::create_dir_all(recordings(&release)).expect("the folder can be made");
        for program in RECORDED {
            let replay = Replay::of(&Recording::of(&server, program), &server);
            let path = recordings(&release).join(program);
            fs::write(path, replay.text()).expect("the recording can be written");
        }
    }
    let releases = fs::read_dir(recordings("")).expect("there are recordings");
    let mut compared = 0;
    for release in releases {
        let release = release.expect("a folder").file_name();
        for program in RECORDED {
            let path = recordings(release.to_str().expect("a release")).join(program);
            let text = fs::read_to_string(&path).expect("a recording");
            let came = Replay::parse(&text).compare(&server);
            assert_eq!(came, Ok(()), "{}", path.display());
            compared += 1;
        }
    }
    assert!(compared >= RECORDED.len());
}

#[test]
fn a_recording_that_is_not_understood_is_noticed() {
    let server = recorded_server();
    let text = fs::read_to_string(recordings("0.1.0").join(RECORDED[0])).expect("a recording");
    let good = Replay::parse(&text);

    // A command whose number this release would have given to another one, and one with a field
    // more.
    let mut other = good.clone();
    other.commands[0][4..6].copy_from_slice(&UNKNOWN.to_le_bytes());
    let why = other.compare(&server).expect_err("the command is unknown");
    assert!(why.contains("has no command 65024"), "{why}");
    let mut longer = good.clone();
    longer.commands[0].extend([0; 4]);
    let length = longer.commands[0].len() as u32 - CommandHeader::SIZE as u32;
    longer.commands[0][..4].copy_from_slice(&length.to_le_bytes());
    let why = longer.compare(&server).expect_err("the command is too long");
    assert!(why.contains("broke the protocol"), "{why}");

    // An answer that is another one.
    let first = text.lines().find(|line| line.starts_with("answer 0 ")).expect("an answer");
    let changed = Replay::parse(&text.replacen(first, "answer 0 ffff", 1));
    let why = changed.compare(&server).expect_err("the answer differs");
    assert!(why.contains("instead of"), "{why}");
}
