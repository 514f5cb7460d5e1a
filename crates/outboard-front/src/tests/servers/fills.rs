//! Fills of another server's memory.

use super::*;

/// A fill of another server's memory is queued there when its stream has come to it.
#[test]
fn a_fill_of_memory_of_another_server_waits_for_its_stream() {
    let machine = Machine::ready();
    let [first, second] = machine.servers.map(Crossed::of);
    machine.make_current(0);
    let there = ask!(machine, cuMemAlloc_v2, 4096).expect("nothing fails");
    machine.make_current(2);
    let stream = ask!(machine, cuStreamCreate, 0).expect("nothing fails");
    let default = DefaultStream::Legacy;
    // Each entry point in the stream and in the default one, with what it says of an element and of
    // its rows.
    type Filling<'a> = (&'a dyn Fn() -> Result<()>, u32, u32);
    let fills: [Filling<'_>; 12] = [
        (&|| call!(machine, cuMemsetD8Async, there, 7, 9, stream), 1, 1),
        (&|| call!(machine, cuMemsetD8_v2, there, 7, 9, default), 1, 1),
        (&|| call!(machine, cuMemsetD16Async, there, 7, 9, stream), 2, 1),
        (&|| call!(machine, cuMemsetD16_v2, there, 7, 9, default), 2, 1),
        (&|| call!(machine, cuMemsetD32Async, there, 7, 9, stream), 4, 1),
        (&|| call!(machine, cuMemsetD32_v2, there, 7, 9, default), 4, 1),
        (&|| call!(machine, cuMemsetD2D8Async, there, 64, 7, 9, 3, stream), 1, 3),
        (&|| call!(machine, cuMemsetD2D8_v2, there, 64, 7, 9, 3, default), 1, 3),
        (&|| call!(machine, cuMemsetD2D16Async, there, 64, 7, 9, 3, stream), 2, 3),
        (&|| call!(machine, cuMemsetD2D16_v2, there, 64, 7, 9, 3, default), 2, 3),
        (&|| call!(machine, cuMemsetD2D32Async, there, 64, 7, 9, 3, stream), 4, 3),
        (&|| call!(machine, cuMemsetD2D32_v2, there, 64, 7, 9, 3, default), 4, 3),
    ];
    for (fill, element, height) in fills {
        let asked = machine.asked_by(|| fill().expect("it is queued"));
        assert_eq!(asked, [Vec::<&str>::new(), Vec::new()], "nothing is filled yet");
        assert_eq!(
            (first.take(1), second.take(2)),
            (vec!["hold".into()], vec!["stream".into(), "hold".into()])
        );
        let asked = machine.asked_by(|| {
            second.happens(Ok(()));
            assert_eq!(
                (first.take(1), second.take(1)),
                (vec!["goes on".into()], vec!["goes on".into()])
            );
        });
        assert_eq!(asked, [vec!["fill", "stream_synchronize"], vec![]]);
        let calls = machine.servers[0].calls();
        let filled = calls.iter().rfind(|call| call.method == "fill").map(ToString::to_string);
        let described = format!("value: 7, element: {element}, width: 9, height: {height}");
        assert!(filled.as_ref().is_some_and(|filled| filled.contains(&described)), "{filled:?}");
    }
    // What a fill of its own checks, one of another server does, too.
    let beyond = call!(machine, cuMemsetD8Async, there, 7, 4097, stream);
    let askew = call!(machine, cuMemsetD32Async, there + 2, 7, 4, stream);
    assert_eq!([beyond, askew], [Err(CUresult::CUDA_ERROR_INVALID_VALUE); 2]);
    // A fill that fails is told of, and its stream goes on.
    machine.servers[0].fail("fill", 13, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    call!(machine, cuMemsetD8Async, there, 7, 9, stream).expect("it is queued");
    second.happens(Ok(()));
    assert_eq!(second.take(4), ["stream", "hold", "fails with 700", "goes on"]);
}

/// A server that can hold no more streams has the calling thread wait.
#[test]
fn a_fill_without_a_hold_waits_itself() {
    let machine = Machine::ready();
    machine.make_current(0);
    let there = ask!(machine, cuMemAlloc_v2, 4096).expect("nothing fails");
    machine.make_current(2);
    let stream = ask!(machine, cuStreamCreate, 0).expect("nothing fails");
    Crossed::of(machine.servers[0]).has_no_room.store(true, Ordering::Relaxed);
    let asked = machine.asked_by(|| {
        call!(machine, cuMemsetD8Async, there, 7, 9, stream).expect("it is done");
    });
    let synchronize = "stream_synchronize";
    assert_eq!(asked, [vec!["fill", synchronize], vec![synchronize]]);
}

/// The program may look at managed and page-locked memory when a synchronous fill returns.
#[test]
fn a_fill_of_memory_that_the_host_sees_is_waited_for() {
    let machine = Machine::ready();
    machine.make_current(0);
    let pinned = ask!(machine, cuMemHostAlloc, 4096, 0).expect("nothing fails") as u64;
    machine.servers[0].answer_with("managed_alloc", UnifiedPtr(1 << 44));
    let managed = ask!(machine, cuMemAllocManaged, 4096, 1).expect("nothing fails");
    machine.make_current(2);
    for shared in [pinned, managed] {
        let asked = machine.asked_by(|| {
            let fill = call!(machine, cuMemsetD8_v2, shared, 7, 9, DefaultStream::Legacy);
            fill.expect("the recorders wait for nothing");
        });
        assert_eq!(asked, [Vec::new(), vec!["stream_synchronize"]], "behind the hold");
    }
}
