//! What a function declares: parameters, registers, variables.

use super::{Lower, Name, Range};
use crate::ast::{self, Storage};
use crate::error::{ErrorKind, excerpt};
use crate::ir::{Address, Base, MemOrder, Op, Scope, Var, VarId};
use crate::types::{Space, Type};
use crate::verify::context::{align_of, size_of};

/// Bound on the frame of one activation in bytes (CUDA allows 512 KiB of local memory for each
/// thread).
const MAX_FRAME: u64 = 1 << 24;

impl<'s> Lower<'_, 's> {
    pub(in crate::verify) fn params(
        &mut self,
        function: &ast::Function<'s>,
    ) -> Result<(), ErrorKind> {
        let both = [(&function.params, false), (&function.rets, true)];
        for (list, is_ret) in both {
            let names = list
                .iter()
                .flat_map(|variable| variable.names.iter().map(move |name| (variable, name)));
            for (index, (variable, declarator)) in names.enumerate() {
                let index = index as u32;
                let base = if is_ret { Base::Ret(index) } else { Base::Param(index) };
                let name = match variable.storage {
                    Storage::Reg => {
                        let reg = self.new_reg(variable.ty);
                        if is_ret {
                            self.ret_regs.push((index, reg, variable.ty));
                        } else {
                            self.emit(Op::Ld {
                                space: Space::Param,
                                ty: variable.ty,
                                order: MemOrder::Weak,
                                scope: Scope::Cta,
                                dsts: vec![Some(reg)],
                                addr: Address { base, offset: 0 },
                            });
                        }
                        Name::Reg(reg)
                    }
                    _ if is_ret => Name::Ret(index),
                    _ => Name::Param(index),
                };
                if declarator.name != "_" {
                    self.define(declarator.name, name)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn new_name(&mut self, ty: Type, vector: u32) -> Name {
        if vector == 1 {
            return Name::Reg(self.new_reg(ty));
        }
        Name::VectorReg((0..vector).map(|_| self.new_reg(ty)).collect())
    }

    pub(in crate::verify) fn variable(
        &mut self,
        variable: &ast::Variable<'s>,
    ) -> Result<(), ErrorKind> {
        for declarator in &variable.names {
            match variable.storage {
                Storage::Reg => self.register(variable, declarator)?,
                Storage::Memory(space @ (Space::Local | Space::Param)) => {
                    let size = size_of(variable, declarator)?;
                    let align = align_of(variable);
                    let offset = self.frame_size.next_multiple_of(u64::from(align));
                    self.frame_size = offset.saturating_add(size);
                    if self.frame_size > MAX_FRAME {
                        return Err(ErrorKind::Declaration(
                            "the local variables are too large".into(),
                        ));
                    }
                    self.frame_align = self.frame_align.max(align);
                    let id = VarId(self.vars.len() as u32);
                    self.vars.push(Var {
                        name: declarator.name.to_owned(),
                        space,
                        size: size as u32,
                        align,
                        offset: offset as u32,
                    });
                    self.define(declarator.name, Name::Var(id))?;
                }
                Storage::Memory(_) => {
                    let id = self.cx.new_global(variable, declarator)?;
                    self.cx.initialise(id, variable, declarator)?;
                    self.define(declarator.name, Name::Global(id))?;
                }
            }
        }
        Ok(())
    }

    fn register(
        &mut self,
        variable: &ast::Variable<'s>,
        declarator: &ast::Declarator<'s>,
    ) -> Result<(), ErrorKind> {
        if !declarator.dims.is_empty() || declarator.init.is_some() {
            let name = excerpt(declarator.name);
            return Err(ErrorKind::Declaration(format!(
                "register '{name}' cannot be an array or have a value"
            )));
        }
        match declarator.count {
            None => {
                let name = self.new_name(variable.ty, variable.vector);
                self.define(declarator.name, name)
            }
            Some(count) => {
                let Some(scope) = self.scopes.last_mut() else { return Ok(()) };
                let prefix = declarator.name;
                if scope.ranges.iter().any(|range| range.prefix == prefix) {
                    return Err(ErrorKind::Redefined(excerpt(prefix)));
                }
                scope.ranges.push(Range {
                    prefix,
                    count,
                    ty: variable.ty,
                    vector: variable.vector,
                });
                Ok(())
            }
        }
    }
}
