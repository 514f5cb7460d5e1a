//! Small kernels, one for each form of the scalar instructions, made by rule (opcode × type ×
//! modifiers), to hold implementations against one another: this interpreter, compiled code, a GPU.

mod forms;

use super::soft::Format;
use super::{Flat, Stop, World, run};
use crate::ir::Module;
use crate::types::Type;

pub use forms::samples;

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
    /// Any bit patterns.
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
    /// Type of the result.
    pub output: Type,
    /// How far results may be apart.
    pub tolerance: Tolerance,
    /// Which inputs have a defined result.
    pub domain: Domain,
    /// Instructions with `{d}` for the result and `{a}`, `{b}`, `{c}`, `{e}` for the inputs.
    body: String,
}

/// Bytes between the inputs of two threads: four slots of 16 bytes.
pub const INPUT_STRIDE: usize = 64;
/// Bytes between the results of two threads.
pub const OUTPUT_STRIDE: usize = 16;

/// A module with a kernel `kN` for each sample, N its index. Parameters: addresses of results and
/// inputs; each thread of a one-dimensional grid handles its own ([`OUTPUT_STRIDE`],
/// [`INPUT_STRIDE`]).
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
        text.push_str(&format!(
            "{body}\nst.global.{} [%to], {result};\nret;\n}}\n",
            bits_of(self.output)
        ));
        text
    }

    /// Inputs number `index`: always the same for a form.
    pub fn case(&self, index: u64) -> Vec<u128> {
        // FNV-1a of the form, so that a new sample does not change the inputs of the others.
        let name = self.form.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let input =
            |slot: u64| name.wrapping_add((4 * index + slot).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        self.inputs.iter().zip(0..).map(|(ty, slot)| pattern(*ty, mixed(input(slot)))).collect()
    }

    /// The result of the interpreter for some inputs; `program` is the module of [`Sample::kernel`]
    /// with the given name.
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
        let numbers = || {
            self.inputs
                .iter()
                .zip(inputs)
                .map(|(ty, bits)| (*ty, *bits))
                .chain([(self.output, expected)])
        };
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
            Domain::Circle => {
                moderate() && to_f64(self.inputs[0], inputs[0]).abs() <= std::f64::consts::PI
            }
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
            13 => [format.infinity(sign != 0), format.max_finite(sign != 0), format.nan(), sign]
                [(bits & 3) as usize],
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
