//! Branches, calls and returns.

use super::form::Form;
use super::lower::{Lower, Name};
use crate::ast;
use crate::error::{ErrorKind, excerpt};
use crate::ir::{BlockId, CallArg, Callee, Op, Param, Signature};
use crate::types::{Space, Type};

type Done = Result<(), ErrorKind>;

pub(super) fn bra<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    form.flag("uni");
    let [target] = form.operands()?;
    let ast::Operand::Name { name, suffix: None, addend: 0 } = target else {
        return Err(form.operands_error("a label is expected"));
    };
    let target = BlockId(cx.label(name)?);
    cx.emit(Op::Bra { target });
    Ok(())
}

pub(super) fn brx<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    if !form.flag("idx") {
        return Err(form.unsupported());
    }
    form.flag("uni");
    let [index, list] = form.operands()?;
    let index = cx.src(form, index, Type::U32)?;
    let ast::Operand::Name { name, suffix: None, addend: 0 } = list else {
        return Err(form.operands_error("the name of a '.branchtargets' list is expected"));
    };
    let Name::BranchTargets(targets) = cx.look_up(name)? else {
        return Err(
            form.operands_error(format!("'{}' is not a '.branchtargets' list", excerpt(name)))
        );
    };
    let targets = targets.iter().map(|&label| BlockId(label)).collect();
    cx.emit(Op::BrxIdx { index, targets });
    Ok(())
}

pub(super) fn leave<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let op = match form.inst.opcode {
        "ret" => {
            form.flag("uni");
            Op::Ret
        }
        "exit" => Op::Exit,
        "trap" => Op::Trap,
        _ => Op::Brkpt,
    };
    let [] = form.operands()?;
    if op == Op::Ret {
        cx.store_results();
    }
    cx.emit(op);
    Ok(())
}

/// `call (results), function, (arguments), prototype`, where all but the function may be missing.
pub(super) fn call<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    form.flag("uni");
    let operands = form.operands_between(1, 4)?;
    let (rets, operands) = match operands {
        [ast::Operand::List(rets), rest @ ..] => (rets.as_slice(), rest),
        rest => (&[][..], rest),
    };
    let Some((target, rest)) = operands.split_first() else {
        return Err(form.operands_error("a function is expected"));
    };
    let (args, prototype) = match rest {
        [] => (&[][..], None),
        [ast::Operand::List(args)] => (args.as_slice(), None),
        [ast::Operand::List(args), prototype] => (args.as_slice(), Some(prototype)),
        [prototype] => (&[][..], Some(prototype)),
        _ => return Err(form.operands_error("malformed argument list")),
    };
    let ast::Operand::Name { name, suffix: None, addend: 0 } = target else {
        return Err(form.operands_error("a function is expected"));
    };
    let (callee, sig) = match cx.look_up(name)? {
        Name::Func(id) => {
            let function = &cx.cx.functions[id.0 as usize];
            if function.entry.is_some() {
                return Err(form.operands_error(format!(
                    "'{}' is a kernel and cannot be called",
                    excerpt(name)
                )));
            }
            (Callee::Direct(id), function.sig.clone())
        }
        _ => {
            let reg = cx.dst_moved(form, target, Type::B64)?;
            let Some(ast::Operand::Name { name, .. }) = prototype else {
                return Err(form.operands_error("a call through a register needs a prototype"));
            };
            let Name::Prototype(sig) = cx.look_up(name)? else {
                return Err(form.operands_error(format!("'{}' is not a prototype", excerpt(name))));
            };
            (Callee::Indirect { reg, sig: Box::new((*sig).clone()) }, (*sig).clone())
        }
    };
    let args = arguments(cx, form, args, &sig, false)?;
    let rets = arguments(cx, form, rets, &sig, true)?;
    cx.emit(Op::Call { callee, rets, args });
    Ok(())
}

/// Matches the operands of a call with the parameters (or results) of the callee.
fn arguments<'s>(
    cx: &mut Lower<'_, 's>,
    form: &Form<'_, 's>,
    operands: &[ast::Operand<'s>],
    sig: &Signature,
    is_ret: bool,
) -> Result<Vec<CallArg>, ErrorKind> {
    let params: &[Param] = if is_ret { &sig.rets } else { &sig.params };
    let what = if is_ret { "results" } else { "arguments" };
    if operands.len() != params.len() {
        let (want, found) = (params.len(), operands.len());
        return Err(
            form.operands_error(format!("the function has {want} {what}, the call {found}"))
        );
    }
    let mut list = Vec::with_capacity(params.len());
    for (operand, param) in operands.iter().zip(params) {
        list.push(argument(cx, form, operand, param, is_ret)?);
    }
    Ok(list)
}

fn argument<'s>(
    cx: &mut Lower<'_, 's>,
    form: &Form<'_, 's>,
    operand: &ast::Operand<'s>,
    param: &Param,
    is_ret: bool,
) -> Result<CallArg, ErrorKind> {
    match operand {
        ast::Operand::Sink if is_ret => return Ok(CallArg::Unused),
        ast::Operand::Const(value) if !is_ret => {
            return match cx.imm(form, *value, param.ty)? {
                crate::ir::Operand::Imm(bits)
                    if param.size == param.ty.size() && param.size <= 8 =>
                {
                    Ok(CallArg::Imm(bits))
                }
                _ => Err(form.operands_error("a constant does not fit the parameter")),
            };
        }
        ast::Operand::Name { name, suffix: None, addend: 0 } => {
            if let Ok(Name::Var(id)) = cx.look_up(name) {
                if cx.var_space(id) != Space::Param || cx.var_size(id) < param.size {
                    let name = excerpt(name);
                    return Err(form.operands_error(format!(
                        "'{name}' is not a '.param' as large as the parameter"
                    )));
                }
                return Ok(CallArg::Var(id));
            }
        }
        _ => {}
    }
    if is_ret {
        let reg = cx.any_reg(form, operand)?;
        return scalar(form, cx.reg_ty(reg), param).map(|()| CallArg::Reg(reg));
    }
    match cx.src_moved(form, operand, param.ty)? {
        crate::ir::Operand::Reg(reg) => {
            scalar(form, cx.reg_ty(reg), param).map(|()| CallArg::Reg(reg))
        }
        crate::ir::Operand::Imm(bits) => Ok(CallArg::Imm(bits)),
    }
}

/// A register stands for a parameter only if it is exactly as large.
fn scalar(form: &Form<'_, '_>, declared: Type, param: &Param) -> Done {
    if declared != Type::Pred && declared.size() == param.size {
        return Ok(());
    }
    Err(form.operands_error(format!(
        "a register of type {declared} does not fit a parameter of {} bytes",
        param.size
    )))
}
