//! Kernels, and how many steps they need.

use crate::codegen::steps::{Reach, Steps, find};

/// A kernel over pointers `a` and `b` and a number `n`, with two variables in shared memory. `%t`
/// is the thread's number in the block, `%t4` four times that, `%s` and `%mine` the addresses of
/// the first variable and of the thread's word in it, `%g` that of its word of `a`.
fn steps(code: &str) -> Steps {
    let text = format!(
        r"
.version 9.0
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 a, .param .u64 b, .param .u32 n)
{{
    .shared .align 16 .b8 s[4096];
    .shared .align 16 .b8 other[4096];
    .reg .pred %p<9>;
    .reg .b32 %t, %t4, %s, %mine, %n, %r<30>;
    .reg .b64 %a, %b, %g, %w, %rd<20>;
    ld.param.u64 %a, [a];
    ld.param.u64 %b, [b];
    ld.param.u32 %n, [n];
    mov.u32 %t, %tid.x;
    shl.b32 %t4, %t, 2;
    mov.u32 %s, s;
    add.u32 %mine, %s, %t4;
    mul.wide.u32 %w, %t, 4;
    add.u64 %g, %a, %w;
    {code}
    ret;
}}"
    );
    let module = outboard_ptx::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let function = &module.functions[0];
    find(&module, function, function.body.as_ref().expect("a body"), &|_| Reach::Nothing)
}

/// Steps in launches whose warps have lanes of one row, and in all.
fn count(code: &str) -> (usize, usize) {
    let steps = steps(code);
    (steps.at.values().filter(|step| !step.across_rows).count(), steps.at.len())
}

#[test]
fn an_exchange_is_one_step() {
    let reverse = "st.shared.u32 [%mine], %t; sub.u32 %r1, %s, %t4; ld.shared.u32 %r2, [%r1+124];";
    assert_eq!(count(reverse), (1, 1));
    let found = steps(reverse);
    let step = found.at.values().next().expect("the step");
    assert!(step.gaps.is_empty() && !step.generic);
    // The neighbour's word is written, and read before that.
    assert_eq!(count("ld.shared.u32 %r1, [%mine+4]; st.shared.u32 [%mine], %r1;").0, 1);
    assert_eq!(count("st.shared.u32 [%mine], 0; st.shared.u32 [%mine+4], 1;").0, 1);
    // All lanes write one word.
    assert_eq!(count("st.shared.u32 [%s], %t; ld.shared.u32 %r1, [%s];").0, 1);
    // A place that is not known.
    let scattered = "ld.global.u32 %r1, [%g]; add.u32 %r2, %s, %r1; st.shared.u32 [%mine], 0; st.shared.u32 [%r2], 1;";
    assert_eq!(count(scattered).0, 1);
}

#[test]
fn what_separates_the_accesses_saves_the_step() {
    for between in ["bar.sync 0;", "bar.warp.sync -1;", "shfl.sync.bfly.b32 %r9, %t, 1, 31, -1;"] {
        let code = format!("st.shared.u32 [%mine], %t; {between} ld.shared.u32 %r1, [%mine+4];");
        assert_eq!(count(&code), (0, 0), "{between}");
    }
    // These hold nobody, or not all.
    for between in ["bar.arrive 1, 64;", "@%p1 bar.warp.sync -1;", "membar.cta;"] {
        let code = format!("st.shared.u32 [%mine], %t; {between} ld.shared.u32 %r1, [%mine+4];");
        assert_eq!(count(&code).0, 1, "{between}");
    }
}

#[test]
fn lanes_that_stay_apart_take_none() {
    // Each its own word, words that are no lane's of the warp, other variables, other fields.
    assert_eq!(count("ld.shared.u32 %r1, [%mine]; st.shared.u32 [%mine], %r1;").0, 0);
    assert_eq!(count("ld.shared.u32 %r1, [%mine+128]; st.shared.u32 [%mine], %r1;").0, 0);
    assert_eq!(
        count("mov.u32 %r1, other; st.shared.u32 [%mine], 1; ld.shared.u32 %r2, [%r1+4];"),
        (0, 0)
    );
    let fields = "mad.lo.u32 %r1, %t, 12, %s; st.shared.u32 [%r1], 1; st.shared.u32 [%r1+4], 2; ld.shared.u32 %r2, [%r1+8];";
    assert_eq!(count(fields).0, 0);
    // Additions in any order.
    assert_eq!(
        count("atom.shared.add.u32 %r1, [%s], 1; atom.shared.add.u32 %r1, [%s], 1;"),
        (0, 0)
    );
    assert_eq!(count("atom.shared.add.u32 %r1, [%s], 1; ld.shared.u32 %r2, [%s];").0, 1);
}

#[test]
fn the_tail_of_a_reduction_steps_twice_a_line() {
    let line = |by: u32| {
        format!(
            "ld.shared.u32 %r1, [%mine+{}]; ld.shared.u32 %r2, [%mine]; add.u32 %r3, %r1, %r2; st.shared.u32 [%mine], %r3;",
            by * 4
        )
    };
    let tail: String = [32, 16, 8, 4, 2, 1].map(line).concat();
    // Lanes of one warp do not meet in the first line: the words behind are another's.
    assert_eq!(count(&tail).0, 10);
}

#[test]
fn a_distance_that_is_known_late_is_tested_then() {
    let code = "
        shr.u32 %r1, %n, 1;
    next:
        setp.ge.u32 %p1, %t, %r1;
        @%p1 bra skip;
        shl.b32 %r2, %r1, 2;
        add.u32 %r3, %mine, %r2;
        ld.shared.u32 %r4, [%r3];
        ld.shared.u32 %r5, [%mine];
        add.u32 %r6, %r4, %r5;
        st.shared.u32 [%mine], %r6;
    skip:
        bar.sync 0;
        shr.u32 %r1, %r1, 1;
        setp.ne.u32 %p2, %r1, 0;
        @%p2 bra next;";
    let found = steps(code);
    let mut step = found.at.values().filter(|step| !step.across_rows);
    assert_eq!(step.next().expect("the store's").gaps.len(), 1);
    assert!(step.next().is_none());
}

#[test]
fn a_strided_loop_is_tested_by_its_stride() {
    let by = |stride: &str| {
        format!(
            "
        mov.u32 %r9, {stride};
        mov.u32 %r1, %t;
    next:
        shl.b32 %r2, %r1, 2;
        add.u32 %r3, %s, %r2;
        st.shared.u32 [%r3], 0;
        add.u32 %r1, %r1, %r9;
        setp.lt.u32 %p1, %r1, %n;
        @%p1 bra next;"
        )
    };
    assert_eq!(count(&by("256")).0, 0);
    assert_eq!(count(&by("8")).0, 1);
    let found = steps(&by("%ntid.x"));
    assert_eq!(found.at.values().find(|step| !step.across_rows).expect("a step").gaps.len(), 1);
}

#[test]
fn a_loop_of_some_lanes_is_one_of_all_of_them() {
    let code = |then: &str| {
        format!(
            "
        mov.u32 %r1, %t;
        setp.gt.u32 %p2, %t, 99;
        @%p2 bra over;
    next:
        shl.b32 %r2, %r1, 2;
        add.u32 %r3, %s, %r2;
        st.shared.u32 [%r3], 0;
        add.u32 %r1, %r1, 256;
        setp.lt.u32 %p1, %r1, %n;
        @%p1 bra next;
    over:
        bar.sync 0;
        {then}"
        )
    };
    assert_eq!(count(&code("")).0, 0);
    // Behind it, it has gone round in some lanes and not in others.
    let then = "shl.b32 %r2, %r1, 2; add.u32 %r3, %s, %r2; ld.shared.u32 %r4, [%r3]; st.shared.u32 [%r3], %r4;";
    assert!(count(&code(then)).0 > 0);
}

#[test]
fn lanes_that_left_a_loop_wait_for_the_others() {
    // The store is stepped in the loop; behind the loop another lane's may still be to come.
    let code = "
        mov.u32 %r1, 0;
    next:
        add.u32 %r2, %s, %r1;
        st.shared.u32 [%mine], %r1;
        bar.warp.sync -1;
        add.u32 %r1, %r1, 1;
        setp.lt.u32 %p1, %r1, %t;
        @%p1 bra next;
        ld.shared.u32 %r3, [%mine+4];";
    assert_eq!(count(code).0, 1);
}

#[test]
fn kernels_with_barriers_take_none() {
    // The loop of a tiled matrix product.
    let tiles = "
        mov.u32 %r1, %tid.y;
        mov.u32 %r20, other;
        mad.lo.u32 %r2, %r1, 64, %mine;
        mad.lo.u32 %r3, %r1, 64, %r20;
        add.u32 %r4, %r3, %t4;
        mad.lo.u32 %r5, %r1, 64, %s;
        add.u32 %r6, %r20, %t4;
        mov.u32 %r7, 0;
    next:
        ld.global.u32 %r8, [%g];
        st.shared.u32 [%r2], %r8;
        ld.global.u32 %r9, [%b];
        st.shared.u32 [%r4], %r9;
        bar.sync 0;
        ld.shared.u32 %r10, [%r5];
        ld.shared.u32 %r11, [%r6];
        ld.shared.u32 %r12, [%r5+4];
        ld.shared.u32 %r13, [%r6+64];
        bar.sync 0;
        add.u32 %r7, %r7, 1;
        setp.lt.u32 %p1, %r7, %n;
        @%p1 bra next;
        st.global.u32 [%g], %r13;";
    assert_eq!(count(tiles), (0, 0));
    let histogram = "
        st.shared.u32 [%mine], 0;
        bar.sync 0;
        ld.global.u32 %r1, [%g];
        add.u32 %r2, %s, %r1;
        atom.shared.add.u32 %r3, [%r2], 1;
        bar.sync 0;
        ld.shared.u32 %r4, [%mine];
        red.global.add.u32 [%g], %r4;";
    assert_eq!(count(histogram), (0, 0));
}

#[test]
fn device_memory_steps_where_lanes_surely_meet() {
    assert_eq!(count("ld.global.u32 %r1, [%g]; st.global.u32 [%g], %r1;"), (0, 0));
    assert_eq!(count("st.global.u32 [%g], %t; ld.global.u32 %r1, [%g+4];"), (1, 1));
    let mirrored = "st.global.u32 [%g], %t; sub.u64 %rd1, %a, %w; ld.global.u32 %r1, [%rd1+124];";
    assert_eq!(count(mirrored), (1, 1));
    // Whether parameters point to the same is not known, and neither is an index that was read.
    assert_eq!(
        count("add.u64 %rd1, %b, %w; ld.global.u32 %r1, [%rd1+4]; st.global.u32 [%g], %r1;"),
        (0, 0)
    );
    let indexed = "ld.global.u32 %r1, [%g]; mul.wide.u32 %rd1, %r1, 4; add.u64 %rd2, %a, %rd1; st.global.u32 [%rd2], 1;";
    assert_eq!(count(indexed), (0, 0));
    // Others are to see these.
    let volatile = "st.volatile.global.u32 [%g], %t; ld.volatile.global.u32 %r1, [%a];";
    assert_eq!(count(volatile), (1, 1));
}

#[test]
fn rows_of_a_block_share_a_warp_or_do_not() {
    // Rows of a tile, 8 apart: lanes of one row stay apart, those of two may not.
    let code = "
        mov.u32 %r1, %tid.y;
        mad.lo.u32 %r2, %r1, 132, %mine;
        st.shared.u32 [%r2], 0;
        st.shared.u32 [%r2+1056], 0;";
    assert_eq!(count(code), (0, 1));
    // A lane's own word is its own in either.
    let own = "
        mov.u32 %r1, %tid.y;
        mad.lo.u32 %r2, %r1, 132, %mine;
        ld.shared.u32 %r3, [%r2];
        st.shared.u32 [%r2], %r3;";
    assert_eq!(count(own), (0, 0));
    let linear = "
        mov.u32 %r1, %tid.y;
        mov.u32 %r2, %ntid.x;
        mad.lo.u32 %r3, %r1, %r2, %t;
        shl.b32 %r4, %r3, 2;
        add.u32 %r5, %s, %r4;
        ld.shared.u32 %r6, [%r5];
        st.shared.u32 [%r5], %r6;";
    assert_eq!(count(linear), (0, 0));
}

#[test]
fn many_accesses_are_taken_together() {
    let loads: String = (0..300).map(|i| format!("ld.shared.u32 %r1, [%s+{}];", i * 4)).collect();
    assert_eq!(count(&format!("{loads} ld.shared.u32 %r1, [%mine];")).0, 0);
    assert_eq!(count(&format!("{loads} st.shared.u32 [%mine], %r1;")).0, 1);
    let stores: String =
        (0..300).map(|i| format!("st.shared.u32 [%mine+{}], 0;", i * 128 % 4096)).collect();
    assert!(count(&stores).0 > 0);
}

#[test]
fn a_register_used_again_is_another() {
    // As compilers do with the number of the thread, once it is not needed any more.
    let code = "
        mov.u32 %r1, %t;
        shl.b32 %r2, %r1, 2;
        add.u32 %r3, %s, %r2;
        ld.shared.u32 %r4, [%r3];
        st.shared.u32 [%r3], %r4;
        setp.gt.u32 %p1, %t, 9;
        @%p1 bra over;
    next:
        add.u32 %r1, %r1, 1;
        setp.lt.u32 %p2, %r1, 100;
        @%p2 bra next;
    over:
        ret;";
    assert_eq!(count(code).0, 0);
}
