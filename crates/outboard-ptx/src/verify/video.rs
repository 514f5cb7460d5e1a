//! SIMD video instructions: bytes or half-words of 32-bit words.

use super::body::Lower;
use super::form::Form;
use crate::ast::{self, Operand};
use crate::error::ErrorKind;
use crate::ir::{Op, VideoOp};
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
    cx.emit(Op::Video { op, lanes, d_signed, a_signed, b_signed, sat, accumulate, mask, a_sel, b_sel, dst, a, b, c });
    Ok(())
}

/// An operand without its lane suffix, and the suffix.
fn split<'s>(operand: &Operand<'s>) -> (Operand<'s>, Option<&'s str>) {
    match operand {
        Operand::Name { name, suffix, addend } => (Operand::Name { name, suffix: None, addend: *addend }, *suffix),
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
    let digits = suffix.strip_prefix(letter(lanes)).filter(|digits| !digits.is_empty()).ok_or_else(bad)?;
    let mut mask = 0u8;
    for c in digits.chars() {
        let lane = c.to_digit(10).filter(|&lane| lane < u32::from(lanes)).ok_or_else(bad)?;
        mask |= 1 << lane;
    }
    Ok(mask)
}

/// `.b7531`: the source of each lane, highest lane first; the default begins at `first`.
fn selection(form: &Form<'_, '_>, suffix: Option<&str>, lanes: u8, first: u8) -> Result<[u8; 4], ErrorKind> {
    let mut from = [0u8; 4];
    let count = usize::from(lanes);
    let Some(suffix) = suffix else {
        for (lane, from) in from.iter_mut().take(count).enumerate() {
            *from = first + lane as u8;
        }
        return Ok(from);
    };
    let bad = || form.operands_error("bad lane selection");
    let digits = suffix.strip_prefix(letter(lanes)).filter(|digits| digits.len() == count).ok_or_else(bad)?;
    for (from, c) in from.iter_mut().zip(digits.chars().rev()) {
        let lane = c.to_digit(10).filter(|&lane| lane < 2 * u32::from(lanes)).ok_or_else(bad)?;
        *from = lane as u8;
    }
    Ok(from)
}
