//! Speed against C: a naive matrix product may take at most ten times as long as the same loops
//! compiled at `-O2`.

mod common;

use common::{Args, Rig};
use outboard_simt::Launch;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const N: usize = 512;
const LIMIT: f64 = 10.0;

/// One thread per element; the loop over k unrolled by four, as compilers do.
const MATMUL: &str = r"
.visible .entry matmul(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
    .reg .pred %p<4>;
    .reg .f32 %f<10>;
    .reg .b32 %r<14>;
    .reg .b64 %rd<20>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [c];
    ld.param.u32 %r1, [n];
    cvta.to.global.u64 %rd1, %rd1;
    cvta.to.global.u64 %rd2, %rd2;
    cvta.to.global.u64 %rd3, %rd3;
    mov.u32 %r2, %ctaid.y;
    mov.u32 %r3, %ntid.y;
    mov.u32 %r4, %tid.y;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    mov.u32 %r6, %ctaid.x;
    mov.u32 %r7, %ntid.x;
    mov.u32 %r8, %tid.x;
    mad.lo.s32 %r9, %r6, %r7, %r8;
    setp.ge.s32 %p1, %r5, %r1;
    setp.ge.s32 %p2, %r9, %r1;
    or.pred %p3, %p1, %p2;
    @%p3 bra done;
    mul.lo.s32 %r10, %r5, %r1;
    mul.wide.s32 %rd4, %r10, 4;
    add.s64 %rd5, %rd1, %rd4;
    mul.wide.s32 %rd6, %r9, 4;
    add.s64 %rd7, %rd2, %rd6;
    mul.wide.s32 %rd8, %r1, 4;
    mov.f32 %f1, 0f00000000;
    mov.u32 %r11, %r1;
next:
    ld.global.f32 %f2, [%rd7];
    ld.global.f32 %f3, [%rd5];
    fma.rn.f32 %f1, %f3, %f2, %f1;
    add.s64 %rd9, %rd7, %rd8;
    ld.global.f32 %f4, [%rd9];
    ld.global.f32 %f5, [%rd5+4];
    fma.rn.f32 %f1, %f5, %f4, %f1;
    add.s64 %rd10, %rd9, %rd8;
    ld.global.f32 %f6, [%rd10];
    ld.global.f32 %f7, [%rd5+8];
    fma.rn.f32 %f1, %f7, %f6, %f1;
    add.s64 %rd11, %rd10, %rd8;
    ld.global.f32 %f8, [%rd11];
    ld.global.f32 %f9, [%rd5+12];
    fma.rn.f32 %f1, %f9, %f8, %f1;
    add.s64 %rd7, %rd11, %rd8;
    add.s64 %rd5, %rd5, 16;
    add.s32 %r11, %r11, -4;
    setp.ne.s32 %p1, %r11, 0;
    @%p1 bra next;
    add.s32 %r12, %r10, %r9;
    mul.wide.s32 %rd12, %r12, 4;
    add.s64 %rd13, %rd3, %rd12;
    st.global.f32 [%rd13], %f1;
done:
    ret;
}";

const C_SOURCE: &str = r"
void matmul_rows(const float *a, const float *b, float *c, int n, int first, int last)
{
    for (int i = first; i < last; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int k = 0; k < n; k++)
                sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
}
";

type Rows = unsafe extern "C" fn(*const f32, *const f32, *mut f32, i32, i32, i32);

/// Compiles the C source with the system's compiler.
fn compile(directory: &Path) -> PathBuf {
    let (source, library) = (directory.join("matmul.c"), directory.join("libmatmul.so"));
    std::fs::write(&source, C_SOURCE).expect("write the source");
    let status = Command::new("cc")
        .args(["-O2", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source)
        .status();
    assert!(status.expect("a C compiler named cc").success());
    library
}

fn best_of(rounds: u32, mut work: impl FnMut()) -> Duration {
    (0..rounds)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .min()
        .expect("at least one round")
}

#[test]
fn naive_matmul_takes_at_most_ten_times_as_long_as_c() {
    let directory = tempfile::tempdir().expect("a directory for the library");
    let path = compile(directory.path());
    // SAFETY: the library was just built from the source above and runs no initialisers.
    let library = unsafe { libloading::Library::new(&path) }.expect("load the library");
    // SAFETY: the symbol has this type in the source above.
    let rows = *unsafe { library.get::<Rows>(b"matmul_rows") }.expect("the function");

    let a: Vec<f32> = (0..N * N).map(|i| (i % 7) as f32).collect();
    let b: Vec<f32> = (0..N * N).map(|i| (i % 5) as f32).collect();
    let mut expected = vec![0f32; N * N];
    let rig = Rig::new(MATMUL);
    let threads = rig.engine.threads();

    let native = best_of(5, || {
        std::thread::scope(|scope| {
            let share = N.div_ceil(threads);
            for (t, part) in expected.chunks_mut(share * N).enumerate() {
                let (a, b) = (&a, &b);
                scope.spawn(move || {
                    let (first, count) = (t * share, part.len() / N);
                    // The function indexes the whole matrix from its start.
                    let start = part.as_mut_ptr().wrapping_sub(first * N);
                    // SAFETY: the matrices are N by N, and only rows `first .. first + count`,
                    // which are `part`, are written.
                    unsafe {
                        rows(
                            a.as_ptr(),
                            b.as_ptr(),
                            start,
                            N as i32,
                            first as i32,
                            (first + count) as i32,
                        )
                    };
                });
            }
        });
    });

    let (da, db, dc) = (rig.buffer(&a), rig.buffer(&b), rig.buffer(&vec![0f32; N * N]));
    let args = Args::default().push(da.addr).push(db.addr).push(dc.addr).push(N as u32);
    let (kernel, blocks) = (rig.kernel("matmul"), (N / 16) as u32);
    let ours = best_of(5, || {
        rig.engine
            .launch(&kernel, &Launch::new([blocks, blocks, 1], [16, 16, 1], &args.0))
            .expect("no fault");
    });

    assert_eq!(dc.read(), expected, "sums of small integers are exact");
    let ratio = ours.as_secs_f64() / native.as_secs_f64();
    eprintln!(
        "matmul {N}: C {native:?}, engine {ours:?}, {ratio:.2} times as long, {threads} threads"
    );
    assert!(ratio <= LIMIT, "{ratio:.2} times as long as C ({ours:?} against {native:?})");
}
