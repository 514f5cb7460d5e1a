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
    rig.launch(
        "saxpy",
        n.div_ceil(128),
        128,
        Args::default().push(dx.addr).push(dy.addr).push(2f32).push(n),
    );
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
    let expected: Vec<u32> =
        data.chunks(256).flat_map(|block| block.iter().rev().copied()).collect();
    assert_eq!(buffer.read(), expected);
}

/// A kernel over one buffer of `u32` per thread: `body` finds the thread's index in `%i`, the
/// address of its slot in `%slot`, the buffer's start in `%base`, and leaves its result in `%r`.
fn per_thread(body: &str) -> String {
    format!(
        r"
.visible .entry main(.param .u64 data)
{{
    .reg .pred %p<4>;
    .reg .b32 %i, %r, %m<10>;
    .reg .b64 %base, %slot, %w<8>;
    ld.param.u64 %base, [data];
    mov.u32 %m0, %ctaid.x;
    mov.u32 %m1, %ntid.x;
    mov.u32 %m2, %tid.x;
    mad.lo.u32 %i, %m0, %m1, %m2;
    mul.wide.u32 %slot, %i, 4;
    add.u64 %slot, %slot, %base;
    {body}
    st.global.u32 [%slot], %r;
    ret;
}}"
    )
}

fn run_per_thread(body: &str, threads: u32) -> Vec<u32> {
    let rig = Rig::new(&per_thread(body));
    let buffer = rig.buffer(&vec![0u32; threads as usize]);
    rig.launch("main", 1, threads, Args::default().push(buffer.addr));
    buffer.read()
}

#[test]
fn shuffles_move_values_between_lanes() {
    let down = run_per_thread("shfl.sync.down.b32 %r, %i, 4, 31, -1;", 64);
    assert!((0..64).all(|i| down[i] == if i % 32 < 28 { i as u32 + 4 } else { i as u32 }));
    let butterfly = run_per_thread("shfl.sync.bfly.b32 %r, %i, 5, 31, -1;", 32);
    assert!((0..32).all(|i| butterfly[i] == i as u32 ^ 5));
    // Width 8, and the predicate tells who was in range.
    let up =
        run_per_thread("shfl.sync.up.b32 %r|%p1, %i, 1, 0x1800, -1; @!%p1 mov.u32 %r, 100;", 32);
    assert!((0..32).all(|i| up[i] == if i % 8 == 0 { 100 } else { i as u32 - 1 }));
    let index = run_per_thread("and.b32 %m3, %i, 1; shfl.sync.idx.b32 %r, %i, %m3, 31, -1;", 32);
    assert!((0..32).all(|i| index[i] == i as u32 % 2));
}

#[test]
fn a_warp_sums_by_shuffles() {
    let body = "mov.u32 %r, %i; mov.u32 %m4, 16;
        next: shfl.sync.bfly.b32 %m5, %r, %m4, 31, -1; add.u32 %r, %r, %m5;
        shr.u32 %m4, %m4, 1; setp.ne.u32 %p1, %m4, 0; @%p1 bra next;";
    assert_eq!(run_per_thread(body, 32), vec![496; 32]);
}

#[test]
fn votes_matches_and_reductions() {
    let even = "and.b32 %m3, %i, 1; setp.eq.u32 %p1, %m3, 0;";
    assert_eq!(
        run_per_thread(&format!("{even} vote.sync.ballot.b32 %r, %p1, -1;"), 32),
        vec![0x5555_5555; 32]
    );
    assert_eq!(
        run_per_thread(
            &format!("{even} vote.sync.any.pred %p2, %p1, -1; selp.u32 %r, 1, 0, %p2;"),
            32
        ),
        vec![1; 32]
    );
    assert_eq!(
        run_per_thread(
            &format!("{even} vote.sync.all.pred %p2, %p1, -1; selp.u32 %r, 1, 0, %p2;"),
            32
        ),
        vec![0; 32]
    );
    let matched = run_per_thread("and.b32 %m3, %i, 3; match.any.sync.b32 %r, %m3, -1;", 32);
    assert!((0..32).all(|i| matched[i] == 0x1111_1111 << (i % 4)));
    assert_eq!(
        run_per_thread("mov.u32 %m3, 7; match.all.sync.b32 %r|%p1, %m3, -1;", 32),
        vec![u32::MAX; 32]
    );
    assert_eq!(run_per_thread("match.all.sync.b32 %r|%p1, %i, -1;", 32), vec![0; 32]);
    assert_eq!(run_per_thread("redux.sync.add.s32 %r, %i, -1;", 32), vec![496; 32]);
    assert_eq!(run_per_thread("redux.sync.max.u32 %r, %i, -1;", 32), vec![31; 32]);
    assert_eq!(
        run_per_thread("neg.s32 %m3, %i; redux.sync.min.s32 %r, %m3, -1;", 32),
        vec![-31i32 as u32; 32]
    );
}

/// Threads that took different branches meet in groups named by their masks, and whoever stands
/// together is active together.
#[test]
fn divergent_groups_work_apart() {
    let body = "setp.lt.u32 %p1, %i, 8; @%p1 bra low;
        mov.u32 %m3, 0xffffff00; shfl.sync.idx.b32 %r, %i, 31, 31, %m3; activemask.b32 %m4; xor.b32 %r, %r, %m4; bra join;
        low: shfl.sync.idx.b32 %r, %i, 3, 31, 0xff; activemask.b32 %m4; xor.b32 %r, %r, %m4;
        join: bar.warp.sync -1;";
    let result = run_per_thread(body, 32);
    assert!(
        (0..32).all(|i| result[i] == if i < 8 { 3 ^ 0xff } else { 31 ^ 0xffff_ff00 }),
        "{result:x?}"
    );
}

#[test]
fn lane_masks_and_indices() {
    assert!((0..64).all(|i| run_per_thread("mov.u32 %r, %laneid;", 64)[i] == i as u32 % 32));
    let lt = run_per_thread("mov.u32 %r, %lanemask_lt;", 32);
    let ge = run_per_thread("mov.u32 %r, %lanemask_ge;", 32);
    let gt = run_per_thread("mov.u32 %r, %lanemask_gt;", 32);
    for i in 0..32 {
        assert_eq!(lt[i], (1 << i) - 1);
        assert_eq!(ge[i], !lt[i]);
        assert_eq!(gt[i], !lt[i] & !(1 << i));
    }
}

#[test]
fn barriers_count_reduce_and_forgive_exits() {
    let odd = "and.b32 %m3, %i, 1; setp.eq.u32 %p1, %m3, 1;";
    assert_eq!(run_per_thread(&format!("{odd} bar.red.popc.u32 %r, 0, %p1;"), 100), vec![50; 100]);
    assert_eq!(
        run_per_thread(&format!("{odd} bar.red.or.pred %p2, 0, %p1; selp.u32 %r, 1, 0, %p2;"), 96),
        vec![1; 96]
    );
    assert_eq!(
        run_per_thread(&format!("{odd} bar.red.and.pred %p2, 0, %p1; selp.u32 %r, 1, 0, %p2;"), 96),
        vec![0; 96]
    );
    // Odd threads leave; the barrier is complete without them.
    let left = run_per_thread(&format!("{odd} @%p1 exit; bar.sync 0; mov.u32 %r, 7;"), 128);
    assert!((0..128).all(|i| left[i] == if i % 2 == 0 { 7 } else { 0 }));
    // The first warp produces, the second one consumes, by two named barriers.
    let body = ".shared .u32 cell; setp.ge.u32 %p1, %i, 32; @%p1 bra consume;
        setp.eq.u32 %p2, %i, 0; @%p2 st.shared.u32 [cell], 42; bar.arrive 1, 64; mov.u32 %r, 1; bra end;
        consume: bar.sync 1, 64; ld.shared.u32 %r, [cell]; end:";
    let result = run_per_thread(body, 64);
    assert!((0..64).all(|i| result[i] == if i < 32 { 1 } else { 42 }));
}

/// One thread waits in a loop for what another one of its block, which runs later, writes.
#[test]
fn spinning_threads_let_others_run() {
    let body = "setp.eq.u32 %p1, %i, 63; @%p1 st.volatile.global.u32 [%base], 1;
        wait: ld.volatile.global.u32 %m3, [%base]; setp.eq.u32 %p2, %m3, 0; @%p2 bra wait;
        add.u32 %r, %i, 1;";
    let result = run_per_thread(body, 64);
    assert!((0..64).all(|i| result[i] == i as u32 + 1));
}

const LOCK: &str = r"
.global .u32 lock;
.global .u32 count;
.visible .entry locked()
{
    .reg .pred %p; .reg .b32 %r<3>;
spin:
    atom.global.cas.b32 %r0, [lock], 0, 1;
    setp.ne.u32 %p, %r0, 0;
    @%p bra spin;
    membar.gl;
    ld.global.u32 %r1, [count];
    add.u32 %r1, %r1, 1;
    st.global.u32 [count], %r1;
    membar.gl;
    atom.global.exch.b32 %r0, [lock], 0;
    ret;
}";

#[test]
fn a_lock_guards_a_counter_across_blocks() {
    let rig = Rig::new(LOCK);
    rig.launch("locked", 64, 64, Args::default());
    let (addr, size) = rig.program.global("count").expect("the variable");
    assert_eq!(size, 4);
    // SAFETY: the variable is four bytes of device memory.
    assert_eq!(unsafe { (addr as *const u32).read() }, 64 * 64);
}

/// Each block waits for the one before it, as scans with look-back do.
const CHAIN: &str = r"
.visible .entry chain(.param .u64 flags)
{
    .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [flags];
    mov.u32 %r0, %ctaid.x;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd2, %rd0, %rd1;
wait:
    ld.acquire.gpu.global.u32 %r1, [%rd2];
    setp.eq.u32 %p, %r1, 0;
    @%p bra wait;
    add.u32 %r1, %r1, 1;
    st.release.gpu.global.u32 [%rd2+4], %r1;
    ret;
}";

#[test]
fn blocks_start_in_order() {
    let rig = Rig::new(CHAIN);
    let mut flags = vec![0u32; 501];
    flags[0] = 1;
    let buffer = rig.buffer(&flags);
    rig.launch("chain", 500, 1, Args::default().push(buffer.addr));
    assert_eq!(buffer.read(), (1..=501).collect::<Vec<u32>>());
}

/// A barrier of the whole grid, made of an atomic counter.
const GRID_SYNC: &str = r"
.visible .entry grid_sync(.param .u64 counter, .param .u64 data)
{
    .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %rd<6>;
    ld.param.u64 %rd0, [counter];
    ld.param.u64 %rd1, [data];
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %nctaid.x;
    mul.wide.u32 %rd2, %r0, 4;
    add.u64 %rd2, %rd2, %rd1;
    st.global.u32 [%rd2], %r0;
    atom.add.release.gpu.u32 %r2, [%rd0], 1;
wait:
    ld.acquire.gpu.u32 %r3, [%rd0];
    setp.lt.u32 %p, %r3, %r1;
    @%p bra wait;
    sub.u32 %r4, %r1, %r0;
    mul.wide.u32 %rd3, %r4, 4;
    add.u64 %rd3, %rd3, %rd1;
    ld.global.u32 %r5, [%rd3+-4];
    mul.wide.u32 %rd4, %r1, 4;
    add.u64 %rd5, %rd2, %rd4;
    st.global.u32 [%rd5], %r5;
    ret;
}";

#[test]
fn cooperative_blocks_are_resident_together() {
    let rig = Rig::new(GRID_SYNC);
    let blocks = 50u32;
    let (counter, data) = (rig.buffer(&[0u32]), rig.buffer(&vec![0u32; 2 * blocks as usize]));
    let args = Args::default().push(counter.addr).push(data.addr);
    let mut launch = outboard_simt::Launch::new([blocks, 1, 1], [1, 1, 1], &args.0);
    launch.cooperative = true;
    rig.engine.launch(&rig.kernel("grid_sync"), &launch).expect("no fault");
    let expected: Vec<u32> = (0..blocks).rev().collect();
    assert_eq!(data.read()[blocks as usize..], expected);
}

/// An atomic instruction applied by every thread of several blocks to one word.
fn atomic(instruction: &str, start: u64, blocks: u32) -> u64 {
    let rig = Rig::new(&format!(
        r"
.visible .entry main(.param .u64 word)
{{
    .reg .b16 %h<2>; .reg .b32 %i, %r<6>; .reg .b64 %word, %w<6>; .reg .f32 %f<3>; .reg .f64 %d<3>;
    ld.param.u64 %word, [word];
    mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;
    mad.lo.u32 %i, %r0, %r1, %r2;
    cvt.u64.u32 %w1, %i;
    mov.f32 %f1, 0f3F800000;
    mov.f64 %d1, 0d3FF0000000000000;
    {instruction};
    ret;
}}"
    ));
    let buffer = rig.buffer(&[start]);
    rig.launch("main", blocks, 64, Args::default().push(buffer.addr));
    buffer.read()[0]
}

#[test]
fn atomics_across_blocks() {
    let n = 64 * 16;
    assert_eq!(atomic("atom.global.add.u32 %r3, [%word], 1", 5, 16), n + 5);
    assert_eq!(atomic("red.global.add.u64 [%word], 3", 0, 16), 3 * n);
    assert_eq!(atomic("atom.global.max.s32 %r3, [%word], %i", 0, 16), n - 1);
    assert_eq!(
        atomic("neg.s32 %r4, %i; atom.global.min.s32 %r3, [%word], %r4", 0, 16) as i32,
        1 - n as i32
    );
    assert_eq!(atomic("atom.max.u64 %w2, [%word], %w1", 7, 16), n - 1);
    assert_eq!(atomic("atom.global.inc.u32 %r3, [%word], 99", 0, 16), n % 100);
    assert_eq!(atomic("atom.global.dec.u32 %r3, [%word], 99", 0, 1), 36);
    assert_eq!(atomic("atom.global.or.b32 %r3, [%word], %i", 0, 16), n - 1);
    assert_eq!(atomic("and.b32 %r4, %i, 1; atom.global.xor.b32 %r3, [%word], %r4", 0, 16), 0);
    assert_eq!(atomic("atom.global.and.b32 %r3, [%word], 0xff00", 0x1_2345, 1), 0x2300);
    assert_eq!(
        f32::from_bits(atomic("atom.global.add.f32 %f2, [%word], %f1", 0, 16) as u32),
        n as f32
    );
    assert_eq!(f64::from_bits(atomic("atom.add.f64 %d2, [%word], %d1", 0, 16)), n as f64);
    assert_eq!(
        atomic("mov.b16 %h0, 0x3c00; atom.global.add.noftz.f16 %h1, [%word], %h0", 0, 1),
        0x5400
    );
    assert_eq!(atomic("atom.global.exch.b64 %w2, [%word], 9", 1, 4), 9);
    assert_eq!(atomic("atom.global.cas.b32 %r3, [%word], 1, 2", 1, 4), 2);
}

#[test]
fn atomics_in_shared_memory() {
    let body = ".shared .u32 sum; setp.eq.u32 %p1, %i, 0; @%p1 st.shared.u32 [sum], 0; bar.sync 0;
        atom.shared.add.u32 %m3, [sum], %i; bar.sync 0; ld.shared.u32 %r, [sum];";
    assert_eq!(run_per_thread(body, 256), vec![255 * 128; 256]);
    // The generic address of the same word.
    let body =
        ".shared .u32 sum; mov.u64 %w1, sum; cvta.shared.u64 %w2, %w1; setp.eq.u32 %p1, %i, 0;
        @%p1 st.u32 [%w2], 0; bar.sync 0; red.add.u32 [%w2], %i; bar.sync 0; ld.u32 %r, [%w2];";
    assert_eq!(run_per_thread(body, 256), vec![255 * 128; 256]);
}

const CALLS: &str = r"
.func (.param .b32 result) fib(.param .b32 n)
{
    .reg .pred %p; .reg .b32 %r<6>;
    ld.param.b32 %r0, [n];
    setp.lt.u32 %p, %r0, 2;
    @%p bra small;
    sub.u32 %r1, %r0, 1;
    {
        .param .b32 a; .param .b32 r;
        st.param.b32 [a], %r1;
        call.uni (r), fib, (a);
        ld.param.b32 %r2, [r];
    }
    sub.u32 %r1, %r0, 2;
    {
        .param .b32 a; .param .b32 r;
        st.param.b32 [a], %r1;
        call.uni (r), fib, (a);
        ld.param.b32 %r3, [r];
    }
    add.u32 %r0, %r2, %r3;
small:
    st.param.b32 [result], %r0;
    ret;
}
.func (.reg .b32 %out) twice(.reg .b32 %in)
{
    add.u32 %out, %in, %in;
    ret;
}
.func (.reg .b32 %out) square(.reg .b32 %in)
{
    mul.lo.u32 %out, %in, %in;
    ret;
}
.global .u64 table[2] = {twice, square};
.func leave(.reg .b32 %in)
{
    .reg .pred %p;
    setp.gt.u32 %p, %in, 5;
    @%p exit;
    ret;
}
.func (.param .b32 result) sum(.param .align 4 .b8 values[16])
{
    .reg .b32 %r<5>;
    ld.param.b32 %r0, [values];
    ld.param.b32 %r1, [values+4];
    ld.param.b32 %r2, [values+8];
    ld.param.b32 %r3, [values+12];
    add.u32 %r0, %r0, %r1;
    add.u32 %r0, %r0, %r2;
    add.u32 %r0, %r0, %r3;
    st.param.b32 [result], %r0;
    ret;
}
.func (.param .b32 result) endless(.param .b32 n)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r0, [n];
    {
        .param .b32 a; .param .b32 r;
        st.param.b32 [a], %r0;
        call.uni (r), endless, (a);
        ld.param.b32 %r1, [r];
    }
    add.u32 %r1, %r1, 1;
    st.param.b32 [result], %r1;
    ret;
}
.visible .entry main(.param .u64 out, .param .u32 which)
{
    .reg .pred %p; .reg .b32 %r<9>; .reg .b64 %rd<6>;
    ld.param.u64 %rd0, [out];
    ld.param.u32 %r1, [which];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd0, %rd0, %rd1;
    {
        .param .b32 a; .param .b32 r;
        st.param.b32 [a], %r0;
        call.uni (r), fib, (a);
        ld.param.b32 %r2, [r];
    }
    mul.wide.u32 %rd2, %r1, 8;
    mov.u64 %rd3, table;
    add.u64 %rd3, %rd3, %rd2;
    ld.global.u64 %rd4, [%rd3];
    prototype: .callprototype (.reg .b32 _) _ (.reg .b32 _);
    call (%r3), %rd4, (%r0), prototype;
    {
        .param .align 4 .b8 a[16]; .param .b32 r;
        st.param.b32 [a], %r2;
        st.param.b32 [a+4], %r3;
        st.param.b32 [a+8], 1;
        st.param.b32 [a+12], 2;
        call.uni (r), sum, (a);
        ld.param.b32 %r4, [r];
    }
    call leave, (%r0);
    st.global.u32 [%rd0], %r4;
    ret;
}
.visible .entry overflow(.param .u64 out)
{
    .reg .b32 %r<3>; .reg .b64 %rd;
    ld.param.u64 %rd, [out];
    {
        .param .b32 a; .param .b32 r;
        st.param.b32 [a], 1;
        call.uni (r), endless, (a);
        ld.param.b32 %r1, [r];
    }
    st.global.u32 [%rd], %r1;
    ret;
}";

#[test]
fn calls_direct_indirect_recursive() {
    let rig = Rig::new(CALLS);
    let fib = [0u32, 1, 1, 2, 3, 5, 8, 13];
    for which in 0..2u32 {
        let buffer = rig.buffer(&[0u32; 8]);
        rig.launch("main", 1, 8, Args::default().push(buffer.addr).push(which));
        let expected: Vec<u32> = (0..8u32)
            .map(|i| {
                if i > 5 { 0 } else { fib[i as usize] + if which == 0 { 2 * i } else { i * i } + 3 }
            })
            .collect();
        assert_eq!(buffer.read(), expected);
    }
    // An index beyond the table reads no function.
    let buffer = rig.buffer(&[0u32; 8]);
    let fault = rig
        .try_launch("main", 1, 1, Args::default().push(buffer.addr).push(2u32))
        .expect_err("a bad call");
    assert!(matches!(fault.kind, outboard_simt::FaultKind::InvalidCall(_)), "{fault}");
}

#[test]
fn endless_recursion_is_a_fault() {
    let rig = Rig::new(CALLS);
    let buffer = rig.buffer(&[0u32]);
    let fault =
        rig.try_launch("overflow", 1, 32, Args::default().push(buffer.addr)).expect_err("overflow");
    assert_eq!(fault.kind, outboard_simt::FaultKind::StackOverflow);
    assert_eq!(fault.function, "endless");
}

const SWITCH: &str = r"
.visible .entry main(.param .u64 data)
{
    .reg .b32 %r<3>; .reg .b64 %rd<3>;
    ld.param.u64 %rd0, [data];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd0, %rd0, %rd1;
    targets: .branchtargets zero, one, two;
    brx.idx %r0, targets;
zero:
    mov.u32 %r1, 10;
    bra end;
one:
    mov.u32 %r1, 11;
    bra end;
two:
    mov.u32 %r1, 12;
end:
    st.global.u32 [%rd0], %r1;
    ret;
}";

#[test]
fn indexed_branches() {
    let rig = Rig::new(SWITCH);
    let buffer = rig.buffer(&[0u32; 3]);
    rig.launch("main", 1, 3, Args::default().push(buffer.addr));
    assert_eq!(buffer.read(), [10, 11, 12]);
}

#[test]
fn mbarriers_release_their_waiters() {
    let body = ".shared .align 8 .b64 gate; .shared .u32 cell; setp.eq.u32 %p1, %i, 0;
        @%p1 mbarrier.init.shared.b64 [gate], 64; bar.sync 0;
        setp.eq.u32 %p2, %i, 63; @%p2 st.shared.u32 [cell], 5;
        mbarrier.arrive.shared.b64 %w1, [gate];
        wait: mbarrier.try_wait.shared.b64 %p3, [gate], %w1; @!%p3 bra wait;
        ld.shared.u32 %r, [cell];";
    assert_eq!(run_per_thread(body, 64), vec![5; 64]);
}

#[test]
fn asynchronous_copies() {
    let body = ".shared .align 16 .b8 tile[1024]; st.global.u32 [%slot], %i; shl.b32 %m3, %i, 2; mov.u32 %m4, tile; add.u32 %m4, %m4, %m3;
        cp.async.ca.shared.global [%m4], [%slot], 4; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
        sub.u32 %m5, 124, %m3; add.u32 %m5, %m5, tile; ld.shared.u32 %r, [%m5];";
    assert_eq!(run_per_thread(body, 32), (0..32).rev().collect::<Vec<u32>>());
}

#[test]
fn constants_and_initialised_variables() {
    let rig = Rig::new(&format!(
        ".const .align 4 .u32 weights[4] = {{1, 10, 100, 1000}};\n.global .align 4 .u32 offset = 5;\n{}",
        per_thread(
            "and.b32 %m3, %i, 3; mul.wide.u32 %w1, %m3, 4; mov.u64 %w2, weights; add.u64 %w2, %w2, %w1;
             ld.const.u32 %r, [%w2]; ld.global.u32 %m4, [offset]; add.u32 %r, %r, %m4;"
        )
    ));
    let buffer = rig.buffer(&[0u32; 8]);
    rig.launch("main", 1, 8, Args::default().push(buffer.addr));
    assert_eq!(buffer.read(), [6, 15, 105, 1005, 6, 15, 105, 1005]);
    assert_eq!(rig.program.global("weights").expect("constant").1, 16);
    assert_eq!(rig.kernel("main").info().const_bytes, 16);
}

#[test]
fn local_arrays_and_dynamic_shared_memory() {
    let body = ".local .align 4 .b8 array[64]; mov.u64 %w1, array; cvta.local.u64 %w2, %w1; and.b32 %m3, %i, 15; mul.wide.u32 %w3, %m3, 4;
        add.u64 %w4, %w2, %w3; st.u32 [%w4], %i; add.u64 %w5, %w1, %w3; ld.local.u32 %r, [%w5];";
    assert_eq!(run_per_thread(body, 64), (0..64).collect::<Vec<u32>>());

    let rig = Rig::new(&format!(
        ".extern .shared .align 16 .b8 dynamic[];\n{}",
        per_thread(
            "shl.b32 %m3, %i, 2; mov.u32 %m4, dynamic; add.u32 %m4, %m4, %m3; st.shared.u32 [%m4], %i; mov.u32 %m5, %dynamic_smem_size;
             bar.sync 0; ld.shared.u32 %r, [dynamic+4]; add.u32 %r, %r, %m5;"
        )
    ));
    let buffer = rig.buffer(&[0u32; 32]);
    let args = Args::default().push(buffer.addr);
    let mut launch = outboard_simt::Launch::new([1, 1, 1], [32, 1, 1], &args.0);
    launch.dynamic_shared = 128;
    rig.engine.launch(&rig.kernel("main"), &launch).expect("no fault");
    assert_eq!(buffer.read(), [129; 32]);
}

#[test]
fn several_threads_launch_at_once() {
    let engine = common::engine();
    std::thread::scope(|scope| {
        for seed in 0..8u32 {
            let engine = engine.clone();
            scope.spawn(move || {
                let rig = Rig::on(&engine, SAXPY);
                let n = 5000u32;
                for round in 0..20 {
                    let x: Vec<f32> = (0..n).map(|i| (i + seed) as f32).collect();
                    let (dx, dy) = (rig.buffer(&x), rig.buffer(&vec![round as f32; n as usize]));
                    rig.launch(
                        "saxpy",
                        n.div_ceil(64),
                        64,
                        Args::default().push(dx.addr).push(dy.addr).push(3f32).push(n),
                    );
                    assert!(dy.read().iter().zip(&x).all(|(&y, &x)| y == 3.0 * x + round as f32));
                }
            });
        }
    });
}
