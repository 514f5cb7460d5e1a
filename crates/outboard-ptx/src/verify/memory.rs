//! Loads, stores, atomics, asynchronous copies and cache hints.

use super::form::Form;
use super::lower::Lower;
use super::operand::Fit;
use crate::ast;
use crate::error::ErrorKind;
use crate::ir::{Address, AtomOp, Base, MbarrierOp, MemOrder, Op, Operand, PredOperand, Scope};
use crate::types::{Space, Type};

type Done = Result<(), ErrorKind>;

/// Takes what orders an access: `.relaxed.gpu`, `.volatile`, ...; `.mmio` adds nothing here.
fn ordering(form: &mut Form<'_, '_>, default: MemOrder) -> (MemOrder, Scope) {
    form.flag("mmio");
    let order = form.order().unwrap_or(default);
    let fallback = if order == MemOrder::Weak { Scope::Cta } else { Scope::Sys };
    (order, form.scope().unwrap_or(fallback))
}

fn loadable(ty: Type) -> bool {
    ty.is_integer()
        || ty.is_untyped()
        || matches!(ty, Type::F32 | Type::F64 | Type::F16 | Type::BF16)
        || matches!(ty, Type::F16x2 | Type::BF16x2)
}

/// Most bytes of one access.
const MAX_ACCESS: usize = 32;

pub(super) fn ld<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let (order, scope) = ordering(form, MemOrder::Weak);
    let space = form.space();
    let policy = form.cache_hints();
    let count = form.vector();
    let ty = form.ty()?;
    let order_fits = matches!(
        order,
        MemOrder::Weak | MemOrder::Volatile | MemOrder::Relaxed | MemOrder::Acquire
    );
    if !loadable(ty) || !order_fits || count * ty.size() as usize > MAX_ACCESS {
        return Err(form.unsupported());
    }
    let operands = form.operands_between(2, if policy { 3 } else { 2 })?;
    let (space, addr) = cx.addr(form, &operands[1], space)?;
    let mut dsts = Vec::with_capacity(count);
    for element in cx.elements(form, &operands[0], count)? {
        dsts.push(cx.element_dst(form, &element, ty, Fit::Wider)?);
    }
    cx.emit(Op::Ld { space, ty, order, scope, dsts, addr });
    Ok(())
}

pub(super) fn st<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let (order, scope) = ordering(form, MemOrder::Weak);
    let space = form.space();
    let policy = form.cache_hints();
    let count = form.vector();
    let ty = form.ty()?;
    let order_fits = matches!(
        order,
        MemOrder::Weak | MemOrder::Volatile | MemOrder::Relaxed | MemOrder::Release
    );
    if !loadable(ty)
        || !order_fits
        || count * ty.size() as usize > MAX_ACCESS
        || space == Space::Const
    {
        return Err(form.unsupported());
    }
    let operands = form.operands_between(2, if policy { 3 } else { 2 })?;
    let (space, addr) = cx.addr(form, &operands[0], space)?;
    let mut srcs = Vec::with_capacity(count);
    for element in cx.elements(form, &operands[1], count)? {
        srcs.push(cx.element_src(form, &element, ty, Fit::Wider)?);
    }
    cx.emit(Op::St { space, ty, order, scope, srcs, addr });
    Ok(())
}

/// Whether the operation is defined on the type.
fn atomic(op: AtomOp, ty: Type) -> bool {
    match op {
        AtomOp::And | AtomOp::Or | AtomOp::Xor => matches!(ty, Type::B32 | Type::B64),
        AtomOp::Exch => {
            matches!(ty, Type::B32 | Type::B64 | Type::U32 | Type::U64 | Type::S32 | Type::F32)
        }
        AtomOp::Cas => {
            matches!(ty, Type::B16 | Type::B32 | Type::B64 | Type::U32 | Type::U64 | Type::S32)
        }
        AtomOp::Inc | AtomOp::Dec => ty == Type::U32,
        AtomOp::Add => matches!(
            ty,
            Type::U32
                | Type::S32
                | Type::U64
                | Type::S64
                | Type::F32
                | Type::F64
                | Type::F16
                | Type::F16x2
                | Type::BF16
                | Type::BF16x2
        ),
        // The forms on vectors of the half types are left out.
        AtomOp::Min | AtomOp::Max => matches!(ty, Type::U32 | Type::S32 | Type::U64 | Type::S64),
    }
}

/// `atom` and, without a result, `red`.
pub(super) fn atom<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let returns = form.inst.opcode == "atom";
    let (order, scope) = ordering(form, MemOrder::Relaxed);
    // Without a scope an atomic operation holds for the whole device.
    let scope =
        if form.has("sys") || form.has("cta") || form.has("cluster") { scope } else { Scope::Gpu };
    let space = form.space();
    let policy = form.cache_hints();
    let op = form.one_of(&[
        ("and", AtomOp::And),
        ("or", AtomOp::Or),
        ("xor", AtomOp::Xor),
        ("exch", AtomOp::Exch),
        ("cas", AtomOp::Cas),
        ("add", AtomOp::Add),
        ("inc", AtomOp::Inc),
        ("dec", AtomOp::Dec),
        ("min", AtomOp::Min),
        ("max", AtomOp::Max),
    ])?;
    form.flag("noftz");
    let count = form.vector();
    let ty = form.ty()?;
    let swaps = matches!(op, AtomOp::Exch | AtomOp::Cas);
    let space_fits = matches!(space, Space::Generic | Space::Global | Space::Shared);
    let vector_fits = count == 1 || (ty.is_float() && !swaps && space != Space::Shared);
    if !atomic(op, ty) || !space_fits || !vector_fits || (swaps && !returns) {
        return Err(form.unsupported());
    }
    let fixed = usize::from(returns) + 2 + usize::from(op == AtomOp::Cas);
    let operands = form.operands_between(fixed, fixed + usize::from(policy))?;
    let (dst, operands) =
        if returns { (Some(&operands[0]), &operands[1..]) } else { (None, operands) };
    let (space, mut addr) = cx.addr(form, &operands[0], space)?;
    let mut dsts = Vec::with_capacity(count);
    match dst {
        Some(dst) => {
            for element in cx.elements(form, dst, count)? {
                dsts.push(cx.element_dst(form, &element, ty, Fit::SameWidth)?);
            }
        }
        None => dsts.resize(count, None),
    }
    let mut values = Vec::with_capacity(count);
    for element in cx.elements(form, &operands[1], count)? {
        values.push(cx.element_src(form, &element, ty, Fit::SameWidth)?);
    }
    let c = match op {
        AtomOp::Cas => Some(cx.src_moved(form, &operands[2], ty)?),
        _ => None,
    };
    if count > 1 {
        protect_inputs(cx, &mut addr, &mut values, &dsts);
    }
    // A vector is atomic element by element.
    for (index, (dst, b)) in dsts.into_iter().zip(values).enumerate() {
        let offset = addr.offset.wrapping_add((index as i64) * i64::from(ty.size()));
        let addr = Address { base: addr.base, offset };
        cx.emit(Op::Atom { op, ty, space, order, scope, dst, addr, b, c });
    }
    Ok(())
}

/// Copies registers that an earlier element's result would overwrite before a later element reads
/// them.
fn protect_inputs(
    cx: &mut Lower<'_, '_>,
    addr: &mut Address,
    values: &mut [Operand],
    dsts: &[Option<crate::ir::Reg>],
) {
    let mut copy = |reg| {
        if !dsts.contains(&Some(reg)) {
            return reg;
        }
        let declared = cx.reg_ty(reg);
        let fresh = cx.new_reg(declared);
        cx.emit_always(Op::Mov { ty: declared, dst: fresh, a: Operand::Reg(reg) });
        fresh
    };
    if let Base::Reg(reg) = addr.base {
        addr.base = Base::Reg(copy(reg));
    }
    for value in values {
        if let Operand::Reg(reg) = *value {
            *value = Operand::Reg(copy(reg));
        }
    }
}

/// `cp.async` without `.bulk`.
pub(super) fn cp_async<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    form.flag("async");
    if form.flag("commit_group") || form.flag("wait_all") {
        let [] = form.operands()?;
        return Ok(());
    }
    if form.flag("wait_group") {
        let [count] = form.operands()?;
        cx.src(form, count, Type::U32)?;
        return Ok(());
    }
    if form.flag("mbarrier") {
        if !form.flag("arrive") {
            return Err(form.unsupported());
        }
        let noinc = form.flag("noinc");
        let space = form.space();
        form.ty_in(&[Type::B64])?;
        let [addr] = form.operands()?;
        let (space, addr) = cx.addr(form, addr, space)?;
        cx.emit(Op::Mbarrier { op: MbarrierOp::CpAsyncArrive { noinc }, space, addr });
        return Ok(());
    }
    let policy = form.cache_hints();
    if form.space() != Space::Shared || form.space() != Space::Global {
        return Err(form.unsupported());
    }
    let operands = form.operands_between(3, 5)?;
    let (_, dst) = cx.addr(form, &operands[0], Space::Shared)?;
    let (_, src) = cx.addr(form, &operands[1], Space::Global)?;
    let bytes = match cx.src(form, &operands[2], Type::U32)? {
        Operand::Imm(bytes @ (4 | 8 | 16)) => bytes as u32,
        _ => return Err(form.operands_error("the number of bytes must be 4, 8 or 16")),
    };
    let extra = &operands[3..operands.len().saturating_sub(usize::from(policy)).max(3)];
    let mut src_bytes = None;
    let mut ignore_src: Option<PredOperand> = None;
    match extra {
        [] => {}
        [only] => {
            if is_predicate(cx, only) {
                ignore_src = Some(cx.pred(form, only)?);
            } else {
                src_bytes = Some(cx.src(form, only, Type::U32)?);
            }
        }
        _ => return Err(form.operands_error("too many operands")),
    }
    cx.emit(Op::CpAsync { bytes, src_bytes, ignore_src, dst, src });
    Ok(())
}

fn is_predicate<'s>(cx: &mut Lower<'_, 's>, operand: &ast::Operand<'s>) -> bool {
    match operand {
        ast::Operand::Not { .. } => true,
        ast::Operand::Name { name, suffix: None, addend: 0 } => match cx.look_up(name) {
            Ok(super::lower::Name::Reg(reg)) => cx.reg_ty(reg) == Type::Pred,
            _ => false,
        },
        _ => false,
    }
}

/// `prefetch`, `discard` and the like: the address is checked, nothing is done.
pub(super) fn hint<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let space = form.space();
    for level in ["L1", "L2"] {
        form.flag(level);
    }
    form.cache_hints();
    let operands = form.operands_between(1, 2)?;
    cx.addr(form, &operands[0], space)?;
    Ok(())
}

/// A cache policy is an opaque 64-bit value that only hints use.
pub(super) fn createpolicy<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let Some(dst) = form.inst.operands.first() else {
        return Err(form.operands_error("a destination is expected"));
    };
    let dst = cx.dst_moved(form, dst, Type::B64)?;
    cx.emit(Op::Mov { ty: Type::B64, dst, a: Operand::Imm(0) });
    Ok(())
}
