//! Asynchronous copies between devices in the legacy stream: they are in step with both devices'.

use super::*;

const COPY: usize = 64;

/// The streams of the legacy kind wait for each other around the copy.
#[test]
fn a_copy_in_the_legacy_stream_is_in_step_with_both_devices() {
    let machine = Machine::ready();
    machine.make_current(1);
    let there = ask!(machine, cuMemAlloc_v2, 4096).expect("nothing fails");
    machine.make_current(0);
    let here = ask!(machine, cuMemAlloc_v2, 4096).expect("nothing fails");
    let stream = ask!(machine, cuStreamCreate, 0).expect("nothing fails");
    let copy = |dst, src, stream| {
        let [asked, nothing] = machine.asked_by(|| {
            call!(machine, cuMemcpyDtoDAsync_v2, dst, src, COPY, stream).expect("nothing fails");
        });
        assert_eq!(nothing, Vec::<&str>::new());
        asked
    };
    let waits = ["event_create", "event_record", "stream_wait_event", "event_destroy"];
    let legacy = core::ptr::null_mut();
    let in_step = [&waits[..], &["copy_on_device"], &waits].concat();
    assert_eq!(copy(there, here, legacy), in_step);
    let calls = machine.servers[0].calls();
    let waits: Vec<_> = calls.iter().filter(|call| call.method == "stream_wait_event").collect();
    let waits: Vec<String> = waits.iter().map(ToString::to_string).collect();
    let [own, other] = waits.as_slice() else { panic!("there are two of {waits:?}") };
    let by =
        |call: &str, ctx| call.contains(&format!("ctx: ContextId({ctx}), stream: StreamId(0)"));
    assert!(by(own, 2) && by(other, 1), "{own} {other}");
    assert_eq!(copy(here, there, legacy), in_step);
    // In a stream of the program's, or on one device, there is nothing to add.
    assert_eq!(copy(there, here, stream), ["copy_on_device"]);
    assert_eq!(copy(here + 64, here, legacy), ["copy_on_device"]);
    // With a third device current, the copy waits for both, and both for it.
    let second = Machine::ready();
    second.make_current(0);
    let one = ask!(second, cuMemAlloc_v2, 4096).expect("nothing fails");
    second.make_current(1);
    let other = ask!(second, cuMemAlloc_v2, 4096).expect("nothing fails");
    second.make_current(2);
    let notes = second.servers.map(Crossed::of);
    call!(second, cuMemcpyDtoDAsync_v2, one, other, COPY, legacy).expect("it is queued");
    let [theirs, own] = notes.map(|notes| notes.take(6));
    assert_eq!(theirs, ["event", "event", "hold", "hold", "hold", "hold"]);
    assert_eq!(own, ["hold", "hold", "stream", "hold", "event", "event"]);
}
