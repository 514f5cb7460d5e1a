//! Large copies over the lanes.

use std::time::{Duration, Instant};

use outboard_client::link::bulk::suggested_chunk;
use outboard_client::link::{Link, LinkError, Ticket, handshake};
use outboard_transport::tcp::Tcp;
use outboard_transport::{Transport, write_all};
use outboard_wire::ContextId;
use outboard_wire::handshake::Purpose;
use outboard_wire::limits::{UPLOADS, WINDOW};

use super::device::*;
use super::parts::*;

pub(crate) const ALL: &[(&str, fn())] = &[
    ("copies_of_many_sizes_arrive", copies_of_many_sizes_arrive),
    ("copies_in_the_background_arrive", copies_in_the_background_arrive),
    ("many_threads_copy_at_once", many_threads_copy_at_once),
    ("a_held_upload_holds_up_nothing_else", a_held_upload_holds_up_nothing_else),
    ("bytes_before_their_command_are_kept", bytes_before_their_command_are_kept),
    ("staging_memory_is_waited_for", staging_memory_is_waited_for),
    ("refused_transfers_end_and_leave_no_trace", refused_transfers_end_and_leave_no_trace),
    ("a_lost_worker_ends_all_transfers", a_lost_worker_ends_all_transfers),
    ("nonsense_on_a_lane_ends_its_session_alone", nonsense_on_a_lane_ends_its_session_alone),
    ("an_upload_not_started_gives_its_room_back", an_upload_not_started_gives_its_room_back),
];

fn bytes(transfer: u64, len: usize) -> Vec<u8> {
    pattern(transfer, 0, len)
}

fn announce(link: &Link, op: u16, transfer: u64, len: usize, chunk: u32, how: u8) {
    link.post(op, ContextId::NONE, |writer| {
        writer.u64(transfer);
        writer.u64(len as u64);
        writer.u32(chunk);
        writer.u8(how);
    })
    .unwrap();
}

fn sum(link: &Link, transfer: u64) -> u64 {
    let reply = link.call(SUM, ContextId::NONE, |writer| writer.u64(transfer)).unwrap();
    u64::from_le_bytes(reply.payload.try_into().unwrap())
}

/// Uploads and waits until the device has the bytes.
pub(crate) fn upload(link: &Link, len: usize, chunk: u32) {
    let upload = link.upload(len as u64, chunk).unwrap().unwrap();
    let transfer = upload.number();
    let source = bytes(transfer, len);
    announce(link, UPLOAD, transfer, len, chunk, NORMAL);
    // SAFETY: the source outlives the call.
    unsafe { upload.send(source.as_ptr()) }.unwrap().wait().unwrap();
    assert_eq!(sum(link, transfer), checksum(&source));
}

/// Starts a download into `to`, which must outlive the ticket.
pub(crate) fn start_download(link: &Link, to: &mut [u8], chunk: u32, how: u8) -> Ticket {
    // SAFETY: all tests keep `to` until they have waited for the ticket.
    let ticket =
        unsafe { link.download(to.as_mut_ptr(), to.len() as u64, chunk, Vec::new()) }.unwrap();
    announce(link, DOWNLOAD, ticket.number(), to.len(), chunk, how);
    ticket
}

pub(crate) fn download(link: &Link, len: usize, chunk: u32) {
    let mut to = vec![0; len];
    let ticket = start_download(link, &mut to, chunk, NORMAL);
    ticket.wait().unwrap();
    assert!(to == bytes(ticket.number(), len), "the bytes differ");
}

fn copies_of_many_sizes_arrive() {
    let server = serve();
    let (link, _) = connect(&server.first_line, vec![]).unwrap();
    for len in [1, 65_536, 65_537, 1_000_003, 9 << 20] {
        for chunk in [64 << 10, suggested_chunk(len as u64), 8 << 20] {
            upload(&link, len, chunk);
            download(&link, len, chunk);
        }
    }
    let more_than_a_window = WINDOW + (3 << 20) + 1;
    upload(&link, more_than_a_window, 1 << 20);
    download(&link, more_than_a_window, 1 << 20);
    let stats = link.stats();
    assert_eq!(stats.bulk_sent, stats.bulk_received);
    assert!(stats.bulk_sent > WINDOW as u64);
}

fn copies_in_the_background_arrive() {
    let server = serve();
    let (link, _) = connect(&server.first_line, vec![]).unwrap();
    let len = WINDOW + (5 << 20);
    let chunk = 1 << 20;
    let started = link.upload(len as u64, chunk).unwrap().unwrap();
    let transfer = started.number();
    let source = bytes(transfer, len);
    announce(&link, UPLOAD, transfer, len, chunk, HOLD);
    // SAFETY: the source outlives the wait below.
    let ticket = unsafe { started.send_in_background(source.as_ptr()) };
    let mut to = vec![0; len];
    start_download(&link, &mut to, chunk, NORMAL).wait().unwrap();
    assert!(!ticket.has_ended(), "it waits for grants");
    link.post(RELEASE, ContextId::NONE, |_| ()).unwrap();
    ticket.wait().unwrap();
    assert_eq!(sum(&link, transfer), checksum(&source));
}

fn many_threads_copy_at_once() {
    let server = serve();
    let (link, _) = connect(&server.first_line, vec![]).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8usize {
            let link = &link;
            scope.spawn(move || {
                for round in 1..=4 {
                    let len = 65_537 + thread * 100_003 + round * 399_989;
                    upload(link, len, 256 << 10);
                    download(link, len, 256 << 10);
                }
            });
        }
    });
}

fn a_held_upload_holds_up_nothing_else() {
    let server = serve();
    let (link, _) = connect(&server.first_line, vec![]).unwrap();
    let len = 2 * WINDOW;
    let held = link.upload(len as u64, 2 << 20).unwrap().unwrap();
    let transfer = held.number();
    announce(&link, UPLOAD, transfer, len, 2 << 20, HOLD);
    let source = bytes(transfer, len);
    std::thread::scope(|scope| {
        // SAFETY: the source outlives the call.
        let sending = scope.spawn(|| unsafe { held.send(source.as_ptr()) }.map(drop));
        // Its window is full: from here on it waits for the device.
        wait_until("a full window", || link.stats().bulk_sent >= WINDOW as u64);
        for _ in 0..5 {
            upload(&link, 5 << 20, 1 << 20);
            download(&link, 5 << 20, 1 << 20);
            assert_eq!(link.call(ECHO, ContextId::NONE, |_| ()).unwrap().status, 5);
        }
        assert!(!sending.is_finished());
        link.post(RELEASE, ContextId::NONE, |_| ()).unwrap();
        sending.join().unwrap().unwrap();
    });
    assert_eq!(sum(&link, transfer), checksum(&source));
}

fn bytes_before_their_command_are_kept() {
    let server = serve();
    let (link, _) = connect(&server.first_line, vec![]).unwrap();
    let (len, chunk) = (6 << 20, 1 << 20);
    let uploads: Vec<_> = (0..3)
        .map(|_| {
            let upload = link.upload(len as u64, chunk).unwrap().unwrap();
            let source = bytes(upload.number(), len);
            let transfer = upload.number();
            // SAFETY: the source is kept until the ticket has been waited for.
            let ticket = unsafe { upload.send_in_background(source.as_ptr()) };
            (transfer, source, ticket)
        })
        .collect();
    for (_, _, ticket) in &uploads {
        ticket.wait().unwrap();
    }
    // All bytes have left, and nothing has been announced: they are parked, and the lanes are free.
    let last = link.upload(len as u64, chunk).unwrap().unwrap();
    let (transfer, source) = (last.number(), bytes(last.number(), len));
    announce(&link, UPLOAD, transfer, len, chunk, NORMAL);
    // SAFETY: the source outlives the call.
    unsafe { last.send(source.as_ptr()) }.unwrap().wait().unwrap();
    assert_eq!(sum(&link, transfer), checksum(&source));
    for (transfer, source, _) in &uploads {
        announce(&link, UPLOAD, *transfer, len, chunk, NORMAL);
        assert_eq!(sum(&link, *transfer), checksum(source));
    }
}

fn staging_memory_is_waited_for() {
    let server = serve();
    let (link, _) = connect(&server.first_line, vec![]).unwrap();
    let chunk = 8 << 20;
    let source = vec![0; WINDOW];
    let held: Vec<Ticket> = (0..UPLOADS / WINDOW)
        .map(|_| {
            let upload = link.upload(WINDOW as u64, chunk).unwrap().unwrap();
            announce(&link, UPLOAD, upload.number(), WINDOW, chunk, HOLD);
            // SAFETY: the source outlives all waits below.
            unsafe { upload.send_in_background(source.as_ptr()) }
        })
        .collect();
    for ticket in &held {
        ticket.wait().unwrap();
    }
    // Nothing gives any back: whoever has another copy is told that it is to be queued, and told so
    // at once the next time.
    assert!(link.upload(1 << 20, 1 << 20).unwrap().is_none());
    let asked = Instant::now();
    assert!(
        link.upload(1 << 20, 1 << 20).unwrap().is_none()
            && asked.elapsed() < Duration::from_millis(15)
    );
    link.post(RELEASE, ContextId::NONE, |_| ()).unwrap();
    link.call(ECHO, ContextId::NONE, |_| ()).unwrap();
    let next = || link.upload(1 << 20, 1 << 20).unwrap().map(|upload| upload.number());
    wait_until("an upload that finds room", || next().is_some());
    upload(&link, 1 << 20, 1 << 20);
}

fn refused_transfers_end_and_leave_no_trace() {
    let server = serve();
    let (link, _) = connect(&server.first_line, vec![]).unwrap();
    let (len, chunk) = (WINDOW + (9 << 20), 1 << 20);
    let source = vec![1; len];
    // More than fit into the staging memory at once, if it were not given back.
    for _ in 0..2 * UPLOADS / WINDOW {
        let upload = link.upload(len as u64, chunk).unwrap().unwrap();
        announce(&link, UPLOAD, upload.number(), len, chunk, REFUSE);
        // SAFETY: the source outlives the call.
        let sent = unsafe { upload.send(source.as_ptr()) }.unwrap();
        assert_eq!(sent.wait(), Err(LinkError::Cancelled));
    }
    for _ in 0..2 * UPLOADS / WINDOW {
        let mut to = vec![0; len];
        let ticket = start_download(&link, &mut to, chunk, REFUSE);
        assert_eq!(ticket.wait(), Err(LinkError::Cancelled));
    }
    upload(&link, 1 << 20, chunk);
    download(&link, 1 << 20, chunk);
}

fn a_lost_worker_ends_all_transfers() {
    let server = serve();
    let (link, worker) = connect(&server.first_line, vec![]).unwrap();
    let len = 2 * WINDOW;
    let source = vec![1; len];
    let mut to = vec![0; len];
    let is_lost = |result: Result<(), LinkError>| matches!(result, Err(LinkError::Lost(_)));
    std::thread::scope(|scope| {
        let upload = link.upload(len as u64, 1 << 20).unwrap().unwrap();
        announce(&link, UPLOAD, upload.number(), len, 1 << 20, HOLD);
        // SAFETY: the source outlives the call.
        let sending = scope.spawn(|| unsafe { upload.send(source.as_ptr()) }.map(drop));
        // SAFETY: `to` outlives the wait below. It is never announced, so nothing ever comes.
        let never =
            unsafe { link.download(to.as_mut_ptr(), len as u64, 1 << 20, Vec::new()) }.unwrap();
        wait_until("a full window", || link.stats().bulk_sent >= WINDOW as u64);
        kill(worker, libc::SIGKILL);
        assert!(is_lost(sending.join().unwrap()));
        assert!(is_lost(never.wait()));
    });
    assert!(is_lost(link.upload(1, 1 << 20).map(drop)));
}

fn nonsense_on_a_lane_ends_its_session_alone() {
    let server = serve();
    let (neighbour, _) = connect(&server.first_line, vec![]).unwrap();
    // The second is the answer to a request that was never made.
    let mut unasked = [0; 24];
    unasked[0] = 4;
    for nonsense in [[0xff; 24], unasked] {
        let deadline = Instant::now() + PATIENCE;
        let stream = Tcp.connect(&server.first_line, PATIENCE).unwrap();
        let session =
            handshake(&*stream, "server", &hello(Purpose::Session { devices: vec![] }), deadline)
                .unwrap();
        let lane = Tcp.connect(&server.first_line, PATIENCE).unwrap();
        let purpose = Purpose::Lane { session: session.session, key: session.key };
        let welcome = handshake(&*lane, "server", &hello(purpose), deadline).unwrap();
        assert_eq!(welcome.session, session.session);
        assert!(runs(process(&session)));
        write_all(&*lane, &nonsense).unwrap();
        wait_until("the worker's end", || !runs(process(&session)));
    }
    assert_eq!(neighbour.call(ECHO, ContextId::NONE, |_| ()).unwrap().status, 5);
}

fn an_upload_not_started_gives_its_room_back() {
    let server = serve();
    let (link, _) = connect(&server.first_line, vec![]).unwrap();
    for _ in 0..3 * UPLOADS / WINDOW {
        drop(link.upload(WINDOW as u64, 8 << 20).unwrap().unwrap());
    }
    upload(&link, 1 << 20, 1 << 20);
}
