//! What the verifier accepts compiles and runs to an end, however odd: changed samples of every
//! instruction form are refused with a reason, or loaded, and then end well or with a fault.

mod common;

use common::Args;
use outboard_ptx::interp::samples::{INPUT_STRIDE, OUTPUT_STRIDE, samples};
use outboard_simt::{Launch, LoadError};

/// Changed programs to try, unless `OUTBOARD_SIMT_DAMAGE` says otherwise.
const ROUNDS: usize = 400;
/// Statements that samples have few of. Registers are those that all samples declare: `%h*`, `%r*`
/// and `%d*` of 16, 32 and 64 bits, a to e.
const STATEMENTS: &[&str] = &[
    "exit;",
    "@%p ret;",
    "@%q trap;",
    "bar.sync 0;",
    "@!%p bar.sync 0;",
    "bar.red.popc.u32 %ra, 0, %p;",
    "membar.gl;",
    "activemask.b32 %ra;",
    "setp.lt.u32 %p, %ra, %rb;",
    "setp.ne.and.s64 %q|%p, %da, %db, !%p;",
    "mov.u32 %rc, %tid.x;",
    "mov.u64 %dc, %clock64;",
    "mov.b64 {%ra, %rb}, %dc;",
    "mov.b32 %re, {%ha, %hb};",
    "st.global.b64 [%to], %da;",
    "ld.global.v2.b32 {%ra, %rb}, [%from];",
    "ld.volatile.global.b16 %hc, [%from+2];",
    "ld.global.b32 %ra, [%da];",
    "st.shared.b32 [%ra], %rb;",
    "ld.local.b64 %da, [%db];",
    "ld.param.b32 %ra, [%da];",
    "cvta.shared.u64 %da, %db;",
    "isspacep.local %p, %da;",
    "atom.global.add.u32 %ra, [%to], %rb;",
    "atom.shared.cas.b64 %da, [%rc], %db, %dc;",
    "red.global.add.f32 [%to], %ra;",
    "shfl.sync.bfly.b32 %ra|%p, %rb, 1, 31, -1;",
    "shfl.sync.idx.b32 %ra, %rb, %rc, %re, %ra;",
    "vote.sync.ballot.b32 %rb, %p, -1;",
    "match.any.sync.b64 %ra, %da, -1;",
    "redux.sync.min.s32 %ra, %rb, -1;",
    "call.uni (%ra), other, (%rb, %da);",
    "@%p call (%rc), other, (%ra, 7);",
    "call (%ra), %da, (%rb, %dc), proto;",
    "nanosleep.u32 %ra;",
];

/// What goes before the kernel, and at its start.
const BEFORE: &str = ".func (.reg .b32 %out) other(.reg .b32 %in, .reg .b64 %wide) { cvt.u32.u64 %out, %wide; add.u32 %out, %out, %in; ret; }\n";
const START: &str = "proto: .callprototype (.reg .b32 _) _ (.reg .b32 _, .reg .b64 _);\n.shared .b8 tile[64]; .local .b8 array[32];\n";

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as usize % n
    }
}

/// The lines of a kernel between its head, which all samples share, and its end.
fn body(kernel: &str) -> Vec<String> {
    let lines: Vec<&str> = kernel.lines().collect();
    let first =
        lines.iter().position(|line| line.starts_with("mad.lo.u64 %from")).map_or(0, |at| at + 1);
    let balanced =
        |line: &str| line.matches('{').count() == line.matches('}').count() && !line.contains(':');
    let whole: Vec<String> = lines[first..]
        .iter()
        .take_while(|line| !line.starts_with("st.global"))
        .map(|l| (*l).into())
        .collect();
    if whole.iter().all(|line| balanced(line)) { whole } else { vec![whole.join("\n")] }
}

/// Replaces a register, type or constant of a line by another of its kind.
fn change(line: &str, random: &mut Random) -> String {
    let kinds: [&[&str]; 6] = [
        &["%ha", "%hb", "%hc", "%hd", "%he"],
        &["%ra", "%rb", "%rc", "%rd", "%re", "%rt"],
        &["%da", "%db", "%dc", "%dd", "%de"],
        &[".u32", ".s32", ".b32", ".f32"],
        &[".u64", ".s64", ".b64", ".f64"],
        &[".rn", ".rz", ".rm", ".rp", ".sat", ".ftz"],
    ];
    let kind = kinds[random.below(kinds.len())];
    let (old, new) = (random.below(kind.len()), random.below(kind.len()));
    line.replacen(kind[old], kind[new], 1)
}

#[test]
fn changed_programs_are_refused_or_run() {
    let rounds =
        std::env::var("OUTBOARD_SIMT_DAMAGE").ok().and_then(|n| n.parse().ok()).unwrap_or(ROUNDS);
    let samples = samples();
    let engine = common::engine();
    let input = engine.memory().alloc(64 * INPUT_STRIDE as u64, 1).expect("memory");
    let output = engine.memory().alloc(64 * OUTPUT_STRIDE as u64, 1).expect("memory");
    let mut random = Random(0x5851_f42d_4c95_7f2d ^ rounds as u64);
    let (mut loaded, mut ended) = (0, 0);
    for _ in 0..rounds {
        let kernel = samples[random.below(samples.len())].kernel("main");
        let mut lines: Vec<String> = kernel.lines().map(str::to_owned).collect();
        // Behind the brace, the declarations and the addresses.
        let head = lines
            .iter()
            .position(|line| line.starts_with("mad.lo.u64 %from"))
            .map_or(1, |at| at + 1);
        lines.insert(head, START.into());
        for _ in 0..1 + random.below(5) {
            let at = head + 1 + random.below(lines.len() - head - 2);
            let new = match random.below(3) {
                0 => vec![STATEMENTS[random.below(STATEMENTS.len())].to_owned()],
                1 => body(&samples[random.below(samples.len())].kernel("main")),
                _ => {
                    lines[at] = change(&lines[at], &mut random);
                    continue;
                }
            };
            lines.splice(at..at, new);
        }
        let text = format!("{}{BEFORE}{}", common::HEADER, lines.join("\n"));
        let Ok(module) = outboard_ptx::parse(&text) else { continue };
        let program = match engine.load(&[&module]) {
            Ok(program) => program,
            Err(LoadError::Unsupported { .. }) => continue,
            Err(error) => panic!("{error}\n{text}"),
        };
        loaded += 1;
        let Some(kernel) = program.kernel("main") else { continue };
        let args = Args::default().push(output).push(input);
        if engine.launch(&kernel, &Launch::new([2, 1, 1], [32, 1, 1], &args.0)).is_ok() {
            ended += 1;
        }
    }
    eprintln!("{loaded} of {rounds} loaded, {ended} ran to the end");
    assert!(
        loaded > rounds / 20 && ended > 0,
        "{loaded} of {rounds} loaded, {ended} ran: the changes are too wild"
    );
}
