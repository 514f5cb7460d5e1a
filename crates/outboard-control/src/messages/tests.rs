mod golden;

use std::os::fd::AsFd;

use std::time::Duration;

use outboard_nvml::Gauges;
use outboard_wire::codec::decode_all;
use outboard_wire::handshake::resume::Point;
use outboard_wire::handshake::{Local, Process, RefusalCode};
use outboard_wire::window::Window;
use outboard_wire::{Encode, Writer};

use super::*;
use crate::identity::Identity;

#[test]
fn messages_and_descriptors_arrive() {
    let (here, there) = pair().unwrap();
    let start = Start {
        session: 1,
        key: 2,
        lanes: 4,
        probe: false,
        devices: vec![1, 0],
        client: "test".into(),
        process: Process { id: 3, machine: 4 },
        identity: Identity::user(6),
        secure: Some(Secure { certificate: vec![1, 2], key: vec![3] }),
        lends: true,
        only_questions: true,
        parts: vec![Part { index: 3, memory: 5, percent: 70, exclusive: true }],
        supervisor: 5,
        guest: false,
        local: Some(Local { host: 6, user: 7, path: "/run/outboard/1.sock".into() }),
        platform: Some(vec![8, 9]),
        grace: Some(Grace { silent: Duration::from_secs(60), closed: Duration::from_millis(5) }),
        peers: None,
        window: Window::numbered(3),
        rdma: None,
        client_has_adapters: false,
        no_region: None,
    };
    send(here.as_fd(), &ToWorker::Start(Box::new(start.clone())), Some(here.as_fd())).unwrap();
    let point = Point { lane: 1, attempt: 2, received: 3 };
    let lanes = [
        ToWorker::Lane { secure: true },
        ToWorker::ResumableLane { secure: false, point },
        ToWorker::GoOn { secure: true, point },
    ];
    for lane in &lanes {
        send(here.as_fd(), lane, None).unwrap();
    }
    let warm = ToWorker::Warm(Warm {
        contexts: vec![0, 2],
        measure: true,
        supervisor: 5,
        window: Window::numbered(4).unwrap(),
    });
    send(here.as_fd(), &warm, None).unwrap();
    let end = ToWorker::End { sentence: "enough".into() };
    send(here.as_fd(), &end, None).unwrap();
    let (message, descriptor) = receive::<ToWorker>(there.as_fd()).unwrap().unwrap();
    assert_eq!(message, ToWorker::Start(Box::new(start)));
    let descriptor = descriptor.expect("a descriptor came along");
    assert!(rustix::io::fcntl_getfd(&descriptor).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    for lane in lanes {
        let (message, descriptor) = receive::<ToWorker>(there.as_fd()).unwrap().unwrap();
        assert_eq!((message, descriptor.is_none()), (lane, true));
    }
    assert_eq!(receive::<ToWorker>(there.as_fd()).unwrap().unwrap().0, warm);
    assert_eq!(receive::<ToWorker>(there.as_fd()).unwrap().unwrap().0, end);

    let failed = ToSupervisor::Failed { code: RefusalCode::NoDevice, sentence: "no device".into() };
    send(there.as_fd(), &failed, None).unwrap();
    assert_eq!(receive::<ToSupervisor>(here.as_fd()).unwrap().unwrap().0, failed);

    let share = ToSupervisor::Share { request: 3, token: u128::MAX, kind: 4, payload: vec![1, 2] };
    let find = ToSupervisor::Find { request: 5, token: 6, kind: 7 };
    let ready = ToSupervisor::Ready {
        snapshot: vec![7; 100],
        contexts: vec![ContextMemory { ordinal: 1, free: 2, total: 3, size: Some(1) }],
        window: None,
    };
    for message in [share, find, ToSupervisor::Unshare { token: 8 }, ready] {
        send(there.as_fd(), &message, None).unwrap();
        assert_eq!(receive::<ToSupervisor>(here.as_fd()).unwrap().unwrap().0, message);
    }
    for payload in [None, Some(vec![9])] {
        let answer = ToWorker::Answer { request: 1, payload };
        send(here.as_fd(), &answer, None).unwrap();
        assert_eq!(receive::<ToWorker>(there.as_fd()).unwrap().unwrap().0, answer);
    }

    for message in [ToSupervisor::Orphan, ToSupervisor::Kept { tag: 1 }, ToSupervisor::Told] {
        send(there.as_fd(), &message, None).unwrap();
        assert_eq!(receive::<ToSupervisor>(here.as_fd()).unwrap().unwrap().0, message);
    }
    for message in [
        ToWorker::Home { outlive: Some(9) },
        ToWorker::Home { outlive: None },
        ToWorker::Keep { tag: 2 },
    ] {
        send(here.as_fd(), &message, None).unwrap();
        assert_eq!(receive::<ToWorker>(there.as_fd()).unwrap().unwrap().0, message);
    }

    drop(there);
    drop(descriptor);
    assert!(receive::<ToSupervisor>(here.as_fd()).unwrap().is_none());
}

#[test]
fn how_the_devices_do_is_asked_and_told() {
    let (here, there) = pair().unwrap();
    let watch = ToWorker::Watch(Watch { supervisor: 5, platform: Some(vec![1]) });
    for message in [&watch, &ToWorker::Look] {
        send(here.as_fd(), message, None).unwrap();
        assert_eq!(receive::<ToWorker>(there.as_fd()).unwrap().unwrap().0, *message);
    }
    let now = Gauges { memory_used: Some(3), temperature: Some(40), ..Gauges::default() };
    let gauge = Gauge {
        ordinal: 1,
        name: "a device".into(),
        uuid: "GPU-1".into(),
        memory: 9,
        now,
        failure: None,
        nvlink: vec![2],
    };
    let gauges = ToSupervisor::Gauges(vec![gauge]);
    send(there.as_fd(), &gauges, None).unwrap();
    assert_eq!(receive::<ToSupervisor>(here.as_fd()).unwrap().unwrap().0, gauges);
}

#[test]
fn what_was_sent_before_an_end_arrives_even_if_that_end_left_messages_unread() {
    let (here, there) = pair().unwrap();
    send(here.as_fd(), &ToWorker::Lane { secure: false }, None).unwrap();
    send(there.as_fd(), &ToSupervisor::Welcomed, None).unwrap();
    send(there.as_fd(), &ToSupervisor::Told, None).unwrap();
    drop(there);
    assert_eq!(receive::<ToSupervisor>(here.as_fd()).unwrap().unwrap().0, ToSupervisor::Welcomed);
    assert_eq!(receive::<ToSupervisor>(here.as_fd()).unwrap().unwrap().0, ToSupervisor::Told);
    assert!(receive::<ToSupervisor>(here.as_fd()).unwrap().is_none());
}

fn bytes(message: &impl Encode) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.put(message);
    writer.into_vec()
}

#[test]
fn what_a_later_release_adds_is_known_for_that() {
    assert_eq!(decode_all::<ToWorker>(&[99, 1, 2, 3]).unwrap(), ToWorker::Unknown(99));
    assert_eq!(decode_all::<ToSupervisor>(&[99, 1, 2, 3]).unwrap(), ToSupervisor::Unknown(99));
}
