//! Lowers a function body, statement by statement.

use std::rc::Rc;

use super::context::{Context, signature};
use super::form::Form;
use super::lower::{Lower, Name};
use super::table;
use crate::ast::{self, Stmt};
use crate::error::{ErrorKind, excerpt};
use crate::ir::{Body, Guard, Signature};
use crate::types::Type;

type Failure = (ErrorKind, u32);

/// Lowers the body of `function`.
pub(super) fn lower<'s>(
    cx: &mut Context<'s>,
    function: &ast::Function<'s>,
) -> Result<Body, Failure> {
    let mut lower = Lower::new(cx, function.line);
    lower.params(function).map_err(|kind| (kind, function.line))?;
    if let Some(stmts) = &function.body {
        lower.scope(stmts)?;
    }
    lower.store_results();
    Ok(lower.finish())
}

impl<'s> Lower<'_, 's> {
    fn scope(&mut self, stmts: &[Stmt<'s>]) -> Result<(), Failure> {
        // Labels may be used before they stand.
        for stmt in stmts {
            if let Stmt::Label { line, name } = stmt {
                self.declare_label(name).map_err(|kind| (kind, *line))?;
            }
        }
        for stmt in stmts {
            match stmt {
                Stmt::Label { line, name } => {
                    self.line = *line;
                    self.place_label(name);
                }
                Stmt::Scope(inner) => {
                    self.enter_scope();
                    self.scope(inner)?;
                    self.leave_scope();
                }
                Stmt::Variable(variable) => {
                    self.variable(variable).map_err(|kind| (kind, variable.line))?
                }
                Stmt::Inst(inst) => self.inst(inst).map_err(|kind| (kind, inst.line))?,
                Stmt::Prototype { line, name, rets, params } => {
                    let sig = signature(rets, params).map_err(|kind| (kind, *line))?;
                    self.define(name, Name::Prototype(Rc::new(sig)))
                        .map_err(|kind| (kind, *line))?;
                }
                Stmt::BranchTargets { line, name, labels } => {
                    let targets: Result<Rc<[u32]>, ErrorKind> =
                        labels.iter().map(|label| self.label(label)).collect();
                    let targets = targets.map_err(|kind| (kind, *line))?;
                    self.define(name, Name::BranchTargets(targets))
                        .map_err(|kind| (kind, *line))?;
                }
                Stmt::CallTargets { line, name, functions } => {
                    let sig = self.common_signature(functions).map_err(|kind| (kind, *line))?;
                    self.define(name, Name::Prototype(Rc::new(sig)))
                        .map_err(|kind| (kind, *line))?;
                }
            }
        }
        Ok(())
    }

    /// The signature that all functions of a `.calltargets` list share.
    fn common_signature(&mut self, functions: &[&'s str]) -> Result<Signature, ErrorKind> {
        let mut common: Option<Signature> = None;
        for name in functions {
            let Name::Func(id) = self.look_up(name)? else {
                return Err(ErrorKind::Undefined(excerpt(name)));
            };
            let sig = &self.cx.functions[id.0 as usize].sig;
            let same = common.as_ref().is_none_or(|common| {
                common.params_size == sig.params_size && common.rets_size == sig.rets_size
            });
            if !same {
                return Err(ErrorKind::Declaration(
                    "the functions of '.calltargets' differ in their parameters".into(),
                ));
            }
            common.get_or_insert_with(|| sig.clone());
        }
        common.ok_or_else(|| ErrorKind::Declaration("'.calltargets' names no function".into()))
    }

    fn inst(&mut self, inst: &ast::Inst<'s>) -> Result<(), ErrorKind> {
        self.line = inst.line;
        self.guard = None;
        if let Some((name, negated)) = inst.guard {
            let reg = match self.look_up(name)? {
                Name::Reg(reg) if self.regs[reg.0 as usize] == Type::Pred => reg,
                _ => {
                    return Err(ErrorKind::Declaration(format!(
                        "'{}' is not a predicate register",
                        excerpt(name)
                    )));
                }
            };
            self.guard = Some(Guard { reg, negated });
        }
        let rule = table::rule(inst)?;
        rule(self, &mut Form::new(inst))?;
        self.guard = None;
        Ok(())
    }
}
