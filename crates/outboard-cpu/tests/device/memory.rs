//! Allocation, bounds of copies and fills, memory of the host.

use outboard_abi::CUresult;
use outboard_front::backend::{Backend, CopyMode, DevicePtr, Fill, Rect, StreamId};

use crate::fixture::Context;

const INVALID_VALUE: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const NON_BLOCKING: u32 = 1;

#[test]
fn out_of_memory_is_an_error_and_no_more() {
    let ctx = Context::new();
    let (_, total) = ctx.cpu.memory_info(ctx.id).unwrap();
    assert_eq!(ctx.cpu.memory_alloc(ctx.id, total + 1), Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    assert_eq!(ctx.cpu.memory_alloc(ctx.id, u64::MAX), Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    let word = ctx.word();
    assert_eq!(ctx.read(word, 1, StreamId::LEGACY), [0]);
}

#[test]
fn allocations_are_aligned_and_end_with_their_context() {
    let ctx = Context::new();
    let blocks: Vec<u64> = (1..100).map(|bytes| ctx.alloc(bytes)).collect();
    assert!(blocks.iter().all(|address| address % 256 == 0));
    assert_eq!(ctx.cpu.memory_free(ctx.id, DevicePtr(blocks[0] + 256)), Err(INVALID_VALUE));
    assert_eq!(ctx.cpu.memory_free(ctx.id, DevicePtr(blocks[0])), Ok(()));
    assert_eq!(ctx.cpu.memory_free(ctx.id, DevicePtr(blocks[0])), Err(INVALID_VALUE));

    let other = Context::new();
    assert_eq!(
        other.cpu.memory_free(other.id, DevicePtr(blocks[1])),
        Err(INVALID_VALUE),
        "not this context's"
    );
    drop(ctx);
    assert_eq!(other.try_read(blocks[50], 1, StreamId::LEGACY), Err(INVALID_VALUE));
}

#[test]
fn copies_stay_within_an_allocation() {
    let ctx = Context::new();
    let block = ctx.alloc(1024);
    ctx.write(block + 1020, &[7], StreamId::LEGACY);
    assert_eq!(ctx.read(block + 1020, 1, StreamId::LEGACY), [7]);
    for address in [block + 1021, block + 1024, 0, 16, u64::MAX - 1] {
        assert_eq!(
            ctx.try_write(address, &[1], StreamId::LEGACY),
            Err(INVALID_VALUE),
            "{address:#x}"
        );
        assert_eq!(ctx.try_read(address, 1, StreamId::LEGACY), Err(INVALID_VALUE), "{address:#x}");
    }
    let rows = |width, height, pitch| Rect { width, height, dst_pitch: pitch, src_pitch: 0 };
    let copy = |rect| {
        ctx.cpu.copy_on_device(ctx.id, DevicePtr(block), DevicePtr(block), rect, StreamId::LEGACY)
    };
    assert_eq!(copy(rows(8, 4, 338)), Ok(()));
    assert_eq!(
        copy(rows(8, 4, 339)),
        Err(INVALID_VALUE),
        "the last row ends at 3 * 339 + 8 of 1024"
    );
    assert_eq!(copy(rows(8, u64::MAX, u64::MAX)), Err(INVALID_VALUE));
    assert_eq!(copy(rows(0, 9, 1 << 60)), Ok(()));
}

#[test]
fn rectangles_and_fills() {
    let ctx = Context::new();
    let (block, copy) = (ctx.alloc(64), ctx.alloc(64));
    let fill = |dst, value, element, width, height, pitch| {
        let fill = Fill { dst, pitch, value, element, width, height };
        ctx.cpu.fill(ctx.id, fill, StreamId::LEGACY)
    };
    fill(DevicePtr(block), 0, 1, 64, 1, 0).unwrap();
    fill(DevicePtr(copy), 0, 4, 16, 1, 0).unwrap();
    // Two columns of each row of four words.
    fill(DevicePtr(block + 4), 9, 4, 2, 4, 16).unwrap();
    let row = [0, 9, 9, 0];
    assert_eq!(ctx.read(block, 16, StreamId::LEGACY), [row, row, row, row].concat());
    let rect = Rect { width: 8, height: 4, dst_pitch: 8, src_pitch: 16 };
    ctx.cpu
        .copy_on_device(ctx.id, DevicePtr(copy), DevicePtr(block + 4), rect, StreamId::LEGACY)
        .unwrap();
    assert_eq!(ctx.read(copy, 16, StreamId::LEGACY), [[9; 8], [0; 8]].concat());
    for (dst, element, width) in [
        (block + 2, 4, 1),
        (block + 1, 2, 1),
        (block, 4, 17),
        (block, 3, 1),
        (block, 4, u64::MAX / 2),
    ] {
        assert_eq!(fill(DevicePtr(dst), 1, element, width, 1, 0), Err(INVALID_VALUE));
    }
    assert_eq!(
        fill(DevicePtr(block), 1, 4, 1, 2, 6),
        Err(INVALID_VALUE),
        "rows that are not aligned"
    );
}

#[test]
fn stream_ordered_frees_wait_their_turn() {
    let ctx = Context::new();
    let (wait, gate, done) = (ctx.kernel("wait"), ctx.word(), ctx.word());
    let stream = ctx.stream(NON_BLOCKING);
    // Other tests share the device, and may be given the beginning as soon as it is free, but not
    // what lies far behind.
    let block = ctx.cpu.memory_alloc_async(ctx.id, 256 << 20, stream).unwrap();
    let far = block.0 + (192 << 20);
    ctx.launch(&wait, 1, &[gate, done], stream).unwrap();
    ctx.cpu.memory_free_async(ctx.id, block, stream).unwrap();
    let other = ctx.stream(NON_BLOCKING);
    ctx.write(far, &[1], other);
    ctx.write(gate, &[1], other);
    ctx.cpu.stream_synchronize(ctx.id, stream).unwrap();
    assert_eq!(ctx.try_write(far, &[1], other), Err(INVALID_VALUE));
    assert_eq!(ctx.cpu.memory_free_async(ctx.id, block, stream), Err(INVALID_VALUE));
}

#[test]
fn kernels_see_page_locked_memory_at_its_own_address() {
    let ctx = Context::new();
    let add = ctx.kernel("add");
    let memory = ctx.cpu.host_alloc(ctx.id, 10_000, 0).unwrap();
    assert_eq!(ctx.cpu.host_device_address(ctx.id, memory), Ok(DevicePtr(memory as u64)));
    // SAFETY: the memory is that long, aligned to pages, and nobody else uses it now.
    let words = unsafe { std::slice::from_raw_parts_mut(memory.cast::<u32>(), 2500) };
    assert!(words.iter().all(|&word| word == 0));
    words[2499] = 5;
    ctx.launch(&add, 8, &[memory as u64 + 9996, 2], StreamId::LEGACY).unwrap();
    ctx.synchronize().unwrap();
    assert_eq!(words[2499], 21);
    // SAFETY: nothing uses it any more.
    unsafe { ctx.cpu.host_free(ctx.id, memory, 10_000) }.unwrap();
    // SAFETY: an address that is not there any more is refused.
    assert_eq!(unsafe { ctx.cpu.host_free(ctx.id, memory, 10_000) }, Err(INVALID_VALUE));
    assert_eq!(ctx.cpu.host_device_address(ctx.id, memory), Err(INVALID_VALUE));
}

#[test]
fn memory_of_the_program_can_be_registered() {
    let ctx = Context::new();
    let add = ctx.kernel("add");
    let mut words = vec![1u32; 5000];
    let memory = words.as_mut_ptr().cast::<u8>();
    ctx.cpu.host_register(ctx.id, memory, 20_000, 0).unwrap();
    let again = Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    assert_eq!(ctx.cpu.host_register(ctx.id, memory, 20_000, 0), again);
    // SAFETY: the address is inside the vector.
    let inside = unsafe { memory.add(8000) };
    assert_eq!(ctx.cpu.host_register(ctx.id, inside, 20_000, 0), again);
    ctx.launch(&add, 1, &[memory as u64 + 400, 41], StreamId::LEGACY).unwrap();
    ctx.synchronize().unwrap();
    assert_eq!(words[100], 42);
    ctx.cpu.host_unregister(ctx.id, memory, 20_000).unwrap();
    let unknown = Err(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    assert_eq!(ctx.cpu.host_unregister(ctx.id, memory, 20_000), unknown);
    assert_eq!(ctx.cpu.host_register(ctx.id, 0x1000 as *mut u8, 4096, 0), Err(INVALID_VALUE));

    ctx.launch(&add, 1, &[memory as u64 + 400, 41], StreamId::LEGACY).unwrap();
    assert_eq!(ctx.synchronize(), Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
}

#[test]
fn a_large_copy_from_pageable_memory_into_a_busy_stream() {
    let ctx = Context::new();
    let (add, stream) = (ctx.kernel("add"), ctx.stream(NON_BLOCKING));
    let count = 1 << 20;
    let (block, source) = (ctx.alloc(4 * count), vec![3u32; count as usize]);
    ctx.launch(&add, 32, &[block, 1], stream).unwrap();
    let bytes = 4 * count;
    // SAFETY: the source lives until the stream has been waited for.
    unsafe {
        ctx.cpu.copy_to_device(
            ctx.id,
            DevicePtr(block),
            source.as_ptr().cast(),
            bytes,
            stream,
            CopyMode::Pageable,
        )
    }
    .unwrap();
    ctx.launch(&add, 32, &[block, 1], stream).unwrap();
    assert_eq!(ctx.read(block, 2, stream), [35, 3]);
}
