//! What one session may take of its worker and of the machine: each test plays a client that takes
//! more, and looks at what it got.

use std::net::TcpStream;
use std::time::Duration;

use outboard_e2e::raw_client::{read_frame, write_chunk};
use outboard_e2e::{Driver, Footprint, PATIENCE, Program, RawClient, Server, within};
use outboard_test_support::skip;
use outboard_wire::device_id::DeviceId;
use outboard_wire::lane::LaneKind;
use outboard_wire::messages::*;
use outboard_wire::types::JitOptions;
use outboard_wire::{DevicePtr, ObjectId, StreamId, UnifiedPtr};

const MIB: u64 = 1 << 20;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u32 = 2;
/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: u32 = 801;

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

/// Memory of the device with this in each byte.
fn filled(client: &mut RawClient, bytes: u64, value: u8) -> u64 {
    let address = client.alloc(bytes).expect("device memory");
    client.post(&Fill {
        dst: DevicePtr(address),
        pitch: 0,
        value: value.into(),
        element: 1,
        width: bytes,
        height: 1,
        stream: StreamId::LEGACY,
    });
    client.call(&ContextSynchronize {}, |_| ()).expect("a wait");
    address
}

fn copies_out(
    src: u64,
    stream: u64,
    bytes: u64,
    transfers: std::ops::RangeInclusive<u64>,
) -> impl Iterator<Item = CopyOutBulk> {
    transfers.map(move |transfer| CopyOutBulk {
        src: DevicePtr(src),
        stream: StreamId(stream),
        bytes,
        transfer,
        chunk: MIB as u32,
    })
}

/// Reads so many chunks of a mebibyte, each with this in all its bytes: of which transfers they
/// were.
fn read_chunks(lane: &mut TcpStream, count: u64, value: u8) -> Vec<u64> {
    let expected = vec![value; MIB as usize];
    let mut transfers = Vec::new();
    while (transfers.len() as u64) < count {
        let (header, bytes) = read_frame(lane).expect("the lane goes on");
        if header.kind == LaneKind::Chunk {
            assert!(
                bytes == expected,
                "chunk {} of {} is not what was copied",
                header.index,
                header.transfer
            );
            transfers.push(header.transfer);
        }
    }
    transfers
}

/// 300 copies to the host on lanes that are not read: the worker stages what it may for a session,
/// and the stream stands still. Commands, uploads and other streams go on meanwhile, and when the
/// client reads at last, all bytes come.
#[test]
fn unread_downloads_stand_still() {
    const COPIES: u64 = 300;
    const BYTES: u64 = 4 * MIB;
    let server = Server::start();
    let (mut client, worker) = attacker(&server);
    let src = filled(&mut client, BYTES, 0x5a);
    let dst = client.alloc(MIB).expect("device memory");
    let mut lane = client.lane();
    client.post(&StreamCreate { stream: ObjectId(7), flags: 1, priority: 0 });
    let before = footprint(worker).memory;
    client.post_all(copies_out(src, 0, BYTES, 1..=COPIES));

    // An upload in another stream, whose bytes come back inside an answer.
    client.post(&CopyInBulk {
        dst: DevicePtr(dst),
        stream: StreamId(7),
        bytes: MIB,
        transfer: 1000,
        chunk: MIB as u32,
    });
    write_chunk(&mut lane, 1000, 0, &vec![0xa5; MIB as usize]);
    let come = client
        .call(&CopyOut { src: DevicePtr(dst), stream: StreamId(7), bytes: 4096 }, |reply| {
            reply.data.to_vec()
        });
    assert!(come.expect("commands and other streams go on").iter().all(|byte| *byte == 0xa5));
    let mut last = None;
    let is_settled = within(PATIENCE, || {
        std::thread::sleep(Duration::from_millis(50));
        let now = footprint(worker).memory;
        last.replace(now) == Some(now)
    });
    assert!(is_settled, "the worker takes more and more");
    let grown = footprint(worker).memory.saturating_sub(before);
    assert!(grown < 200 * MIB, "{} MiB for copies that nobody reads", grown / MIB);

    read_chunks(&mut lane, COPIES * BYTES / MIB, 0x5a);
    client.call(&ContextSynchronize {}, |_| ()).expect("the stream went on");
    assert!(client.failures.is_empty(), "{:?}", client.failures);
    Program::new("vector_add").through(&server).expect_success("a neighbour");
}

/// A stream that stands still for a reason of its own keeps no other stream from copying.
#[test]
fn a_stream_that_waits_holds_up_only_itself() {
    const HELD: u64 = 12;
    const BYTES: u64 = 32 * MIB;
    let server = Server::start();
    let (mut client, _) = attacker(&server);
    let src = filled(&mut client, BYTES, 0x11);
    let flag = filled(&mut client, 4096, 0);
    let mut lane = client.lane();
    for stream in [1, 2, 3] {
        client.post(&StreamCreate { stream: ObjectId(stream), flags: 1, priority: 0 });
    }
    client.post(&StreamWaitValue {
        stream: StreamId(1),
        address: DevicePtr(flag),
        value: 1,
        wide: false,
        flags: 0,
    });
    client.post_all(copies_out(src, 1, BYTES, 1..=HELD));
    client.post_all(copies_out(src, 2, BYTES, 100..=105));
    let came = read_chunks(&mut lane, 6 * BYTES / MIB, 0x11);
    assert!(came.iter().all(|transfer| *transfer >= 100), "those of the stream that moves");
    client.call(&StreamSynchronize { stream: StreamId(2) }, |_| ()).expect("it has ended");
    client.post(&StreamWriteValue {
        stream: StreamId(3),
        address: DevicePtr(flag),
        value: 1,
        wide: false,
        flags: 0,
    });
    read_chunks(&mut lane, HELD * BYTES / MIB, 0x11);
    client.call(&ContextSynchronize {}, |_| ()).expect("all have ended");
    assert!(client.failures.is_empty(), "{:?}", client.failures);
}

/// A server whose sessions may have 256 MiB of a device.
fn limited() -> Server {
    Server::start_with(&["--driver", Driver::chosen().name(), "--session-memory", "256M"], &[])
}

/// Loads an image under a name; how it went.
fn load(client: &mut RawClient, module: u64, image: &str) -> u32 {
    client.post(&ImageData { data: image.as_bytes() });
    let parts = vec![image.len() as u64];
    let load = ModuleLoad { module: ObjectId(module), parts, options: JitOptions::default() };
    client.call(&load, |reply| reply.status).expect("an answer")
}

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// Variables of modules count from the first byte: 48 modules of 31 MiB each are not let pass under
/// 256 MiB.
#[test]
fn modules_count_with_their_sum() {
    let server = limited();
    let (mut client, _) = attacker(&server);
    let image = format!("{HEAD}.visible .global .align 8 .b8 large[{}];\0", 31 * MIB);
    let load_all = |client: &mut RawClient, first: u64| -> Vec<u64> {
        (first..first + 48).filter(|name| load(client, *name, &image) == 0).collect()
    };
    let modules = load_all(&mut client, 1);
    let loaded = modules.len();
    assert!((4..=8).contains(&loaded), "{loaded} modules of 31 MiB under 256 MiB");
    for module in modules {
        client.call(&ModuleUnload { module: ObjectId(module) }, |_| ()).expect("it is there");
    }
    let again = load_all(&mut client, 101).len();
    // A GPU's driver may keep a little of what modules had for the next ones.
    let fewer = if Driver::chosen() == Driver::Nvidia { 1 } else { 0 };
    assert!(
        again + fewer >= loaded && again <= 8,
        "what was unloaded counts no longer: {loaded}, then {again}"
    );
}

/// A kernel's local memory counts for all threads that the device can have at once.
#[test]
fn local_memory_of_kernels_counts() {
    let server = limited();
    let (mut client, _) = attacker(&server);
    let kernel = |name: &str, bytes: u64| {
        format!(
            ".visible .entry {name}(.param .u64 out)\n{{\n.local .align 8 .b8 depot[{bytes}];\n.reg .b64 %rd<4>;\n\
             ld.param.u64 %rd1, [out];\nmov.u64 %rd2, depot;\nst.local.u64 [%rd2], %rd1;\nret;\n}}\n"
        )
    };
    let image = format!("{HEAD}{}{}\0", kernel("small", 512), kernel("large", 256 << 10));
    assert_eq!(load(&mut client, 1, &image), 0);
    let mut find = |name, function| {
        client.call(&ModuleFunction { module: ObjectId(1), name, function }, |_| ())
    };
    assert_eq!(find("small", ObjectId(1)), Ok(()));
    assert_eq!(find("large", ObjectId(2)), Err(OUT_OF_MEMORY));
}

/// Page-locked memory that kernels use is memory of the server's machine: it counts, whether it is
/// opened or goes with copies of graphs.
#[test]
fn page_locked_memory_counts() {
    const AT: u64 = 1 << 44;
    let server = limited();
    let (mut client, _) = attacker(&server);
    let mut open = |address, bytes| client.call(&MappedOpen { address, bytes }, |_| ());
    assert_eq!(open(UnifiedPtr(AT), 4 << 30), Err(OUT_OF_MEMORY));
    assert_eq!(open(UnifiedPtr(AT), 128 * MIB), Ok(()));
    assert_eq!(open(UnifiedPtr(AT + (1 << 40)), 192 * MIB), Err(OUT_OF_MEMORY));
    client
        .call(&MappedClose { address: UnifiedPtr(AT), bytes: 128 * MIB }, |_| ())
        .expect("it is open");
    client
        .call(&MappedOpen { address: UnifiedPtr(AT), bytes: 192 * MIB }, |_| ())
        .expect("what was closed counts no longer");
    assert_eq!(client.alloc(128 * MIB), Err(OUT_OF_MEMORY));
}

/// A file that nobody has handed over is not there, whatever its number, and nothing is open where
/// it was to be.
#[test]
fn files_that_did_not_come_are_refused() {
    const AT: UnifiedPtr = UnifiedPtr(1 << 44);
    let server = Server::start();
    let (mut client, _) = attacker(&server);
    for number in [0, 1, u64::MAX] {
        let file = MappedFile { address: AT, bytes: MIB, number, offset: 0 };
        assert_eq!(client.call(&file, |_| ()), Err(NOT_SUPPORTED));
    }
    assert!(client.call(&MappedClose { address: AT, bytes: MIB }, |_| ()).is_err());
    client
        .call(&MappedOpen { address: AT, bytes: MIB }, |_| ())
        .expect("memory of the worker's own");
}

/// Each link has a thread of its own: a session has a few dozen, and is refused more as a device
/// without memory would.
#[test]
fn links_are_bounded() {
    let server = Server::start();
    let (mut client, worker) = attacker(&server);
    let before = footprint(worker).threads;
    let last = client.ask_all(
        (1..=2000).map(|link| LinkCreate { link: ObjectId(link), options: JitOptions::default() }),
    );
    assert_eq!(client.reply(last), Err(OUT_OF_MEMORY));
    let threads = footprint(worker).threads - before;
    assert!((8..=48).contains(&threads), "{threads} threads for 2,000 links");
    client.post_all((1..=2000).map(|link| LinkDestroy { link: ObjectId(link) }));
    let again =
        client.call(&LinkCreate { link: ObjectId(5000), options: JitOptions::default() }, |_| ());
    again.expect("there is room again");
}

/// Objects of the driver's are bounded by kind; what has ended makes room.
#[test]
fn contexts_streams_and_graphs_are_bounded() {
    let server = Server::start();
    let (mut client, worker) = attacker(&server);
    let descriptors = footprint(worker).descriptors;
    client.post_all((1..=20_000).map(|stream| StreamCreate {
        stream: ObjectId(stream),
        flags: 1,
        priority: 0,
    }));
    client.post_all((1..=70_000).map(|graph| GraphCreate { graph: ObjectId(graph) }));
    client.call(&MemoryInfo {}, |_| ()).expect("commands go on");
    let refused = 20_000 - 16_384 + 70_000 - 65_536;
    // A GPU may have no room for as many.
    let as_many = client.failures.len() == refused
        || Driver::chosen() == Driver::Nvidia && client.failures.len() > refused;
    assert!(
        as_many && client.failures.iter().all(|status| *status == OUT_OF_MEMORY),
        "{:?}",
        client.failures.first()
    );
    client.post_all((1..=20_000).map(|stream| StreamDestroy { stream: ObjectId(stream) }));
    client.failures.clear();
    client.post(&StreamCreate { stream: ObjectId(30_000), flags: 1, priority: 0 });
    client.call(&MemoryInfo {}, |_| ()).expect("commands go on");
    assert!(client.failures.iter().all(|status| *status != OUT_OF_MEMORY), "there is room again");
    let opened = (2..=100).filter(|ctx| {
        client.ctx = *ctx;
        client
            .call(&ContextOpen { device: DeviceId::new(0), flags: 0, primary: false }, |_| ())
            .is_ok()
    });
    let opened = opened.count() as u64;
    let bounded = opened == 63 || Driver::chosen() == Driver::Nvidia && opened < 63;
    assert!(bounded, "{opened} and the primary one");
    // A GPU's driver has some of its own for each context.
    let each = if Driver::chosen() == Driver::Nvidia { 64 * opened } else { 0 };
    let after = footprint(worker).descriptors;
    assert!(
        after < descriptors + 100 + each,
        "{descriptors} descriptors became {after} with {opened} contexts"
    );
}

/// Calls that wait for a stream that stands still have a buffer each.
#[test]
fn waiting_calls_are_bounded() {
    if Driver::chosen() == Driver::Nvidia {
        skip!("the queue of a GPU's stream is shorter, and whoever fills it waits, as natively");
    }
    let server = Server::start();
    let (mut client, worker) = attacker(&server);
    let src = filled(&mut client, 1 << 16, 0);
    for stream in [1, 2] {
        client.post(&StreamCreate { stream: ObjectId(stream), flags: 1, priority: 0 });
    }
    client.post(&StreamWaitValue {
        stream: StreamId(1),
        address: DevicePtr(src),
        value: 1,
        wide: false,
        flags: 0,
    });
    let before = footprint(worker);
    let last = client.ask_all((0..1100).map(|_| CopyOut {
        src: DevicePtr(src),
        stream: StreamId(1),
        bytes: 1 << 16,
    }));
    assert_eq!(client.reply(last), Err(OUT_OF_MEMORY));
    let now = footprint(worker);
    assert!(now.memory < before.memory + 100 * MIB, "{} MiB", (now.memory - before.memory) / MIB);
    assert!(now.threads < before.threads + 64, "{} threads", now.threads - before.threads);
    client.post(&StreamWriteValue {
        stream: StreamId(2),
        address: DevicePtr(src),
        value: 1,
        wide: false,
        flags: 0,
    });
    // Until some of them have been answered, there is no room for one more.
    let goes_on = || client.call(&StreamSynchronize { stream: StreamId(1) }, |_| ()).is_ok();
    assert!(within(Duration::from_secs(20), goes_on), "the stream goes on");
}
