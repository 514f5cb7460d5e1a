//! The names of a module, and what they stand for.

use std::collections::HashMap;

use crate::ast;
use crate::error::{ErrorKind, excerpt};
use crate::ir::{Entry, FuncId, Function, Global, GlobalId, Linkage, Param, Signature, Symbol};
use crate::types::{Space, Type};

/// Bound on the size of one variable: more than any device has.
const MAX_VARIABLE: u64 = 1 << 40;
/// Bound on the parameters of one function in bytes; PTX allows kernels 32764.
const MAX_PARAMS: u64 = 1 << 16;

/// Names of the module and what has been built so far.
pub(super) struct Context<'s> {
    pub(super) globals: Vec<Global>,
    pub(super) functions: Vec<Function>,
    pub(super) names: HashMap<&'s str, Symbol>,
    /// Bytes of initial contents so far, which bounded text could otherwise inflate without bound.
    pub(super) init_bytes: u64,
}

/// Bytes of a declared variable, arrays and vectors included. An array without size counts as
/// empty.
pub(super) fn size_of(
    variable: &ast::Variable<'_>,
    declarator: &ast::Declarator<'_>,
) -> Result<u64, ErrorKind> {
    let mut size = u64::from(variable.ty.size()) * u64::from(variable.vector);
    for dim in &declarator.dims {
        size = size.saturating_mul(dim.unwrap_or(0));
    }
    if size > MAX_VARIABLE {
        return Err(ErrorKind::Declaration(format!("'{}' is too large", excerpt(declarator.name))));
    }
    Ok(size)
}

/// Alignment of a declared variable in bytes: as written, at least that of its elements.
pub(super) fn align_of(variable: &ast::Variable<'_>) -> u32 {
    let natural = variable.ty.size() * variable.vector;
    variable.align.unwrap_or(1).max(natural)
}

/// Lays parameters out one behind the other.
pub(super) fn lay_out(list: &[ast::Variable<'_>]) -> Result<(Vec<Param>, u32), ErrorKind> {
    let mut params = Vec::with_capacity(list.len());
    let mut end = 0u64;
    for variable in list {
        for declarator in &variable.names {
            let size = size_of(variable, declarator)?;
            let align = align_of(variable);
            let offset = end.next_multiple_of(u64::from(align));
            end = offset + size;
            if end > MAX_PARAMS {
                return Err(ErrorKind::Declaration(
                    "the parameters of a function are too large".into(),
                ));
            }
            params.push(Param {
                name: declarator.name.to_owned(),
                ty: variable.ty,
                size: size as u32,
                align,
                offset: offset as u32,
            });
        }
    }
    Ok((params, end as u32))
}

/// Layout of the parameters and results of a function or prototype.
pub(super) fn signature(
    rets: &[ast::Variable<'_>],
    params: &[ast::Variable<'_>],
) -> Result<Signature, ErrorKind> {
    let (params, params_size) = lay_out(params)?;
    let (rets, rets_size) = lay_out(rets)?;
    Ok(Signature { params, rets, params_size, rets_size })
}

impl<'s> Context<'s> {
    /// Adds a variable, without its initial contents. A second declaration completes an `.extern`
    /// one.
    pub(super) fn declare_global(
        &mut self,
        variable: &ast::Variable<'s>,
        declarator: &ast::Declarator<'s>,
    ) -> Result<GlobalId, ErrorKind> {
        let id = self.new_global(variable, declarator)?;
        match self.names.get(declarator.name).copied() {
            None => {
                self.names.insert(declarator.name, Symbol::Global(id));
                Ok(id)
            }
            Some(Symbol::Global(first)) => {
                let new = self.globals.pop();
                let old = &mut self.globals[first.0 as usize];
                if let Some(new) = new {
                    if old.space != new.space {
                        return Err(ErrorKind::Redefined(excerpt(declarator.name)));
                    }
                    match (old.linkage, new.linkage) {
                        (_, Linkage::Extern) => old.size = old.size.max(new.size),
                        (Linkage::Extern | Linkage::Common | Linkage::Weak, _) => *old = new,
                        _ => return Err(ErrorKind::Redefined(excerpt(declarator.name))),
                    }
                }
                Ok(first)
            }
            Some(Symbol::Func(_)) => Err(ErrorKind::Redefined(excerpt(declarator.name))),
        }
    }

    /// Adds a variable without entering its name.
    pub(super) fn new_global(
        &mut self,
        variable: &ast::Variable<'s>,
        declarator: &ast::Declarator<'s>,
    ) -> Result<GlobalId, ErrorKind> {
        let ast::Storage::Memory(space @ (Space::Global | Space::Const | Space::Shared)) =
            variable.storage
        else {
            return Err(ErrorKind::Declaration(format!(
                "'{}' cannot be declared here",
                excerpt(declarator.name)
            )));
        };
        if declarator.count.is_some() {
            return Err(ErrorKind::Declaration(
                "only registers may be declared as 'name<N>'".into(),
            ));
        }
        if space == Space::Shared && declarator.init.is_some() {
            return Err(ErrorKind::Declaration(
                "a variable in '.shared' cannot have initial contents".into(),
            ));
        }
        self.globals.push(Global {
            name: declarator.name.to_owned(),
            space,
            linkage: variable.linkage,
            managed: variable.managed,
            align: align_of(variable),
            size: size_of(variable, declarator)?,
            init: Vec::new(),
            relocs: Vec::new(),
            shared_offset: 0,
        });
        Ok(GlobalId((self.globals.len() - 1) as u32))
    }

    /// Adds a function without its body. A declaration and a definition of one name are the same
    /// function.
    pub(super) fn declare_function(
        &mut self,
        function: &ast::Function<'s>,
    ) -> Result<FuncId, ErrorKind> {
        let sig = signature(&function.rets, &function.params)?;
        if sig.params.iter().chain(&sig.rets).any(|param| param.ty == Type::Pred) {
            return Err(ErrorKind::Declaration("a parameter cannot be a predicate".into()));
        }
        let directives = &function.directives;
        let entry = function.is_kernel.then_some(Entry {
            max_ntid: directives.max_ntid,
            req_ntid: directives.req_ntid,
            min_ncta_per_sm: directives.min_ncta_per_sm,
            max_nreg: directives.max_nreg,
            req_cluster: directives.req_cluster,
            static_shared: 0,
        });
        let new = Function {
            name: function.name.to_owned(),
            linkage: function.linkage,
            sig,
            entry,
            noreturn: directives.noreturn,
            body: None,
            line: function.line,
        };
        match self.names.get(function.name).copied() {
            None => {
                let id = FuncId(self.functions.len() as u32);
                self.names.insert(function.name, Symbol::Func(id));
                self.functions.push(new);
                Ok(id)
            }
            Some(Symbol::Func(id)) => {
                let old = &mut self.functions[id.0 as usize];
                if old.sig.params_size != new.sig.params_size
                    || old.sig.rets_size != new.sig.rets_size
                    || old.entry.is_some() != new.entry.is_some()
                {
                    let message =
                        format!("the declarations of '{}' differ", excerpt(function.name));
                    return Err(ErrorKind::Declaration(message));
                }
                if function.body.is_some() {
                    *old = new;
                }
                Ok(id)
            }
            Some(Symbol::Global(_)) => Err(ErrorKind::Redefined(excerpt(function.name))),
        }
    }
}
