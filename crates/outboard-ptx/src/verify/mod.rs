//! From the tree to the verified program: names resolved, instructions checked and lowered.

mod bits;
mod body;
mod compare;
mod context;
mod control;
mod data;
mod float;
mod form;
mod init;
mod int;
mod layout;
mod lower;
mod memory;
mod operand;
mod special;
mod sync;
mod table;
mod texture;
mod video;
mod warp;

use std::collections::HashMap;

use crate::ast;
use crate::error::{Error, ErrorKind, FunctionName, excerpt};
use crate::ir::{FuncId, Module, Symbol};
use context::Context;

pub(crate) use table::is_refused;

/// Checks `tree` and lowers it.
pub(crate) fn verify(tree: &ast::Module<'_>) -> Result<Module, Error> {
    let mut cx = Context {
        globals: Vec::new(),
        functions: Vec::new(),
        names: HashMap::new(),
        init_bytes: 0,
    };
    // First all names, so that order does not matter; initialisers and bodies may then refer to
    // any.
    let mut inits = Vec::new();
    let mut bodies: HashMap<FuncId, &ast::Function<'_>> = HashMap::new();
    for item in &tree.items {
        match item {
            ast::Item::Variable(variable) => {
                for declarator in &variable.names {
                    let id = cx
                        .declare_global(variable, declarator)
                        .map_err(|kind| kind.at(variable.line))?;
                    inits.push((id, variable, declarator));
                }
            }
            ast::Item::Function(function) => {
                let id = cx
                    .declare_function(function)
                    .map_err(|kind| in_function(kind, function, function.line))?;
                if function.body.is_some() && bodies.insert(id, function).is_some() {
                    return Err(ErrorKind::Redefined(excerpt(function.name)).at(function.line));
                }
            }
            ast::Item::Alias { .. } => {}
        }
    }
    for item in &tree.items {
        if let ast::Item::Alias { line, name, target } = item {
            let symbol = cx.names.get(target).copied();
            let Some(symbol @ Symbol::Func(_)) = symbol else {
                return Err(ErrorKind::Undefined(excerpt(target)).at(*line));
            };
            cx.names.insert(name, symbol);
        }
    }
    for (id, variable, declarator) in inits {
        cx.initialise(id, variable, declarator).map_err(|kind| kind.at(variable.line))?;
    }
    for index in 0..cx.functions.len() {
        let id = FuncId(index as u32);
        let Some(function) = bodies.get(&id) else { continue };
        let body = body::lower(&mut cx, function)
            .map_err(|(kind, line)| in_function(kind, function, line))?;
        cx.functions[index].body = Some(body);
    }
    layout::place_shared(&mut cx.globals, &mut cx.functions);
    Ok(Module {
        version: tree.version,
        target_sm: tree.target_sm,
        globals: cx.globals,
        functions: cx.functions,
    })
}

fn in_function(kind: ErrorKind, function: &ast::Function<'_>, line: u32) -> Error {
    let name = FunctionName { name: excerpt(function.name), is_kernel: function.is_kernel };
    Error { line, function: Some(name), kind }
}
