//! Video instructions. The SIMD ones, on bytes or half-words of 32-bit words, are an operation of
//! their own; the scalar ones are spelled out in 64-bit arithmetic.

use super::form::Form;
use super::lower::Lower;
use crate::ast::{self, Operand};
use crate::error::ErrorKind;
use crate::ir::{self, CmpOp, IntBinOp, IntUnOp, Op, PredOperand, Reg, ShiftOp, VideoOp};
use crate::types::Type;

type Done = Result<(), ErrorKind>;

pub(super) fn simd<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let opcode = form.inst.opcode;
    let lanes = if opcode.ends_with('4') { 4u8 } else { 2 };
    let sets = opcode.starts_with("vset");
    let op = match &opcode[..opcode.len() - 1] {
        "vadd" => VideoOp::Add,
        "vsub" => VideoOp::Sub,
        "vavrg" => VideoOp::Avrg,
        "vabsdiff" => VideoOp::Absdiff,
        "vmin" => VideoOp::Min,
        "vmax" => VideoOp::Max,
        _ => VideoOp::Set(form.cmp()?),
    };
    let int = [Type::U32, Type::S32];
    let d_signed = !sets && form.ty_in(&int)?.is_signed();
    let (a_signed, b_signed) = (form.ty_in(&int)?.is_signed(), form.ty_in(&int)?.is_signed());
    let (sat, accumulate) = (form.flag("sat"), form.flag("add"));
    let [dst, a, b, c] = form.operands()?;
    let (dst, mask) = split(dst);
    let (a, a_sel) = split(a);
    let (b, b_sel) = split(b);
    let mask = lane_mask(form, mask, lanes)?;
    let a_sel = selection(form, a_sel, lanes, 0)?;
    let b_sel = selection(form, b_sel, lanes, lanes)?;
    let (a, b) = (cx.src(form, &a, Type::B32)?, cx.src(form, &b, Type::B32)?);
    let c = cx.src(form, c, Type::B32)?;
    let dst = cx.dst(form, &dst, Type::B32)?;
    cx.emit(Op::Video {
        op,
        lanes,
        d_signed,
        a_signed,
        b_signed,
        sat,
        accumulate,
        mask,
        a_sel,
        b_sel,
        dst,
        a,
        b,
        c,
    });
    Ok(())
}

/// An operand without its lane suffix, and the suffix.
fn split<'s>(operand: &Operand<'s>) -> (Operand<'s>, Option<&'s str>) {
    match operand {
        Operand::Name { name, suffix, addend } => {
            (Operand::Name { name, suffix: None, addend: *addend }, *suffix)
        }
        Operand::Const(value) => (Operand::Const(*value), None),
        // Anything else fails as an operand.
        _ => (ast::Operand::Sink, None),
    }
}

/// The letter that begins a lane suffix.
fn letter(lanes: u8) -> char {
    if lanes == 4 { 'b' } else { 'h' }
}

/// `.b310` or `.h1`: which lanes of the result are written.
fn lane_mask(form: &Form<'_, '_>, suffix: Option<&str>, lanes: u8) -> Result<u8, ErrorKind> {
    let Some(suffix) = suffix else { return Ok((1 << lanes) - 1) };
    let bad = || form.operands_error("bad lane mask");
    let digits =
        suffix.strip_prefix(letter(lanes)).filter(|digits| !digits.is_empty()).ok_or_else(bad)?;
    let mut mask = 0u8;
    for c in digits.chars() {
        let lane = c.to_digit(10).filter(|&lane| lane < u32::from(lanes)).ok_or_else(bad)?;
        mask |= 1 << lane;
    }
    Ok(mask)
}

/// `.b7531`: the source of each lane, highest lane first; the default begins at `first`.
fn selection(
    form: &Form<'_, '_>,
    suffix: Option<&str>,
    lanes: u8,
    first: u8,
) -> Result<[u8; 4], ErrorKind> {
    let mut from = [0u8; 4];
    let count = usize::from(lanes);
    let Some(suffix) = suffix else {
        for (lane, from) in from.iter_mut().take(count).enumerate() {
            *from = first + lane as u8;
        }
        return Ok(from);
    };
    let bad = || form.operands_error("bad lane selection");
    let digits = suffix
        .strip_prefix(letter(lanes))
        .filter(|digits| digits.len() == count)
        .ok_or_else(bad)?;
    for (from, c) in from.iter_mut().zip(digits.chars().rev()) {
        let lane = c.to_digit(10).filter(|&lane| lane < 2 * u32::from(lanes)).ok_or_else(bad)?;
        *from = lane as u8;
    }
    Ok(from)
}

/// A part of a 32-bit word: where it begins and how many bits it has.
#[derive(Clone, Copy)]
struct Part {
    pos: u32,
    bits: u32,
}

const WHOLE: Part = Part { pos: 0, bits: 32 };

fn part(form: &Form<'_, '_>, suffix: Option<&str>) -> Result<Option<Part>, ErrorKind> {
    Ok(Some(match suffix {
        None => return Ok(None),
        Some("b0") => Part { pos: 0, bits: 8 },
        Some("b1") => Part { pos: 8, bits: 8 },
        Some("b2") => Part { pos: 16, bits: 8 },
        Some("b3") => Part { pos: 24, bits: 8 },
        Some("h0") => Part { pos: 0, bits: 16 },
        Some("h1") => Part { pos: 16, bits: 16 },
        Some(_) => return Err(form.operands_error("bad part of a word")),
    }))
}

/// What happens to the result of a scalar video instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Second {
    None,
    Op(IntBinOp),
}

/// `vadd`, `vsub`, `vabsdiff`, `vmin`, `vmax`, `vshl`, `vshr` and `vset`.
pub(super) fn scalar<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let opcode = form.inst.opcode;
    let compares = if opcode == "vset" { Some(form.cmp()?) } else { None };
    let shifts = matches!(opcode, "vshl" | "vshr");
    let wraps = if shifts { form.one_of(&[("wrap", true), ("clamp", false)])? } else { false };
    let int = [Type::U32, Type::S32];
    let d_ty = if compares.is_some() { Type::U32 } else { form.ty_in(&int)? };
    let a_ty = form.ty_in(&int)?;
    let b_ty = form.ty_in(if shifts { &int[..1] } else { &int })?;
    let sat = form.flag("sat");
    let second = form
        .choice(&[("add", IntBinOp::Add), ("min", IntBinOp::Min), ("max", IntBinOp::Max)])
        .map_or(Second::None, Second::Op);
    // Saturation and a second minimum or maximum are defined by the manual for all types, but GPUs
    // follow it with signed ones only. What no GPU computes that way is left out.
    let plain = [d_ty, a_ty, b_ty].iter().all(|ty| ty.is_signed());
    let bounds = matches!(second, Second::Op(IntBinOp::Min | IntBinOp::Max));
    if (sat && !plain)
        || (bounds && !(plain && opcode != "vabsdiff"))
        || (compares.is_some() && (sat || bounds))
    {
        return Err(form.unsupported());
    }
    let operands = form.operands_between(3, 4)?;
    let (dst, dst_part) = split(&operands[0]);
    let (dst_part, c) = (part(form, dst_part)?, operands.get(3));
    if sat && dst_part.is_some() {
        return Err(form.unsupported());
    }
    // A third source is there exactly when something is done with it.
    if c.is_some() != (dst_part.is_some() || second != Second::None)
        || (dst_part.is_some() && second != Second::None)
    {
        return Err(form.operands_error(
            "the third source belongs to a second operation or to a part of the result",
        ));
    }
    let a = extracted(cx, form, &operands[1], a_ty)?;
    let b = extracted(cx, form, &operands[2], b_ty)?;
    let c = match c {
        Some(c) => Some(cx.src(form, c, Type::B32)?),
        None => None,
    };
    let dst = cx.dst(form, &dst, Type::B32)?;
    let mut result = match compares {
        Some(cmp) => compared(cx, cmp, a, b),
        None => computed(cx, opcode, wraps, a, b),
    };
    if sat {
        result = saturated(cx, result);
    }
    let word = cx.new_reg(Type::B32);
    convert(cx, Type::U32, Type::U64, word, result);
    let word = ir::Operand::Reg(word);
    cx.emit(match (c, dst_part, second) {
        (Some(b), _, Second::Op(op)) => {
            // A second minimum or maximum reads the result as the destination's type.
            Op::IntBin { op, ty: d_ty, sat: false, dst, a: word, b }
        }
        (Some(b), Some(Part { pos, bits }), Second::None) => {
            let (pos, len) = (ir::Operand::Imm(pos.into()), ir::Operand::Imm(bits.into()));
            Op::Bfi { ty: Type::B32, dst, a: word, b, pos, len }
        }
        _ => Op::Mov { ty: Type::B32, dst, a: word },
    });
    Ok(())
}

fn convert(cx: &mut Lower<'_, '_>, dst_ty: Type, src_ty: Type, dst: Reg, from: Reg) {
    cx.emit(Op::Cvt {
        dst_ty,
        src_ty,
        round: None,
        int_round: None,
        ftz: false,
        sat: false,
        satfinite: false,
        relu: false,
        dst,
        a: ir::Operand::Reg(from),
    });
}

/// The chosen part of a source, extended to 64 bits by its type.
fn extracted<'s>(
    cx: &mut Lower<'_, 's>,
    form: &Form<'_, 's>,
    operand: &Operand<'s>,
    ty: Type,
) -> Result<Reg, ErrorKind> {
    let (operand, suffix) = split(operand);
    let Part { pos, bits } = part(form, suffix)?.unwrap_or(WHOLE);
    let a = cx.src(form, &operand, Type::B32)?;
    let shifted = cx.new_reg(Type::B32);
    cx.emit(Op::Shift {
        op: ShiftOp::Shr,
        ty: Type::B32,
        dst: shifted,
        a,
        b: ir::Operand::Imm(pos.into()),
    });
    let src_ty = match (bits, ty.is_signed()) {
        (8, false) => Type::U8,
        (8, true) => Type::S8,
        (16, false) => Type::U16,
        (16, true) => Type::S16,
        (_, false) => Type::U32,
        (_, true) => Type::S32,
    };
    let wide = cx.new_reg(Type::S64);
    convert(cx, Type::S64, src_ty, wide, shifted);
    Ok(wide)
}

fn binary(cx: &mut Lower<'_, '_>, op: IntBinOp, a: Reg, b: ir::Operand) -> Reg {
    let dst = cx.new_reg(Type::S64);
    cx.emit(Op::IntBin { op, ty: Type::S64, sat: false, dst, a: ir::Operand::Reg(a), b });
    dst
}

fn computed(cx: &mut Lower<'_, '_>, opcode: &str, wraps: bool, a: Reg, b: Reg) -> Reg {
    let second = ir::Operand::Reg(b);
    match opcode {
        "vadd" => binary(cx, IntBinOp::Add, a, second),
        "vsub" => binary(cx, IntBinOp::Sub, a, second),
        "vmin" => binary(cx, IntBinOp::Min, a, second),
        "vmax" => binary(cx, IntBinOp::Max, a, second),
        "vabsdiff" => {
            let difference = binary(cx, IntBinOp::Sub, a, second);
            let dst = cx.new_reg(Type::S64);
            cx.emit(Op::IntUn {
                op: IntUnOp::Abs,
                ty: Type::S64,
                dst,
                a: ir::Operand::Reg(difference),
            });
            dst
        }
        _ => {
            let amount = if wraps {
                binary(cx, IntBinOp::And, b, ir::Operand::Imm(31))
            } else {
                binary(cx, IntBinOp::Min, b, ir::Operand::Imm(32))
            };
            let narrow = cx.new_reg(Type::B32);
            convert(cx, Type::U32, Type::U64, narrow, amount);
            let (op, dst) =
                (if opcode == "vshl" { ShiftOp::Shl } else { ShiftOp::Shr }, cx.new_reg(Type::S64));
            cx.emit(Op::Shift {
                op,
                ty: Type::S64,
                dst,
                a: ir::Operand::Reg(a),
                b: ir::Operand::Reg(narrow),
            });
            dst
        }
    }
}

/// 1 or 0 in 64 bits.
fn compared(cx: &mut Lower<'_, '_>, cmp: CmpOp, a: Reg, b: Reg) -> Reg {
    let (p, dst) = (cx.new_reg(Type::Pred), cx.new_reg(Type::S64));
    let (a, b) = (ir::Operand::Reg(a), ir::Operand::Reg(b));
    cx.emit(Op::Setp { cmp, ty: Type::S64, ftz: false, combine: None, p: Some(p), q: None, a, b });
    let pred = PredOperand { value: ir::Operand::Reg(p), negated: false };
    cx.emit(Op::Selp { ty: Type::S64, dst, a: ir::Operand::Imm(1), b: ir::Operand::Imm(0), pred });
    dst
}

/// Clamped to the range of s32.
fn saturated(cx: &mut Lower<'_, '_>, value: Reg) -> Reg {
    let raised = binary(cx, IntBinOp::Max, value, ir::Operand::Imm(i64::from(i32::MIN) as u64));
    binary(cx, IntBinOp::Min, raised, ir::Operand::Imm(i64::from(i32::MAX) as u64))
}
