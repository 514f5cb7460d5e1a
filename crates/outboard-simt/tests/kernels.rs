//! Whole kernels: control flow, barriers, warp operations, atomics, calls.

mod common;

use common::{Args, Rig};

const SAXPY: &str = r"
.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.f32 %f1, [a];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p1, %r5, %r1;
    @%p1 bra done;
    cvta.to.global.u64 %rd3, %rd1;
    mul.wide.s32 %rd4, %r5, 4;
    add.s64 %rd5, %rd3, %rd4;
    cvta.to.global.u64 %rd6, %rd2;
    add.s64 %rd7, %rd6, %rd4;
    ld.global.f32 %f2, [%rd5];
    ld.global.f32 %f3, [%rd7];
    fma.rn.f32 %f3, %f1, %f2, %f3;
    st.global.f32 [%rd7], %f3;
done:
    ret;
}";

#[test]
fn saxpy() {
    let rig = Rig::new(SAXPY);
    let n = 10_000u32;
    let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let (dx, dy) = (rig.buffer(&x), rig.buffer(&vec![1f32; n as usize]));
    rig.launch("saxpy", n.div_ceil(128), 128, Args::default().push(dx.addr).push(dy.addr).push(2f32).push(n));
    assert!(dy.read().iter().zip(&x).all(|(&y, &x)| y == 2.0 * x + 1.0));
}

/// Reverses each block's 256 values through shared memory.
const REVERSE: &str = r"
.visible .entry reverse(.param .u64 data)
{
    .shared .align 4 .b8 tile[1024];
    .reg .b32 %r<10>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [data];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    shl.b32 %r3, %r2, 8;
    add.u32 %r3, %r3, %r1;
    mul.wide.u32 %rd2, %r3, 4;
    add.u64 %rd3, %rd1, %rd2;
    ld.global.u32 %r4, [%rd3];
    shl.b32 %r5, %r1, 2;
    mov.u32 %r6, tile;
    add.u32 %r7, %r6, %r5;
    st.shared.u32 [%r7], %r4;
    bar.sync 0;
    sub.u32 %r8, %r6, %r5;
    ld.shared.u32 %r9, [%r8+1020];
    st.global.u32 [%rd3], %r9;
    ret;
}";

#[test]
fn a_barrier_separates_writes_from_reads() {
    let rig = Rig::new(REVERSE);
    let data: Vec<u32> = (0..2560).collect();
    let buffer = rig.buffer(&data);
    rig.launch("reverse", 10, 256, Args::default().push(buffer.addr));
    let expected: Vec<u32> = data.chunks(256).flat_map(|block| block.iter().rev().copied()).collect();
    assert_eq!(buffer.read(), expected);
}
