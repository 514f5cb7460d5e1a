//! `printf`, `assert` and `malloc` in kernels.

mod common;

use common::{Args, Rig};
use outboard_simt::{Fault, FaultKind, Launch, Limit, OutputStream};
use std::sync::Mutex;

const PRINT: &str = r#"
.extern .func (.param .b32 status) vprintf(.param .b64 format, .param .b64 args);
.global .align 1 .b8 format[28] = {98, 108, 111, 99, 107, 32, 37, 100, 32, 116, 104, 114, 101, 97, 100, 32, 37, 100, 58, 32, 37, 46, 50, 102, 10, 0};
.visible .entry print()
{
    .local .align 8 .b8 depot[16];
    .reg .b32 %r<4>; .reg .b64 %rd<6>; .reg .f64 %d<2>;
    mov.u64 %rd0, depot;
    cvta.local.u64 %rd1, %rd0;
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %tid.x;
    st.local.u32 [depot], %r0;
    st.local.u32 [depot+4], %r1;
    cvt.rn.f64.u32 %d0, %r1;
    mul.f64 %d0, %d0, 0d3FE0000000000000;
    st.local.f64 [depot+8], %d0;
    mov.u64 %rd2, format;
    cvta.global.u64 %rd3, %rd2;
    {
        .param .b64 f; .param .b64 a; .param .b32 r;
        st.param.b64 [f], %rd3;
        st.param.b64 [a], %rd1;
        call.uni (r), vprintf, (f, a);
        ld.param.b32 %r2, [r];
    }
    ret;
}"#;

/// Launches and collects what the kernel wrote.
fn run(
    rig: &Rig,
    name: &str,
    grid: u32,
    block: u32,
    args: &Args,
) -> (Result<(), Fault>, String, String) {
    let texts = Mutex::new((Vec::new(), Vec::new()));
    let sink = |stream: OutputStream, text: &[u8]| {
        let mut texts = texts.lock().expect("not poisoned");
        match stream {
            OutputStream::Stdout => texts.0.extend_from_slice(text),
            OutputStream::Stderr => texts.1.extend_from_slice(text),
        }
    };
    let mut launch = Launch::new([grid, 1, 1], [block, 1, 1], &args.0);
    launch.output = Some(&sink);
    let result = rig.engine.launch(&rig.kernel(name), &launch);
    let (out, err) = texts.into_inner().expect("not poisoned");
    (result, String::from_utf8(out).expect("text"), String::from_utf8(err).expect("text"))
}

#[test]
fn printed_text_comes_in_the_order_of_blocks() {
    let rig = Rig::new(PRINT);
    let expected: String = (0..20)
        .flat_map(|block| {
            (0..3).map(move |thread| {
                format!("block {block} thread {thread}: {:.2}\n", f64::from(thread) / 2.0)
            })
        })
        .collect();
    for _ in 0..5 {
        let (result, out, _) = run(&rig, "print", 20, 3, &Args::default());
        assert_eq!((result, out), (Ok(()), expected.clone()));
    }
}

#[test]
fn a_full_buffer_drops_the_oldest() {
    let rig = Rig::new(PRINT);
    rig.engine.set_limit(Limit::PrintfFifo, 600);
    let (_, out, _) = run(&rig, "print", 1, 100, &Args::default());
    assert!(out.lines().count() < 15 && out.ends_with("thread 99: 49.50\n"), "{out}");
}

const ASSERT: &str = r#"
.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.global .align 1 .b8 message[6] = {120, 32, 62, 32, 48, 0};
.global .align 1 .b8 file[5] = {97, 46, 99, 117, 0};
.global .align 1 .b8 function[2] = {102, 0};
.visible .entry check()
{
    .reg .pred %p; .reg .b32 %r<3>; .reg .b64 %rd<6>;
    mov.u32 %r0, %tid.x;
    setp.lt.u32 %p, %r0, 3;
    @%p bra fine;
    mov.u64 %rd0, message;
    cvta.global.u64 %rd0, %rd0;
    mov.u64 %rd1, file;
    cvta.global.u64 %rd1, %rd1;
    mov.u64 %rd2, function;
    cvta.global.u64 %rd2, %rd2;
    {
        .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 s;
        st.param.b64 [m], %rd0;
        st.param.b64 [f], %rd1;
        st.param.b32 [l], 42;
        st.param.b64 [n], %rd2;
        st.param.b64 [s], 1;
        call.uni __assertfail, (m, f, l, n, s);
    }
fine:
    ret;
}"#;

#[test]
fn a_failed_assertion_names_its_place() {
    let rig = Rig::new(ASSERT);
    let (result, _, err) = run(&rig, "check", 1, 8, &Args::default());
    let fault = result.expect_err("it fails");
    assert_eq!(err, "a.cu:42: f: block: [0,0,0], thread: [3,0,0] Assertion `x > 0` failed.\n");
    assert!(matches!(fault.kind, FaultKind::Assert(_)) && fault.thread == [3, 0, 0], "{fault}");
    assert!(run(&rig, "check", 4, 3, &Args::default()).0.is_ok());
}

const MALLOC: &str = r"
.extern .func (.param .b64 p) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
.visible .entry main(.param .u64 out, .param .u64 bytes, .param .u32 keep)
{
    .reg .pred %p<3>; .reg .b32 %r<4>; .reg .b64 %rd<6>;
    ld.param.u64 %rd0, [out];
    ld.param.u64 %rd1, [bytes];
    ld.param.u32 %r2, [keep];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd2, %r0, 8;
    add.u64 %rd0, %rd0, %rd2;
    {
        .param .b64 n; .param .b64 p;
        st.param.b64 [n], %rd1;
        call.uni (p), malloc, (n);
        ld.param.b64 %rd3, [p];
    }
    st.global.u64 [%rd0], %rd3;
    setp.eq.u64 %p0, %rd3, 0;
    @%p0 bra end;
    st.u32 [%rd3], %r0;
    bar.sync 0;
    ld.u32 %r1, [%rd3];
    setp.ne.u32 %p1, %r1, %r0;
    @%p1 trap;
    setp.ne.u32 %p2, %r2, 0;
    @%p2 bra end;
    {
        .param .b64 p;
        st.param.b64 [p], %rd3;
        call.uni free, (p);
    }
end:
    ret;
}";

#[test]
fn kernels_allocate() {
    let rig = Rig::new(MALLOC);
    let buffer = rig.buffer(&[0u64; 64]);
    let args = |bytes: u64, keep: u32| Args::default().push(buffer.addr).push(bytes).push(keep);
    for _ in 0..3 {
        rig.launch("main", 1, 64, args(100_000, 0));
        let mut pointers = buffer.read();
        assert!(pointers.iter().all(|&p| p != 0 && p.is_multiple_of(16)));
        pointers.sort_unstable();
        assert!(pointers.windows(2).all(|pair| pair[1] - pair[0] >= 100_000));
    }
    // More than the heap of 8 MiB has: some get nothing.
    rig.launch("main", 1, 64, args(1 << 20, 1));
    assert_eq!(buffer.read().iter().filter(|&&p| p != 0).count(), 8);
}
