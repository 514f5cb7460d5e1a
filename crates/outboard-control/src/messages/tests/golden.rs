//! One value of each message, and the bytes that it has in all releases: `golden.txt`.

use std::fmt::Debug;

use outboard_wire::Decode;
use outboard_wire::files::{FileChallenge, FileIdentity, FileOpening, FileReference};
use proptest::prelude::*;

use super::*;
use crate::identity::Limits;
use crate::trace::{Span, Value};

const GOLDEN: &str = include_str!("golden.txt");
const LOCK: &str = include_str!("../../../../../api/control.lock");

fn point() -> Point {
    Point { lane: 0x0102_0304, attempt: 0x0506_0708_090a_0b0c, received: 0x0d0e_0f10_1112_1314 }
}

fn full_start() -> Start {
    let limits = Limits {
        memory: Some(0x0101),
        sessions: Some(0x0202),
        multiprocessors: Some(55),
        bandwidth: Some(0x0303),
    };
    Start {
        session: 0x1112_1314_1516_1718,
        key: 0x2122_2324_2526_2728_292a_2b2c_2d2e_2f30,
        lanes: 0x3132_3334,
        probe: true,
        devices: vec![7, 0x0304],
        client: "a client".into(),
        process: Process { id: 0x4142_4344, machine: 0x5152_5354_5556_5758 },
        identity: Identity { owner: "alice".into(), token: Some("3f9a".into()), limits },
        secure: Some(Secure { certificate: vec![1, 2, 3], key: vec![4, 5] }),
        lends: false,
        only_questions: true,
        parts: vec![Part { index: 3, memory: 5, percent: 70, exclusive: true }],
        supervisor: 0x6162_6364,
        guest: true,
        local: Some(Local { host: 0x71, user: 0x72, path: "/run/outboard/1.sock".into() }),
        platform: Some(vec![8, 9, 10]),
        grace: Some(Grace { silent: Duration::from_secs(60), closed: Duration::from_millis(1234) }),
        peers: Some(vec!["a:1".into()]),
        window: Window::numbered(3),
        rdma: Some(Rdma {
            devices: vec!["mlx5_0".into()],
            networks: vec!["10.0.0.0/8".into()],
            nearest: true,
            clear: true,
            gpudirect: true,
            depth: 0x81,
            mtu: 0x82,
        }),
        client_has_adapters: true,
        no_region: Some("none is free".into()),
    }
}

fn empty_start() -> Start {
    Start {
        probe: false,
        devices: Vec::new(),
        client: String::new(),
        identity: Identity::user(1000),
        secure: None,
        lends: true,
        only_questions: false,
        parts: Vec::new(),
        guest: false,
        local: None,
        platform: None,
        grace: None,
        window: None,
        rdma: None,
        client_has_adapters: false,
        no_region: None,
        ..full_start()
    }
}

fn to_worker() -> Vec<(&'static str, ToWorker)> {
    vec![
        ("start", ToWorker::Start(Box::new(full_start()))),
        ("start, nothing that may be missing", ToWorker::Start(Box::new(empty_start()))),
        ("lane", ToWorker::Lane { secure: true }),
        ("lane, not encrypted", ToWorker::Lane { secure: false }),
        ("board", ToWorker::Board),
        (
            "answer",
            ToWorker::Answer { request: 0x0102_0304_0506_0708, payload: Some(vec![9, 10, 11]) },
        ),
        ("answer, none", ToWorker::Answer { request: 0x0102, payload: None }),
        ("memory", ToWorker::Memory),
        (
            "warm",
            ToWorker::Warm(Warm {
                contexts: vec![0x0102, 3],
                measure: true,
                supervisor: 0x0405_0607,
                window: Window::numbered(4).unwrap(),
            }),
        ),
        ("watch", ToWorker::Watch(Watch { supervisor: 0x0102_0304, platform: Some(vec![5, 6]) })),
        ("watch, no platform", ToWorker::Watch(Watch { supervisor: 0x0102_0304, platform: None })),
        ("look", ToWorker::Look),
        ("go_on", ToWorker::GoOn { secure: true, point: point() }),
        ("resumable_lane", ToWorker::ResumableLane { secure: true, point: point() }),
        ("home", ToWorker::Home { outlive: Some(0x0102_0304_0506_0708) }),
        ("home, as long as the client", ToWorker::Home { outlive: None }),
        ("keep", ToWorker::Keep { tag: 3 }),
        ("heir", ToWorker::Heir { seal: [6; 32] }),
        ("inherit", ToWorker::Inherit { secret: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10 }),
        ("unseal", ToWorker::Unseal),
        ("meter", ToWorker::Meter),
        ("account", ToWorker::Account { seat: 5 }),
        ("region", ToWorker::Region { offset: 0x1000, bytes: 0x80_0000 }),
        ("page", ToWorker::Page { index: 0x0102_0304 }),
        ("end", ToWorker::End { sentence: "enough, \u{fc}ber".into() }),
        ("trace", ToWorker::Trace { on: true, root: 0x0102_0304_0506_0708 }),
        ("suspend", ToWorker::Suspend),
        ("resume", ToWorker::Resume),
        ("wanted", ToWorker::Wanted),
        ("peer", ToWorker::Peer { secure: true, link: 0x0102 }),
        ("movable_peer", ToWorker::MovablePeer { secure: true, link: 0x0102 }),
        ("unknown", ToWorker::Unknown(200)),
    ]
}

fn to_supervisor() -> Vec<(&'static str, ToSupervisor)> {
    let token = 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10;
    let now = Gauges {
        memory_free: Some(0x11),
        memory_used: Some(0x12),
        utilisation: Some(0x13),
        temperature: Some(0x14),
        milliwatts: Some(0x15),
    };
    let gauge = Gauge {
        ordinal: 0x0102,
        name: "a device".into(),
        uuid: "GPU-1".into(),
        memory: 0x0304,
        now,
        failure: Some("lost".into()),
        nvlink: vec![0x0506],
    };
    let blind = Gauge {
        ordinal: 1,
        now: Gauges::default(),
        failure: None,
        nvlink: Vec::new(),
        ..gauge.clone()
    };
    let contexts = vec![
        ContextMemory { ordinal: 1, free: 0x0203, total: 0x0405, size: Some(0x0607) },
        ContextMemory { ordinal: 2, free: 3, total: 4, size: None },
    ];
    let span = Span {
        id: 0x0102,
        parent: 0x0304,
        name: "launch".into(),
        begun: 0x0506,
        ended: 0x0708,
        attributes: vec![
            ("kernel".into(), Value::Text("axpy".into())),
            ("bytes".into(), Value::Number(0x090a)),
        ],
    };
    vec![
        ("welcomed", ToSupervisor::Welcomed),
        (
            "failed",
            ToSupervisor::Failed { code: RefusalCode::NoDevice, sentence: "no device".into() },
        ),
        (
            "failed, a later reason",
            ToSupervisor::Failed { code: RefusalCode::Other(0x0102), sentence: "why".into() },
        ),
        ("share", ToSupervisor::Share { request: 0x1112, token, kind: 4, payload: vec![1, 2] }),
        ("unshare", ToSupervisor::Unshare { token }),
        ("find", ToSupervisor::Find { request: 0x1112, token, kind: 7 }),
        (
            "ready",
            ToSupervisor::Ready {
                snapshot: vec![7, 8, 9],
                contexts: contexts.clone(),
                window: Window::numbered(3),
            },
        ),
        (
            "ready, without a window",
            ToSupervisor::Ready { snapshot: Vec::new(), contexts, window: None },
        ),
        ("gauges", ToSupervisor::Gauges(vec![gauge, blind])),
        ("orphan", ToSupervisor::Orphan),
        ("kept", ToSupervisor::Kept { tag: 3 }),
        ("told", ToSupervisor::Told),
        ("spans", ToSupervisor::Spans { spans: vec![span], dropped: 0x0b0c, last: true }),
        ("spans, none", ToSupervisor::Spans { spans: Vec::new(), dropped: 1, last: false }),
        ("quiet", ToSupervisor::Quiet { quiet: true }),
        ("wake", ToSupervisor::Wake),
        (
            "room",
            ToSupervisor::Room { request: 0x0102, device: 0x0304, bytes: 0x0506, failed: true },
        ),
        ("holds", ToSupervisor::Holds { device: 0x0102, bytes: 0x0304 }),
        ("scarce", ToSupervisor::Scarce { request: 0x0102, device: 0x0304 }),
        (
            "dial",
            ToSupervisor::Dial {
                request: 0x0102,
                address: "a:1".into(),
                session: 0x0304,
                ticket: 0x0506,
                link: 0x0708,
                secure: true,
            },
        ),
        (
            "dial_movable",
            ToSupervisor::DialMovable {
                request: 0x0102,
                address: "a:1".into(),
                session: 0x0304,
                ticket: 0x0506,
                link: 0x0708,
                secure: true,
            },
        ),
        (
            "dial_socket",
            ToSupervisor::DialSocket {
                request: 0x0102,
                server: Local { host: 0x0304, user: 5, path: "/a".into() },
                session: 0x0607,
                ticket: 0x0809,
                link: 0x0a0b,
            },
        ),
        ("socket", ToSupervisor::Socket { request: 0x0102, v6: true }),
        ("bind", ToSupervisor::Bind { request: 0x0102, address: "a:1".into() }),
        ("connect", ToSupervisor::Connect { request: 0x0102, address: "a:1".into() }),
        ("interface", ToSupervisor::Interface { request: 0x0102 }),
        ("listen", ToSupervisor::Listen { request: 0x0102, backlog: 0x0304 }),
        ("calls", ToSupervisor::Calls),
        (
            "open_file",
            ToSupervisor::OpenFile {
                request: 0x0102,
                reference: FileReference {
                    source: "a".into(),
                    path: b"b".to_vec(),
                    identity: FileIdentity {
                        inode: 0x0304,
                        bytes: 0x0506,
                        modified: (0x0708, 0x090a),
                    },
                },
                reads: true,
                writes: false,
            },
        ),
        ("prove_file", ToSupervisor::ProveFile { request: 0x0102, opened: 0x0304, proof: [5; 32] }),
        ("unknown", ToSupervisor::Unknown(200)),
    ]
}

/// What workers read of each other, in lines of `golden.txt`.
fn payloads() -> String {
    let handle = std::array::from_fn(|at| 0x80 + at as u8);
    let (memory, event) = (SharedMemory { handle, bytes: 0x0102 }, SharedEvent { handle });
    let physical = SharedPhysical { bytes: 0x0102, kind: [3, 4, 5, 0x0607] };
    [
        payload("SharedMemory", &memory),
        payload(
            "SharedBlock",
            &SharedBlock { bytes: 0x0102, offset: 0x0304, block: 0x0506, device: 7 },
        ),
        payload("SharedEvent", &event),
        payload("SharedPhysical", &physical),
        payload("SharedPool", &SharedPool { device: 0x0102 }),
        payload("SharedPooled", &SharedPooled { data: handle, bytes: 0x0102 }),
        payload(
            "Interface",
            &Interface {
                name: "a".into(),
                flags: 0x0102,
                address: "b".into(),
                prefix: 3,
                scope: 0x0405,
            },
        ),
        payload(
            "FileAnswer",
            &FileAnswer {
                opened: 0x0102,
                opening: FileOpening::Opened(FileChallenge {
                    key: [3; 32],
                    blocks: vec![(0x0405, 0x0607)],
                }),
            },
        ),
    ]
    .concat()
}

/// The line of one that is read as it was written, and no part of it is.
fn payload<T: for<'a> Decode<'a> + Encode + PartialEq + Debug>(name: &str, value: &T) -> String {
    let whole = bytes(value);
    assert_eq!(&decode_all::<T>(&whole).unwrap(), value);
    assert!(
        (0..whole.len()).all(|cut| decode_all::<T>(&whole[..cut]).is_err()),
        "a part of {name} is read"
    );
    lines("struct", &[(name, value)])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What `golden.txt` has to say of the messages in one direction.
fn lines<T: Encode>(direction: &str, messages: &[(&str, T)]) -> String {
    messages
        .iter()
        .map(|(name, message)| format!("{direction}.{name}: {}\n", hex(&bytes(message))))
        .collect()
}

#[test]
fn everything_has_the_bytes_it_has_always_had() {
    let now =
        lines("to_worker", &to_worker()) + &lines("to_supervisor", &to_supervisor()) + &payloads();
    assert!(
        now == GOLDEN,
        "the messages have other bytes than golden.txt says; now they are\n{now}"
    );
}

#[test]
fn everything_of_the_description_is_among_them() {
    for direction in ["to_worker.", "to_supervisor.", "struct."] {
        let described =
            LOCK.lines().filter_map(|line| line.strip_prefix('"')?.strip_prefix(direction));
        let described: Vec<&str> = described.filter_map(|line| line.split('"').next()).collect();
        assert!(!described.is_empty());
        for name in described {
            let shown = |line: &str| line.starts_with(&format!("{direction}{name}:"));
            assert!(GOLDEN.lines().any(shown), "golden.txt lacks {direction}{name}");
        }
    }
}

/// Decodes what is cut off and what is longer, too.
fn decodes<T: for<'a> Decode<'a> + Encode + PartialEq + Debug>(
    messages: &[(&str, T)],
    unknown: &T,
) {
    for (name, message) in messages {
        let whole = bytes(message);
        assert_eq!(&decode_all::<T>(&whole).unwrap(), message, "{name}");
        for cut in 0..whole.len() {
            assert!(
                decode_all::<T>(&whole[..cut]).is_err(),
                "{name}: {cut} of {} bytes decoded",
                whole.len()
            );
        }
        let longer = [whole, vec![0]].concat();
        assert_eq!(decode_all::<T>(&longer).is_ok(), message == unknown, "{name}: one byte more");
    }
}

#[test]
fn every_message_is_read_as_it_was_sent_and_no_part_of_one_is() {
    decodes(&to_worker(), &ToWorker::Unknown(200));
    decodes(&to_supervisor(), &ToSupervisor::Unknown(200));
}

/// What is read from any bytes is the same when it is sent on, unless it is unknown.
fn reads<T: for<'a> Decode<'a> + Encode + PartialEq + Debug>(garbage: &[u8]) {
    if let Ok(message) = decode_all::<T>(garbage) {
        assert_eq!(decode_all::<T>(&bytes(&message)).unwrap(), message);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_an_error(tag in 0..60_u8, rest in proptest::collection::vec(any::<u8>(), 0..120)) {
        let garbage = [vec![tag], rest].concat();
        reads::<ToWorker>(&garbage);
        reads::<ToSupervisor>(&garbage);
    }

    #[test]
    fn a_message_with_some_bytes_changed_is_a_message_or_an_error(
        which in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let lines: Vec<&str> = GOLDEN.lines().collect();
        let (_, hex) = which.get(&lines).split_once(": ").unwrap();
        let mut changed: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        for (at, byte) in changes {
            let at = at.index(changed.len());
            changed[at] = byte;
        }
        reads::<ToWorker>(&changed);
        reads::<ToSupervisor>(&changed);
    }
}
