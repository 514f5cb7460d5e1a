//! Order within and between streams, events, waits for values.

use std::thread;

use outboard_abi::CUresult;
use outboard_front::backend::{Backend, CopyMode, DevicePtr, StreamId};

use crate::fixture::Context;

const NON_BLOCKING: u32 = 1;
const DISABLE_TIMING: u32 = 2;
const NOT_READY: CUresult = CUresult::CUDA_ERROR_NOT_READY;

#[test]
fn a_stream_keeps_its_order() {
    let ctx = Context::new();
    let (step, word, stream) = (ctx.kernel("step"), ctx.word(), ctx.stream(0));
    let mut expected = 0u32;
    for amount in 1..=500u32 {
        expected = expected.wrapping_mul(3).wrapping_add(amount);
        ctx.launch(&step, 1, &[word, u64::from(amount)], stream).unwrap();
    }
    assert_eq!(ctx.read(word, 1, stream), [expected]);
}

#[test]
fn a_copy_in_another_thread_sees_launches_that_have_returned() {
    let ctx = Context::new();
    let (add, word) = (ctx.kernel("add"), ctx.word());
    let mut expected = 0;
    for burst in [1, 16, 64] {
        for _ in 0..20 {
            for _ in 0..burst {
                ctx.launch(&add, 1, &[word, 1], StreamId::LEGACY).unwrap();
            }
            expected += burst;
            let seen = thread::scope(|scope| {
                scope.spawn(|| ctx.read(word, 1, StreamId::LEGACY)).join().unwrap()
            });
            assert_eq!(seen, [expected]);
        }
    }
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams() {
    let ctx = Context::new();
    let (wait, gate, done) = (ctx.kernel("wait"), ctx.word(), ctx.word());
    let (blocking, free) = (ctx.stream(0), ctx.stream(NON_BLOCKING));
    ctx.launch(&wait, 1, &[gate, done], blocking).unwrap();
    let copy = thread::scope(|scope| {
        let copy = scope.spawn(|| ctx.read(done, 1, StreamId::LEGACY));
        assert_eq!(ctx.cpu.stream_query(ctx.id, StreamId::LEGACY), Err(NOT_READY));
        // The non-blocking stream runs meanwhile.
        ctx.write(gate, &[1], free);
        copy.join().unwrap()
    });
    assert_eq!(copy, [1]);
    assert_eq!(ctx.cpu.stream_query(ctx.id, StreamId::LEGACY), Ok(()));
}

#[test]
fn kernels_of_several_streams_run_at_the_same_time() {
    let ctx = Context::new();
    let (wait, first, second, third) = (ctx.kernel("wait"), ctx.word(), ctx.word(), ctx.word());
    let streams = [ctx.stream(NON_BLOCKING), ctx.stream(NON_BLOCKING), ctx.stream(NON_BLOCKING)];
    // The earlier ones wait for the later ones.
    ctx.launch(&wait, 1, &[second, third], streams[0]).unwrap();
    ctx.launch(&wait, 1, &[first, second], streams[1]).unwrap();
    ctx.write(first, &[1], streams[2]);
    ctx.synchronize().unwrap();
    assert_eq!(ctx.read(third, 1, StreamId::LEGACY), [1]);
}

#[test]
fn a_stream_waits_for_the_record_that_is_current() {
    let ctx = Context::new();
    let (add, wait, gate, done) = (ctx.kernel("add"), ctx.kernel("wait"), ctx.word(), ctx.word());
    let (a, b) = (ctx.stream(NON_BLOCKING), ctx.stream(NON_BLOCKING));
    let event = ctx.event(DISABLE_TIMING);
    // Never recorded: no wait.
    ctx.cpu.stream_wait_event(ctx.id, b, event, 0).unwrap();
    ctx.cpu.stream_synchronize(ctx.id, b).unwrap();

    ctx.launch(&wait, 1, &[gate, done], a).unwrap();
    ctx.cpu.event_record(ctx.id, event, a, 0).unwrap();
    ctx.cpu.stream_wait_event(ctx.id, b, event, 0).unwrap();
    // A later record changes nothing for b, and the event may go.
    let other = ctx.stream(NON_BLOCKING);
    ctx.cpu.event_record(ctx.id, event, other, 0).unwrap();
    ctx.cpu.event_destroy(ctx.id, event).unwrap();
    ctx.launch(&add, 1, &[done, 10], b).unwrap();
    assert_eq!(ctx.cpu.stream_query(ctx.id, b), Err(NOT_READY));
    ctx.write(gate, &[1], other);
    assert_eq!(ctx.read(done, 1, b), [11]);
}

#[test]
fn events_tell_times() {
    let ctx = Context::new();
    let (wait, gate, done, stream) =
        (ctx.kernel("wait"), ctx.word(), ctx.word(), ctx.stream(NON_BLOCKING));
    let (start, end, untimed) = (ctx.event(0), ctx.event(0), ctx.event(DISABLE_TIMING));
    let invalid = Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(ctx.cpu.event_query(ctx.id, start), Ok(()));
    assert_eq!(ctx.cpu.event_synchronize(ctx.id, start), Ok(()));
    assert_eq!(ctx.cpu.event_elapsed(ctx.id, start, end), invalid);

    ctx.cpu.event_record(ctx.id, start, stream, 0).unwrap();
    ctx.cpu.event_record(ctx.id, untimed, stream, 0).unwrap();
    ctx.launch(&wait, 1, &[gate, done], stream).unwrap();
    ctx.cpu.event_record(ctx.id, end, stream, 0).unwrap();
    assert_eq!(ctx.cpu.event_query(ctx.id, end), Err(NOT_READY));
    assert_eq!(ctx.cpu.event_elapsed(ctx.id, start, end), Err(NOT_READY));
    assert_eq!(ctx.cpu.event_elapsed(ctx.id, start, untimed), invalid);
    ctx.write(gate, &[1], ctx.stream(NON_BLOCKING));
    ctx.cpu.event_synchronize(ctx.id, end).unwrap();
    assert_eq!(ctx.read(done, 1, ctx.stream(NON_BLOCKING)), [1]);
    let forward = ctx.cpu.event_elapsed(ctx.id, start, end).unwrap();
    assert!(forward > 0.0);
    assert_eq!(ctx.cpu.event_elapsed(ctx.id, end, start), Ok(-forward));
}

#[test]
fn a_stream_waits_for_a_value() {
    let ctx = Context::new();
    let (add, word, result) = (ctx.kernel("add"), ctx.word(), ctx.word());
    let (a, b) = (ctx.stream(NON_BLOCKING), ctx.stream(NON_BLOCKING));
    let (geq, eq) = (0, 1);
    ctx.cpu.stream_wait_value(ctx.id, a, DevicePtr(word), 5, false, geq).unwrap();
    ctx.launch(&add, 1, &[result, 1], a).unwrap();
    ctx.cpu.stream_write_value(ctx.id, a, DevicePtr(word), 9, false, 0).unwrap();
    assert_eq!(ctx.cpu.stream_query(ctx.id, a), Err(NOT_READY));
    ctx.cpu.stream_write_value(ctx.id, b, DevicePtr(word), 6, false, 0).unwrap();
    ctx.cpu.stream_wait_value(ctx.id, b, DevicePtr(word), 9, false, eq).unwrap();
    assert_eq!(ctx.read(result, 1, b), [1]);

    let invalid = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    assert_eq!(ctx.cpu.stream_wait_value(ctx.id, a, DevicePtr(word + 2), 0, false, geq), invalid);
    assert_eq!(ctx.cpu.stream_wait_value(ctx.id, a, DevicePtr(word), 0, true, geq), invalid);
    assert_eq!(ctx.cpu.stream_wait_value(ctx.id, a, DevicePtr(word), 0, false, 9), invalid);
    assert_eq!(ctx.cpu.stream_write_value(ctx.id, a, DevicePtr(16), 0, false, 0), invalid);
}

#[test]
fn a_destroyed_stream_finishes_its_work() {
    let ctx = Context::new();
    let (wait, gate, done) = (ctx.kernel("wait"), ctx.word(), ctx.word());
    let Some(id) = ctx.stream(0).object() else { unreachable!() };
    ctx.launch(&wait, 1, &[gate, done], StreamId::created(id)).unwrap();
    ctx.cpu.stream_destroy(ctx.id, id).unwrap();
    ctx.write(gate, &[1], ctx.stream(NON_BLOCKING));
    ctx.synchronize().unwrap();
    assert_eq!(ctx.read(done, 1, StreamId::LEGACY), [1]);
    assert_eq!(
        ctx.launch(&wait, 1, &[gate, done], StreamId::created(id)),
        Err(CUresult::CUDA_ERROR_INVALID_HANDLE)
    );
}

#[test]
fn asynchronous_copies_run_in_stream_order() {
    let ctx = Context::new();
    let (wait, gate, done, word) = (ctx.kernel("wait"), ctx.word(), ctx.word(), ctx.word());
    let stream = ctx.stream(NON_BLOCKING);
    let mut source = Box::new([1u32]);
    let target = Box::leak(Box::new([0u32; 2]));
    ctx.launch(&wait, 1, &[gate, done], stream).unwrap();
    // From pageable memory: the bytes are taken now. From pinned memory: when the stream comes to
    // it. SAFETY: the boxes live until the stream is done with them.
    unsafe {
        let from = source.as_ptr().cast();
        ctx.cpu
            .copy_to_device(ctx.id, DevicePtr(word), from, 4, stream, CopyMode::Pageable)
            .unwrap();
        ctx.cpu
            .copy_to_host(
                ctx.id,
                target.as_mut_ptr().cast(),
                DevicePtr(word),
                4,
                stream,
                CopyMode::Pinned,
            )
            .unwrap();
        ctx.cpu.copy_to_device(ctx.id, DevicePtr(word), from, 4, stream, CopyMode::Pinned).unwrap();
        ctx.cpu
            .copy_to_host(
                ctx.id,
                target.as_mut_ptr().add(1).cast(),
                DevicePtr(word),
                4,
                stream,
                CopyMode::Pinned,
            )
            .unwrap();
    }
    source[0] = 2;
    ctx.write(gate, &[1], ctx.stream(NON_BLOCKING));
    ctx.cpu.stream_synchronize(ctx.id, stream).unwrap();
    assert_eq!(*target, [1, 2]);
}

#[test]
fn many_threads_launch_into_many_streams() {
    let ctx = Context::new();
    let (add, word) = (ctx.kernel("add"), ctx.word());
    thread::scope(|scope| {
        for number in 0..8 {
            let (ctx, add) = (&ctx, &add);
            scope.spawn(move || {
                let stream = if number == 0 { StreamId::LEGACY } else { ctx.stream(number % 2) };
                for _ in 0..200 {
                    ctx.launch(add, 4, &[word, 1], stream).unwrap();
                }
                ctx.cpu.stream_synchronize(ctx.id, stream).unwrap();
            });
        }
    });
    assert_eq!(ctx.read(word, 1, StreamId::LEGACY), [8 * 200 * 4]);
}
