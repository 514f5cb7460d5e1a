//! Linked servers: what goes over the link, and what this process does once it is lost.

use super::*;

/// A process whose servers can be linked; the second one's first device is current.
fn linked() -> (Machine, [&'static Crossed; 2]) {
    let machine = Machine::ready();
    let both = machine.servers.map(Crossed::of);
    both.iter().for_each(|crossed| *crossed.reaches.lock() = Some(Ok(())));
    (machine, both)
}

#[test]
fn an_event_is_told_from_server_to_server() {
    let (machine, [first, second]) = linked();
    machine.make_current(0);
    let event = ask!(machine, cuEventCreate, 0).expect("nothing fails");
    call!(machine, cuEventRecord, event, core::ptr::null_mut()).expect("nothing fails");
    machine.make_current(2);
    let stream = ask!(machine, cuStreamCreate, 0).expect("nothing fails");
    let wait = || call!(machine, cuStreamWaitEvent, stream, event, 0).expect("it waits");
    wait();
    wait();
    assert_eq!(first.take(3), ["link 1", "tells 1 of 1", "tells 2 of 1"]);
    assert_eq!(second.take(3), ["called 1", "waits for 1 of 1", "waits for 2 of 1"]);
    // Once the link is lost, this process passes it on.
    second.lost_links.lock().push(1);
    wait();
    assert_eq!((first.take(1), second.take(1)), (vec!["event".into()], vec!["hold".into()]));
}

#[test]
fn a_copy_is_two_halves_and_the_stream_s_own_leads() {
    let (machine, [first, second]) = linked();
    machine.make_current(0);
    let there = ask!(machine, cuMemAlloc_v2, 4096).expect("nothing fails");
    machine.make_current(2);
    let stream = ask!(machine, cuStreamCreate, 0).expect("nothing fails");
    let here = ask!(machine, cuMemAlloc_v2, 4096).expect("nothing fails");
    let own = stream as u64;
    let asked = machine.asked_by(|| {
        call!(machine, cuMemcpyDtoDAsync_v2, here, there, 64, stream).expect("it is queued");
        call!(machine, cuMemcpyDtoDAsync_v2, there, here, 64, stream).expect("it is queued");
    });
    assert_eq!(asked, [Vec::<&str>::new(), Vec::new()], "no bytes come here");
    // 901 is the stream that keeps a context busy.
    assert_eq!(
        first.take(3),
        ["link 1", "FromDevice 1 of 1 follows in 901", "ToDevice 2 of 1 follows in 901"]
    );
    let leads = |way, number| format!("{way} {number} of 1 leads in {own}");
    assert_eq!(second.take(3), ["called 1".into(), leads("ToDevice", 1), leads("FromDevice", 2)]);
    // Once the link is lost, this process passes it on.
    first.lost_links.lock().push(1);
    call!(machine, cuMemcpyDtoDAsync_v2, here, there, 64, stream).expect("it is queued");
    assert_eq!(
        (first.take(1), second.take(2)),
        (vec!["hold".into()], vec!["stream".into(), "hold".into()])
    );
}
