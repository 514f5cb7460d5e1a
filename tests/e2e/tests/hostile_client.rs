//! What one session may take of its worker and of the machine: each test plays a client that takes more, and looks at what it got.

use std::time::Duration;

use outboard_e2e::raw_client::read_frame;
use outboard_e2e::{Footprint, Program, RawClient, Server};
use outboard_wire::lane::LaneKind;
use outboard_wire::messages::*;

const MIB: u64 = 1 << 20;

/// A session with its context open, and the process that serves it.
fn attacker(server: &Server) -> (RawClient, u32) {
    let mut client = RawClient::connect(server);
    client.open();
    (client, server.only_worker())
}

/// What the process holds now.
fn footprint(process: u32) -> Footprint {
    Footprint::of(process).expect("the worker runs")
}

/// 300 copies to the host of 64 MiB each, on lanes that are not read: the worker stages what it may for a session, and its streams stand still.
/// Commands and uploads go on meanwhile, and when the client reads at last, all bytes come.
#[test]
fn unread_downloads_stand_still() {
    const COPIES: u64 = 300;
    const BYTES: u64 = 64 * MIB;
    let server = Server::start();
    let (mut client, worker) = attacker(&server);
    let src = client.alloc(BYTES).expect("device memory");
    client.post(&Fill { dst: src, pitch: 0, value: 0x5a, element: 1, width: BYTES, height: 1, stream: 0 });
    client.call(&ContextSynchronize {}, |_| ()).expect("a wait");
    let mut lane = client.lane();
    let before = footprint(worker).memory;
    client.post_all((1..=COPIES).map(|transfer| CopyOutBulk {
        src,
        stream: 0,
        bytes: BYTES,
        transfer,
        chunk: 1 << 20,
    }));
    // The dispatcher has gone past all of them when it answers this.
    client.call(&MemoryInfo {}, |_| ()).expect("commands go on");
    std::thread::sleep(Duration::from_millis(500));
    let grown = footprint(worker).memory.saturating_sub(before);
    assert!(grown < 300 * MIB, "{} MiB for copies that nobody reads", grown / MIB);

    let (mut chunks, mut whole) = (0, true);
    while chunks < COPIES * BYTES / MIB {
        let (header, bytes) = read_frame(&mut lane).expect("the lane goes on");
        assert_eq!(header.kind, LaneKind::Chunk);
        whole &= bytes.iter().all(|byte| *byte == 0x5a);
        chunks += 1;
    }
    assert!(whole, "what comes late is what was copied");
    client.call(&ContextSynchronize {}, |_| ()).expect("the stream went on");
    assert!(client.failures.is_empty(), "{:?}", client.failures);
    Program::new("vector_add").through(&server).expect_success("a neighbour");
}
