//! The forms.

use super::{Domain, Sample, Tolerance};
use crate::types::Type;

const INTS: [Type; 6] = [Type::U16, Type::U32, Type::U64, Type::S16, Type::S32, Type::S64];
const SMALL_INTS: [Type; 8] =
    [Type::U8, Type::S8, Type::U16, Type::S16, Type::U32, Type::S32, Type::U64, Type::S64];
const BITS: [Type; 3] = [Type::B16, Type::B32, Type::B64];
const ROUNDS: [&str; 4] = [".rn", ".rz", ".rm", ".rp"];
const HALVES: [Type; 4] = [Type::F16, Type::F16x2, Type::BF16, Type::BF16x2];

/// One sample for each form.
pub fn samples() -> Vec<Sample> {
    let mut list = List(Vec::new());
    list.integers();
    list.video();
    list.bits();
    list.floats();
    list.halves();
    list.approximations();
    list.comparisons();
    list.conversions();
    list.0
}

struct List(Vec<Sample>);

impl List {
    fn body(&mut self, form: &str, output: Type, inputs: &[Type], body: &str) -> &mut Sample {
        self.0.push(Sample {
            form: form.to_owned(),
            inputs: inputs.to_vec(),
            output,
            tolerance: Tolerance::Exact,
            domain: Domain::All,
            body: body.to_owned(),
        });
        let last = self.0.len() - 1;
        &mut self.0[last]
    }

    /// `form {d}, {a}, ...;`
    fn add(&mut self, form: &str, output: Type, inputs: &[Type]) -> &mut Sample {
        let operands = ["{a}", "{b}", "{c}", "{e}"][..inputs.len()].join(", ");
        self.body(form, output, inputs, &format!("{form} {{d}}, {operands};"))
    }

    fn integers(&mut self) {
        for ty in INTS {
            for op in ["add", "sub", "mul.lo", "mul.hi", "min", "max"] {
                self.add(&format!("{op}{ty}"), ty, &[ty, ty]);
            }
            for op in ["div", "rem"] {
                self.add(&format!("{op}{ty}"), ty, &[ty, ty]).domain = Domain::Divisor;
            }
            for op in ["mad.lo", "mad.hi", "sad"] {
                self.add(&format!("{op}{ty}"), ty, &[ty, ty, ty]);
            }
            if ty.is_signed() {
                self.add(&format!("neg{ty}"), ty, &[ty]);
                self.add(&format!("abs{ty}"), ty, &[ty]);
            }
        }
        let wide = [
            (Type::U16, Type::U32),
            (Type::S16, Type::S32),
            (Type::U32, Type::U64),
            (Type::S32, Type::S64),
        ];
        for (ty, result) in wide {
            self.add(&format!("mul.wide{ty}"), result, &[ty, ty]);
            self.add(&format!("mad.wide{ty}"), result, &[ty, ty, result]);
        }
        for op in ["add.sat", "sub.sat"] {
            self.add(&format!("{op}.s32"), Type::S32, &[Type::S32, Type::S32]);
        }
        self.add("mad.hi.sat.s32", Type::S32, &[Type::S32; 3]);
        self.add("mad24.hi.sat.s32", Type::S32, &[Type::S32; 3]);
        for ty in [Type::U32, Type::S32] {
            for mode in ["lo", "hi"] {
                self.add(&format!("mul24.{mode}{ty}"), ty, &[ty; 2]);
                self.add(&format!("mad24.{mode}{ty}"), ty, &[ty; 3]);
            }
        }
        for ty in [Type::U16x2, Type::S16x2] {
            for op in ["add", "min", "max"] {
                self.add(&format!("{op}{ty}"), ty, &[ty; 2]);
            }
        }
        for (op, ty) in
            [("min", Type::S32), ("max", Type::S32), ("min", Type::S16x2), ("max", Type::S16x2)]
        {
            self.add(&format!("{op}.relu{ty}"), ty, &[ty; 2]);
        }
        for ty in [Type::U32, Type::S32, Type::U64, Type::S64] {
            for op in ["add", "sub"] {
                let body =
                    format!("{op}.cc{ty} {{d}}, {{a}}, {{b}}; {op}c{ty} {{d}}, {{c}}, {{d}};");
                self.body(&format!("{op}.cc{ty} {op}c"), ty, &[ty; 3], &body);
                let body = format!(
                    "{op}.cc{ty} {{d}}, {{a}}, {{b}}; {op}c.cc{ty} {{d}}, {{c}}, {{a}}; {op}c{ty} {{d}}, {{e}}, {{d}};"
                );
                self.body(&format!("{op}.cc{ty} {op}c.cc {op}c"), ty, &[ty; 4], &body);
            }
            let body = format!(
                "mad.lo.cc{ty} {{d}}, {{a}}, {{b}}, {{c}}; madc.hi{ty} {{d}}, {{a}}, {{b}}, {{e}};"
            );
            self.body(&format!("mad.lo.cc{ty} madc.hi"), ty, &[ty; 4], &body);
        }
        for (a, b) in [(".u32", ".u32"), (".s32", ".s32"), (".u32", ".s32"), (".s32", ".u32")] {
            self.add(&format!("dp4a{a}{b}"), Type::B32, &[Type::B32; 3]);
            self.add(&format!("dp2a.lo{a}{b}"), Type::B32, &[Type::B32; 3]);
            self.add(&format!("dp2a.hi{a}{b}"), Type::B32, &[Type::B32; 3]);
        }
        for lanes in [2, 4] {
            for op in ["vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"] {
                for types in [".u32.u32.u32", ".s32.s32.s32"] {
                    for end in ["", ".sat", ".add"] {
                        if !(end == ".sat" && matches!(op, "vavrg" | "vmin" | "vmax")) {
                            self.add(
                                &format!("{op}{lanes}{types}{end}"),
                                Type::B32,
                                &[Type::B32; 3],
                            );
                        }
                    }
                }
            }
            for cmp in ["eq", "lt", "ge"] {
                self.add(&format!("vset{lanes}.s32.s32.{cmp}"), Type::B32, &[Type::B32; 3]);
            }
        }
    }

    /// Scalar video instructions, with parts of words and second operations.
    fn video(&mut self) {
        let two = [Type::B32; 2];
        let three = [Type::B32; 3];
        for op in ["vadd", "vsub", "vabsdiff", "vmin", "vmax"] {
            for types in [".u32.u32.u32", ".s32.s32.s32", ".s32.u32.s32", ".u32.s32.u32"] {
                self.add(&format!("{op}{types}"), Type::B32, &two);
                self.add(&format!("{op}{types}.add"), Type::B32, &three);
                for (d, a, b) in [("b2", "h1", "b3"), ("h0", "b0", "h0")] {
                    let body = format!("{op}{types} {{d}}.{d}, {{a}}.{a}, {{b}}.{b}, {{c}};");
                    self.body(&format!("{op}{types} {d}"), Type::B32, &three, &body);
                }
            }
            self.add(&format!("{op}.s32.s32.s32.sat"), Type::B32, &two);
            self.add(&format!("{op}.s32.s32.s32.sat.add"), Type::B32, &three);
            if op != "vabsdiff" {
                self.add(&format!("{op}.s32.s32.s32.min"), Type::B32, &three);
                self.add(&format!("{op}.s32.s32.s32.max"), Type::B32, &three);
                self.add(&format!("{op}.s32.s32.s32.sat.max"), Type::B32, &three);
            }
        }
        for cmp in ["eq", "ne", "lt", "ge"] {
            for types in [".u32.u32", ".s32.s32", ".u32.s32"] {
                self.add(&format!("vset{types}.{cmp}"), Type::B32, &two);
                self.add(&format!("vset{types}.{cmp}.add"), Type::B32, &three);
            }
        }
        for op in ["vshl", "vshr"] {
            for types in [".u32.u32.u32", ".s32.s32.u32"] {
                for mode in [".clamp", ".wrap"] {
                    self.add(&format!("{op}{types}{mode}"), Type::B32, &two);
                    self.add(&format!("{op}{types}{mode}.add"), Type::B32, &three);
                }
            }
        }
    }

    fn bits(&mut self) {
        for ty in BITS {
            for op in ["and", "or", "xor"] {
                self.add(&format!("{op}{ty}"), ty, &[ty; 2]);
            }
            for op in ["not", "cnot"] {
                self.add(&format!("{op}{ty}"), ty, &[ty]);
            }
            self.add(&format!("shl{ty}"), ty, &[ty, Type::U32]);
        }
        for ty in BITS.into_iter().chain(INTS) {
            self.add(&format!("shr{ty}"), ty, &[ty, Type::U32]);
            self.add(&format!("selp{ty}"), ty, &[ty, ty, Type::U32]).body =
                format!("setp.ne.u32 %p, {{c}}, 0; selp{ty} {{d}}, {{a}}, {{b}}, %p;");
        }
        for ty in [Type::B32, Type::B64] {
            self.add(&format!("popc{ty}"), Type::U32, &[ty]);
            self.add(&format!("clz{ty}"), Type::U32, &[ty]);
            self.add(&format!("brev{ty}"), ty, &[ty]);
            // Positions and lengths beyond 255 are not defined.
            let body = format!(
                "and.b32 {{c}}, {{c}}, 255; and.b32 {{e}}, {{e}}, 255; bfi{ty} {{d}}, {{a}}, {{b}}, {{c}}, {{e}};"
            );
            self.body(&format!("bfi{ty}"), ty, &[ty, ty, Type::U32, Type::U32], &body);
        }
        for ty in [Type::U32, Type::S32, Type::U64, Type::S64] {
            self.add(&format!("bfind{ty}"), Type::U32, &[ty]);
            self.add(&format!("bfind.shiftamt{ty}"), Type::U32, &[ty]);
            let body = format!(
                "and.b32 {{b}}, {{b}}, 255; and.b32 {{c}}, {{c}}, 255; bfe{ty} {{d}}, {{a}}, {{b}}, {{c}};"
            );
            self.body(&format!("bfe{ty}"), ty, &[ty, Type::U32, Type::U32], &body);
        }
        self.body(
            "fns.b32",
            Type::B32,
            &[Type::B32; 3],
            "and.b32 {b}, {b}, 31; bfe.s32 {c}, {c}, 0, 6; fns.b32 {d}, {a}, {b}, {c};",
        );
        for mode in ["clamp", "wrap"] {
            self.add(&format!("bmsk.{mode}.b32"), Type::B32, &[Type::U32; 2]);
            self.add(&format!("szext.{mode}.u32"), Type::U32, &[Type::U32; 2]);
            self.add(&format!("szext.{mode}.s32"), Type::S32, &[Type::S32, Type::U32]);
            self.add(&format!("shf.l.{mode}.b32"), Type::B32, &[Type::B32; 3]);
            self.add(&format!("shf.r.{mode}.b32"), Type::B32, &[Type::B32; 3]);
        }
        for mode in ["", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"] {
            self.add(&format!("prmt.b32{mode}"), Type::B32, &[Type::B32; 3]);
        }
        for lut in [0x80, 0xfe, 0x96, 0xe8, 0x1b, 0x3c] {
            let body = format!("lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {lut};");
            self.body(&format!("lop3.b32 {lut:#x}"), Type::B32, &[Type::B32; 3], &body);
        }
        let body = "setp.lt.u32 %q, {a}, {b}; lop3.or.b32 {d}|%p, {a}, {b}, {c}, 0x80, %q; @%p not.b32 {d}, {d};";
        self.body("lop3.or.b32", Type::B32, &[Type::B32; 3], body);
        let parts = "mov.b64 {%ra, %rb}, {a}; xor.b32 %ra, %ra, %rb; mov.b64 {d}, {%rb, %ra};";
        self.body("mov.b64 pack", Type::B64, &[Type::B64], parts);
        let parts = "mov.b32 {%ha, %hb}, {a}; add.u16 %ha, %ha, %hb; mov.b32 {d}, {%hb, %ha};";
        self.body("mov.b32 pack", Type::B32, &[Type::B32], parts);
    }

    fn floats(&mut self) {
        for ty in [Type::F32, Type::F64] {
            let flushes: &[&str] = if ty == Type::F32 { &["", ".ftz"] } else { &[""] };
            for ftz in flushes {
                for round in ROUNDS {
                    for op in ["add", "sub", "mul", "div"] {
                        self.add(&format!("{op}{round}{ftz}{ty}"), ty, &[ty; 2]);
                    }
                    self.add(&format!("fma{round}{ftz}{ty}"), ty, &[ty; 3]);
                    self.add(&format!("rcp{round}{ftz}{ty}"), ty, &[ty]);
                    self.add(&format!("sqrt{round}{ftz}{ty}"), ty, &[ty]);
                }
                for op in ["min", "max"] {
                    self.add(&format!("{op}{ftz}{ty}"), ty, &[ty; 2]);
                }
                for op in ["neg", "abs"] {
                    self.add(&format!("{op}{ftz}{ty}"), ty, &[ty]);
                }
            }
            self.add(&format!("copysign{ty}"), ty, &[ty; 2]);
            for test in ["finite", "infinite", "number", "notanumber", "normal", "subnormal"] {
                let body = format!("testp.{test}{ty} %p, {{a}}; selp.u32 {{d}}, 1, 0, %p;");
                self.body(&format!("testp.{test}{ty}"), Type::U32, &[ty], &body);
            }
        }
        let f32s = [Type::F32; 3];
        for op in ["add", "sub", "mul"] {
            self.add(&format!("{op}.rn.sat.f32"), Type::F32, &f32s[..2]);
            self.add(&format!("{op}.rz.ftz.sat.f32"), Type::F32, &f32s[..2]);
        }
        self.add("fma.rn.sat.f32", Type::F32, &f32s);
        self.add("fma.rm.ftz.sat.f32", Type::F32, &f32s);
        for op in ["min", "max"] {
            for mods in [".NaN", ".xorsign.abs", ".NaN.xorsign.abs", ".ftz.NaN"] {
                self.add(&format!("{op}{mods}.f32"), Type::F32, &f32s[..2]);
            }
        }
    }

    fn halves(&mut self) {
        for ty in HALVES {
            for op in [
                "add.rn",
                "sub.rn",
                "mul.rn",
                "min",
                "max",
                "min.NaN",
                "max.NaN",
                "min.xorsign.abs",
            ] {
                self.add(&format!("{op}{ty}"), ty, &[ty; 2]);
            }
            for op in ["fma.rn", "fma.rn.relu"] {
                self.add(&format!("{op}{ty}"), ty, &[ty; 3]);
            }
            for op in ["neg", "abs"] {
                self.add(&format!("{op}{ty}"), ty, &[ty]);
            }
        }
        for ty in [Type::F16, Type::F16x2] {
            for op in ["add.ftz", "sub.ftz.sat", "mul.sat", "min.ftz"] {
                self.add(&format!("{op}{ty}"), ty, &[ty; 2]);
            }
            for op in ["fma.rn.ftz", "fma.rn.sat", "fma.rn.ftz.relu"] {
                self.add(&format!("{op}{ty}"), ty, &[ty; 3]);
            }
        }
    }

    fn approximations(&mut self) {
        let one = [Type::F32];
        let both = [Type::F32; 2];
        let list = [
            ("rcp.approx", Tolerance::Ulps(1), Domain::Moderate, &one[..]),
            ("sqrt.approx", Tolerance::Ulps(2), Domain::Moderate, &one),
            ("rsqrt.approx", Tolerance::Ulps(2), Domain::Moderate, &one),
            ("sin.approx", Tolerance::Absolute(8e-7), Domain::Circle, &one),
            ("cos.approx", Tolerance::Absolute(8e-7), Domain::Circle, &one),
            ("ex2.approx", Tolerance::Ulps(2), Domain::Moderate, &one),
            ("lg2.approx", Tolerance::UlpsOrAbsolute(3e-7), Domain::Moderate, &one),
            ("div.approx", Tolerance::Ulps(2), Domain::Moderate, &both),
            ("div.full", Tolerance::Ulps(2), Domain::Moderate, &both),
        ];
        for (op, tolerance, domain, inputs) in list {
            for ftz in ["", ".ftz"] {
                let sample = self.add(&format!("{op}{ftz}.f32"), Type::F32, inputs);
                (sample.tolerance, sample.domain) = (tolerance, domain);
            }
        }
        let loose = [
            ("tanh.approx.f32", Type::F32, 5e-4),
            ("tanh.approx.f16", Type::F16, 1e-3),
            ("tanh.approx.f16x2", Type::F16x2, 1e-3),
            ("tanh.approx.bf16", Type::BF16, 8e-3),
            ("ex2.approx.f16", Type::F16, 1e-3),
            ("ex2.approx.f16x2", Type::F16x2, 1e-3),
            ("ex2.approx.ftz.bf16", Type::BF16, 8e-3),
            ("rcp.approx.ftz.f64", Type::F64, 1e-5),
            ("rsqrt.approx.f64", Type::F64, 1e-5),
        ];
        for (form, ty, error) in loose {
            let sample = self.add(form, ty, &[ty]);
            (sample.tolerance, sample.domain) = (Tolerance::Relative(error), Domain::Moderate);
        }
    }

    fn comparisons(&mut self) {
        let ordered = ["eq", "ne", "lt", "le", "gt", "ge"];
        let unordered = ["equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"];
        let setp = |list: &mut List, cmp: &str, ty: Type| {
            let body = format!("setp.{cmp}{ty} %p, {{a}}, {{b}}; selp.u32 {{d}}, 1, 0, %p;");
            list.body(&format!("setp.{cmp}{ty}"), Type::U32, &[ty; 2], &body);
        };
        for ty in INTS {
            for cmp in ordered {
                setp(self, cmp, ty);
            }
        }
        for cmp in ["lo", "ls", "hi", "hs"] {
            setp(self, cmp, Type::U32);
        }
        for ty in [Type::F16, Type::BF16, Type::F32, Type::F64] {
            for cmp in ordered.into_iter().chain(unordered) {
                setp(self, cmp, ty);
            }
        }
        setp(self, "lt.ftz", Type::F32);
        for op in ["and", "or", "xor"] {
            let body = format!(
                "setp.gt.u32 %p, {{c}}, 9; setp.lt.{op}.s32 %p|%q, {{a}}, {{b}}, !%p; selp.u32 {{d}}, 1, 0, %p; \
                 @%q add.u32 {{d}}, {{d}}, 2;"
            );
            self.body(
                &format!("setp.lt.{op}.s32"),
                Type::U32,
                &[Type::S32, Type::S32, Type::U32],
                &body,
            );
        }
        let body =
            "setp.lt.f16x2 %p|%q, {a}, {b}; selp.u32 {d}, 1, 0, %p; @%q add.u32 {d}, {d}, 2;";
        self.body("setp.lt.f16x2", Type::U32, &[Type::F16x2; 2], body);
        for (result, ty) in [
            (Type::U32, Type::S32),
            (Type::S32, Type::F64),
            (Type::F32, Type::U64),
            (Type::F32, Type::F32),
            (Type::F16, Type::F16),
            (Type::F16x2, Type::F16x2),
            (Type::BF16x2, Type::BF16x2),
        ] {
            for cmp in ordered {
                self.add(&format!("set.{cmp}{result}{ty}"), result, &[ty; 2]);
            }
        }
        self.add("slct.b32.s32", Type::B32, &[Type::B32, Type::B32, Type::S32]);
        self.add("slct.u64.s32", Type::U64, &[Type::U64, Type::U64, Type::S32]);
        self.add("slct.f32.f32", Type::F32, &[Type::F32; 3]);
        self.add("slct.ftz.f32.f32", Type::F32, &[Type::F32; 3]);
    }

    fn conversions(&mut self) {
        for to in SMALL_INTS {
            for from in SMALL_INTS {
                self.add(&format!("cvt{to}{from}"), to, &[from]);
                if to.size() < from.size() || (to.size() == from.size() && to != from) {
                    self.add(&format!("cvt.sat{to}{from}"), to, &[from]);
                }
            }
            for float in [Type::F16, Type::F32, Type::F64] {
                for round in ROUNDS {
                    self.add(&format!("cvt{round}{float}{to}"), float, &[to]);
                    self.add(&format!("cvt{round}i{to}{float}"), to, &[float]);
                }
            }
            self.add(&format!("cvt.rzi.ftz{to}.f32"), to, &[Type::F32]);
            self.add(&format!("cvt.rn.sat.f32{to}"), Type::F32, &[to]);
            if to.size() > 1 {
                self.add(&format!("cvt.rn.bf16{to}"), Type::BF16, &[to]);
                self.add(&format!("cvt.rzi{to}.bf16"), to, &[Type::BF16]);
            }
        }
        let narrowing = [
            (Type::F32, Type::F64),
            (Type::F16, Type::F32),
            (Type::F16, Type::F64),
            (Type::BF16, Type::F64),
        ];
        for (to, from) in narrowing {
            for round in ROUNDS {
                self.add(&format!("cvt{round}{to}{from}"), to, &[from]);
            }
            if to != Type::BF16 {
                self.add(&format!("cvt.rn.sat{to}{from}"), to, &[from]);
            }
        }
        let widening = [
            (Type::F64, Type::F32),
            (Type::F32, Type::F16),
            (Type::F64, Type::F16),
            (Type::F32, Type::BF16),
            (Type::F64, Type::BF16),
        ];
        for (to, from) in widening {
            self.add(&format!("cvt{to}{from}"), to, &[from]);
        }
        for ty in [Type::F16, Type::F32, Type::F64] {
            for round in ROUNDS {
                self.add(&format!("cvt{round}i{ty}{ty}"), ty, &[ty]);
            }
            self.add(&format!("cvt.sat{ty}{ty}"), ty, &[ty]);
        }
        let others = [
            ("cvt.rn.bf16.f32", Type::BF16, Type::F32),
            ("cvt.rz.bf16.f32", Type::BF16, Type::F32),
            ("cvt.rn.relu.f16.f32", Type::F16, Type::F32),
            ("cvt.rn.bf16.f16", Type::BF16, Type::F16),
            ("cvt.rn.f16.bf16", Type::F16, Type::BF16),
            ("cvt.ftz.f64.f32", Type::F64, Type::F32),
            ("cvt.rn.ftz.f32.f64", Type::F32, Type::F64),
            ("cvt.ftz.f32.f16", Type::F32, Type::F16),
            ("cvt.rna.tf32.f32", Type::B32, Type::F32),
            ("cvt.rn.tf32.f32", Type::B32, Type::F32),
            ("cvt.rz.tf32.f32", Type::B32, Type::F32),
            ("cvt.rn.satfinite.e4m3x2.f16x2", Type::B16, Type::F16x2),
            ("cvt.rn.satfinite.e5m2x2.f16x2", Type::B16, Type::F16x2),
            ("cvt.rn.f16x2.e4m3x2", Type::F16x2, Type::B16),
            ("cvt.rn.f16x2.e5m2x2", Type::F16x2, Type::B16),
            ("cvt.rn.relu.f16x2.e4m3x2", Type::F16x2, Type::B16),
        ];
        for (form, to, from) in others {
            self.add(form, to, &[from]);
        }
        let pairs = [
            ("cvt.rn.f16x2.f32", Type::F16x2),
            ("cvt.rz.f16x2.f32", Type::F16x2),
            ("cvt.rn.relu.bf16x2.f32", Type::BF16x2),
            ("cvt.rn.satfinite.e4m3x2.f32", Type::B16),
            ("cvt.rn.satfinite.relu.e5m2x2.f32", Type::B16),
        ];
        for (form, to) in pairs {
            self.add(form, to, &[Type::F32; 2]);
        }
        for to in [Type::U16, Type::S16] {
            self.add(&format!("cvt.pack.sat{to}.s32"), Type::B32, &[Type::S32; 2]);
        }
        for to in [Type::U8, Type::S8] {
            self.add(
                &format!("cvt.pack.sat{to}.s32.b32"),
                Type::B32,
                &[Type::S32, Type::S32, Type::B32],
            );
        }
    }
}
