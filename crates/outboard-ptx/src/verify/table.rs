//! Which rule handles which opcode.

use super::form::Form;
use super::lower::Lower;
use super::{bits, compare, control, data, float, int, memory, sync, texture, video, warp};
use crate::ast::Inst;
use crate::error::{ErrorKind, excerpt};

/// Checks one instruction and emits what it means.
pub(super) type Rule =
    for<'c, 'i, 's> fn(&mut Lower<'c, 's>, &mut Form<'i, 's>) -> Result<(), ErrorKind>;

/// Opcodes of PTX that the software device does not have.
const UNSUPPORTED: &[&str] = &[
    "alloca",
    "istypep",
    "ldmatrix",
    "mma",
    "movmatrix",
    "multimem",
    "stackrestore",
    "stacksave",
    "stmatrix",
    "sured",
    "tcgen05",
    "tensormap",
    "wgmma",
    "wmma",
    "clusterlaunchcontrol",
    "vmad",
];

fn find(opcode: &str) -> Option<Rule> {
    Some(match opcode {
        "add" | "sub" => int::add_sub,
        "addc" | "subc" => int::add_carry,
        "mul" => int::mul,
        "mad" => int::mad,
        "madc" => int::madc,
        "mul24" => int::mul24,
        "mad24" => int::mad24,
        "div" | "rem" => int::div_rem,
        "min" | "max" => int::min_max,
        "and" | "or" | "xor" => bits::logic,
        "not" | "cnot" | "brev" | "popc" | "clz" => int::unary,
        "neg" | "abs" => int::neg_abs,
        "shl" | "shr" => bits::shift,
        "shf" => bits::funnel,
        "sad" => int::sad,
        "bfind" => bits::bfind,
        "fns" => bits::fns,
        "bfe" => bits::bfe,
        "bfi" => bits::bfi,
        "bmsk" => bits::bmsk,
        "szext" => bits::szext,
        "prmt" => bits::prmt,
        "lop3" => bits::lop3,
        "dp4a" => int::dp4a,
        "dp2a" => int::dp2a,
        "vadd2" | "vsub2" | "vavrg2" | "vabsdiff2" | "vmin2" | "vmax2" | "vset2" | "vadd4"
        | "vsub4" | "vavrg4" | "vabsdiff4" | "vmin4" | "vmax4" | "vset4" => video::simd,
        "vadd" | "vsub" | "vabsdiff" | "vmin" | "vmax" | "vshl" | "vshr" | "vset" => video::scalar,
        "fma" => float::fma,
        "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "ex2" | "lg2" | "tanh" => float::unary,
        "copysign" => float::copysign,
        "testp" => float::testp,
        "setp" => compare::setp,
        "set" => compare::set,
        "selp" => compare::selp,
        "slct" => compare::slct,
        "mov" => data::mov,
        "cvt" => data::cvt,
        "cvta" => data::cvta,
        "isspacep" => data::isspacep,
        "mapa" => data::mapa,
        "getctarank" => data::getctarank,
        "ld" | "ldu" => memory::ld,
        "st" => memory::st,
        "atom" | "red" => memory::atom,
        "cp" => memory::cp_async,
        "prefetch" | "prefetchu" | "discard" | "applypriority" => memory::hint,
        "createpolicy" => memory::createpolicy,
        "mbarrier" => sync::mbarrier,
        "membar" | "fence" => sync::fence,
        "bar" | "barrier" => sync::bar,
        "griddepcontrol" | "setmaxnreg" | "pmevent" => sync::nothing,
        "nanosleep" => sync::nanosleep,
        "bra" => control::bra,
        "brx" => control::brx,
        "call" => control::call,
        "ret" | "exit" | "trap" | "brkpt" => control::leave,
        "tex" => texture::tex,
        "tld4" => texture::tld4,
        "suld" => texture::suld,
        "sust" => texture::sust,
        "txq" | "suq" => texture::query,
        "shfl" => warp::shfl,
        "vote" => warp::vote,
        "match" => warp::matching,
        "activemask" => warp::activemask,
        "redux" => warp::redux,
        "elect" => warp::elect,
        _ => return None,
    })
}

/// Forms of supported opcodes that belong to an unsupported family.
fn in_unsupported_family(inst: &Inst<'_>) -> bool {
    let has = |name: &str| inst.mods.contains(&name);
    match inst.opcode {
        "cp" => !has("async") || has("bulk"),
        "st" | "red" => has("async"),
        "fence" => has("proxy") && has("tensormap::generic"),
        _ => false,
    }
}

/// True for an instruction that will be refused whatever its operands are; they may then have a
/// foreign syntax.
pub(crate) fn is_refused(inst: &Inst<'_>) -> bool {
    in_unsupported_family(inst) || find(inst.opcode).is_none()
}

/// The rule of an instruction.
pub(super) fn rule(inst: &Inst<'_>) -> Result<Rule, ErrorKind> {
    match find(inst.opcode) {
        Some(_) if in_unsupported_family(inst) => {
            Err(ErrorKind::UnsupportedInstruction(inst.form()))
        }
        Some(rule) => Ok(rule),
        None if UNSUPPORTED.contains(&inst.opcode) => {
            Err(ErrorKind::UnsupportedInstruction(inst.form()))
        }
        None => Err(ErrorKind::Syntax(format!("unknown instruction '{}'", excerpt(inst.opcode)))),
    }
}
