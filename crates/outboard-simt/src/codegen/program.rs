//! A whole program: symbols of its modules resolved, variables placed and initialised, functions
//! compiled.

use crate::codegen::analysis::register_pressure;
use crate::codegen::callgraph::{CallGraph, all_facts, all_steps};
use crate::codegen::effort;
use crate::codegen::func::{FuncGen, Gen, Known, Refusal, function_signature};
use crate::codegen::link::{Variables, initialise, resolve_functions, shared_extents};
use crate::exec::pool::Core;
use crate::program::{Code, Kernel, KernelInfo, LoadError, Machine, ParamInfo, Program};
use cranelift_codegen::Context;
use cranelift_codegen::isa::{OwnedTargetIsa, TargetFrontendConfig};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId as ClifFuncId, Module as _, default_libcall_names};
use outboard_ptx::Space;
use outboard_ptx::ir::{Callee, FuncId, Function, GlobalId, Module, Signature};
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Function addresses in PTX are handles: this, plus the index in the program's table shifted left.
/// No memory is ever there.
pub(crate) const HANDLE_BASE: u64 = 0x00f0_0000_0000_0000;
pub(crate) const HANDLE_SHIFT: u32 = 4;

/// What a direct call reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A function of the program, by index.
    Compiled(usize),
    /// A runtime function, by address.
    Runtime(usize),
}

/// Where a variable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Memory {
        addr: u64,
        size: u64,
    },
    /// In the shared memory of a block.
    Shared {
        offset: u32,
        size: u64,
    },
    /// The dynamic shared memory of a block.
    Dynamic,
}

/// Where each variable of each module is, as far as it is defined.
pub(crate) type Places = Vec<Vec<Option<Place>>>;

/// A function with a body.
pub(crate) struct Compiled {
    pub(crate) clif: ClifFuncId,
    pub(crate) module: usize,
    pub(crate) id: FuncId,
}

/// What the code generator of a function needs to know about the program.
pub(crate) struct Unit {
    pub(crate) functions: Vec<Compiled>,
    signatures: Vec<Vec<(String, Signature)>>,
    targets: Vec<Vec<Option<Target>>>,
    pub(crate) places: Places,
    /// Names of the variables, for messages.
    variables: Vec<Vec<String>>,
    runtime: Vec<usize>,
    /// Address of the table of code pointers for indirect calls, and its length.
    pub(crate) table: u64,
    pub(crate) functions_in_table: usize,
    /// Ranges of `.const` variables.
    pub(crate) constants: Vec<(u64, u64)>,
    pub(crate) arena_span: u64,
    pub(crate) has_fma: bool,
    pub(crate) frontend: TargetFrontendConfig,
}

impl Unit {
    pub(crate) fn target(&self, module: usize, id: FuncId) -> Gen<Target> {
        self.targets[module][id.0 as usize]
            .ok_or_else(|| Refusal::Undefined(self.signatures[module][id.0 as usize].0.clone()))
    }

    pub(crate) fn place(&self, module: usize, id: GlobalId) -> Gen<Place> {
        self.places[module][id.0 as usize]
            .ok_or_else(|| Refusal::Undefined(self.variables[module][id.0 as usize].clone()))
    }

    pub(crate) fn signature<'s>(
        &'s self,
        module: usize,
        callee: &'s Callee,
    ) -> Option<&'s Signature> {
        match callee {
            Callee::Direct(id) => self.signatures[module].get(id.0 as usize).map(|(_, sig)| sig),
            Callee::Indirect { sig, .. } => Some(sig),
        }
    }

    /// The value that PTX code sees as the address of a function.
    pub(crate) fn handle(&self, module: usize, id: FuncId) -> Gen<u64> {
        let index = match self.target(module, id)? {
            Target::Compiled(index) => index,
            Target::Runtime(address) => {
                self.functions.len() + self.runtime.iter().position(|&a| a == address).unwrap_or(0)
            }
        };
        Ok(HANDLE_BASE + ((index as u64) << HANDLE_SHIFT))
    }
}

/// Instruction set of this machine with all it offers.
pub(crate) fn host_isa() -> Result<OwnedTargetIsa, String> {
    let mut flags = settings::builder();
    let verify = if cfg!(debug_assertions) { "true" } else { "false" };
    for (name, value) in [
        ("opt_level", "speed"),
        ("is_pic", "false"),
        ("enable_verifier", verify),
        ("enable_probestack", "false"),
        ("unwind_info", "false"),
    ] {
        flags.set(name, value).map_err(|e| e.to_string())?;
    }
    let builder = cranelift_native::builder().map_err(str::to_owned)?;
    builder.finish(settings::Flags::new(flags)).map_err(|e| e.to_string())
}

fn has_fma(isa: &OwnedTargetIsa) -> bool {
    // Elsewhere than on x86 the instruction is part of the base set.
    !cfg!(target_arch = "x86_64")
        || isa.isa_flags().iter().any(|flag| flag.name == "has_fma" && flag.as_bool() == Some(true))
}

/// Compiles modules that form one program.
pub(crate) fn load(
    core: &Arc<Core>,
    isa: &OwnedTargetIsa,
    modules: &[&Module],
    symbols: &[(String, u64)],
    time: Duration,
) -> Result<Arc<Program>, LoadError> {
    let begun = Instant::now();
    let mut machine = JITModule::new(JITBuilder::with_isa(isa.clone(), default_libcall_names()));
    let internal = |function: &str, e: &dyn std::fmt::Display| LoadError::Codegen {
        function: function.into(),
        message: e.to_string(),
    };
    let signature = function_signature(isa.default_call_conv());
    let mut functions = Vec::new();
    for (module, ir) in modules.iter().enumerate() {
        for (id, function) in ir.functions.iter().enumerate().filter(|(_, f)| f.body.is_some()) {
            if let Some(body) = &function.body {
                effort::check(function, body)?;
            }
            let clif = machine
                .declare_anonymous_function(&signature)
                .map_err(|e| internal(&function.name, &e))?;
            functions.push(Compiled { clif, module, id: FuncId(id as u32) });
        }
    }
    let targets = resolve_functions(modules, &functions)?;
    let mut variables = Variables::new(core);
    let (places, globals) = variables.place(modules, symbols)?;
    let mut runtime: Vec<usize> = targets
        .iter()
        .flatten()
        .filter_map(|target| match target {
            Some(Target::Runtime(address)) => Some(*address),
            _ => None,
        })
        .collect();
    runtime.sort_unstable();
    runtime.dedup();
    let mut table = vec![0u64; functions.len() + runtime.len()].into_boxed_slice();
    let constants = modules
        .iter()
        .zip(&places)
        .flat_map(|(ir, places)| ir.globals.iter().zip(places))
        .filter_map(|(global, place)| match place {
            Some(Place::Memory { addr, size }) if global.space == Space::Const => {
                Some((*addr, *size))
            }
            _ => None,
        })
        .collect();
    let unit = Unit {
        signatures: modules
            .iter()
            .map(|ir| ir.functions.iter().map(|f| (f.name.clone(), f.sig.clone())).collect())
            .collect(),
        variables: modules
            .iter()
            .map(|ir| ir.globals.iter().map(|g| g.name.clone()).collect())
            .collect(),
        functions_in_table: table.len(),
        table: table.as_ptr() as u64,
        functions,
        targets,
        places,
        runtime,
        constants,
        arena_span: core.memory.arena_span(),
        has_fma: has_fma(isa),
        frontend: isa.frontend_config(),
    };
    initialise(&unit, modules);

    let facts = all_facts(&unit, modules);
    let steps = all_steps(&unit, modules, &facts);
    let mut builder_context = FunctionBuilderContext::new();
    let mut context = machine.make_context();
    let mut frames = Vec::with_capacity(unit.functions.len());
    for (index, compiled) in unit.functions.iter().enumerate() {
        let function = function_of(modules, compiled);
        let Some(body) = &function.body else { continue };
        if begun.elapsed() > time {
            return Err(LoadError::TooLong {
                limit: time,
                compiled: index,
                functions: unit.functions.len(),
            });
        }
        context.func.signature = signature.clone();
        let known = Known { facts: &facts[index], steps: &steps[index] };
        let builder = FunctionBuilder::new(&mut context.func, &mut builder_context);
        FuncGen::generate(builder, &unit, compiled.module, index, function, body, known)?;
        dump(&function.name, &mut context, isa);
        machine
            .define_function(compiled.clif, &mut context)
            .map_err(|e| internal(&function.name, &format!("{e:?}")))?;
        let frame = context
            .compiled_code()
            .and_then(|code| code.buffer.frame_layout())
            .map_or(0, |layout| u64::from(layout.frame_to_fp_offset));
        frames.push(frame + 32);
        machine.clear_context(&mut context);
    }
    machine.finalize_definitions().map_err(|e| internal("", &e))?;
    let addresses: Vec<u64> =
        unit.functions.iter().map(|f| machine.get_finalized_function(f.clif) as u64).collect();
    let code_pointers = addresses.iter().copied().chain(unit.runtime.iter().map(|&a| a as u64));
    table.iter_mut().zip(code_pointers).for_each(|(slot, address)| *slot = address);

    let graph = CallGraph::new(&unit, modules, facts, &steps, frames);
    let code = Arc::new(Code {
        functions: unit.functions.iter().map(|f| function_of(modules, f).name.clone()).collect(),
        variables: variables.keep(),
        core: core.clone(),
        _machine: Machine(ManuallyDrop::new(machine)),
        _table: table,
    });
    let const_bytes = unit.constants.iter().map(|&(_, size)| size).sum::<u64>() as u32;
    let shared_total = shared_extents(modules);
    let mut kernels = BTreeMap::new();
    for (index, compiled) in unit.functions.iter().enumerate() {
        let function = function_of(modules, compiled);
        let (Some(entry), Some(body)) = (&function.entry, &function.body) else { continue };
        let ir = modules[compiled.module];
        let kernel_code = graph.kernel(index, addresses[index]);
        let volume = |dims: [u32; 3]| dims.iter().product::<u32>().min(1024);
        let info = KernelInfo {
            shared_bytes: if modules.len() == 1 { entry.static_shared } else { shared_total },
            local_bytes: kernel_code.local_bytes as u32,
            const_bytes,
            registers: register_pressure(body).clamp(16, 255),
            max_threads: entry.req_ntid.or(entry.max_ntid).map_or(1024, volume),
            required_block: entry.req_ntid,
            required_cluster: entry.req_cluster,
            target_sm: ir.target_sm,
            params: function
                .sig
                .params
                .iter()
                .map(|p| ParamInfo { offset: p.offset, size: p.size, align: p.align })
                .collect(),
            params_size: function.sig.params_size,
        };
        let kernel = Arc::new(Kernel {
            name: function.name.clone(),
            info,
            code: kernel_code,
            program: code.clone(),
        });
        if kernels.insert(function.name.clone(), kernel).is_some() {
            return Err(LoadError::Duplicate(function.name.clone()));
        }
    }
    let managed = modules.iter().flat_map(|ir| &ir.globals).filter(|global| global.managed);
    let managed = managed.map(|global| global.name.clone()).collect();
    Ok(Arc::new(Program { kernels, globals, managed, _code: code }))
}

/// For people who work on the code generator: `OUTBOARD_SIMT_DUMP` names a directory for
/// intermediate and machine code.
fn dump(name: &str, context: &mut Context, isa: &OwnedTargetIsa) {
    let Some(directory) = std::env::var_os("OUTBOARD_SIMT_DUMP") else { return };
    let directory = std::path::PathBuf::from(directory);
    let short: String = name.chars().take(80).collect();
    let _ =
        std::fs::write(directory.join(format!("{short}.clif")), context.func.display().to_string());
    let mut copy = Context::for_function(context.func.clone());
    copy.set_disasm(true);
    if let Ok(code) = copy.compile(&**isa, &mut Default::default()) {
        let _ = std::fs::write(
            directory.join(format!("{short}.asm")),
            code.vcode.clone().unwrap_or_default(),
        );
    }
}

/// The function that was compiled.
pub(crate) fn function_of<'m>(modules: &[&'m Module], compiled: &Compiled) -> &'m Function {
    &modules[compiled.module].functions[compiled.id.0 as usize]
}
