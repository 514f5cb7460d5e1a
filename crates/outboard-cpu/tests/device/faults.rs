//! Faults of kernels: reported by the next wait, kept by their context, harmless to others.

use outboard_abi::CUresult;
use outboard_front::backend::{Backend, DevicePtr, StreamId};

use crate::fixture::Context;

const ILLEGAL_ADDRESS: CUresult = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;

#[test]
fn a_bad_store_is_reported_and_stays() {
    let (ctx, other) = (Context::new(), Context::new());
    let (poke, add, word) = (ctx.kernel("poke"), ctx.kernel("add"), ctx.word());
    let event = ctx.event(0);
    ctx.launch(&poke, 1, &[8], StreamId::LEGACY).unwrap();
    // Posting may or may not see the error yet; waiting does.
    let _ = ctx.launch(&add, 1, &[word, 1], StreamId::LEGACY);
    let _ = ctx.cpu.event_record(ctx.id, event, StreamId::LEGACY, 0);
    assert_eq!(ctx.synchronize(), Err(ILLEGAL_ADDRESS));
    assert_eq!(ctx.synchronize(), Err(ILLEGAL_ADDRESS));
    assert_eq!(ctx.cpu.stream_query(ctx.id, StreamId::LEGACY), Err(ILLEGAL_ADDRESS));
    assert_eq!(ctx.cpu.event_query(ctx.id, event), Err(ILLEGAL_ADDRESS));
    assert_eq!(ctx.launch(&add, 1, &[word, 1], StreamId::LEGACY), Err(ILLEGAL_ADDRESS));
    assert_eq!(ctx.try_read(word, 1, StreamId::LEGACY), Err(ILLEGAL_ADDRESS));

    let (add, word) = (other.kernel("add"), other.word());
    other.launch(&add, 3, &[word, 1], StreamId::LEGACY).unwrap();
    assert_eq!(other.read(word, 1, StreamId::LEGACY), [3]);
}

#[test]
fn each_kind_of_fault_has_its_error() {
    let cases: [(&str, u64, CUresult); 4] = [
        ("poke", 0, ILLEGAL_ADDRESS),
        ("poke", 0x7fff_ffff_f000, ILLEGAL_ADDRESS),
        ("stop", 0, CUresult::CUDA_ERROR_LAUNCH_FAILED),
        ("poke", u64::MAX, ILLEGAL_ADDRESS),
    ];
    for (name, param, error) in cases {
        let ctx = Context::new();
        let kernel = ctx.kernel(name);
        ctx.launch(&kernel, 1, &[param], StreamId::LEGACY).unwrap();
        assert_eq!(ctx.synchronize(), Err(error), "{name} {param:#x}");
    }
}

#[test]
fn misaligned_and_out_of_bounds_accesses_are_illegal() {
    for offset in [1, 2, 4096] {
        let ctx = Context::new();
        let (poke, buffer) = (ctx.kernel("poke"), ctx.alloc(4096));
        ctx.launch(&poke, 1, &[buffer + 4092], StreamId::LEGACY).unwrap();
        assert_eq!(ctx.synchronize(), Ok(()));
        ctx.launch(&poke, 1, &[buffer + offset], StreamId::LEGACY).unwrap();
        assert_eq!(ctx.synchronize(), Err(ILLEGAL_ADDRESS), "offset {offset}");
    }
}

#[test]
fn memory_that_was_freed_is_illegal() {
    let ctx = Context::new();
    let (poke, buffer) = (ctx.kernel("poke"), ctx.alloc(64 << 20));
    ctx.cpu.memory_free(ctx.id, DevicePtr(buffer)).unwrap();
    ctx.launch(&poke, 1, &[buffer + (32 << 20)], StreamId::LEGACY).unwrap();
    assert_eq!(ctx.synchronize(), Err(ILLEGAL_ADDRESS));
}

#[test]
fn a_fault_in_one_stream_ends_the_others() {
    let ctx = Context::new();
    let (stop, word) = (ctx.kernel("stop"), ctx.word());
    let (waiting, failing) = (ctx.stream(1), ctx.stream(1));
    // Would wait for ever.
    ctx.cpu.stream_wait_value(ctx.id, waiting, DevicePtr(word), 1, false, 0).unwrap();
    ctx.launch(&stop, 1, &[], failing).unwrap();
    assert_eq!(
        ctx.cpu.stream_synchronize(ctx.id, waiting),
        Err(CUresult::CUDA_ERROR_LAUNCH_FAILED)
    );
}

#[test]
fn closing_drops_queued_work() {
    let ctx = Context::new();
    let (word, stream) = (ctx.word(), ctx.stream(0));
    ctx.cpu.stream_wait_value(ctx.id, stream, DevicePtr(word), 1, false, 0).unwrap();
    let (add, poke) = (ctx.kernel("add"), ctx.kernel("poke"));
    ctx.launch(&add, 1, &[word, 1], stream).unwrap();
    ctx.launch(&poke, 1, &[0], StreamId::LEGACY).unwrap();
    // The context is closed when it goes out of scope; that it returns is the test.
}
