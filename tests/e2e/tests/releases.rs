//! What a server says to clients of other releases than its own.

use outboard_e2e::{RawClient, Server};
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
