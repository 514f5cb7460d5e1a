//! Table-driven tests of single instructions: each case is an instruction, the types of its
//! operands, and a model of it in Rust.

use super::{Args, Rig};
use std::fmt::Write;
use std::sync::Arc;

/// How an operand is held in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reg {
    B16,
    B32,
    B64,
    F32,
    F64,
    Pred,
}

impl Reg {
    fn declaration(self) -> &'static str {
        match self {
            Reg::B16 => "b16",
            Reg::B32 => "b32",
            Reg::B64 => "b64",
            Reg::F32 => "f32",
            Reg::F64 => "f64",
            Reg::Pred => "pred",
        }
    }

    /// Bits that count.
    pub fn mask(self) -> u64 {
        match self {
            Reg::B16 => 0xffff,
            Reg::B32 | Reg::F32 => 0xffff_ffff,
            Reg::B64 | Reg::F64 => u64::MAX,
            Reg::Pred => 1,
        }
    }
}

type Model = Box<dyn Fn(&[u64]) -> u64>;

/// One instruction. In its text `d` is the destination and `a`, `b`, `c` are the operands, each
/// behind a `%`.
pub struct Case {
    pub text: String,
    pub dst: Reg,
    pub srcs: Vec<Reg>,
    pub model: Model,
    /// Which results count as right; by default equal bits.
    pub accept: fn(ours: u64, model: u64) -> bool,
}

pub fn case(text: &str, dst: Reg, srcs: &[Reg], model: impl Fn(&[u64]) -> u64 + 'static) -> Case {
    Case {
        text: text.into(),
        dst,
        srcs: srcs.into(),
        model: Box::new(model),
        accept: |a, b| a == b,
    }
}

impl Case {
    pub fn accept(mut self, accept: fn(u64, u64) -> bool) -> Case {
        self.accept = accept;
        self
    }

    /// A kernel that applies the instruction to one row of operands per thread.
    fn kernel(&self, index: usize) -> String {
        let mut text = format!(
            ".visible .entry k{index}(.param .u64 in, .param .u64 out, .param .u32 n)\n{{\n"
        );
        let names = ["a", "b", "c"];
        writeln!(
            text,
            ".reg .pred %done, %p1; .reg .b32 %i, %n, %t; .reg .b64 %in, %out, %at, %w;"
        )
        .expect("text");
        writeln!(text, ".reg .{} %d;", self.dst.declaration()).expect("text");
        for (name, reg) in names.iter().zip(&self.srcs) {
            writeln!(text, ".reg .{} %{name};", reg.declaration()).expect("text");
        }
        text += "ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; ld.param.u32 %n, [n];
            mov.u32 %i, %ctaid.x; mov.u32 %t, %ntid.x; mul.lo.u32 %i, %i, %t; mov.u32 %t, %tid.x; add.u32 %i, %i, %t;
            setp.ge.u32 %done, %i, %n; @%done bra end;
            mul.wide.u32 %at, %i, 24; add.u64 %in, %in, %at;
            mul.wide.u32 %at, %i, 8; add.u64 %out, %out, %at;\n";
        for (i, (name, reg)) in names.iter().zip(&self.srcs).enumerate() {
            let offset = 8 * i;
            match reg {
                Reg::Pred => {
                    writeln!(text, "ld.global.u32 %t, [%in+{offset}]; and.b32 %t, %t, 1; setp.ne.u32 %{name}, %t, 0;")
                }
                _ => writeln!(text, "ld.global.{} %{name}, [%in+{offset}];", reg.declaration()),
            }
            .expect("text");
        }
        writeln!(text, "{};", self.text).expect("text");
        match self.dst {
            Reg::Pred => text += "selp.u64 %w, 1, 0, %d; st.global.u64 [%out], %w;\n",
            _ => {
                text += "mov.u64 %w, 0; st.global.u64 [%out], %w;\n";
                writeln!(text, "st.global.{} [%out], %d;", self.dst.declaration()).expect("text");
            }
        }
        text + "end: ret;\n}\n"
    }
}

/// Compiled cases.
pub struct Table {
    rig: Rig,
    cases: Vec<Case>,
}

impl Table {
    pub fn new(cases: Vec<Case>) -> Table {
        let text: String = cases.iter().enumerate().map(|(i, case)| case.kernel(i)).collect();
        Table { rig: Rig::on(&shared_engine(), &text), cases }
    }

    /// Runs every case on rows of three operands and compares with the models.
    pub fn check(&self, rows: &[[u64; 3]]) {
        let (input, output) = (self.rig.buffer(rows), self.rig.buffer(&vec![0u64; rows.len()]));
        let n = rows.len() as u32;
        for (index, case) in self.cases.iter().enumerate() {
            let args = Args::default().push(input.addr).push(output.addr).push(n);
            self.rig.launch(&format!("k{index}"), n.div_ceil(64), 64, args);
            for (row, ours) in rows.iter().zip(output.read()) {
                let operands: Vec<u64> =
                    row.iter().zip(&case.srcs).map(|(v, reg)| v & reg.mask()).collect();
                let model = (case.model)(&operands) & case.dst.mask();
                assert!(
                    (case.accept)(ours, model),
                    "{} of {operands:#x?} gives {ours:#x}, the model {model:#x}",
                    case.text
                );
            }
        }
    }
}

/// One engine for all tables of a test program.
fn shared_engine() -> Arc<outboard_simt::Engine> {
    use std::sync::OnceLock;
    static ENGINE: OnceLock<Arc<outboard_simt::Engine>> = OnceLock::new();
    ENGINE.get_or_init(super::engine).clone()
}

/// Values that tend to be special: small, large, powers of two and their neighbours, floats of both
/// widths.
pub const SPECIAL: [u64; 44] = [
    0,
    1,
    2,
    3,
    7,
    8,
    15,
    16,
    31,
    32,
    33,
    63,
    64,
    65,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0x8000,
    0xffff,
    0x3c00,
    0x7c00,
    0xfc01,
    0x3f80,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x3f80_0000,
    0xbf80_0000,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0001,
    0x0080_0000,
    0x007f_ffff,
    0x4b00_0001,
    0xcf00_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
    0x3ff0_0000_0000_0000,
    0xbff8_0000_0000_0000,
    0x7ff0_0000_0000_0000,
    0x7ff8_0000_0000_0001,
    0x000f_ffff_ffff_ffff,
];

/// All pairs of special values, with a third one that varies.
pub fn special_rows() -> Vec<[u64; 3]> {
    let mut rows = Vec::new();
    for (i, &a) in SPECIAL.iter().enumerate() {
        for (j, &b) in SPECIAL.iter().enumerate() {
            rows.push([a, b, SPECIAL[(i * 7 + j * 3) % SPECIAL.len()]]);
        }
    }
    rows
}

/// Rows from a simple generator, so that every run sees the same: operands of all magnitudes.
pub fn random_rows(count: usize, seed: u64) -> Vec<[u64; 3]> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..count)
        .map(|_| {
            let shifts = next();
            [0, 8, 16].map(|i| next() >> ((shifts >> i & 63) % 40))
        })
        .collect()
}
