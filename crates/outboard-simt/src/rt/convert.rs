//! Arithmetic with rounding modes and narrow types, as compiled code calls it. A `u32` describes
//! the operation, so that few entry points serve many forms.

use crate::math::narrow;
use crate::math::soft::{self, Binary, Format};
use outboard_ptx::ir::Round;

/// Formats by number, as in descriptors.
pub(crate) const FORMATS: [Format; 6] =
    [Format::F16, Format::BF16, Format::F32, Format::F64, Format::TF32, Format::E5M2];

const ROUNDS: [Round; 5] =
    [Round::NearestEven, Round::Zero, Round::Down, Round::Up, Round::NearestAway];
const BINARIES: [Binary; 4] = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div];

fn index<T: PartialEq>(list: &[T], value: &T) -> u32 {
    list.iter().position(|x| x == value).unwrap_or(0) as u32
}

/// Descriptor of an operation in `format`, rounding as `round` says.
pub(crate) fn describe(format: Format, round: Round) -> u32 {
    index(&FORMATS, &format) | index(&ROUNDS, &round) << 4
}

/// Descriptor of a binary operation.
pub(crate) fn describe_binary(format: Format, op: Binary, round: Round) -> u32 {
    describe(format, round) | index(&BINARIES, &op) << 8
}

/// Descriptor of a conversion.
pub(crate) fn describe_convert(from: Format, to: Format, round: Round) -> u32 {
    describe(to, round) | index(&FORMATS, &from) << 8
}

fn format(descriptor: u32) -> Format {
    FORMATS[(descriptor & 15) as usize % FORMATS.len()]
}

fn round(descriptor: u32) -> Round {
    ROUNDS[(descriptor >> 4 & 15) as usize % ROUNDS.len()]
}

pub(crate) extern "C" fn binary(descriptor: u32, a: u64, b: u64) -> u64 {
    let op = BINARIES[(descriptor >> 8 & 15) as usize % BINARIES.len()];
    soft::binary(format(descriptor), op, a, b, round(descriptor))
}

pub(crate) extern "C" fn fma(descriptor: u32, a: u64, b: u64, c: u64) -> u64 {
    soft::fma(format(descriptor), a, b, c, round(descriptor))
}

pub(crate) extern "C" fn sqrt(descriptor: u32, a: u64) -> u64 {
    soft::sqrt(format(descriptor), a, round(descriptor))
}

pub(crate) extern "C" fn convert(descriptor: u32, a: u64) -> u64 {
    let from = FORMATS[(descriptor >> 8 & 15) as usize % FORMATS.len()];
    soft::convert(from, format(descriptor), a, round(descriptor))
}

pub(crate) extern "C" fn from_u64(descriptor: u32, a: u64) -> u64 {
    soft::from_int(format(descriptor), false, a, round(descriptor))
}

pub(crate) extern "C" fn from_s64(descriptor: u32, a: i64) -> u64 {
    soft::from_int(format(descriptor), a < 0, a.unsigned_abs(), round(descriptor))
}

pub(crate) extern "C" fn f32_to_f16(a: f32) -> u32 {
    narrow::f32_to_f16(a).into()
}

pub(crate) extern "C" fn f64_to_bf16(a: f64) -> u32 {
    narrow::f64_to_bf16(a).into()
}

pub(crate) extern "C" fn fma_f16(a: u32, b: u32, c: u32) -> u32 {
    narrow::fma_f16(a as u16, b as u16, c as u16).into()
}

pub(crate) extern "C" fn fma_bf16(a: u32, b: u32, c: u32) -> u32 {
    narrow::fma_bf16(a as u16, b as u16, c as u16).into()
}

pub(crate) extern "C" fn f32_to_e4m3(a: f32) -> u32 {
    narrow::f32_to_e4m3(a).into()
}

pub(crate) extern "C" fn f32_to_e5m2(a: f32) -> u32 {
    narrow::f32_to_e5m2(a).into()
}

pub(crate) extern "C" fn e4m3_to_f32(a: u32) -> f32 {
    narrow::e4m3_to_f32(a as u8)
}

pub(crate) extern "C" fn e5m2_to_f32(a: u32) -> f32 {
    narrow::e5m2_to_f32(a as u8)
}

/// Infinities become the greatest finite value.
pub(crate) extern "C" fn saturate(descriptor: u32, a: u64) -> u64 {
    narrow::saturate(format(descriptor), a)
}

/// Fused multiply-add for processors without the instruction.
pub(crate) extern "C" fn fma_f32(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

pub(crate) extern "C" fn fma_f64(a: f64, b: f64, c: f64) -> f64 {
    a.mul_add(b, c)
}
