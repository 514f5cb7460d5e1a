//! Small kernels, one for each form of the scalar instructions, made by rule (opcode × type × modifiers), to hold
//! implementations against one another: this interpreter, compiled code, a GPU.

use super::soft::Format;
use super::{Flat, Stop, World, run};
use crate::ir::Module;
use crate::types::Type;

/// How close a result must come to the interpreter's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// Every bit, except that any NaN equals any other.
    Exact,
    /// Units in the last place of the interpreter's result.
    Ulps(u32),
    /// Two units in the last place of the interpreter's result, or this difference.
    UlpsOrAbsolute(f64),
    /// Difference to the interpreter's result.
    Absolute(f64),
    /// Difference as a fraction of the interpreter's result.
    Relative(f64),
}

/// Which inputs give a defined result within the tolerance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    All,
    /// The second input is not zero (integer division).
    Divisor,
    /// All inputs are normal numbers, and so is the result, far from the ends of the range.
    Moderate,
    /// As `Moderate`, and the first input lies between -π and π.
    Circle,
}

/// A kernel for one instruction form.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The instruction with its modifiers.
    pub form: String,
    /// Types of the inputs, one to four.
    pub inputs: Vec<Type>,
    pub output: Type,
    pub tolerance: Tolerance,
    pub domain: Domain,
    /// Instructions with `{d}` for the result and `{a}`, `{b}`, `{c}`, `{e}` for the inputs.
    body: String,
}

/// Bytes between the inputs of two threads: four slots of 16 bytes.
pub const INPUT_STRIDE: usize = 64;
/// Bytes between the results of two threads.
pub const OUTPUT_STRIDE: usize = 16;

const INTS: [Type; 6] = [Type::U16, Type::U32, Type::U64, Type::S16, Type::S32, Type::S64];
const SMALL_INTS: [Type; 8] = [Type::U8, Type::S8, Type::U16, Type::S16, Type::U32, Type::S32, Type::U64, Type::S64];
const BITS: [Type; 3] = [Type::B16, Type::B32, Type::B64];
const ROUNDS: [&str; 4] = [".rn", ".rz", ".rm", ".rp"];
const HALVES: [Type; 4] = [Type::F16, Type::F16x2, Type::BF16, Type::BF16x2];

/// One sample for each form.
pub fn samples() -> Vec<Sample> {
    let mut list = List(Vec::new());
    list.integers();
    list.bits();
    list.floats();
    list.halves();
    list.approximations();
    list.comparisons();
    list.conversions();
    list.0
}

/// A module with a kernel `kN` for each sample, N its index. Parameters: addresses of results and inputs; each thread
/// of a one-dimensional grid handles its own ([`OUTPUT_STRIDE`], [`INPUT_STRIDE`]).
pub fn module(samples: &[Sample]) -> String {
    let mut text = String::from(".version 8.6\n.target sm_90\n.address_size 64\n");
    for (index, sample) in samples.iter().enumerate() {
        text.push_str(&sample.kernel(&format!("k{index}")));
    }
    text
}

fn register(ty: Type, name: char) -> String {
    let class = match ty.size() {
        1 | 2 => 'h',
        4 => 'r',
        _ => 'd',
    };
    format!("%{class}{name}")
}

fn bits_of(ty: Type) -> &'static str {
    match ty.size() {
        1 => "b8",
        2 => "b16",
        4 => "b32",
        _ => "b64",
    }
}

impl Sample {
    /// The text of the kernel.
    pub fn kernel(&self, name: &str) -> String {
        let mut text = format!(
            ".visible .entry {name}(.param .u64 out, .param .u64 in) {{\n\
             .reg .pred %p, %q;\n.reg .b16 %ha, %hb, %hc, %he, %hd;\n.reg .b32 %ra, %rb, %rc, %re, %rd, %rt, %ru;\n\
             .reg .b64 %da, %db, %dc, %de, %dd, %to, %from, %i;\n\
             mov.u32 %rt, %ctaid.x;\nmov.u32 %ru, %ntid.x;\nmov.u32 %rd, %tid.x;\nmad.lo.u32 %rt, %rt, %ru, %rd;\n\
             cvt.u64.u32 %i, %rt;\nld.param.u64 %to, [out];\nld.param.u64 %from, [in];\n\
             mad.lo.u64 %to, %i, {OUTPUT_STRIDE}, %to;\nmad.lo.u64 %from, %i, {INPUT_STRIDE}, %from;\n"
        );
        let mut body = self.body.clone();
        for (index, (ty, letter)) in self.inputs.iter().zip("abce".chars()).enumerate() {
            let reg = register(*ty, letter);
            text.push_str(&format!("ld.global.{} {reg}, [%from+{}];\n", bits_of(*ty), 16 * index));
            body = body.replace(&format!("{{{letter}}}"), &reg);
        }
        let result = register(self.output, 'd');
        let body = body.replace("{d}", &result);
        text.push_str(&format!("{body}\nst.global.{} [%to], {result};\nret;\n}}\n", bits_of(self.output)));
        text
    }

    /// Inputs number `index`: always the same for a form.
    pub fn case(&self, index: u64) -> Vec<u128> {
        // FNV-1a of the form, so that a new sample does not change the inputs of the others.
        let name = self
            .form
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        let input = |slot: u64| name.wrapping_add((4 * index + slot).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        self.inputs.iter().zip(0..).map(|(ty, slot)| pattern(*ty, mixed(input(slot)))).collect()
    }

    /// The result of the interpreter for some inputs; `program` is the module of [`Sample::kernel`] with the given name.
    ///
    /// # Errors
    ///
    /// Why the interpreter stopped.
    pub fn interpret(&self, program: &Module, kernel: &str, inputs: &[u128]) -> Result<u128, Stop> {
        let mut world = Flat::new(program, OUTPUT_STRIDE + INPUT_STRIDE);
        let (out, input) = (world.data, world.data + OUTPUT_STRIDE as u64);
        for (bits, slot) in inputs.iter().zip(0..) {
            world.store(input + 16 * slot, &bits.to_le_bytes());
        }
        run(program, kernel, &[out.to_le_bytes(), input.to_le_bytes()].concat(), &mut world, 1000)?;
        let mut result = [0; 16];
        world.load(out, &mut result);
        Ok(u128::from_le_bytes(result))
    }

    /// Whether inputs give a defined result; `expected` is the interpreter's.
    pub fn defined(&self, inputs: &[u128], expected: u128) -> bool {
        let numbers = || self.inputs.iter().zip(inputs).map(|(ty, bits)| (*ty, *bits)).chain([(self.output, expected)]);
        let moderate = || {
            numbers().all(|(ty, bits)| {
                (0..ty.bits() / ty.lane().bits()).all(|lane| {
                    let value = to_f64(ty.lane(), bits >> (lane * ty.lane().bits()));
                    let limit = if matches!(ty.lane(), Type::F16) { 1e3 } else { 1e30 };
                    value.is_finite() && value.abs() < limit && value.abs() > 1.0 / limit
                })
            })
        };
        match self.domain {
            Domain::All => true,
            Domain::Divisor => super::int::unsigned(self.inputs[1], inputs[1]) != 0,
            Domain::Moderate => moderate(),
            Domain::Circle => moderate() && to_f64(self.inputs[0], inputs[0]).abs() <= std::f64::consts::PI,
        }
    }

    /// Whether a result agrees with the interpreter's, within the tolerance.
    pub fn agrees(&self, expected: u128, found: u128) -> bool {
        let ty = self.output;
        let lane = ty.lane();
        (0..ty.bits() / lane.bits()).all(|index| {
            let shift = index * lane.bits();
            let cut = |bits: u128| super::int::unsigned(lane, bits >> shift);
            self.lane_agrees(lane, cut(expected), cut(found))
        })
    }

    fn lane_agrees(&self, ty: Type, expected: u128, found: u128) -> bool {
        if expected == found {
            return true;
        }
        if !ty.is_float() {
            return false;
        }
        let (want, have) = (to_f64(ty, expected), to_f64(ty, found));
        if want.is_nan() || have.is_nan() {
            return want.is_nan() && have.is_nan();
        }
        let within_ulps = |ulps: u32| {
            let same_sign = expected >> (ty.bits() - 1) == found >> (ty.bits() - 1);
            same_sign && expected.abs_diff(found) <= u128::from(ulps)
        };
        match self.tolerance {
            Tolerance::Exact => false,
            Tolerance::Ulps(ulps) => within_ulps(ulps),
            Tolerance::UlpsOrAbsolute(limit) => within_ulps(2) || (want - have).abs() <= limit,
            Tolerance::Absolute(limit) => (want - have).abs() <= limit,
            Tolerance::Relative(limit) => (want - have).abs() <= limit * want.abs(),
        }
    }
}

fn to_f64(ty: Type, bits: u128) -> f64 {
    let number = Format::of(ty).decode(super::int::unsigned(ty, bits) as u64);
    f64::from_bits(Format::of(Type::F64).encode(&number, crate::ir::Round::NearestEven))
}

/// The finish of SplitMix64.
fn mixed(value: u64) -> u64 {
    let z = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// An input pattern for `ty` out of 64 random bits: mostly ordinary numbers, often edges.
pub fn pattern(ty: Type, random: u64) -> u128 {
    let lane = ty.lane();
    if lane != ty {
        let shift = lane.bits();
        return pattern(lane, random) | pattern(lane, random.rotate_left(23)) << shift;
    }
    let choice = random >> 60;
    let bits = random.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29) ^ random >> 7;
    let width = ty.bits().min(64);
    let cut = |bits: u64| u128::from(if width == 64 { bits } else { bits & ((1 << width) - 1) });
    if matches!(ty, Type::F16 | Type::BF16 | Type::F32 | Type::F64) {
        let format = Format::of(ty);
        // Number of bits below the exponent, and an exponent near that of 1.
        let (fraction, bias) = match ty {
            Type::F16 => (10, 15),
            Type::BF16 => (7, 127),
            Type::F32 => (23, 127),
            _ => (52, 1023),
        };
        let sign = bits & (1 << (width - 1));
        let near = |spread: u64| {
            let exponent = bias - spread / 2 + (bits >> 55) % spread;
            sign | exponent << fraction | bits & ((1 << fraction) - 1)
        };
        return cut(match choice {
            0..=4 => near(8),
            5..=8 => near(28),
            // Small integers and halves, for exact ties.
            9..=11 => {
                let value = f64::from((bits >> 40) as i16 >> (bits & 15)) / 2.0;
                let number = Format::of(Type::F64).decode(value.to_bits());
                format.encode(&number, crate::ir::Round::NearestEven)
            }
            12 => sign | [0, 1, (1 << fraction) - 1, 1 << fraction][(bits & 3) as usize],
            13 => [format.infinity(sign != 0), format.max_finite(sign != 0), format.nan(), sign][(bits & 3) as usize],
            _ => bits,
        });
    }
    cut(match choice {
        0..=3 => bits,
        4..=7 => bits & 0xff,
        8..=9 => (bits & 0xff).wrapping_neg(),
        10..=11 => bits & 0x3f,
        12 => 1 << (bits & 63),
        13 => (1u64 << (bits & 63)).wrapping_sub(1),
        14 => 1 << (width - 1),
        _ => [0, 1, u64::MAX, (1 << (width - 1)) - 1][(bits & 3) as usize],
    })
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
        let wide = [(Type::U16, Type::U32), (Type::S16, Type::S32), (Type::U32, Type::U64), (Type::S32, Type::S64)];
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
        for (op, ty) in [("min", Type::S32), ("max", Type::S32), ("min", Type::S16x2), ("max", Type::S16x2)] {
            self.add(&format!("{op}.relu{ty}"), ty, &[ty; 2]);
        }
        for ty in [Type::U32, Type::S32, Type::U64, Type::S64] {
            for op in ["add", "sub"] {
                let body = format!("{op}.cc{ty} {{d}}, {{a}}, {{b}}; {op}c{ty} {{d}}, {{c}}, {{d}};");
                self.body(&format!("{op}.cc{ty} {op}c"), ty, &[ty; 3], &body);
                let body = format!(
                    "{op}.cc{ty} {{d}}, {{a}}, {{b}}; {op}c.cc{ty} {{d}}, {{c}}, {{a}}; {op}c{ty} {{d}}, {{e}}, {{d}};"
                );
                self.body(&format!("{op}.cc{ty} {op}c.cc {op}c"), ty, &[ty; 4], &body);
            }
            let body = format!("mad.lo.cc{ty} {{d}}, {{a}}, {{b}}, {{c}}; madc.hi{ty} {{d}}, {{a}}, {{b}}, {{e}};");
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
                            self.add(&format!("{op}{lanes}{types}{end}"), Type::B32, &[Type::B32; 3]);
                        }
                    }
                }
            }
            for cmp in ["eq", "lt", "ge"] {
                self.add(&format!("vset{lanes}.s32.s32.{cmp}"), Type::B32, &[Type::B32; 3]);
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
            let body =
                format!("and.b32 {{b}}, {{b}}, 255; and.b32 {{c}}, {{c}}, 255; bfe{ty} {{d}}, {{a}}, {{b}}, {{c}};");
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
            for op in ["add.rn", "sub.rn", "mul.rn", "min", "max", "min.NaN", "max.NaN", "min.xorsign.abs"] {
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
            self.body(&format!("setp.lt.{op}.s32"), Type::U32, &[Type::S32, Type::S32, Type::U32], &body);
        }
        let body = "setp.lt.f16x2 %p|%q, {a}, {b}; selp.u32 {d}, 1, 0, %p; @%q add.u32 {d}, {d}, 2;";
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
        let narrowing =
            [(Type::F32, Type::F64), (Type::F16, Type::F32), (Type::F16, Type::F64), (Type::BF16, Type::F64)];
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
            self.add(&format!("cvt.pack.sat{to}.s32.b32"), Type::B32, &[Type::S32, Type::S32, Type::B32]);
        }
    }
}
